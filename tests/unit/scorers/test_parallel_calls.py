"""Which calls could not have known of one another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.model import ToolCall
from otel_eval.scorers.partial_order import is_sequential, parallel_groups
from otel_eval.testing import call, trajectory


def at(start, end, **fields):
    """A call with times."""
    return call("t", start_ns=start, end_ns=end, **fields)


def sizes(*calls):
    """How many calls each batch holds."""
    return [len(batch) for batch in parallel_groups(calls)]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        ([], []),
        ([at(1, 4), at(2, 6)], [2]),
        ([at(1, 4), at(4, 6)], [1, 1]),
        ([at(1, 9), at(2, 3), at(4, 5)], [2, 1]),
        ([at(1, 9), at(2, 8), at(3, 7)], [3]),
        ([at(1, 4), at(2, 6), at(4, 7), at(5, 8)], [2, 2]),
        ([at(5, 5), at(5, 9)], [2]),
        ([at(5, 5), at(5, 9), at(6, 7)], [2, 1]),
        ([at(0, 5), at(1, 6)], [2]),
        ([at(0, 0), at(0, 0)], [1, 1]),
        ([call("t"), call("t")], [1, 1]),
        ([at(1, 9), call("t"), at(2, 8)], [1, 1, 1]),
        ([at(1, None), at(1, None)], [1, 1]),
    ],
)
def test_calls_are_cut_where_one_could_have_known_of_another(calls, expected):
    """A start at the very instant of an end is after it; equal starts are together; without times
    calls follow.
    """
    assert sizes(*calls) == expected


def test_a_call_comes_after_the_call_that_encloses_it():
    """Although it starts while that one still runs."""
    assert sizes(at(1, 9, span_id="outer"), at(2, 3, enclosing=["outer"])) == [1, 1]


def test_a_call_follows_the_call_that_encloses_it_whatever_ran_in_parallel():
    """One member of the batch is enough."""
    assert sizes(
        at(1, 9, span_id="outer"), at(2, 8, span_id="other"), at(3, 7, enclosing=["outer"])
    ) == [2, 1]


def test_calls_below_different_calls_may_still_be_together():
    """What encloses one of them does not matter if it is in an earlier batch."""
    assert sizes(
        at(1, 9, span_id="o"), at(2, 5, span_id="x", enclosing=["o"]), at(3, 6, enclosing=["o"])
    ) == [1, 2]


def by_definition(calls: list[ToolCall]) -> list[int]:
    """The rule as it is written, call by call against every member."""
    found: list[list[ToolCall]] = []
    for each in calls:
        together = found and all(
            member.start_ns == each.start_ns or member.end_ns > each.start_ns
            for member in found[-1]
        )
        if together:
            found[-1].append(each)
        else:
            found.append([each])
    return [len(batch) for batch in found]


TIMES = st.tuples(st.integers(1, 8), st.integers(0, 5)).map(
    lambda time: at(time[0], time[0] + time[1])
)


@given(st.lists(TIMES, max_size=8))
def test_batches_are_those_of_the_definition(calls):
    """Every call against every member of the batch before it."""
    ordered = list(trajectory(*calls).calls)
    assert sizes(*ordered) == by_definition(ordered)


@pytest.mark.parametrize(("start", "follow"), [(5, False), (6, True)])
def test_a_call_that_starts_after_an_instantaneous_one_follows_it(start, follow):
    """Not what starts at the same instant."""
    assert is_sequential([at(5, 5), at(start, 9)]) == follow


UNTIMED = st.sampled_from([call("t"), at(3, None), at(None, 3), at(0, 0)])


@given(st.lists(TIMES | UNTIMED, max_size=6))
def test_calls_that_follow_one_another_are_alone_in_their_batches(calls):
    """The quick answer never contradicts the full one."""
    if is_sequential(calls):
        assert sizes(*calls) == [1] * len(calls)
