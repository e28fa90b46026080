"""A run scored by C from end to end against Python: the same outcomes, and whatever is not plain left to Python."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from otel_eval import create_scorer
from otel_eval.model import Outcome, Scored, Skipped, SpanVisit, Trajectory
from otel_eval.native import extension
from otel_eval.scorers.calls import ToolCallOrder
from otel_eval.scorers.expectations import names
from otel_eval.testing import call, trajectory

if extension("_matching") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

NAMES = st.lists(st.sampled_from("abc"), max_size=6)
KINDS = ["tool_call_order", "execution_order", "tool_correctness", "trajectory_match", "tool_call_args"]
TYPES = st.sampled_from(KINDS)
FRAMES: Any = st.fixed_dictionaries(
    {"threshold": st.sampled_from([0.0, 1 / 3, 0.5, 2 / 3, 1.0]), "strict": st.booleans()},
    optional={
        "failed_calls": st.just("exclude"),
        "tools": st.just({"exclude": ["b"]}),
        "concurrency": st.just("ignore"),
        "include_content": st.just(True),
    },
)
MANNERS: Any = st.fixed_dictionaries(
    {},
    optional={
        "match": st.sampled_from(["exact", "in_order", "any_order"]),
        "measure": st.sampled_from(["recall", "precision", "f1"]),
    },
)
FORBIDDEN: Any = st.sampled_from([{}, {}, {"extra": "forbid"}, {"missing": "forbid"}])
TAKES = {
    "trajectory_match": ("match", "measure", "extra", "missing"),
    "tool_correctness": ("match", "measure"),
    "execution_order": ("match",),
}


def scorer_of(kind: str, expected: Sequence[str], **parameters: Any) -> Any:
    wanted = (
        [{"name": name, "arguments": {"x": 1}} for name in expected]
        if kind in ("tool_call_args", "trajectory_match")
        else expected
    )
    taken = {
        key: value for key, value in parameters.items() if key not in TAKES["trajectory_match"] or key in TAKES.get(kind, ())
    }
    return create_scorer({"type": kind, "expected": wanted, **taken})


def run_of(made: Sequence[str], **facts: Any) -> Trajectory:
    calls = (call(name, arguments={"x": at % 2}, error="broke" if at == 3 else None) for at, name in enumerate(made))
    return replace(trajectory(*calls), **facts)


def by_python(scorer: Any) -> Any:
    slow = copy.copy(scorer)
    object.__setattr__(slow, "scoring", None)
    return slow


@given(TYPES, NAMES, NAMES, FRAMES, MANNERS, FORBIDDEN, st.booleans())
def test_both_give_the_same_outcome(
    kind: str, wanted: list[str], made: list[str], frame: dict[str, Any], manner: Any, forbidden: Any, alike: bool
) -> None:
    """Value, verdict, explanation and details, whatever the parameters."""
    scorer, run = scorer_of(kind, wanted, **frame, **manner, **forbidden), run_of(wanted if alike else made)
    event(f"answered in C: {scorer.scoring is not None and scorer.scoring.score(scorer, run) is not None}")
    found, in_python = scorer(run), by_python(scorer)(run)
    assert found == in_python
    assert repr(found) == repr(in_python)


@pytest.mark.parametrize("strict", [False, True])
def test_an_outcome_is_like_any_other(strict: bool) -> None:
    """Frozen, hashable as Python's are, explained when asked and then no longer bound to the run."""
    outcome = create_scorer({"type": "tool_call_order", "expected": ["a", "b", "c"], "strict": strict, "threshold": 0.6})(
        run_of("ab")
    )
    assert isinstance(outcome, Scored)
    assert outcome.tell is not None
    assert outcome.tell() == outcome.tell()
    assert (outcome.value, outcome.passed) == ((0.0, False) if strict else (2 / 3, True))
    assert outcome.explanation == "2 of 3 expected calls matched; missing: c (2)"
    assert outcome.details == {
        "matched": [[0, 0], [1, 1]],
        "missing": [{"tool": "c", "expected": 2}],
        "extra": [],
        "misplaced": [],
        "seen": ["a", "b"],
    }
    assert outcome.tell is None
    with pytest.raises(AttributeError):
        outcome.value = 1.0  # type: ignore[misc]


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (run_of("a", incomplete="tool spans missing"), "incomplete: tool spans missing"),
        (run_of("a", calls_unknown="no tool spans"), "calls unknown: no tool spans"),
    ],
)
def test_missing_evidence_is_left_to_python(run: Trajectory, why: str) -> None:
    """Which says what is missing."""
    scorer = scorer_of("tool_call_order", ["a"])
    assert scorer.scoring.score(scorer, run) is None
    assert scorer(run) == Skipped(why, reason="incomplete" if run.incomplete else "calls_unknown")


class Other(Trajectory):
    """A run of somebody's own."""

    __slots__ = ()


