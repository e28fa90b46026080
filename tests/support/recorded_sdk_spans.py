"""The recorded traces as ended spans of the SDK, for tests that send them with its own
exporters.
"""

from __future__ import annotations

import json
from typing import Any

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from tests.support.recorded_traces import FILES, FOLDER, attribute_values

__all__ = ["recorded_spans", "whole_traces"]


def whole_traces() -> list[list[ReadableSpan]]:
    """Every recorded trace with one root and all parents, so that nothing has to be waited for."""
    traces: dict[int, list[ReadableSpan]] = {}
    for file in FILES:
        for span in recorded_spans(file):
            traces.setdefault(span.get_span_context().trace_id, []).append(span)
    return [spans for spans in traces.values() if _whole(spans)]


def _whole(spans: list[ReadableSpan]) -> bool:
    ids = {span.get_span_context().span_id for span in spans}
    parents = [span.parent.span_id if span.parent else None for span in spans]
    return parents.count(None) == 1 and ids >= {each for each in parents if each is not None}


def recorded_spans(file: str) -> list[ReadableSpan]:
    """The spans of one file."""
    document = json.loads((FOLDER / file).read_text())
    found = []
    for group in document["resourceSpans"]:
        resource = Resource(attribute_values(group.get("resource", {}).get("attributes", ())))
        for scope in group["scopeSpans"]:
            named = scope.get("scope", {})
            origin = InstrumentationScope(named.get("name", ""), named.get("version"))
            found += [_span(span, resource, origin) for span in scope["spans"]]
    return found


def _span(span: dict[str, Any], resource: Resource, origin: InstrumentationScope) -> ReadableSpan:
    parent = span.get("parentSpanId")
    status = span.get("status", {})
    code = StatusCode(status.get("code", 0))
    return ReadableSpan(
        span["name"],
        context=_context(span["traceId"], span["spanId"]),
        parent=_context(span["traceId"], parent) if parent else None,
        resource=resource,
        attributes=attribute_values(span.get("attributes", ())),
        events=[
            Event(
                each["name"],
                attribute_values(each.get("attributes", ())),
                int(each["timeUnixNano"]),
            )
            for each in span.get("events", ())
        ],
        kind=SpanKind(max(span.get("kind", 1) - 1, 0)),
        status=Status(code, status.get("message") if code is StatusCode.ERROR else None),
        start_time=int(span["startTimeUnixNano"]),
        end_time=int(span["endTimeUnixNano"]),
        instrumentation_scope=origin,
    )


def _context(trace_id: str, span_id: str) -> SpanContext:
    return SpanContext(int(trace_id, 16), int(span_id, 16), False, TraceFlags(1))
