"""What calls weigh with their arguments as C tells it against Python: the same pairs and weights of any calls, however odd."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from otel_eval import create_scorer
from otel_eval.model import UNRECORDED, Failed, Scored, Skipped, Trajectory
from otel_eval.native import extension
from otel_eval.scorers import counting, expected, weights
from otel_eval.scorers.alignment import TooMuch, align
from otel_eval.scorers.counting import prepared_calls
from otel_eval.testing import call, trajectory

if extension("_matching") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)


class Text(str):
    """Equal to a string."""


class Unlike:
    """Refuses to be compared."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise OSError("refused")


class Unhashed(str):
    """Refuses to be hashed."""

    def __hash__(self) -> int:
        raise OSError("refused")


MODES = ("exact", "subset", "superset", "overlap")
MATCHES = ("exact", "in_order", "any_order")
SCALARS = st.sampled_from([0, 1, 1.0, True, False, None, "", "x", "1", "é", 2**70, -1, 0.5, float("inf")])
ODD = st.sampled_from([float("nan"), (1, 2), {1, 2}, Text("x"), {1: 2}, {Text("k"): 1}, b"x", Unlike(), UNRECORDED])
KEYS = st.sampled_from(["k", "l", "m", "n", "__value__"])
VALUES = st.recursive(SCALARS, lambda below: st.lists(below, max_size=2) | st.dictionaries(KEYS, below, max_size=3), max_leaves=5)
PLAIN = st.dictionaries(KEYS, st.sampled_from([0, 1, "x"]), max_size=3) | st.dictionaries(KEYS, VALUES, max_size=4) | VALUES
ANYTHING = PLAIN | ODD | st.dictionaries(KEYS, ODD, max_size=2)
NAMES = st.sampled_from("abc")
TIMES = st.none() | st.integers(0, 5)


def calls(arguments: Any) -> Any:
    return st.lists(st.tuples(NAMES, arguments), max_size=8)


def scorer_of(wanted: Any, mode: str, match: str, *, nested: bool = False, **parameters: Any) -> Any:
    """The general form; an expected call whose arguments are `UNRECORDED` names none."""
    expected: list[Any] = [{"name": name} | ({} if own is UNRECORDED else {"arguments": own}) for name, own in wanted]
    if nested and len(expected) > 2:
        expected = [expected[0], expected[1:]]
    return create_scorer({"type": "trajectory_match", "expected": expected, "arguments": mode, "match": match, **parameters})


def run_of(made: Any, times: Any = ()) -> Trajectory:
    """Calls in order; one after the other unless times are given."""
    spread = [*times, *([(None, None)] * len(made))]
    return trajectory(
        *(
            call(name, arguments=own, start_ns=start, end_ns=end, span_id=f"{at:x}")
            for at, ((name, own), (start, end)) in enumerate(zip(made, spread, strict=False))
        )
    )


def by_python(scorer: Any) -> Any:
    """The same without the shortcut."""
    slow = copy.copy(scorer)
    object.__setattr__(slow, "weigher", None)
    object.__setattr__(slow, "scoring", None)
    return slow


def told(scorer: Any, run: Trajectory) -> Any:
    """All of an outcome, or what was raised."""
    try:
        found = scorer(run)
        return (found.value, found.passed, found.explanation, found.details) if isinstance(found, Scored) else found
    except Exception as error:  # noqa: BLE001 - whatever it is, both must raise the same
        return type(error)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("match", MATCHES)
