"""Which calls are paired as C tells it against Python: the same pairs, weights and misplaced calls of any runs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from otel_eval import create_scorer
from otel_eval.model import UNRECORDED, SpanVisit, Trajectory
from otel_eval.native import extension
from otel_eval.scorers.alignment import align, pairs_in_python
from otel_eval.scorers.expected import Expectation, Expected
from otel_eval.testing import call, trajectory

if extension("_matching") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

NAMES = st.lists(st.sampled_from("abc"), max_size=9)
TIMES = st.lists(st.tuples(st.none() | st.integers(0, 6), st.none() | st.integers(0, 6)), max_size=9)
ARGUMENTS = st.dictionaries(st.sampled_from("klmn"), st.sampled_from([0, 1, "x", [1], {"y": 1}, {"y": 2, "z": 1}]), max_size=3)
CALLS = st.lists(st.tuples(st.sampled_from("ab"), ARGUMENTS), max_size=8)
MODES = ("exact", "subset", "superset", "overlap")
MATCHES = ("exact", "in_order", "any_order")


def expectation(names: list[str], *, nested: bool = False) -> Expectation:
    groups = (range(len(names)),) if nested else tuple(range(at, at + 1) for at in range(len(names)))
    return Expectation(tuple(Expected(name) for name in names), groups)


def run_of(made: Any, times: Any = ()) -> Trajectory:
    """Calls in order; one after the other unless times are given."""
    spread = [*times, *([(None, None)] * len(made))]
    return trajectory(
        *(call(name, arguments=own, start_ns=start, end_ns=end) for (name, own), (start, end) in zip(made, spread, strict=False))
    )


def scorer_of(wanted: Any, mode: str, match: str) -> Any:
    expected = [{"name": name} | ({} if own is None else {"arguments": own}) for name, own in wanted]
    return create_scorer({"type": "trajectory_match", "expected": expected, "arguments": mode, "match": match})


def both(scorer: Any, run: Trajectory, match: str, *, concurrency: bool = True) -> tuple[Any, Any]:
    """The alignment with and without the shortcut."""
    given = (scorer.expected, run.calls, match, scorer.comparison)
    return align(*given, concurrency=concurrency, prepared=scorer.weigher), align(*given, concurrency=concurrency)


@given(NAMES, NAMES, TIMES, st.booleans(), st.booleans(), st.booleans())
def test_names_are_paired_the_same(
    wanted: list[str], made: list[str], times: Any, anyhow: bool, nested: bool, concurrency: bool
) -> None:
    """Or not at all, where some calls ran at once or may come in any order."""
    expected, visits = expectation(wanted, nested=nested), run_of([(name, {}) for name in made], times).calls
    found = expected.names.pairs(visits, anyhow, expected.nested, concurrency)
    event(f"answered in C: {found is not None}")
    in_python = pairs_in_python(expected, visits, [visit.name for visit in visits], anyhow=anyhow, concurrency=concurrency)
    assert found is None or found == in_python


@pytest.mark.parametrize("anyhow", [False, True])
@settings(max_examples=25)
@given(st.integers(1, 400), st.integers(0, 400), st.integers(1, 90), st.randoms(use_true_random=False))
def test_long_runs_are_paired_the_same(anyhow: bool, expected: int, made: int, kinds: int, rng: Any) -> None:
    """Rows of several words, and more kinds than bits in one."""
    wanted, names = (
        expectation([f"t{rng.randrange(kinds)}" for _ in range(expected)]),
        [f"t{rng.randrange(kinds)}" for _ in range(made)],
    )
    visits = [call(name) for name in names]
    in_python = pairs_in_python(wanted, visits, names, anyhow=anyhow, concurrency=True)
    assert wanted.names.pairs(visits, anyhow, False, True) == in_python


def test_a_very_long_run_is_paired_the_same_and_a_longer_one_left_to_python() -> None:
    """One for which other threads may run meanwhile; one whose rows would take too much memory."""
    names = [f"t{at * 7 % 89}" for at in range(4000)]
    wanted, visits = expectation([f"t{at * at % 97}" for at in range(4000)]), [call(name) for name in names]
    assert wanted.names.pairs(visits, False, False, True) == pairs_in_python(
        wanted, visits, names, anyhow=False, concurrency=True
    )
    assert wanted.names.pairs(visits * 10, False, False, True) is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("match", MATCHES)
@given(CALLS, CALLS, st.integers(0, 3), TIMES, st.booleans())
def test_calls_are_paired_the_same(
    mode: str, match: str, wanted: Any, made: Any, alike: int, times: Any, concurrency: bool
) -> None:
    """Pairs, what each weighs, the sum, and calls that agree but for their place."""
    made = [wanted, wanted[::-1], made, made][alike]
    scorer, run = scorer_of(wanted, mode, match), run_of(made, times if alike == 3 else ())
    found = None if scorer.weigher is None else scorer.weigher.pairs(run.calls, match == "any_order", concurrency, True)
    event(f"answered in C: {found is not None}")
    here, in_python = both(scorer, run, match, concurrency=concurrency)
    assert here == in_python


@pytest.mark.parametrize("match", MATCHES)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.none() | ARGUMENTS), max_size=6), CALLS)
def test_expected_calls_that_name_no_arguments_are_paired_the_same(match: str, wanted: Any, made: Any) -> None:
    """Any call of the name is one of them."""
    here, in_python = both(scorer_of(wanted, "overlap", match), run_of(made), match)
    assert here == in_python


@pytest.mark.parametrize("mode", ["subset", "overlap"])
@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=10)
@given(st.integers(45, 130), st.integers(40, 130), st.integers(1, 4), st.randoms(use_true_random=False))
def test_long_runs_of_calls_are_paired_the_same(mode: str, match: str, expected: int, made: int, kinds: int, rng: Any) -> None:
    """So many that equal calls are compared once."""
    wanted, calls = (
        [(rng.choice("abc"), {"k": rng.randrange(kinds), "l": rng.randrange(kinds)}) for _ in range(count)]
        for count in (expected, made)
    )
    here, in_python = both(scorer_of(wanted, mode, match), run_of(calls), match)
    assert here == in_python


@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=15)
@given(
    st.integers(30, 110), st.integers(1, 3), st.integers(2, 4), st.sampled_from([0.05, 0.2]), st.randoms(use_true_random=False)
)
def test_runs_near_to_what_is_expected_are_paired_the_same(
    match: str, count: int, tools: int, values: int, part: float, rng: Any
) -> None:
    """Where pairs far aside, or links that weigh too little, need not be looked at."""

    def one() -> Any:
        return rng.choice("abc"[:tools]), {key: rng.randrange(values) for key in "klm" if rng.random() < 0.9}

    wanted = [one() for _ in range(count)]
    made = [one() if rng.random() < part else each for each in wanted if rng.random() > part]
    for _ in range(int(count * part)):
        made.insert(rng.randrange(len(made) + 1), one())
    here, in_python = both(scorer_of(wanted, "overlap", match), run_of(made), match)
    assert here == in_python


@pytest.mark.parametrize(
    "visits",
    [
        [SpanVisit("b", 1, 2), call("a")],
        [call("a", start_ns=2**70, end_ns=2**71), call("b")],
        [call("a", arguments=UNRECORDED), call("b")],
        [call("a", arguments={"k": (1,)}), call("b")],
        iter([call("a")]),
        7,
    ],
    ids=lambda each: type(each).__name__,
)
def test_what_is_not_plain_is_left_to_python(visits: Any) -> None:
    """Other classes, times too large, arguments that nobody recorded or that are no JSON."""
    assert scorer_of([("a", {"k": 1})], "overlap", "in_order").weigher.pairs(visits, False, True, True) is None


@pytest.mark.parametrize("given", [(), ([],), ([], True, True), ([], True, True, True, True)])
def test_wrong_arguments_are_refused(given: tuple[Any, ...]) -> None:
    """One line that says how it is asked."""
    with pytest.raises(TypeError, match="pairs\\(visits, in any order"):
        expectation(["a"]).names.pairs(*given)
    with pytest.raises(TypeError, match="pairs\\(visits, in any order"):
        scorer_of([("a", {})], "exact", "exact").weigher.pairs(*given)


def test_nothing_is_kept(kept: Callable[[Callable[[], None]], tuple[int, int]]) -> None:
    """After many pairs of plain and odd runs as many objects and bytes are there as before."""
    odd = [call("a", arguments={"x": (1,)})]
    plain = [call("a", arguments={"x": at % 3, "y": {"z": [at % 2, "new"], "w": f"new {at}"}}) for at in range(60)]
    scorer = scorer_of([("a", {"x": at % 4, "y": {"z": [1], "v": at}}) for at in range(60)], "overlap", "any_order")

    def many() -> None:
        for _ in range(60):
            for visits in (plain, odd, [call("a")], ()):
                for anyhow in (False, True):
                    scorer.weigher.pairs(visits, anyhow, True, True)
                    scorer.expected.names.pairs(visits, anyhow, False, True)
            copy.copy(scorer)

    grown, blocks = kept(many)
    assert grown < 4000
    assert blocks < 50
