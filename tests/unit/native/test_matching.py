"""The weight of calls as C tells it against that of Python: the same of any calls, however odd."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from otel_eval.model import SpanVisit, ToolCall
from otel_eval.native import extension
from otel_eval.scorers.counting import weight_in_python, weight_of_names
from otel_eval.scorers.expected import Expectation, Expected
from otel_eval.testing import call

if extension("_matching") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

MATCHES = st.sampled_from(["exact", "in_order", "any_order"])


class Text(str):
    """Equal to a string."""


@dataclass
class Loose:
    """A visit without slots."""

    name: Any
    start_ns: Any = None
    end_ns: Any = None
    span_id: str = ""
    enclosing: tuple[str, ...] = ()


@dataclass
class Stubborn(Loose):
    """A visit that refuses to tell a time."""

    def __getattribute__(self, name: str) -> Any:
        if name == "start_ns":
            raise OSError(name)
        return object.__getattribute__(self, name)


class Unlike(str):
    """A name that refuses to be compared."""

    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise OSError("refused")


NAMES = st.sampled_from(["a", "b", "c", "é", "", "x" * 80])
TIMES = st.none() | st.integers(0, 9) | st.sampled_from([-1, 2**62, 2**63 - 1, 2**63, 2**80, 2.5, True])
PLAIN = st.builds(lambda name, start, end: call(name, start_ns=start, end_ns=end), NAMES, TIMES, TIMES)
ODD = st.builds(SpanVisit, NAMES, TIMES, TIMES) | st.builds(Loose, NAMES | st.builds(Text, NAMES), TIMES, TIMES)
VISITS = st.lists(PLAIN, max_size=8) | st.lists(PLAIN | ODD, max_size=6) | st.lists(ODD, max_size=4).map(tuple)


def expectation(names: list[str], *, nested: bool = False) -> Expectation:
    groups = (range(len(names)),) if nested else tuple(range(at, at + 1) for at in range(len(names)))
    return Expectation(tuple(Expected(name) for name in names), groups)


def told(how: Any, *given: Any, concurrency: bool) -> Any:
    """A weight, or what was raised."""
    try:
        return how(*given, concurrency=concurrency)
    except Exception as error:  # noqa: BLE001 - whatever it is, both must raise the same
        return type(error)


@given(st.lists(NAMES, max_size=8), VISITS, MATCHES, st.booleans(), st.booleans())
def test_both_tell_the_same_weight(names: list[str], visits: Any, match: str, nested: bool, concurrency: bool) -> None:
    """Or None, or the same kind of error."""
    wanted = expectation(names, nested=nested)
    event(f"answered in C: {wanted.names.weight(visits, match, wanted.nested, concurrency) is not NotImplemented}")
    told_in_c = told(weight_of_names, wanted, visits, match, concurrency=concurrency)
    assert told_in_c == told(weight_in_python, wanted, visits, match, concurrency=concurrency)


@given(st.integers(1, 400), st.integers(0, 400), st.integers(1, 90), st.randoms(use_true_random=False), MATCHES)
def test_long_runs_weigh_the_same(expected: int, made: int, kinds: int, rng: Any, match: str) -> None:
    """Rows of several words, and more kinds than bits in one."""
    wanted = expectation([f"t{rng.randrange(kinds)}" for _ in range(expected)])
    visits = [call(f"t{rng.randrange(kinds)}") for _ in range(made)]
    found = wanted.names.weight(visits, match, False, True)
    assert found == weight_in_python(wanted, visits, match, concurrency=True)


def test_a_very_long_run_weighs_the_same() -> None:
    """One for which other threads may run meanwhile."""
    wanted = expectation([f"t{at * at % 97}" for at in range(4000)])
    visits = [call(f"t{at * 7 % 89}") for at in range(4000)]
    assert weight_of_names(wanted, visits, "in_order", concurrency=True) == weight_in_python(
        wanted, visits, "in_order", concurrency=True
    )


@pytest.mark.parametrize(
    "visits",
    [
        [Loose("a")],
        [call("a"), SpanVisit("b", 1, 2)],
        [ToolCall(name=Text("a"))],
        [call("a", start_ns=2**70, end_ns=2**71)],
        [object.__new__(ToolCall)],
        [7],
        iter([call("a")]),
        "ab",
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_not_plain_is_left_to_python(visits: Any) -> None:
    """Other classes, other kinds of names, numbers too large, slots that were never set."""
    assert expectation(["b"]).names.weight(visits, "exact", False, True) is NotImplemented


@pytest.mark.parametrize("visit", [Stubborn("b"), ToolCall(name=Unlike("a")), object.__new__(ToolCall)])
def test_what_a_visit_raises_comes_through(visit: Any) -> None:
    """As it does from Python."""
    wanted = expectation(["a"])
    with pytest.raises((OSError, AttributeError)):
        weight_of_names(wanted, [visit], "exact", concurrency=True)


def test_a_class_that_is_changed_is_looked_at_again() -> None:
    """A name that became a property is asked for by Python."""

    class Changing(SpanVisit):
        """To be changed."""

        __slots__ = ()

    wanted, visits = expectation(["a"]), [Changing("a", 1, 2)]
    assert wanted.names.weight(visits, "exact", False, True) == 1
    Changing.name = property(lambda _: "b")  # type: ignore[assignment,misc]
    assert wanted.names.weight(visits, "exact", False, True) is NotImplemented
    assert weight_of_names(wanted, visits, "exact", concurrency=True) == 0


def test_names_that_are_no_strings_are_left_to_python() -> None:
    """Nothing is prepared for them."""
    matching: Any = extension("_matching")
    assert [matching.names(each) for each in ((Text("a"),), ("a", 1), ["a"], None)] == [None] * 4
    assert expectation([Text("a")]).names is None


@pytest.mark.parametrize("given", [(), ([], "exact", False), ([], 1, False, False), ([], "", False, False)])
def test_wrong_arguments_are_refused(given: tuple[Any, ...]) -> None:
    """One line that says how it is asked."""
    with pytest.raises(TypeError, match="weight\\(visits, match"):
        expectation(["a"]).names.weight(*given)


@pytest.mark.parametrize("changed", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_an_expectation_is_copied_and_pickled(changed: Any) -> None:
    """With what was prepared."""
    wanted = changed(expectation(["a", "b"]))
    assert wanted == expectation(["a", "b"])
    assert wanted.names.weight([call("b")], "in_order", False, True) == 1


def test_nothing_is_kept(kept: Callable[[Callable[[], None]], tuple[int, int]]) -> None:
    """After many weights of plain and odd runs, and many expectations, as many objects and bytes are there as before."""

    def many() -> None:
        for _ in range(300):
            wanted = expectation(["a", "b", "x" * 80] * 30)
            for visits in ([call("b"), call("x" * 80)] * 40, [Loose("a")], [object.__new__(ToolCall)], (call("b"),)):
                wanted.names.weight(visits, "in_order", False, True)
            copy.copy(wanted.names)

    grown, blocks = kept(many)
    assert grown < 4000
    assert blocks < 200