@given(
    calls(PLAIN),
    calls(PLAIN),
    st.integers(0, 3),
    st.lists(st.tuples(TIMES, TIMES), max_size=8),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["allow", "forbid"]),
)
def test_both_tell_the_same(
    mode: str, match: str, wanted: Any, made: Any, alike: int, times: Any, ignore: bool, nested: bool, extra: str
) -> None:
    """Value, explanation and details, to the last bit."""
    made = [wanted, wanted[::-1], made, made][alike]
    concurrency = "ignore" if ignore else "respect"
    scorer = scorer_of(wanted, mode, match, nested=nested, concurrency=concurrency, measure="f1", extra=extra)
    run = run_of(made, times if alike == 3 else ())
    told_in_c = scorer.weigher.weight(run.calls, match, not ignore, scorer.kinds is not None)
    event(f"answered in C: {told_in_c is not None}")
    assert told(scorer, run) == told(by_python(scorer), run)


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=40)
@given(calls(ANYTHING), calls(ANYTHING), st.sampled_from(MATCHES))
def test_odd_arguments_are_left_to_python(mode: str, wanted: Any, made: Any, match: str) -> None:
    """Nothing breaks, and what they raise comes through; where C needs no comparison there is a value all the same."""
    scorer = told_of = None
    try:
        scorer = scorer_of(wanted, mode, match)
    except (TypeError, OSError) as error:
        told_of = error
    if scorer is not None:
        here, in_python = told(scorer, run_of(made)), told(by_python(scorer), run_of(made))
        spared = in_python is OSError and isinstance(here, tuple)
        assert spared or repr(here) == repr(in_python)
    assert scorer is not None or told_of is not None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("match", MATCHES)
@settings(max_examples=15)
@given(st.integers(45, 130), st.integers(40, 130), st.integers(1, 4), st.integers(1, 4), st.randoms(use_true_random=False))
def test_long_runs_weigh_the_same(mode: str, match: str, expected: int, made: int, names: int, values: int, rng: Any) -> None:
    """Those of which equal calls are compared once: pairs and weights, thirds among them."""

    def drawn(count: int) -> list[tuple[str, dict[str, int]]]:
        return [
            ("abcd"[rng.randrange(names)], {key: rng.randrange(values) for key in "xyz"[: rng.randrange(4)]})
            for _ in range(count)
        ]

    scorer, run = scorer_of(drawn(expected), mode, match), run_of(drawn(made))
    pairs, weight = scorer.weigher.weight(run.calls, match, True, False)
    if match == "exact":
        assert pairs == weight == 0 or (expected == made and told(by_python(scorer), run)[0] == 1)
        return
    aligned = align(scorer.expected, run.calls, match, scorer.comparison, concurrency=True)
    assert (pairs, weight) == (len(aligned.pairs), aligned.weight)


@pytest.mark.parametrize("match", ["in_order", "any_order"])
def test_a_thousand_calls_weigh_the_same(match: str) -> None:
    """Enough for other threads to run meanwhile."""
    wanted = [("a", {"x": at % 7, "y": at % 3, "z": at % 5}) for at in range(300)]
    made = [("a", {"x": at % 5, "y": at % 3, "z": at % 4}) for at in range(280)]
    scorer, run = scorer_of(wanted, "overlap", match), run_of(made)
    aligned = align(scorer.expected, run.calls, match, scorer.comparison, concurrency=True)
    assert scorer.weigher.weight(run.calls, match, True, True) == (len(aligned.pairs), aligned.weight)


