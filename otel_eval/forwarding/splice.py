"""Takes spans out of an OTLP request, and puts them back into a request.

Every byte that is not taken out stays as it was and where it was; only the lengths around it change. A span that was taken out
keeps its container: the resource, the scope, their schema URLs and unknown fields.
Source: opentelemetry-proto, trace.proto: resource_spans = 1, scope_spans = 2, spans = 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from otel_eval.native import extension
from otel_eval.wire import WireField, fields, sized, varint

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
    spans, others, count = find_spans(body, scope.content, scope.stop, left) if left else ([], [], 0)
    if not spans:
        return [view[scope.start : scope.stop]], b"", 0
    del left[: len(spans)]
    begins = [scope.content, *[stop for _, stop in spans]]
    ends = [*[start for start, _ in spans], scope.stop]
    kept: _Pieces = [view[begin:end] for begin, end in zip(begins, ends, strict=True)]
    container = b"".join([body[start:stop] for start, stop in others])
    return _nested(_SCOPE, kept) if len(spans) < count else [], container, len(spans)


_Found = tuple[list[tuple[int, int]], list[tuple[int, int]], int]
"""Where the wanted spans stand, where anything but spans does, and how many spans there are."""

_native: Final = extension("_native")


def find_spans(body: bytes, start: int, stop: int, wanted: list[bytes]) -> _Found:
    """Look for spans, in the order in which they are wanted, among a scope's fields.

    Raises:
        ValueError: the bytes are no such fields.
    """
    # The extension answers None where it meets a field that is written in an unusual way.
    found: _Found | None = None if _native is None else _native.find_spans(body, start, stop, wanted)
    return find_spans_python(body, start, stop, wanted) if found is None else found


def find_spans_python(body: bytes, start: int, stop: int, wanted: list[bytes]) -> _Found:
    """The same in Python."""
    found: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    count = 0
    for field in fields(body, start, stop):
        if field.number != _SPAN:
            others.append((field.start, field.stop))
            continue
        count += 1
        if len(found) < len(wanted) and body[field.content : field.stop] == wanted[len(found)]:
            found.append((field.start, field.stop))
    return found, others, count


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
