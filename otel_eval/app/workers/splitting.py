"""Splits OTLP requests by trace id into requests of which each holds whole spans; none is decoded.

Every byte goes somewhere: what stands around spans to each part that gets some of them, what belongs to no trace to the first.
Source: opentelemetry-proto: resource_spans = 1, scope_spans = 2, spans = 2, trace_id = 1; logs alike, with trace_id = 9.
"""

from __future__ import annotations

from typing import Final

from otel_eval.native import extension
from otel_eval.otlp import Signal
from otel_eval.wire import fields, sized

__all__ = ["part_of", "split_request", "split_request_python"]

_ID_FIELDS: Final = {Signal.TRACES: 1, Signal.LOGS: 9}
_ID_BYTES: Final = 8
_REQUEST: Final = 2  # levels: members of a scope, of a group, of the request
_MEMBERS: Final = (2, 2, 1)  # their field numbers

_native: Final = extension("_native")


def part_of(trace_id: bytes, count: int) -> int:
    """Which of the parts gets the spans of a trace, by the end of its id, which is random where anything in it is."""
    return int.from_bytes(trace_id[-_ID_BYTES:]) % count


def split_request(body: bytes, signal: Signal, count: int) -> list[bytes]:
    """As many requests, b"" where there is nothing for one.

    Args:
        body: a request of traces or logs in protobuf.

    Raises:
        ValueError: it cannot be read.
    """
    found: list[bytes] | None = None if _native is None else _native.split(body, count, _ID_FIELDS[signal])
    return split_request_python(body, signal, count) if found is None else found


def split_request_python(body: bytes, signal: Signal, count: int) -> list[bytes]:
    """The same in Python."""
    around, parts = _split(body, 0, len(body), _REQUEST, _ID_FIELDS[signal], count)
    return [parts[0] + around, *parts[1:]]


def _split(body: bytes, start: int, stop: int, level: int, id_field: int, count: int) -> tuple[bytes, list[bytes]]:
    """What stands around the members, and the members of each part."""
    around: list[bytes] = []
    parts: list[list[bytes]] = [[] for _ in range(count)]
    for field in fields(body, start, stop):
        if field.number != _MEMBERS[level]:
            around.append(body[field.start : field.stop])
        elif level:
            outer, members = _split(body, field.content, field.stop, level - 1, id_field, count)
            for number, each in enumerate(members):
                if each or (number == 0 and not any(members)):
                    parts[number].append(sized(_MEMBERS[level], outer + each))
        else:
            ids = [body[each.content : each.stop] for each in fields(body, field.content, field.stop) if each.number == id_field]
            parts[part_of(ids[-1] if ids else b"", count)].append(body[field.start : field.stop])
    return b"".join(around), [b"".join(each) for each in parts]