@pytest.mark.parametrize("match", MATCHES)
@pytest.mark.parametrize("most", [10, 500, 5000, 50_000, 10**9])
def test_where_python_counts_its_steps_python_answers(match: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped by one, skipped by the other."""
    monkeypatch.setattr(weights, "_MOST_STEPS", most)
    wanted = [("a", {"x": at % 7, "y": at % 3}) for at in range(60)]
    made = [("a", {"x": at % 5, "y": at % 4}) for at in range(60)]
    scorer, run = scorer_of(wanted, "overlap", match), run_of(made)
    assert told(scorer, run) == told(by_python(scorer), run)
    try:
        aligned = align(scorer.expected, run.calls, match, scorer.comparison, concurrency=True)
    except TooMuch:
        assert scorer.weigher.weight(run.calls, match, True, False) is None
    else:
        assert most >= 500
        assert match == "exact" or scorer.weigher.weight(run.calls, match, True, False) in (
            None,
            (len(aligned.pairs), aligned.weight),
        )


def nested_in(depth: int) -> Any:
    """A value of so many lists."""
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "own", [nested_in(200), {"x": float("nan")}, {"x": (1,)}, {1: 2}, {"x": Unlike()}, Text("x"), Unhashed("x")]
)
def test_nothing_is_prepared_for_arguments_that_are_odd(own: Any) -> None:
    """And odd ones that were made are not looked at."""
    assert (
        scorer_of([("a", {"x": 1})], "exact", "any_order").weigher.weight([call("a", arguments=own)], "in_order", True, False)
        is None
    )
    wanted = expected.Expectation((expected.Expected("a", own),), (range(1),))
    assert prepared_calls(wanted, expected.Comparison(arguments=counting.MODES["exact"])) is None


def test_a_value_that_holds_itself_is_left_to_python() -> None:
    """As are many that hold one another."""
    circle: list[Any] = []
    circle.append(circle)
    wide: Any = 1
    for _ in range(50):
        wide = [wide, wide]
    scorer = scorer_of([("a", {"x": 1})], "overlap", "any_order")
    for own in (circle, wide):
        assert scorer.weigher.weight([call("a", arguments={"x": own})], "any_order", True, False) is None


def test_arguments_that_were_not_recorded_are_left_to_python() -> None:
    """Which skips the run; of a name that names no arguments they do not matter."""
    scorer = scorer_of([("a", {"x": 1}), ("b", UNRECORDED)], "subset", "any_order")
    assert isinstance(scorer.find(run_of([("a", UNRECORDED)])), Skipped)
    assert scorer.weigher.weight([call("b"), call("c")], "any_order", True, False) == (1, 1.0)


def test_expectations_that_come_with_the_run_are_told_alike() -> None:
    """They are prepared for that run."""
    scorer = create_scorer({"type": "tool_correctness", "compare": ["arguments"], "reference": "wanted"})
    wanted = [{"name": "a", "arguments": {"x": 1, "y": 2}}, "b"]
    run = replace(run_of([("b", {}), ("a", {"x": 1, "y": 3})]), attributes={"wanted": wanted})
    outcome: Any = scorer(run)
    assert not isinstance(outcome, Failed)
    assert (outcome.value, outcome.explanation) == (0.75, "2 of 2 expected calls matched (agreement 1.5)")


@pytest.mark.parametrize("given", [(), ([], "exact", False), ([], 1, False, False), ([], "", False, False)])
def test_wrong_arguments_are_refused(given: tuple[Any, ...]) -> None:
    """One line that says how it is asked."""
    with pytest.raises(TypeError, match="weight\\(visits, match"):
        scorer_of([("a", 1)], "exact", "exact").weigher.weight(*given)


@pytest.mark.parametrize(
    "visits", [iter([]), [7], [object.__new__(type(call("a")))], [call("a", arguments={}, start_ns=2**90, end_ns=2**91)]]
)
def test_what_is_not_plain_is_left_to_python(visits: Any) -> None:
    """As with names alone."""
    assert scorer_of([("a", {})], "exact", "in_order").weigher.weight(visits, "in_order", True, True) is None


@pytest.mark.parametrize("changed", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_a_scorer_is_copied_and_pickled(changed: Any) -> None:
    """With what was prepared."""
    scorer = changed(scorer_of([("a", {"x": 1}), ("b", UNRECORDED)], "subset", "in_order"))
    assert scorer.weigher.weight([call("a", arguments={"x": 1})], "in_order", True, False) == (1, 1.0)


def test_nothing_is_kept(kept: Callable[[Callable[[], None]], tuple[int, int]]) -> None:
    """After many weights of plain and odd runs, and many expectations, as many objects and bytes are there as before."""
    odd = [call("a", arguments={"x": (1,)})]
    plain = [call("a", arguments={"x": at % 3, "y": {"z": [at % 2, "new"], "w": f"new {at}"}}) for at in range(60)]

    def many() -> None:
        for _ in range(60):
            scorer = scorer_of([("a", {"x": at % 4, "y": {"z": [1], "v": at}}) for at in range(60)], "overlap", "any_order")
            for visits in (plain, odd, [call("a")], ()):
                for match in MATCHES:
                    scorer.weigher.weight(visits, match, True, True)
            copy.copy(scorer.weigher)

    grown, blocks = kept(many)
    assert grown < 4000
    assert blocks < 200
