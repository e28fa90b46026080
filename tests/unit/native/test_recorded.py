"""A span of the process reads the same with the shortcut in C and without it, whatever its
attributes hold.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import SpanKind, Status, StatusCode

from otel_eval.interfaces import SpanReader, Wanted
from otel_eval.native import extension
from otel_eval.sources.inprocess.sdk_spans import SdkResourceScope, SdkSpanReader, frames_of

native: Any = extension("_native")
if native is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

WANTED = Wanted(frozenset({"a", "b"}), ("c.",))


class Colour(StrEnum):
    """A text of a class of its own."""

    RED = "red"


_SCALARS: st.SearchStrategy[Any] = (
    st.text(max_size=6)
    | st.text(st.characters(categories=("Cs", "Ll")), max_size=3)
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.binary(max_size=4)
    | st.none()
    | st.just(Colour.RED)
)
values = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)
attributes = st.dictionaries(
    st.sampled_from(["a", "b", "c.1", "c.2", "other", "", "é"]), values, max_size=6
)


def read(view: SpanReader) -> list[Any]:
    """Everything that a view tells."""
    times = [view.start_ns, view.end_ns]
    return [
        view.name,
        view.span_kind,
        *times,
        view.status_code,
        view.status_message,
        view.attributes(WANTED),
        list(view.events()),
    ]


def span_of(**fields: Any) -> ReadableSpan:
    """An ended span whose attributes were not looked at by the SDK."""
    attributes = BoundedAttributes()
    attributes._dict = fields.pop("mapping", dict)(fields.pop("attributes", {}))
    events: Any = BoundedList.from_seq(9, fields.pop("events", ()))
    return ReadableSpan(**{"name": "s"} | fields, attributes=attributes, events=events)


@given(
    attributes,
    st.text(max_size=5) | st.just("\ud800"),
    st.sampled_from(SpanKind),
    st.sampled_from(StatusCode),
    st.none() | st.integers(0, 2**64 + 5),
    st.booleans(),
)
def test_a_span_of_the_process_reads_the_same_with_the_shortcut(
    held: dict[str, Any],
    name: str,
    kind: SpanKind,
    code: StatusCode,
    time: int | None,
    eventful: bool,
):
    """Half characters, numbers of more than 64 bits, bytes, nested lists and classes of one's own
    included.
    """
    events = [Event("e", {"k": 1})] if eventful else []
    status = Status(code, name if code is StatusCode.ERROR else None)
    span = span_of(
        name=name,
        kind=kind,
        status=status,
        start_time=time,
        end_time=time,
        attributes=held,
        events=events,
    )
    assert read(SdkResourceScope(None, None).reader(span)) == read(SdkSpanReader(span))


@pytest.mark.parametrize("value", ["text", "naïve", 7, -1, 2.5, True, ("stop",), (1, 2), ()])
def test_usual_attributes_are_read_by_the_extension(value: Any):
    """So that it is one: otherwise all of the above would hold of the Python view alone."""
    view = SdkResourceScope(None, None).reader(span_of(attributes={"a": value}))
    assert type(view) is not SdkSpanReader
    assert view.attributes(WANTED) == {"a": list(value) if isinstance(value, tuple) else value}


@pytest.mark.parametrize("value", ["\ud800", 2**64, None, b"bytes", ((1,),), Colour.RED])
def test_unusual_attributes_are_left_to_python(value: Any):
    """The Python view is the one that decides."""
    assert (
        type(SdkResourceScope(None, None).reader(span_of(attributes={"a": value}))) is SdkSpanReader
    )


def test_a_span_that_is_not_the_sdks_is_read_by_its_properties():
    """One that keeps nothing where the SDK does."""

    class Other(ReadableSpan):
        _attributes: Any = property(lambda self: {"a": "other"})  # type: ignore[assignment]

        def __init__(self) -> None:
            self._name = "other"

    span: Any = Other()
    assert type(SdkResourceScope(None, None).reader(span)) is SdkSpanReader


class Mine(dict[str, Any]):
    """A mapping of another type."""


@pytest.mark.parametrize("mapping", [dict, OrderedDict])
def test_both_attribute_mappings_of_the_sdk_are_read_by_the_extension(mapping: Any):
    """Which of them it is depends on its version and on its limits."""
    view = SdkResourceScope(None, None).reader(
        span_of(attributes={"a": 1, "c.1": "x"}, mapping=mapping)
    )
    assert type(view) is not SdkSpanReader
    assert view.attributes(WANTED) == {"a": 1, "c.1": "x"}


def test_any_other_mapping_is_read_by_python():
    """It may not keep what it says where a dictionary does."""
    assert (
        type(SdkResourceScope(None, None).reader(span_of(attributes={"a": 1}, mapping=Mine)))
        is SdkSpanReader
    )


@given(attributes, st.sampled_from([OrderedDict, Mine]))
def test_the_size_of_a_span_depends_on_no_mapping(held: dict[str, Any], mapping: Any):
    """Limits count on it; every attribute adds more than its value."""
    texts = sum(len(value) for value in held.values() if isinstance(value, (str, bytes)))
    ((*_, size), (*_, same), (*_, empty)) = frames_of(
        [
            span_of(attributes=held, mapping=dict),
            span_of(attributes=held, mapping=mapping),
            span_of(attributes={}, mapping=dict),
        ]
    )
    assert size == same >= empty + 80 * len(held) + texts


@pytest.mark.parametrize(
    "given_", [(), (1,) * 9, (None,) * 9, ("s", 0, 0, 0, 0, None, {}, (), None)]
)
def test_odd_arguments_give_the_view_or_a_type_error(given_: tuple[Any, ...]):
    """Never anything worse."""
    if len(given_) != 9:
        with pytest.raises(TypeError):
            native.recorded(*given_)
    else:
        assert native.recorded(*given_) is given_[-1] or given_[0] == "s"
