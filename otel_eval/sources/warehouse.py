"""Read spans from rows of a table, such as those of a data warehouse or a Parquet file.

A row is a mapping of column names to values, one span each. Names and forms of values are those of
the tables in common use: OTLP's own names in snake_case or camelCase, and those of the table
`otel_traces` that the Collector writes to ClickHouse. Rows are rewritten as OTLP/JSON, so that what
is true of OTLP is true of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.otlp.otlp_json import read_document, unix_nanoseconds
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.otlp.spans import encode_pairs

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "trace_id": ("trace_id", "traceId", "TraceId"),
    "span_id": ("span_id", "spanId", "SpanId"),
    "parent_span_id": ("parent_span_id", "parentSpanId", "ParentSpanId"),
    "flags": ("flags",),
    "name": ("name", "span_name", "SpanName"),
    "kind": ("kind", "span_kind", "SpanKind"),
    "start": ("start_time_unix_nano", "startTimeUnixNano", "start_time", "Timestamp"),
    "end": ("end_time_unix_nano", "endTimeUnixNano", "end_time"),
    "duration": ("duration_ns", "duration", "Duration"),
    "status_code": ("status_code", "StatusCode"),
    "status_message": ("status_message", "StatusMessage"),
    "attributes": ("attributes", "span_attributes", "SpanAttributes"),
    "resource": ("resource_attributes", "ResourceAttributes"),
    "service": ("service_name", "ServiceName"),
    "scope_name": ("scope_name", "ScopeName"),
    "scope_version": ("scope_version", "ScopeVersion"),
    "events": ("events",),
    "event_names": ("Events.Name",),
    "event_attributes": ("Events.Attributes",),
}
"""The columns in which each field of a span is looked for, in this order."""

_REQUIRED: Final = ("trace_id", "span_id", "name")


_Scope = tuple[Mapping[Any, Any], Any, Any]
"""What spans share: the attributes of their resource, and the name and version of their scope."""


def is_row(value: Mapping[str, Any]) -> bool:
    """Whether a mapping is a row with a span, and not a document."""
    return any(name in value for name in COLUMNS["trace_id"])


def read_rows(rows: Iterable[Mapping[str, Any]]) -> SpanBatch:
    """Read the spans of rows; rows that cannot be used are counted as rejected.

    Raises:
        InputError: a row lacks a column that every span needs.
    """
    groups: dict[str, tuple[_Scope, list[dict[str, Any]]]] = {}
    refused = SpanBatch()
    for row in rows:
        columns = _columns_of(tuple(row))
        try:
            scope, span = _span_of({field: row[name] for field, name in columns.items()})
        except InputError as error:
            refused.reject(str(error))
            continue
        groups.setdefault(repr(scope), (scope, []))[1].append(span)
    batch = read_document({"resourceSpans": [_group(*group) for group in groups.values()]})
    batch.reject(refused.reason, refused.rejected)
    return batch


@lru_cache(64)
def _columns_of(names: tuple[str, ...]) -> Mapping[str, str]:
    """The column of each field that rows with these columns have.

    Raises:
        InputError: a column that every span needs is missing.
    """
    columns = {
        field: next(name for name in columns_of_field if name in names)
        for field, columns_of_field in COLUMNS.items()
        if not set(columns_of_field).isdisjoint(names)
    }
    for field in _REQUIRED:
        if field not in columns:
            raise InputError(
                f"a row lacks the column {COLUMNS[field][0]}; rename it in the query, or name it"
                f" {' or '.join(COLUMNS[field][1:])}"
            )
    return columns


def _group(scope: _Scope, spans: list[dict[str, Any]]) -> dict[str, Any]:
    resource, name, version = scope
    named = {"name": name, "version": version}
    return {
        "resource": {"attributes": encode_pairs(resource)},
        "scopeSpans": [{"scope": named, "spans": spans}],
    }


def _span_of(row: Mapping[str, Any]) -> tuple[_Scope, dict[str, Any]]:
    """The scope and the span of a row, whose keys are those of `COLUMNS`.

    Raises:
        InputError: a value has none of the forms that are read.
    """
    start, end = unix_nanoseconds(row.get("start")), unix_nanoseconds(row.get("end"))
    span = {
        "traceId": _id(row["trace_id"]),
        "spanId": _id(row["span_id"]),
        "parentSpanId": _id(row.get("parent_span_id")),
        "flags": row.get("flags"),
        "name": row["name"],
        "kind": _enum(row.get("kind"), "SPAN_KIND_"),
        "startTimeUnixNano": start,
        "endTimeUnixNano": end or _end(start, row.get("duration")),
        "status": {
            "code": _enum(row.get("status_code"), "STATUS_CODE_"),
            "message": row.get("status_message"),
        },
        "attributes": encode_pairs(_mapping(row.get("attributes"), "attributes")),
        "events": [*_events(row)],
    }
    resource = _mapping(row.get("resource"), "resource_attributes")
    if row.get("service"):
        resource = {"service.name": row["service"], **resource}
    return (resource, row.get("scope_name"), row.get("scope_version")), span


def _id(value: Any) -> Any:
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else value


def _enum(value: Any, prefix: str) -> Any:
    """A number, or a name as OTLP has it, which tables write without its prefix or in lower
    case.
    """
    if not isinstance(value, str):
        return value
    return value if value.isdigit() else prefix + value.upper().removeprefix(prefix)


def _end(start: int, duration: Any) -> int:
    """The end of a span that has a duration instead; 0 without one."""
    if duration is None:
        return 0
    if not isinstance(duration, int):
        raise InputError("duration: expected nanoseconds")
    return start + duration


def _mapping(value: Any, column: str) -> Mapping[Any, Any]:
    """A mapping, given as such, as pairs, as structs of key and value, or as JSON text."""
    try:
        value = json.loads(value) if isinstance(value, str | bytes) and value else value
        if not value:
            return {}
        if isinstance(value, Mapping):
            return value
        return dict(
            (pair["key"], pair["value"]) if isinstance(pair, Mapping) else pair for pair in value
        )
    except (TypeError, ValueError, KeyError, RecursionError):
        raise InputError(f"{column}: expected attributes by name") from None


def _events(row: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """The events, from structs or from a list of names and one of attributes."""
    for event in row.get("events") or ():
        if not isinstance(event, Mapping):
            raise InputError("events: expected a name and attributes of each")
        yield _event(event.get("name"), event.get("attributes"))
    names, attributes = row.get("event_names") or (), row.get("event_attributes") or ()
    if len(names) != len(attributes):
        raise InputError("Events.Name and Events.Attributes: expected lists of the same length")
    for name, values in zip(names, attributes, strict=True):
        yield _event(name, values)


def _event(name: Any, attributes: Any) -> dict[str, Any]:
    return {"name": name, "attributes": encode_pairs(_mapping(attributes, "events"))}
