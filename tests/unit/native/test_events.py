"""Events written in C against those written in Python: the same bytes, whatever the attributes."""

from __future__ import annotations

import enum
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.native import extension
from otel_eval.sinks.forward.events import event, event_slowly

native = extension("_events")
if native is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)


class Colour(enum.StrEnum):
    """A text of a class of its own."""

    RED = "red"


TEXT = st.text(st.characters(), max_size=8) | st.sampled_from(['"\\\n\r\t\f\b\x00\x1f\x7f/', "é€𝄞", "\ud800", "x" * 3000])
NUMBER = st.integers() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.booleans()
PLAIN = st.recursive(
    TEXT | NUMBER | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3) | st.tuples(inner, inner),
    max_leaves=12,
)
ODD = st.sampled_from([Colour.RED, Decimal("1.5"), {1, 2}, {7: "seven"}, {None: 1}, (1,), b"bytes"])
DETAILS = st.dictionaries(TEXT, PLAIN | ODD, max_size=4) | st.lists(PLAIN, max_size=3)
ATTRIBUTES = st.dictionaries(TEXT, TEXT | NUMBER | DETAILS, max_size=4)
HEAD = st.binary(max_size=12)


def told(write: Any, *given: Any) -> Any:
    """The bytes, or the class of the error."""
    try:
        return write(*given)
    except Exception as error:  # noqa: BLE001 - both ways fail alike
        return type(error)


@given(HEAD, HEAD, ATTRIBUTES)
def test_both_write_the_same(head: bytes, kind: bytes, own: dict[str, Any]) -> None:
    """Byte for byte, or both refuse."""
    assert told(event, head, kind, own) == told(event_slowly, head, kind, own)


@pytest.mark.parametrize("depth", [63, 64, 65, 200])
def test_nesting_has_no_depth_of_its_own(depth: int) -> None:
    """What is too deep for the shortcut goes the long way."""
    details: Any = []
    for _ in range(depth):
        details = [details]
    assert event(b"", b"", {"d": details}) == event_slowly(b"", b"", {"d": details})


def test_the_usual_case_takes_the_shortcut() -> None:
    """A result's own attributes, large ones among them; protobuf reads what was meant."""
    own = {"value": 0.25, "passed": True, "id": "a" * 32, "details": {"extra": [{"tool": "søk", "actual": -3}] * 300}}
    made = native.event(b"", b"", own)
    read = {each.key: each.value for each in Span.FromString(made).events[0].attributes}
    assert made == event_slowly(b"", b"", own)
    assert read["value"].double_value == 0.25
    assert read["passed"].bool_value is True
    assert read["details"].string_value.startswith('{"extra":[{"tool":"søk","actual":-3},')


@pytest.mark.parametrize("odd", [10**30, float("nan"), Colour.RED, "\udfff", {1: 2}, {"a": Decimal(1)}])
def test_the_unusual_is_left_to_python(odd: Any) -> None:
    """It says that it does not know."""
    assert native.event(b"", b"", {"details": {"of": odd}}) is None
