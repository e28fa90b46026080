"""Takes spans out of an OTLP request, and puts them back into a request.

Every byte that is not taken out stays as it was and where it was; only the lengths around it change. A span that was taken out
keeps its container: the resource, the scope, their schema URLs and unknown fields.
Source: opentelemetry-proto, trace.proto: resource_spans = 1, scope_spans = 2, spans = 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_eval.wire import WireField, fields, places, sized, varint

_GROUP: Final = 1
_SCOPE: Final = 2
_SPAN: Final = 2
_CACHED_BYTES: Final = 16 * 1024


class SpanContainer(NamedTuple):
    """What stood around a span: the fields of its ResourceSpans and of its ScopeSpans without what they list."""

    group: bytes
    scope: bytes


_kept: Final = lru_cache(maxsize=512)(SpanContainer)


def _container(group: bytes, scope: bytes) -> SpanContainer:
    """One object for equal containers: thousands of held spans may have the same one."""
    return _kept(group, scope) if len(group) + len(scope) < _CACHED_BYTES else SpanContainer(group, scope)


def remove_spans(body: bytes, spans: Sequence[bytes]) -> tuple[bytes, list[SpanContainer]]:
    """The request without these spans, and the container of each; b"" if nothing else was in it.

    Args:
        body: a request that was parsed before.
        spans: bytes of spans in the order in which they stand in the request.

    Raises:
        ValueError: the bytes are no request, or one of the spans is not there.
    """
    # Spans are found by their bytes, which need no ids: those of one request are looked for in its own order, in one pass.
    left, containers, view = list(spans), list[SpanContainer](), memoryview(body)
    rest: _Pieces = []
    for each in fields(body, 0, len(body)):
        is_searched = left and each.number == _GROUP
        rest += _group(body, each, left, containers) if is_searched else [view[each.start : each.stop]]
    if left:
        raise ValueError("a span is not where it was")
    return b"".join(rest), containers


_Pieces = list[bytes | memoryview]
"""What a message is made of, to be joined once: a request may have megabytes, and copies cost more than the walk."""


def _nested(number: int, pieces: _Pieces) -> _Pieces:
    """A field with a length, of these pieces."""
    return [varint(number << 3 | 2) + varint(sum(map(len, pieces))), *pieces]


def _group(body: bytes, group: WireField, left: list[bytes], containers: list[SpanContainer]) -> _Pieces:
    """The group without the spans that are wanted next; nothing if no other is in it."""
    kept: _Pieces = []
    around: list[bytes] = []
    found: list[bytes] = []
    spans_left = False
    for each in fields(body, group.content, group.stop):
        if each.number != _SCOPE:
            around.append(body[each.start : each.stop])
            kept.append(around[-1])
            continue
        rest, container, taken = _scope(body, each, left)
        kept += rest
        found += [container] * taken
        spans_left = spans_left or bool(rest)
    if not found:
        return [memoryview(body)[group.start : group.stop]]
    # A schema URL may follow the scopes, so what stands around a span is known only after the whole group.
    containers.extend(_container(b"".join(around), container) for container in found)
    return _nested(_GROUP, kept) if spans_left else []


def _scope(body: bytes, scope: WireField, left: list[bytes]) -> tuple[_Pieces, bytes, int]:
    """The scope without the spans that are wanted next (nothing if no other is in it), its container, how many were taken."""
    view = memoryview(body)
    kept: _Pieces = []
    others: list[bytes] = []
    taken, at, spans_left = 0, scope.content, False
    for number, start, content, stop in places(body, scope.content, scope.stop) if left else ():
        if number != _SPAN:
            others.append(body[start:stop])
        elif taken < len(left) and stop - content == len(left[taken]) and body.startswith(left[taken], content):
            kept.append(view[at:start])  # one piece, whatever number of spans is in it
            taken, at = taken + 1, stop
        else:
            spans_left = True
    if not taken:
        return [view[scope.start : scope.stop]], b"", 0
    del left[:taken]
    kept.append(view[at : scope.stop])
    return _nested(_SCOPE, kept) if spans_left else [], b"".join(others), taken


def wrap_spans(spans: Iterable[tuple[SpanContainer, bytes]]) -> bytes:
    """A request of spans in their containers; those of equal resource and scope share one."""
    groups: dict[bytes, dict[bytes, list[bytes]]] = {}
    for container, span in spans:
        groups.setdefault(container.group, {}).setdefault(container.scope, []).append(sized(_SPAN, span))
    return b"".join(
        [
            sized(_GROUP, group + b"".join([sized(_SCOPE, scope + b"".join(members)) for scope, members in scopes.items()]))
            for group, scopes in groups.items()
        ]
    )
