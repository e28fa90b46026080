"""Recorded OTLP/JSON files as closed traces, for tests of the core that must not need a source."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_eval.interfaces import ClosedTrace, Frame, LogFrame, SpanEvent
from otel_eval.model import Completeness
from tests.support.made_spans import FakeResourceScope, FakeSpan

FOLDER = Path(__file__).parents[1] / "traces"
# what really happened in each recorded trace
TRUTH: list[dict[str, Any]] = json.loads((FOLDER / "truth.json").read_text())
FILES = sorted(path.name for path in FOLDER.glob("*.json") if path.name != "truth.json")
# parameters of a costly test: each sixth file; the others in the slow set
SIXTH_OF_FILES = [
    pytest.param(name, marks=[pytest.mark.slow] if number % 6 else [])
    for number, name in enumerate(FILES)
]


def traces(file: str) -> list[ClosedTrace]:
    """The traces of one file, with the log records that belong to their spans."""
    document = json.loads((FOLDER / file).read_text())
    frames: dict[str, dict[bytes, Frame]] = {}
    for trace_id, span_id, frame in _frames(document):
        frames.setdefault(trace_id, {})[span_id] = frame
    logs: dict[str, dict[bytes, tuple[LogFrame, ...]]] = {}
    for trace_id, span_id, event in _events(document):
        held = logs.setdefault(trace_id, {})
        held[span_id] = (*held.get(span_id, ()), (event, _LOGS))
    return [
        ClosedTrace(bytes.fromhex(each), spans, Completeness.COMPLETE, logs.get(each, {}))
        for each, spans in frames.items()
    ]


class _Logs:
    """Log records that are read already."""

    def event(self, payload: SpanEvent) -> SpanEvent:
        return payload


_LOGS = _Logs()


def _events(document: dict[str, Any]) -> Iterator[tuple[str, bytes, SpanEvent]]:
    for resource in document.get("resourceLogs", ()):
        for scope in resource["scopeLogs"]:
            for record in scope["logRecords"]:
                attributes = attribute_values(record.get("attributes", ()))
                name = record.get("eventName", "") or attributes.get("event.name", "")
                body = _value(record["body"]) if "body" in record else None
                yield (
                    record["traceId"],
                    bytes.fromhex(record["spanId"]),
                    SpanEvent(name, attributes, body),
                )


def _frames(document: dict[str, Any]) -> Iterator[tuple[str, bytes, Frame]]:
    for resource in document["resourceSpans"]:
        attributes = attribute_values(resource.get("resource", {}).get("attributes", ()))
        for scope in resource["scopeSpans"]:
            resource_scope = FakeResourceScope(
                attributes.get("service.name", ""),
                scope.get("scope", {}).get("name", ""),
                attributes,
            )
            for span in scope["spans"]:
                parent = bytes.fromhex(span.get("parentSpanId", ""))
                yield (
                    span["traceId"],
                    bytes.fromhex(span["spanId"]),
                    (parent, _span(span), resource_scope),
                )


def _span(span: dict[str, Any]) -> FakeSpan:
    flags = span.get("flags", 0)
    return FakeSpan(
        span["spanId"],
        span.get("parentSpanId", ""),
        span["name"],
        start_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        kind=span.get("kind", 0),
        status=span.get("status", {}).get("code", 0),
        message=span.get("status", {}).get("message", ""),
        remote=bool(flags & 0x200) if flags & 0x100 else None,
        attributes=attribute_values(span.get("attributes", ())),
        dropped=span.get("droppedAttributesCount", 0),
        events=[
            SpanEvent(event["name"], attribute_values(event.get("attributes", ())))
            for event in span.get("events", ())
        ],
    )


def attribute_values(pairs: Any) -> dict[str, Any]:
    """A list of OTLP/JSON attributes as a mapping of Python values."""
    return {pair["key"]: _value(pair["value"]) for pair in pairs}


def _value(value: dict[str, Any]) -> Any:
    kind, held = next(iter(value.items()), ("", None))
    match kind:
        case "intValue":
            return int(held)
        case "arrayValue":
            return [_value(each) for each in held.get("values", ())]
        case "kvlistValue":
            return attribute_values(held.get("values", ()))
        case "bytesValue":
            return base64.b64encode(base64.b64decode(held)).decode()
    return held
