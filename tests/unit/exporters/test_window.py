"""A sliding window against a list that is filtered anew each time."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.exporters.window import (
    PERCENTILES,
    ResultWindow,
    RunResult,
    WindowLimits,
    WindowState,
)

LABELS = st.none() | st.sampled_from("abc")
SCORES = st.none() | st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0])
ADDS = st.tuples(
    st.floats(-1, 5),
    st.integers(0, 6),
    SCORES,
    st.none() | st.booleans(),
    LABELS,
    st.integers(0, 2),
)


class Slow:
    """A reference implementation that searches all results each time."""

    def __init__(self, time_s: float, results: int) -> None:
        self.time_s, self.results, self.now = time_s, results, -math.inf
        self.rows: list[tuple[Any, ...]] = []

    def at(self, now: float) -> None:
        self.now = max(self.now, now)
        self.rows = [row for row in self.rows if self.now - row[0] < self.time_s]

    def add(self, now: float, run: int, value: Any, passed: Any, label: Any, revision: int) -> None:
        self.at(now)
        if any(row[1] == run and row[5] > revision for row in self.rows):
            return
        if revision or (value, passed, label) != (None, None, None):
            row = (self.now, run, value, passed, label, revision)
            self.rows = [*[each for each in self.rows if each[1] != run], row][-self.results :]

    def state(self, now: float) -> WindowState:
        self.at(now)
        values, verdicts, labels = (
            [row[at] for row in self.rows if row[at] is not None] for at in (2, 3, 4)
        )
        counts = Counter(labels)
        shares = {label: counts[label] / len(labels) for label in sorted(counts)}
        return WindowState(
            results=sum(row[2:5] != (None, None, None) for row in self.rows),
            pass_rate=verdicts.count(True) / len(verdicts) if verdicts else None,
            mean=float(sum(map(Fraction, values))) / len(values) if values else None,
            quantiles={each: self.quantile(values, each) for each in PERCENTILES} if values else {},
            counts=dict(counts),
            skew=max(shares.values()) - min(shares.values()) if shares else 0.0,
        )

    @staticmethod
    def quantile(values: list[float], percent: int) -> float:
        """The smallest score that at least so many of a hundred do not exceed."""
        return min(
            each
            for each in values
            if sum(other <= each for other in values) * 100 >= percent * len(values)
        )


@given(st.lists(ADDS), st.floats(0.5, 8), st.integers(1, 5), st.floats(0, 12))
def test_a_window_is_what_a_list_filtered_anew_is(
    adds: list[Any], time_s: float, results: int, later: float
):
    """Any order of runs, revisions and outcomes, instants that go back, at every moment and once
    more later.
    """
    window, slow, now = ResultWindow(time_s, results), Slow(time_s, results), 0.0
    for step, run, value, passed, label, revision in adds:
        now += step
        window.add(now, run, RunResult(value, passed, label, revision))
        slow.add(now, run, value, passed, label, revision)
        assert len(window) <= results
        assert window.state(now) == slow.state(now)
    assert window.state(now + later) == slow.state(now + later)


@pytest.mark.parametrize("earlier", [[], [1]])
def test_an_earlier_revision_that_comes_later_does_not_replace_one_without_a_value(
    earlier: list[int],
):
    """A judge may answer about the earlier one when the later one was skipped already."""
    window = ResultWindow(60, 10)
    for revision in earlier:
        window.add(0, "run", RunResult(1.0, True, revision=revision))
    window.add(1, "run", RunResult(revision=2))
    window.add(2, "run", RunResult(0.5, True, revision=1))
    assert window.state(3).results == 0


def test_an_empty_window_has_no_rate_mean_or_quantile():
    """There is no rate, no mean and no quantile of nothing; nothing is uneven in it."""
    empty = WindowState(results=0, pass_rate=None, mean=None, quantiles={}, counts={}, skew=0.0)
    assert ResultWindow(60, 10).state(0) == empty


def test_quantiles_are_scores_that_occurred():
    """Nearest rank, exact also where floating point would round a rank up."""
    window = ResultWindow(60, 1000)
    for number in range(100):
        window.add(0, number, RunResult(number / 100))
    assert window.state(1).quantiles == {50: 0.49, 90: 0.89, 95: 0.94}


def test_a_result_is_gone_at_the_moment_it_is_too_old():
    """Not before."""
    window = ResultWindow(60, 10)
    window.add(0, "run", RunResult(1.0, True))
    assert [window.state(now).results for now in (59.9, 60.0)] == [1, 0]


@pytest.mark.parametrize(
    ("time_s", "results", "on"), [(3600.0, 10, True), (0.0, 10, False), (3600.0, 0, False)]
)
def test_limits_of_zero_turn_windows_off(time_s: float, results: int, on: bool):
    """0 for either turns it off."""
    assert WindowLimits(time_s, results).enabled is on
