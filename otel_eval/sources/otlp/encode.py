"""OTLP/JSON objects written as OTLP protobuf bytes.

Knows, as tables, the fields of spans, events, links, log records, resources and scopes; one row a field. A field that no
table names is ignored, as the specification asks. Fields are written in the order of their numbers and defaults are left
out, as protobuf itself does: the same message sent as JSON and as protobuf becomes the same bytes, and one reader serves
both. Lenient where senders are known to differ: snake_case keys, enum names, numbers as text, null.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.sources.otlp.json_values import items, look_up, write_attributes, write_value
from otel_eval.sources.otlp.wire import (
    write_enum,
    write_fixed32,
    write_fixed64,
    write_hex,
    write_text,
    write_unsigned,
)
from otel_eval.wire import sized

__all__ = ["LOG_RECORD", "RESOURCE", "SCOPE", "SPAN", "Table", "message"]

Write = Callable[[int, Any], bytes]
Row = tuple[int, str, str, Write]
Table = tuple[Row, ...]


def message(table: Table, given: Any) -> bytes:
    """The object as the bytes of the message that the table describes.

    Raises:
        InputError: naming the field and what was expected there, never the value.
    """
    if not isinstance(given, dict):
        raise InputError("expected an object")
    return b"".join([_field(row, given) for row in table])


def _field(row: Row, given: Mapping[str, Any]) -> bytes:
    number, camel, snake, write = row
    value = look_up(given, camel, snake)
    if value is None:
        return b""
    try:
        return write(number, value)
    except InputError as error:
        raise InputError(f"{camel}: {error}") from None


def _table(*rows: tuple[int, str, Write]) -> Table:
    def snake(camel: str) -> str:
        return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in camel)

    return tuple((number, camel, snake(camel), write) for number, camel, write in rows)


def _one(table: Table) -> Write:
    return lambda number, value: sized(number, message(table, value))


def _many(table: Table) -> Write:
    return lambda number, value: b"".join([sized(number, message(table, item)) for item in items(value)])


_KINDS: Final = {
    "SPAN_KIND_INTERNAL": 1,
    "SPAN_KIND_SERVER": 2,
    "SPAN_KIND_CLIENT": 3,
    "SPAN_KIND_PRODUCER": 4,
    "SPAN_KIND_CONSUMER": 5,
}
_CODES: Final = {"STATUS_CODE_OK": 1, "STATUS_CODE_ERROR": 2}

_EVENT: Final = _table(
    (1, "timeUnixNano", write_fixed64),
    (2, "name", write_text),
    (3, "attributes", write_attributes),
    (4, "droppedAttributesCount", write_unsigned),
)
_LINK: Final = _table(
    (1, "traceId", write_hex),
    (2, "spanId", write_hex),
    (3, "traceState", write_text),
    (4, "attributes", write_attributes),
    (5, "droppedAttributesCount", write_unsigned),
    (6, "flags", write_fixed32),
)
_STATUS: Final = _table((2, "message", write_text), (3, "code", partial(write_enum, _CODES)))

SPAN: Final = _table(
    (1, "traceId", write_hex),
    (2, "spanId", write_hex),
    (3, "traceState", write_text),
    (4, "parentSpanId", write_hex),
    (5, "name", write_text),
    (6, "kind", partial(write_enum, _KINDS)),
    (7, "startTimeUnixNano", write_fixed64),
    (8, "endTimeUnixNano", write_fixed64),
    (9, "attributes", write_attributes),
    (10, "droppedAttributesCount", write_unsigned),
    (11, "events", _many(_EVENT)),
    (12, "droppedEventsCount", write_unsigned),
    (13, "links", _many(_LINK)),
    (14, "droppedLinksCount", write_unsigned),
    (15, "status", _one(_STATUS)),
    (16, "flags", write_fixed32),
)
LOG_RECORD: Final = _table(
    (1, "timeUnixNano", write_fixed64),
    (2, "severityNumber", partial(write_enum, {})),
    (3, "severityText", write_text),
    (5, "body", write_value),
    (6, "attributes", write_attributes),
    (7, "droppedAttributesCount", write_unsigned),
    (8, "flags", write_fixed32),
    (9, "traceId", write_hex),
    (10, "spanId", write_hex),
    (11, "observedTimeUnixNano", write_fixed64),
    (12, "eventName", write_text),
)
RESOURCE: Final = _table((1, "attributes", write_attributes), (2, "droppedAttributesCount", write_unsigned))
SCOPE: Final = _table(
    (1, "name", write_text),
    (2, "version", write_text),
    (3, "attributes", write_attributes),
    (4, "droppedAttributesCount", write_unsigned),
)
