"""Looking through values in C against doing so in Python: the same are taken as they are."""

from __future__ import annotations

import enum
from decimal import Decimal
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from otel_eval.model import UNRECORDED
from otel_eval.native import extension
from otel_eval.scorers.cel import binding
from otel_eval.scorers.cel.binding import Unavailable

native = extension("_values")
if native is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)


class Colour(enum.StrEnum):
    """A text of a class of its own."""

    RED = "red"


TEXT = st.text(st.characters(), max_size=4) | st.sampled_from(["é", "é€𝄞", "\ud800", "a\udfff", "x" * 200])
NUMBER = st.sampled_from([2**63 - 1, -(2**63), 2**63, -(2**63) - 1, 2**200]) | st.integers() | st.floats() | st.booleans()
ODD = st.sampled_from([Colour.RED, Decimal("1.5"), {1, 2}, {7: "seven"}, (1,), b"bytes", MappingProxyType({"a": 1}), range(3)])
PLAIN = TEXT | NUMBER | st.sampled_from([None, UNRECORDED])


def nested(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """Lists of these, and of lists and mappings of them."""
    inside = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3))
    return st.lists(inside, max_size=4)


def taken(contents: list[Any], *, gathers: bool = False) -> bool:
    """Whether Python takes them, and as they are."""
    values = {"all": contents}
    try:
        return binding._surely_fitting(values, contents, gathers=gathers) is values
    except Unavailable:
        return False


def fit(contents: list[Any], *, gathers: bool = False) -> bool:
    """The same in C."""
    longest = binding.MOST_GATHERED if gathers else binding._MOST_VALUES
    limits = (binding._MOST_VALUES, binding.MOST_CHARACTERS, binding._DEEPEST, longest)
    return bool(native.fit(contents, *limits, UNRECORDED))


def within(value: Any, levels: int) -> Any:
    """The value in lists."""
    for _ in range(levels):
        value = [value]
    return value


@given(nested(PLAIN))
@example([UNRECORDED, {"a": UNRECORDED}])
def test_both_take_the_same_as_they_are(contents: list[Any]) -> None:
    """Texts that are Unicode and numbers of 64 bits, however nested."""
    assert fit(contents) == taken(contents)


@given(nested(PLAIN | ODD))
@example([{7: "seven"}])
def test_nothing_is_taken_that_python_would_not_take(contents: list[Any]) -> None:
    """Values of other classes are left to it."""
    assert taken(contents) or not fit(contents)


AROUND = [
    *([1] * size for size in (99_999, 100_000, 100_001)),
    *([[1] * size] for size in (99_998, 99_999, 100_000)),
    *([{str(at): 1 for at in range(size)}] for size in (40_000, 99_999, 100_000)),
    *(["x" * (size // 2), "é" * (size - size // 2)] for size in (2**18, 2**18 + 1)),
    *([{"x" * size: ""}] for size in (2**18, 2**18 + 1)),
    *([within(1, levels)] for levels in (62, 63, 64, 65, 5000)),
    *([within({}, levels)] for levels in (62, 63, 64)),
]


@pytest.mark.parametrize("contents", AROUND, ids=range(len(AROUND)))
def test_both_know_the_same_limits(contents: list[Any]) -> None:
    """To the last value, character and level."""
    assert fit(contents) == taken(contents)


@pytest.mark.parametrize("size", [999, 1000, 1001])
def test_lists_that_others_are_built_from_have_a_limit_of_their_own(size: int) -> None:
    """What is looked at, by itself, has none."""
    assert fit([{"a": [1] * size}], gathers=True) == taken([{"a": [1] * size}], gathers=True) == (size <= 1000)
    assert fit([1] * size, gathers=True)
    assert fit([{"a": [1] * size}])


def test_values_within_themselves_are_not_taken() -> None:
    """The levels come to an end."""
    around: list[Any] = []
    around.append(around)
    assert not fit(around)
