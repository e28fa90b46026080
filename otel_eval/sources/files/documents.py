"""JSON documents of traces, told apart by their keys: OTLP, Tempo and Jaeger.

Each group of spans is read by itself, so that a broken one does not cost the others. Tempo, and protobuf's own JSON printer,
differ from OTLP/JSON in two ways: ids are base64 (by their length: 24 or 12 characters, 22 or 11 without padding), and scopes may
have their older name.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.otlp import SpanBatch, read_document
from otel_eval.sources.files.binary import Say, placed
from otel_eval.sources.files.jaeger import jaeger_groups

__all__ = ["GROUPS", "MEMBERS", "SCOPES", "frame_document", "frame_group", "frame_jaeger", "hex_of", "with_hex_ids"]

_IDS: Final = ("traceId", "spanId", "parentSpanId", "trace_id", "span_id", "parent_span_id")
_BASE64_LENGTHS: Final = frozenset({24, 22, 12, 11})
SCOPES: Final = ("scopeSpans", "scope_spans", "scopeLogs", "scope_logs", "instrumentationLibrarySpans")
MEMBERS: Final = ("spans", "logRecords", "log_records")


def with_hex_ids(group: Any) -> Any:
    """The group of spans or logs as OTLP/JSON would have it. What is not understood is left for others to refuse."""
    if not isinstance(group, dict):
        return group
    changed = dict(group)
    for key in SCOPES:
        if isinstance(group.get(key), list):
            changed[key] = [_scope(scope) for scope in group[key]]
    older = changed.pop("instrumentationLibrarySpans", None)
    if isinstance(older, list) and not changed.get("scopeSpans"):
        changed["scopeSpans"] = older
    return changed


def _scope(scope: Any) -> Any:
    if not isinstance(scope, dict):
        return scope
    changed = dict(scope)
    if "instrumentationLibrary" in changed and "scope" not in changed:
        changed["scope"] = changed["instrumentationLibrary"]
    for key in MEMBERS:
        if isinstance(scope.get(key), list):
            changed[key] = [_member(member) for member in scope[key]]
    return changed


def _member(member: Any) -> Any:
    if not isinstance(member, dict):
        return member
    changed = {key: hex_of(member[key]) for key in _IDS if key in member}
    if isinstance(member.get("links"), list):
        changed["links"] = [_member(link) for link in member["links"]]
    return member | changed


def hex_of(value: Any) -> Any:
    """An id in hexadecimal; what is not base64 of an id stays as it is."""
    if not isinstance(value, str) or len(value) not in _BASE64_LENGTHS:
        return value
    try:
        return b64decode(value + "=" * (-len(value) % 4), altchars=b"-_" if "-" in value or "_" in value else None).hex()
    except ValueError:
        return value


GROUPS: Final = {
    **dict.fromkeys(("resourceSpans", "resource_spans", "batches"), "resourceSpans"),
    **dict.fromkeys(("resourceLogs", "resource_logs"), "resourceLogs"),
}
"""Keys of lists of groups, and what OTLP/JSON calls them."""

_METRIC_GROUPS: Final = ("resourceMetrics", "resource_metrics")


def frame_document(document: Any, say: Say) -> Iterator[SpanBatch]:
    """What the document holds, group by group.

    Raises:
        InputError: it is no document of traces.
    """
    if isinstance(document, list):
        return _each(document, say)
    if not isinstance(document, dict):
        raise InputError("not a JSON object")
    if any(key in document for key in (*GROUPS, *_METRIC_GROUPS)):
        return _otlp(document, say)
    if isinstance(document.get("trace"), dict):
        return frame_document(document["trace"], say)
    if isinstance(document.get("data"), list):
        return _apart("data", document["data"], frame_jaeger, say)
    if isinstance(document.get("spans"), list) and "traceID" in document:
        return _apart("data", [document], frame_jaeger, say)
    raise InputError("JSON, but no OTLP, Tempo or Jaeger trace")


def _each(documents: list[Any], say: Say) -> Iterator[SpanBatch]:
    for number, document in enumerate(documents):
        try:
            yield from frame_document(document, placed(say, f"[{number}]"))
        except InputError as error:
            say(f"[{number}]: {error}")


def _otlp(document: dict[str, Any], say: Say) -> Iterator[SpanBatch]:
    for key, name in GROUPS.items():
        groups = document.get(key)
        if groups is not None and not isinstance(groups, list):
            raise InputError(f"{key}: expected a list")
        yield from _apart(key, groups or [], partial(frame_group, name), say)


def frame_group(name: str, group: Any) -> SpanBatch:
    """The spans or log records of one resource; `name` as in `GROUPS`.

    Raises:
        InputError: it is no such group.
    """
    return read_document({name: [with_hex_ids(group)]})


def frame_jaeger(trace: Any) -> SpanBatch:
    """A trace of Jaeger.

    Raises:
        InputError: it is none.
    """
    return read_document({"resourceSpans": jaeger_groups(trace)})


def _apart(key: str, groups: list[Any], frame: Callable[[Any], SpanBatch], say: Say) -> Iterator[SpanBatch]:
    """Each group by itself, so that one that cannot be used does not cost the others."""
    for number, group in enumerate(groups):
        try:
            yield frame(group)
        except InputError as error:
            say(f"{key}[{number}]: {error}")
