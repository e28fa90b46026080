"""Recorded runs of several agents, played again through the SDK: new ids, the same spans, ending
now.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from tests.support.recorded_traces import FOLDER, attribute_values
from tests.support.waiting import wait_until

MINUTE_NS = 60_000_000_000
FILES = (  # eight agents in six conventions; all but the fourth have a call that failed
    "pydantic_ai_v5.json",
    "langchain_openinference.json",
    "openai_agents_handoff_openinference.json",
    "crewai_openinference.json",
    "strands_default.json",
    "google_adk_default.json",
    "ag2_agent_as_tool.json",
    "smolagents_openinference.json",
)


@dataclass(frozen=True)
class PlayedRun:
    """A trace that was sent: the file it was recorded in, its id, the ids of its root and all
    spans, in hex.
    """

    file: str
    trace_id: str
    root_id: str
    span_ids: frozenset[str]


def exporting(endpoint: str, headers: dict[str, str] | None = None) -> SpanProcessor:
    """The SDK's own way to an OTLP endpoint; patient, since a product on a busy machine takes half
    a minute for a batch.
    """
    return BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, headers=headers, timeout=120))


def send(
    spans: Sequence[ReadableSpan], endpoint: str, headers: dict[str, str] | None = None
) -> None:
    """Export ended spans with the exporter of the SDK."""
    exporter = OTLPSpanExporter(endpoint=endpoint, headers=headers, timeout=120)
    assert exporter.export(spans) is SpanExportResult.SUCCESS
    exporter.shutdown()


def play(
    processors: Sequence[SpanProcessor],
    *,
    project: str = "",
    files: Sequence[str] = FILES,
    times: int = 1,
    apart_ns: int = MINUTE_NS,
) -> list[PlayedRun]:
    """Each file so many times, `apart_ns` between the ends of two runs, the last one ending now.

    Each file has a provider of its own, as each agent is a service of its own. Phoenix files the
    runs under `project`.
    """
    count = times * len(files)
    runs = []
    for number in range(count):
        end_ns = time.time_ns() - (count - 1 - number) * apart_ns
        runs.append(_play_file(files[number % len(files)], processors, project, end_ns))
    for processor in processors:
        flushed(processor.force_flush)
    return runs


def flushed(flush: Callable[[int], bool]) -> None:
    """Again after an attempt that began before the spans arrived: it fails where a product does not
    wait for them.
    """
    wait_until(lambda: flush(120_000), interval_s=0.2)


def _play_file(
    file: str, processors: Sequence[SpanProcessor], project: str, end_ns: int
) -> PlayedRun:
    document = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    recorded = {
        span["spanId"]: (span, scope, resource) for span, scope, resource in _recorded(document)
    }
    shift = end_ns - max(int(span["endTimeUnixNano"]) for span, _, _ in recorded.values())
    made: dict[str, Span] = {}
    providers: dict[str, TracerProvider] = {}
    for key in sorted(recorded, key=lambda key: _depth(key, recorded)):
        span, scope, resource = recorded[key]
        provider = providers.setdefault(str(resource), _provider(resource, processors, project))
        parent = made.get(span.get("parentSpanId", ""))
        made[key] = provider.get_tracer(scope.get("name", ""), scope.get("version")).start_span(
            span["name"],
            context=set_span_in_context(parent, Context()) if parent else Context(),
            kind=SpanKind(max(span.get("kind", 1) - 1, 0)),
            attributes=attribute_values(span.get("attributes", ())),
            start_time=int(span["startTimeUnixNano"]) + shift,
        )
    for key, (span, _, _) in sorted(
        recorded.items(), key=lambda each: int(each[1][0]["endTimeUnixNano"])
    ):
        _end(made[key], span, shift)
    (root,) = (made[key].get_span_context() for key in recorded if _depth(key, recorded) == 0)
    ids = frozenset(format(span.get_span_context().span_id, "016x") for span in made.values())
    return PlayedRun(file, format(root.trace_id, "032x"), format(root.span_id, "016x"), ids)


def _recorded(
    document: dict[str, Any],
) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
    for resource in document["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                yield span, scope.get("scope", {}), resource.get("resource", {})


def _depth(key: str, recorded: dict[str, Any]) -> int:
    parent = recorded[key][0].get("parentSpanId", "")
    return 1 + _depth(parent, recorded) if parent in recorded else 0


def _provider(
    resource: dict[str, Any], processors: Sequence[SpanProcessor], project: str
) -> TracerProvider:
    attributes = attribute_values(resource.get("attributes", ())) | (
        {"openinference.project.name": project} if project else {}
    )
    provider = TracerProvider(resource=Resource(attributes), shutdown_on_exit=False)
    for processor in processors:
        provider.add_span_processor(processor)
    return provider


def _end(span: Span, recorded: dict[str, Any], shift: int) -> None:
    for event in recorded.get("events", ()):
        values = attribute_values(event.get("attributes", ()))
        span.add_event(event["name"], values, timestamp=int(event["timeUnixNano"]) + shift)
    status = recorded.get("status", {})
    if code := status.get("code", 0):
        span.set_status(
            Status(
                StatusCode(code), status.get("message") if code == StatusCode.ERROR.value else None
            )
        )
    span.end(end_time=int(recorded["endTimeUnixNano"]) + shift)
