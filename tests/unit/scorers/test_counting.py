"""Weights that are known before the alignment are those of the alignment, and explanations that are made late are the same."""

from __future__ import annotations

import copy
import gc
import json
import pickle
import weakref
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval import create_scorer
from otel_eval.model import Scored, Skipped
from otel_eval.scorers import weights
from otel_eval.scorers.built_in import Finding, Late
from otel_eval.testing import call, trajectory

NAMES = st.sampled_from("abc")
ARGUMENTS = st.dictionaries(st.sampled_from("xy"), st.integers(0, 1) | st.lists(st.integers(0, 1), max_size=1), max_size=2)
CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), max_size=7)
TIMES = st.lists(st.integers(1, 9), min_size=14, max_size=14)
SPECS = [
    {"type": "execution_order", "match": match, "concurrency": concurrency}
    for match in ("exact", "in_order", "any_order")
    for concurrency in ("respect", "ignore")
] + [
    {"type": "trajectory_match", "match": match, "arguments": arguments, "measure": measure, "extra": extra}
    for match, measure, extra in (("exact", "recall", "allow"), ("in_order", "f1", "allow"), ("any_order", "precision", "forbid"))
    for arguments in ("exact", "subset", "overlap", ["x"])
]


def run_of(made, times):
    """Calls with times, some of which overlap."""
    timed = zip(made, sorted(times[:7]), times[7:], strict=False)
    return trajectory(
        *(
            call(name, arguments=own, start_ns=start, end_ns=start + length, span_id=f"{at:x}")
            for at, ((name, own), start, length) in enumerate(timed)
        )
    )


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: "-".join(map(str, spec.values())))
@given(wanted=CALLS, made=CALLS, times=TIMES, alike=st.integers(0, 2), nested=st.booleans())
def test_the_weight_is_that_of_the_alignment(spec, wanted, made, times, alike, nested):
    """Of equal runs, of those with the same calls in another order, and of any."""
    made = wanted if alike == 0 else list(reversed(wanted)) if alike == 1 else made
    by_names = spec["type"] == "execution_order"
    expected = [name if by_names else {"name": name, "arguments": own} for name, own in wanted]
    if nested and len(expected) > 2:
        expected = [expected[0], expected[1:]]
    scorer, run = create_scorer({**spec, "expected": expected}), run_of(made, times)
    found = scorer.find(run)
    aligned = scorer._found(scorer.how, scorer.expected, run.calls, concurrency=scorer.concurrency == "respect")
    assert isinstance(aligned, Finding)
    assert found.value == pytest.approx(aligned.value)
    assert (found.explanation, found.details) == (aligned.explanation, aligned.details)


def late():
    """An outcome that was not asked yet why."""
    scorer = create_scorer({"type": "tool_call_order", "expected": ["a", "b"]})
    assert type(scorer.find(trajectory(call("a")))) is Late
    return scorer(trajectory(call("a"), call("c")))


SAID = "1 of 2 expected calls matched; missing: b (1); extra: c (1)"
AT_ONCE = Scored(
    0.5,
    False,
    SAID,
    {
        "matched": [[0, 0]],
        "missing": [{"tool": "b", "expected": 1}],
        "extra": [{"tool": "c", "actual": 1}],
        "misplaced": [],
        "seen": ["a", "c"],
    },
)


@pytest.mark.parametrize(
    "changed", [lambda each: each, copy.copy, copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), replace]
)
def test_an_outcome_that_is_explained_late_is_like_any_other(changed):
    """Equal, shown, copied and pickled alike."""
    assert changed(late()) == AT_ONCE
    assert repr(changed(late())) == repr(AT_ONCE)
    assert json.dumps(changed(late()).details) == json.dumps(AT_ONCE.details)
    assert (changed(late()).value, changed(late()).explanation) == (0.5, SAID)


def test_an_outcome_that_was_explained_lets_go_of_the_run():
    """And tells the same again."""

    class Watched(list):
        """Can be watched."""

    calls = Watched([call("a"), call("c")])
    watch = weakref.ref(calls)
    outcome = create_scorer({"type": "tool_call_order", "expected": ["a", "b"]})(replace(trajectory(), calls=calls))
    del calls
    assert watch() is not None
    assert outcome.explanation == SAID
    assert outcome.details is outcome.details
    gc.collect()
    assert watch() is None


