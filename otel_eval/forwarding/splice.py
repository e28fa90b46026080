"""Takes spans out of an OTLP request, and puts them back into a request.

Every byte that is not taken out stays as it was and where it was; only the lengths around it change. A span that was taken out
keeps its container: the resource, the scope, their schema URLs and unknown fields.
Source: opentelemetry-proto, trace.proto: resource_spans = 1, scope_spans = 2, spans = 2.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    left = list(spans)
    containers: list[SpanContainer] = []
    out = _Pieces(body)
    for field in fields(body, 0, len(body)):
        if left and field.number == _GROUP:
            _add_group(out, body, field, left, containers)
        else:
            out.keep(field.start, field.stop)
    if left:
        raise ValueError("a span is not where it was")
    return b"".join(out.parts), containers


class _Pieces:
    """What a message is made of, to be joined once: a request may have megabytes, and copies cost more than the walk."""

    __slots__ = ("_body", "parts", "size")

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.parts: list[bytes | memoryview] = []
        self.size = 0

    def keep(self, start: int, stop: int) -> None:
        """A piece of the request."""
        self.parts.append(self._body[start:stop])
        self.size += stop - start

    def nest(self, number: int, inner: _Pieces) -> None:
        """A length-delimited field of other pieces."""
        head = varint(number << 3 | 2) + varint(inner.size)
        self.parts.append(head)
        self.parts += inner.parts
        self.size += len(head) + inner.size


def _add_group(out: _Pieces, body: bytes, group: WireField, left: list[bytes], containers: list[SpanContainer]) -> None:
    """The group without what is taken from it: as it was, rewritten, or not at all."""
    kept = _Pieces(body)
    around: list[bytes] = []
    found: list[tuple[bytes, int]] = []  # a scope's container, and how many spans were taken from it
    spans_left = False
    for field in fields(body, group.content, group.stop):
        rest, container, taken = _part_scope(body, field, left) if left and field.number == _SCOPE else (None, b"", 0)
        if taken:
            found.append((container, taken))
        else:
            kept.keep(field.start, field.stop)
            spans_left = spans_left or field.number == _SCOPE
        if field.number != _SCOPE:
            around.append(body[field.start : field.stop])
        if rest is not None:
            kept.nest(_SCOPE, rest)
            spans_left = True
    # A schema URL may follow the scopes, so what stands around a span is known only after the whole group.
    containers.extend(_container(b"".join(around), container) for container, taken in found for _ in range(taken))
    if not found:
        out.keep(group.start, group.stop)
    elif spans_left:
        out.nest(_GROUP, kept)


def _part_scope(body: bytes, scope: WireField, left: list[bytes]) -> tuple[_Pieces | None, bytes, int]:
    """The scope's content without what is taken (None: none is left, or none was taken), its container, how many."""
    spans, others, count = find_spans(body, scope.content, scope.stop, left)
    kept = _Pieces(body)
    at = scope.content
    for start, stop in spans:
        kept.keep(at, start)
        at = stop
    kept.keep(at, scope.stop)
    del left[: len(spans)]
    return (kept if 0 < len(spans) < count else None), b"".join([body[start:stop] for start, stop in others]), len(spans)


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


def wrap_spans(spans: Mapping[SpanContainer, Sequence[bytes]]) -> bytes:
    """A request of spans in their containers; those of equal resource share one."""
    groups: dict[bytes, list[bytes]] = {}
    for container, members in spans.items():
        listed = b"".join([sized(_SPAN, span) for span in members])
        groups.setdefault(container.group, []).append(sized(_SCOPE, container.scope + listed))
    return b"".join([sized(_GROUP, group + b"".join(scopes)) for group, scopes in groups.items()])
