"""Jaeger's JSON rewritten as OTLP/JSON.

Tags are attributes, logs are events, times are microseconds, and status, kind and scope are tags.
Source: specification/trace/sdk_exporters/jaeger.md of OpenTelemetry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from otel_eval.errors import InputError

__all__ = ["jaeger_groups"]

_KINDS: Final = {"internal": 1, "server": 2, "client": 3, "producer": 4, "consumer": 5}
_CODES: Final = {"OK": 1, "ERROR": 2}
_SCOPE_NAMES: Final = ("otel.scope.name", "otel.library.name")
_SCOPE_VERSIONS: Final = ("otel.scope.version", "otel.library.version")
_MOVED: Final = frozenset({"span.kind", "otel.status_code", "otel.status_description", *_SCOPE_NAMES, *_SCOPE_VERSIONS})
"""Tags that OpenTelemetry keeps in fields of their own."""

_VALUES: Final = {
    "string": "stringValue",
    "bool": "boolValue",
    "int64": "intValue",
    "float64": "doubleValue",
    "binary": "bytesValue",
}


def jaeger_groups(trace: Any) -> list[dict[str, Any]]:
    """The `resourceSpans` of one Jaeger trace.

    Raises:
        InputError: it is none.
    """
    if not isinstance(trace, dict) or not isinstance(trace.get("spans"), list):
        raise InputError("a Jaeger trace must be an object with spans")
    processes = trace.get("processes")
    return [_group(span, processes if isinstance(processes, dict) else {}) for span in trace["spans"]]


def _group(span: Any, processes: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(span, dict):
        raise InputError("a Jaeger span must be an object")
    tags = _tags(span.get("tags"))
    process = span.get("process") or processes.get(str(span.get("processID", ""))) or {}
    scope = {"name": _first(tags, _SCOPE_NAMES), "version": _first(tags, _SCOPE_VERSIONS)}
    return {"resource": _resource(process), "scopeSpans": [{"scope": scope, "spans": [_span(span, tags)]}]}


def _resource(process: Any) -> dict[str, Any]:
    if not isinstance(process, dict):
        return {}
    tags = _tags(process.get("tags"))
    if isinstance(process.get("serviceName"), str):
        tags["service.name"] = {"stringValue": process["serviceName"]}
    return {"attributes": _attributes(tags)}


def _span(span: Mapping[str, Any], tags: Mapping[str, Any]) -> dict[str, Any]:
    start, duration = _micros(span.get("startTime")), _micros(span.get("duration"))
    return {
        "traceId": _padded(span.get("traceID"), 32),
        "spanId": _padded(span.get("spanID"), 16),
        "parentSpanId": _parent(span),
        "name": span.get("operationName"),
        "kind": _KINDS.get(str(_plain(tags.get("span.kind"))).lower(), 0),
        "startTimeUnixNano": start,
        "endTimeUnixNano": start + duration,
        "attributes": _attributes({key: value for key, value in tags.items() if key not in _MOVED}),
        "events": [_event(log) for log in _objects(span.get("logs"))],
        "status": _status(tags),
    }


def _micros(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value or abs(value) > 1e18:
        raise InputError("startTime and duration must be microseconds")
    return int(value * 1000)


def _padded(value: Any, digits: int) -> Any:
    """An id; Jaeger leaves leading zeros out."""
    return value.rjust(digits, "0") if isinstance(value, str) and value else value


def _parent(span: Mapping[str, Any]) -> Any:
    for reference in _objects(span.get("references")):
        if reference.get("refType") == "CHILD_OF" and _same_trace(reference, span):
            return _padded(reference.get("spanID"), 16)
    return _padded(span.get("parentSpanID"), 16)


def _same_trace(reference: Mapping[str, Any], span: Mapping[str, Any]) -> bool:
    return reference.get("traceID") is None or _padded(reference["traceID"], 32) == _padded(span.get("traceID"), 32)


def _status(tags: Mapping[str, Any]) -> dict[str, Any]:
    code = _CODES.get(str(_plain(tags.get("otel.status_code"))).upper(), 0)
    if not code and str(_plain(tags.get("error"))).lower() == "true":
        code = _CODES["ERROR"]
    message = _plain(tags.get("otel.status_description"))
    return {"code": code, "message": message if isinstance(message, str) else None}


def _event(log: Mapping[str, Any]) -> dict[str, Any]:
    fields = _tags(log.get("fields"))
    name = _plain(fields.pop("event", None))
    return {
        "timeUnixNano": _micros(log.get("timestamp")),
        "name": name if isinstance(name, str) else None,
        "attributes": _attributes(fields),
    }


def _tags(value: Any) -> dict[str, dict[str, Any]]:
    """Tags by key as AnyValues; of equal keys the last wins."""
    return {str(tag["key"]): _value(tag) for tag in _objects(value) if "key" in tag}


def _value(tag: Mapping[str, Any]) -> dict[str, Any]:
    value, kind = tag.get("value"), _VALUES.get(str(tag.get("type", "")).lower())
    if kind == "boolValue" and isinstance(value, str):
        return {kind: value.lower() == "true"}
    if kind == "stringValue" or kind is None:
        return {"stringValue": value} if isinstance(value, str) else _guessed(value)
    return {kind: value}


def _guessed(value: Any) -> dict[str, Any]:
    kinds = ((bool, "boolValue"), (int, "intValue"), (float, "doubleValue"))
    return next(({kind: value} for type_, kind in kinds if isinstance(value, type_)), {})


def _plain(value: Mapping[str, Any] | None) -> Any:
    return next(iter(value.values()), None) if value else None


def _first(tags: Mapping[str, Any], keys: Iterable[str]) -> Any:
    found = (_plain(tags.get(key)) for key in keys)
    return next((value for value in found if isinstance(value, str)), None)


def _attributes(tags: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in tags.items()]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