def test_other_attributes_are_not_there():
    """As of any class with slots."""
    with pytest.raises(AttributeError, match="no attribute 'why'"):
        _ = late().why


@pytest.mark.parametrize("match", ["in_order", "any_order"])
def test_equal_calls_are_scored_however_many_there_are(match, monkeypatch):
    """Where weighing all others as well would be too much; the explanation says the same."""
    made = [("a", {"x": at, "y": 0}) for at in range(20)]
    expected = [{"name": name, "arguments": own} for name, own in made]
    scorer = create_scorer({"type": "tool_correctness", "match": match, "compare": ["arguments"], "expected": expected})
    runs = [trajectory(*(call(name, arguments=own) for name, own in calls)) for calls in (made, [*made, ("b", {})])]
    before = [scorer(run) for run in runs]
    told = [(outcome.explanation, outcome.details) for outcome in before]
    monkeypatch.setattr(weights, "_MOST_STEPS", 50)
    assert "too many calls" in scorer._found(match, scorer.expected, runs[1].calls, concurrency=True).why
    assert [(scorer(run).value, scorer(run).explanation, scorer(run).details) for run in runs] == [(1.0, *each) for each in told]


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
@pytest.mark.parametrize("mode", ["exact", "overlap"])
def test_equal_calls_decide_only_where_they_were_prepared(match, mode, monkeypatch):
    """An expectation that comes with a run is aligned, and where that is too much there is no value, nor why."""
    monkeypatch.setattr(weights, "_MOST_STEPS", 50)
    calls = [{"name": "a", "arguments": {"x": at}} for at in range(60)]
    general = {"type": "trajectory_match", "match": match, "arguments": mode}
    run = trajectory(*(call("a", arguments={"x": at}) for at in range(60)), attributes={"wanted": calls})
    inline, of_run = (create_scorer({**general, **where}) for where in ({"expected": calls}, {"reference": "wanted"}))
    assert (inline(run).value, inline(run).explanation) == (1.0, "60 of 60 expected calls matched")
    assert of_run(run) == Skipped("too many calls to be weighed: 60 expected, 60 made", reason="too_large")


@pytest.mark.parametrize(("match", "pairs"), [("in_order", 1), ("any_order", 60)])
def test_equal_calls_in_another_order_are_said_to_match_where_any_will_do(match, pairs, monkeypatch):
    """Where weighing all others would be too much as well."""
    monkeypatch.setattr(weights, "_MOST_STEPS", 50)
    calls = [{"name": "a", "arguments": {"x": at}} for at in range(60)]
    scorer = create_scorer({"type": "trajectory_match", "match": match, "arguments": "exact", "expected": calls})
    outcome = scorer(trajectory(*(call("a", arguments={"x": at}) for at in reversed(range(60)))))
    assert outcome.value == pairs / 60
    assert outcome.explanation.startswith(f"{pairs} of 60 expected calls matched")


@pytest.mark.parametrize(
    ("second", "value"), [({"name": "b"}, 1.0), ({"name": "b", "arguments": {}}, 0.5), ({"name": "b", "result": 2}, 0.5)]
)
def test_a_call_that_names_less_than_another_agrees_with_more(second, value):
    """One names its arguments, one nothing, or a result."""
    expected = [{"name": "a", "arguments": {"x": 1}}, second]
    scorer = create_scorer({"type": "trajectory_match", "match": "any_order", "arguments": "exact", "expected": expected})
    assert scorer(trajectory(call("b", arguments={"y": 2}, result=3), call("a", arguments={"x": 1}))).value == value


def test_an_explanation_that_cannot_be_made_says_so():
    """Whoever asks is a sink, far from what guards scorers; the value stands."""

    def tell():
        raise RecursionError("deep")

    outcome = Scored.__new__(Scored)
    for name, value in (("value", 0.5), ("passed", True), ("tell", tell)):
        object.__setattr__(outcome, name, value)
    assert (outcome.value, outcome.explanation, outcome.details) == (0.5, "cannot be explained: RecursionError", {})