@pytest.mark.parametrize(
    "run",
    [
        Other(calls=(call("a"),)),
        object.__new__(Trajectory),
        trajectory().__class__(calls=[call("a")]),  # type: ignore[arg-type]
        Trajectory(calls=(call("a"),), incomplete=type("Text", (str,), {})()),
        Trajectory(calls=(call("a"),), calls_unknown=1),  # type: ignore[arg-type]
        Trajectory(calls=(SpanVisit("b", 1, 2), call("a"))),  # type: ignore[arg-type]
        7,
    ],
    ids=lambda each: type(each).__name__,
)
def test_runs_that_are_not_plain_are_left_to_python(run: Any) -> None:
    """Other classes, slots that were never set or hold something else."""
    scorer = scorer_of("tool_call_order", ["a"])
    assert scorer.scoring.score(scorer, run) is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"tools": {"include": ["a"]}},
        {"failed_calls": "exclude"},
        {"reference": "my.expected"},
        {"type": "execution_order", "of": "spans"},
        {"type": "trajectory_match", "extra": "forbid"},
        {"type": "trajectory_match", "missing": "forbid"},
        {"type": "trajectory_match", "missing": "forbid", "extra": "forbid"},
    ],
)
def test_where_more_than_the_calls_decides_there_is_no_shortcut(parameters: dict[str, Any]) -> None:
    """Filters, references, spans and what is forbidden are Python's."""
    assert create_scorer({"type": "tool_call_order", "expected": ["a"], **parameters}).scoring is None  # type: ignore[attr-defined]


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_calls_decide_there_is_a_shortcut(kind: str) -> None:
    """For each scorer that compares calls, with arguments or without."""
    assert scorer_of(kind, ["a", "b", "a"]).scoring is not None


def test_where_arguments_are_named_but_not_compared_names_decide() -> None:
    """In C as well."""
    expected = [{"name": "a", "arguments": {"x": 7}}]
    scorer: Any = create_scorer({"type": "tool_correctness", "expected": expected})
    assert scorer.scoring.score(scorer, run_of("a")).value == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Lenient(ToolCallOrder):
    """As its base, but counts calls without regard for case."""

    def visits(self, trajectory: Trajectory) -> Sequence[Any]:
        """With names in lower case."""
        return [replace(each, name=each.name.lower()) for each in trajectory.calls]


@dataclass(frozen=True, slots=True, kw_only=True)
class Renamed(ToolCallOrder):
    """As its base in all that decides."""

    def more(self) -> str:
        """Nothing of interest."""
        return self.name


def test_a_class_that_decides_otherwise_is_asked() -> None:
    """One of somebody else that replaces a step has it taken; one that only adds to the base keeps the shortcut."""
    expected = names("expected", ["a"])
    lenient, renamed = Lenient(expected=expected), Renamed(expected=expected)
    assert (lenient.scoring, renamed.scoring is None) == (None, False)
    assert [_value(each(run_of("A"))) for each in (lenient, renamed)] == [1.0, 0.0]


@pytest.mark.parametrize("step", ["__call__", "find", "judged", "kept", "skips", "visits", "weighed"])
def test_whichever_step_a_class_replaces_it_is_asked(step: str) -> None:
    """Even where it does no more than its base."""
    own: Any = type("Own", (ToolCallOrder,), {"__slots__": (), step: getattr(ToolCallOrder, step)})
    assert own(expected=names("expected", ["a"])).scoring is None


def _value(outcome: Outcome) -> float:
    assert isinstance(outcome, Scored)
    return outcome.value


@pytest.mark.parametrize("changed", [copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
@pytest.mark.parametrize("kind", ["tool_call_order", "tool_call_args"])
def test_a_scorer_is_copied_and_pickled(kind: str, changed: Callable[[Any], Any]) -> None:
    """With its shortcut."""
    scorer, run = scorer_of(kind, ["a", "b"]), run_of("xa")
    remade = changed(scorer)
    assert remade.scoring.score(remade, run) == scorer(run) == by_python(scorer)(run)


@pytest.mark.parametrize("given", [(), (1,), (1, 2, 3)])
def test_it_is_asked_with_a_scorer_and_a_run(given: tuple[Any, ...]) -> None:
    """One line says so; what explains a score takes nothing."""
    scorer = scorer_of("tool_call_order", ["a"])
    with pytest.raises(TypeError, match="score\\(scorer, run\\)"):
        scorer.scoring.score(*given)
    with pytest.raises(TypeError, match="takes nothing"):
        scorer(run_of("a")).tell(1)


def test_what_it_is_made_of_is_checked() -> None:
    """A prepared expectation; classes whose slots are where they are said to be."""
    matching: Any = extension("_matching")
    rest = ("in_order", "recall", False, True, False, 0.5)
    prepared = matching.names(("a",))
    with pytest.raises(TypeError, match="what `names` or `calls` made"):
        matching.scoring("a", None, Trajectory, Scored, *rest)
    assert matching.scoring(prepared, None, int, Scored, *rest) is None
    assert matching.scoring(prepared, None, Trajectory, Skipped, *rest) is None


def test_nothing_is_kept(kept: Callable[[Callable[[], None]], tuple[int, int]]) -> None:
    """After many outcomes, explained and not, of plain runs and others, as many objects and bytes are there as before."""
    scorers = [scorer_of("tool_call_order", list("abcab")), scorer_of("trajectory_match", list("abcab"), measure="f1")]
    runs = [run_of("abcab"), run_of("ba"), run_of(""), run_of("a", calls_unknown="no tool spans"), 7]

    def many() -> None:
        for _ in range(300):
            for scorer in scorers:
                outcomes = [scorer.scoring.score(scorer, run) for run in runs]
                assert outcomes[0].explanation
                copy.copy(scorer.scoring)

    grown, blocks = kept(many)
    assert grown < 4000
    assert blocks < 50
