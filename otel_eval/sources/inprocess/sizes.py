"""Estimate the memory that a span of the SDK takes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from sys import getsizeof
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["SPAN_BYTES", "attributes_of", "raw_attributes", "size_of"]

# Measured with tracemalloc, SDK 1.30 to 1.45, CPython 3.11.
SPAN_BYTES: Final = 2600  # an ended span: the object, its context, its empty collections and their locks
_ATTRIBUTE_BYTES: Final = 80  # beside the value: the entry of a dictionary that grows by doubling
_EVENT_BYTES: Final = 420  # without attributes
_LINK_BYTES: Final = 560  # without attributes, with its context
_DICTIONARIES: Final = (dict, OrderedDict)  # which of them the SDK uses depends on its version and on limits
_NESTED: Final = frozenset({tuple, list, set, frozenset, dict, OrderedDict, MappingProxyType})


def size_of(span: ReadableSpan) -> int:
    """About how many bytes a span holds, open or ended, within a factor of two; linear in what it holds, about 1 µs.

    Texts and bytes count with their size in memory, in sequences and in attributes of events and links too. A text that
    several spans share counts for each of them, as it does in OTLP.
    """
    size = SPAN_BYTES + getsizeof(span.name) + _attributes_size(raw_attributes(span))
    for each in _inner(span, "_events", "events"):
        size += _EVENT_BYTES + _attributes_size(each.attributes)
    for each in _inner(span, "_links", "links"):
        size += _LINK_BYTES + _attributes_size(each.attributes)
    description = span.status.description
    return size + len(description) if description else size


def raw_attributes(span: ReadableSpan) -> Any:
    """The attributes without the read-only proxy that the public property builds each time."""
    raw = getattr(span, "_attributes", None)
    return span.attributes if raw is None else raw


def attributes_of(attributes: Any) -> dict[str, Any]:
    """The attributes as a dictionary, not to be changed. The SDK's own mapping takes a lock for each key."""
    inner: Any = getattr(attributes, "_dict", None)
    if type(inner) in _DICTIONARIES:
        held: dict[str, Any] = inner
        return held
    return dict(attributes) if attributes else {}


def _inner(span: Any, field: str, public: str) -> Iterable[Any]:
    """Events or links. The public property copies them under a lock; the deque that the SDK keeps is copied in one step."""
    kept = getattr(getattr(span, field, None), "_dq", None)
    if kept is None:
        return tuple(getattr(span, public))
    return tuple(kept) if kept else ()


def _attributes_size(attributes: Any) -> int:
    # list() is one step for the interpreter, so that another thread may add attributes meanwhile.
    values = list(attributes_of(attributes).values()) if attributes else []
    size = _ATTRIBUTE_BYTES * len(values) + sum(map(getsizeof, values))
    return size if _NESTED.isdisjoint(map(type, values)) else size + _elements_size(values)


def _elements_size(values: Iterable[Any]) -> int:
    """What the elements of sequences and mappings take, however deeply nested; each collection counts once."""
    size, rest, seen = 0, [each for each in values if type(each) in _NESTED], set[int]()
    while rest:
        value = rest.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        elements = [*value.keys(), *value.values()] if isinstance(value, Mapping) else list(value)
        size += sum(map(getsizeof, elements))
        rest += [each for each in elements if type(each) in _NESTED]
    return size
