"""Removes spans from an OTLP request, and makes a request of removed spans.

All other bytes of the request stay unchanged and in their order, except for the lengths of the
messages that contain them. A removed span keeps its container: the resource, the scope, their
schema URLs and unknown fields.
Source: opentelemetry-proto, trace.proto: resource_spans = 1, scope_spans = 2, spans = 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_eval.wire import WireField, fields, plain_fields, sized, varint

_GROUP: Final = 1
_SCOPE: Final = 2
_SPAN: Final = 2
_CACHED_BYTES: Final = 16 * 1024


class SpanContainer(NamedTuple):
    """The messages that contain a span: the fields of its ResourceSpans without scopes, and of its
    ScopeSpans without spans.
    """

    group: bytes
    scope: bytes


_cached: Final = lru_cache(maxsize=512)(SpanContainer)


def _container(group: bytes, scope: bytes) -> SpanContainer:
    """Return one object for equal containers: thousands of held spans may have the same one."""
    return (
        _cached(group, scope)
        if len(group) + len(scope) < _CACHED_BYTES
        else SpanContainer(group, scope)
    )


def remove_spans(body: bytes, spans: Sequence[bytes]) -> tuple[bytes, list[SpanContainer]]:
    """Return the request without these spans, b"" if nothing else is in it, and the container of
    each span.

    Args:
        body: a valid request.
        spans: the bytes of spans, in their order in the request.

    Raises:
        ValueError: the request is malformed, or a span is not in it.
    """
    # Spans are found by their bytes: the order is that of the request, so one pass is enough and no
    # id has to be decoded.
    payloads, containers, view = list(spans), list[SpanContainer](), memoryview(body)
    remainder: _Pieces = []
    for field in fields(body, 0, len(body)):
        is_searched = payloads and field.number == _GROUP
        remainder += (
            _group(body, field, payloads, containers)
            if is_searched
            else [view[field.start : field.stop]]
        )
    if payloads:
        raise ValueError("a span is not where it was")
    return b"".join(remainder), containers


_Pieces = list[bytes | memoryview]
"""Parts of a message, to be joined once: a request may have megabytes, and copying them costs more
than reading the fields.
"""


def _nested(number: int, pieces: _Pieces) -> _Pieces:
    """Return the pieces of a length-delimited field whose content are these pieces."""
    return [varint(number << 3 | 2) + varint(sum(map(len, pieces))), *pieces]


def _group(
    body: bytes, group: WireField, payloads: list[bytes], containers: list[SpanContainer]
) -> _Pieces:
    """Return a ResourceSpans without those of its spans that are next in `wanted`; nothing if no
    other span is in it.
    """
    pieces: _Pieces = []
    group_fields: list[bytes] = []
    scopes: list[bytes] = []
    spans_left = False
    for field in fields(body, group.content, group.stop):
        if field.number != _SCOPE:
            group_fields.append(body[field.start : field.stop])
            pieces.append(group_fields[-1])
            continue
        remainder, container, removed = _scope(body, field, payloads)
        pieces += remainder
        scopes += [container] * removed
        spans_left = spans_left or bool(remainder)
    if not scopes:
        return [memoryview(body)[group.start : group.stop]]
    # A schema URL may follow the scopes, so the container of a span is known only at the end of the
    # group.
    containers.extend(_container(b"".join(group_fields), container) for container in scopes)
    return _nested(_GROUP, pieces) if spans_left else []


def _scope(body: bytes, scope: WireField, payloads: list[bytes]) -> tuple[_Pieces, bytes, int]:
    """Remove the spans that are next in `wanted`; return the rest (empty without a span), other
    fields, the removed count.
    """
    view = memoryview(body)
    pieces: _Pieces = []
    scope_fields: list[bytes] = []
    removed, at, spans_left = 0, scope.content, False
    fields_of_scope = plain_fields(body, scope.content, scope.stop) if payloads else ()
    for number, start, content, stop in fields_of_scope:
        if number != _SPAN:
            scope_fields.append(body[start:stop])
        elif (
            removed < len(payloads)
            and stop - content == len(payloads[removed])
            and body.startswith(payloads[removed], content)
        ):
            pieces.append(view[at:start])  # all bytes between two removed spans are one piece
            removed, at = removed + 1, stop
        else:
            spans_left = True
    if not removed:
        return [view[scope.start : scope.stop]], b"", 0
    del payloads[:removed]
    pieces.append(view[at : scope.stop])
    return _nested(_SCOPE, pieces) if spans_left else [], b"".join(scope_fields), removed


def wrap_spans(spans: Iterable[tuple[SpanContainer, bytes]]) -> bytes:
    """Encode a request of spans in their containers; equal containers are merged."""
    groups: dict[bytes, dict[bytes, list[bytes]]] = {}
    for container, span in spans:
        groups.setdefault(container.group, {}).setdefault(container.scope, []).append(
            sized(_SPAN, span)
        )
    return b"".join(
        [
            sized(
                _GROUP,
                group
                + b"".join(
                    [sized(_SCOPE, scope + b"".join(members)) for scope, members in scopes.items()]
                ),
            )
            for group, scopes in groups.items()
        ]
    )
