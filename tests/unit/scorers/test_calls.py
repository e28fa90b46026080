"""Explanations, details, skips and errors of the scorers that compare calls with expected ones."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_eval.model import Failed, Scored, Skipped, SpanRef
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory


def run(*names, **facts):
    """A trajectory of calls by name."""
    return trajectory(*map(call, names), **facts)


def score(spec, trajectory):
    """Build a scorer and score a run."""
    return create_scorer(spec)(trajectory)


def test_missing_extra_and_misplaced_calls_are_reported_by_name_and_position():
    """Both the explanation and the details report them."""
    outcome = score(
        {"type": "tool_call_order", "expected": ["a", "b", "c", "d"]}, run("b", "a", "x", "d")
    )
    assert (
        outcome.explanation
        == "2 of 4 expected calls matched; missing: expected 3 (c); extra: call 3 (x); out of"
        " order: call 1 (b)"
    )
    assert outcome.details == {
        "matched": [[0, 1], [3, 3]],
        "missing": [{"tool": "c", "expected": 2}],
        "extra": [{"tool": "x", "actual": 2}],
        "misplaced": [{"tool": "b", "expected": 1, "actual": 0}],
        "seen": ["a", "b", "d", "x"],
    }


def test_a_call_is_misplaced_if_its_arguments_agree_at_another_position():
    """Two unmatched calls of one tool whose arguments do not agree are reported as one missing and
    one extra call.
    """
    expected = [{"name": name, "arguments": {"x": 1}} for name in "abc"]
    made = trajectory(
        *(call(name, arguments={"x": x}) for name, x in (("b", 1), ("a", 1), ("c", 2)))
    )
    outcome = score({"type": "trajectory_match", "match": "in_order", "expected": expected}, made)
    assert outcome.details == {
        "matched": [[0, 1, 1.0]],
        "missing": [{"tool": "c", "expected": 2}],
        "extra": [{"tool": "c", "actual": 2}],
        "misplaced": [{"tool": "b", "expected": 1, "actual": 0}],
        "seen": ["a", "b", "c"],
        "differences": [
            {
                "expected": 2,
                "actual": 2,
                "differs": ["x"],
                "missing": [],
                "unexpected": 0,
                "result": False,
            }
        ],
    }
    assert outcome.explanation.endswith("; call 3 (c): x differs")


@pytest.mark.parametrize(
    ("compare", "expected"),
    [([], {"name": "a", "arguments": {"x": 1}}), (["arguments"], {"name": "a"})],
)
@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
def test_pairs_tell_no_weight_where_only_names_are_compared(compare, expected, match):
    """Either only names are compared, or the expectation has only names."""
    spec = {
        "type": "tool_correctness",
        "expected": [expected, "b"],
        "compare": compare,
        "match": match,
    }
    assert score(spec, trajectory(call("a", arguments={"x": 1}))).details["matched"] == [[0, 0]]


SECRET = "4111-1111"
WITH_CONTENT = {
    "type": "tool_call_args",
    "expected": [{"name": "pay", "arguments": {"card": SECRET}}],
}
OTHER_CARD = trajectory(call("pay", arguments={"card": "5500", "to": SECRET}, result=SECRET))


def test_values_are_never_shown():
    """Neither expected nor actual values are shown."""
    assert SECRET not in repr(score(WITH_CONTENT, OTHER_CARD))


def test_values_are_shown_where_content_is_included():
    """With `include_content` results are shown as well, so both must be read."""
    scorer = create_scorer({**WITH_CONTENT, "include_content": True})
    assert SECRET in scorer(OTHER_CARD).explanation
    assert scorer.needs == {"arguments", "results"}


def test_content_is_what_was_expected_and_what_was_found():
    """Missing and extra calls are shown with everything recorded, without escaping non-ASCII
    characters.
    """
    expected = [{"name": "a", "arguments": {"x": "é"}}, {"name": "b", "result": [1]}]
    made = trajectory(call("c", arguments={}, result="ü"), call("d"))
    outcome = score(
        {"type": "trajectory_match", "expected": expected, "include_content": True}, made
    )
    assert outcome.details["content"] == [
        {"expected": 0, "tool": "a", "arguments": {"x": "é"}},
        {"expected": 1, "tool": "b", "result": [1]},
        {"actual": 0, "found": {"tool": "c", "arguments": {}, "result": "ü"}},
        {"actual": 1, "found": {"tool": "d"}},
    ]
    assert '"x": "é"' in outcome.explanation


@pytest.mark.parametrize(
    ("calls", "exact", "in_order"),
    [
        ("abc", 1, 1),
        ("bac", 1, 1),
        ("bca", 0, 2 / 3),
        ("cab", 0, 2 / 3),
        ("bacx", 0, 1),
        ("aac", 0, 2 / 3),
    ],
)
@pytest.mark.parametrize("arguments", [{}, {"arguments": {"x": 1}}])
@pytest.mark.parametrize("concurrency", ["respect", "ignore"])
def test_expected_batches_come_in_any_order_of_calls_that_follow_one_another(
    calls, exact, in_order, arguments, concurrency
):
    """It holds for comparisons of names alone and of names and arguments."""
    a, b, c = ({"name": name, **arguments} for name in "abc")
    made = trajectory(*[call(name, arguments={"x": 1}) for name in calls])
    spec = {"type": "trajectory_match", "expected": [[a, b], c], "concurrency": concurrency}
    assert score({**spec, "match": "exact"}, made).value == exact
    assert score({**spec, "match": "in_order"}, made).value == pytest.approx(in_order)


@pytest.mark.parametrize(("concurrency", "value"), [("respect", 1.0), ("ignore", 0.5)])
@pytest.mark.parametrize("match", ["in_order", "exact"])
@pytest.mark.parametrize("arguments", [{}, {"arguments": {"x": 1}}])
def test_calls_made_together_may_be_held_to_the_order_they_are_recorded_in(
    concurrency, value, match, arguments
):
    """It holds for comparisons of names alone and of names and arguments."""
    made = [
        call(name, arguments={"x": 1}, start_ns=start, end_ns=9)
        for name, start in (("b", 1), ("a", 2))
    ]
    expected = [{"name": "a", **arguments}, {"name": "b", **arguments}]
    spec = {
        "type": "trajectory_match",
        "match": match,
        "expected": expected,
        "concurrency": concurrency,
    }
    assert score(spec, trajectory(*made)).value == (value if match == "in_order" else value // 1)


@pytest.mark.parametrize(
    ("measure", "value"),
    [("recall", 1.0), ("precision", 0.5), ("f1", 2 / 3)],
)
def test_the_measure_decides_what_the_weight_is_divided_by(measure, value):
    """One expected call, two actual ones."""
    spec = {"type": "trajectory_match", "expected": ["a"], "measure": measure}
    assert score(spec, run("a", "b")).value == pytest.approx(value)


@pytest.mark.parametrize("match", ["exact", "in_order", "any_order"])
@pytest.mark.parametrize("measure", ["recall", "precision", "f1"])
@pytest.mark.parametrize(
    ("expected", "calls", "value"), [([], "", 1.0), ([], "a", 0.0), (["a"], "", 0.0)]
)
def test_an_empty_expectation_is_met_by_a_run_without_calls(match, measure, expected, calls, value):
    """It holds for every match and measure."""
    spec = {"type": "trajectory_match", "match": match, "measure": measure, "expected": expected}
    assert score(spec, run(*calls)).value == value


@pytest.mark.parametrize(
    ("extra", "missing", "calls", "value"),
    [
        ("forbid", "allow", "abc", 0.0),
        ("forbid", "allow", "a", 0.5),
        ("allow", "forbid", "abc", 1.0),
        ("allow", "forbid", "a", 0.0),
        ("forbid", "forbid", "ab", 1.0),
        ("forbid", "allow", "ac", 0.0),
        ("allow", "forbid", "ac", 0.0),
        ("allow", "allow", "ac", 0.5),
        ("allow", "forbid", "ab", 1.0),
        ("forbid", "allow", "ab", 1.0),
    ],
)
@pytest.mark.parametrize("expected", [["a", "b"], [["a", "b"]]], ids=["in_order", "in_a_batch"])
def test_extra_and_missing_calls_can_be_forbidden(expected, extra, missing, calls, value):
    """Other libraries call this subset and superset; parallel calls may come in any order."""
    spec = {"type": "trajectory_match", "expected": expected, "extra": extra, "missing": missing}
    assert score(spec, run(*calls)).value == value


def test_results_may_come_in_any_order():
    """Results of one tool and of several tools are matched."""
    expected = [{"name": "a", "result": 1}, {"name": "a", "result": 2}, {"name": "b", "result": 3}]
    made = trajectory(call("b", result=3), call("a", result=2), call("a", result=1))
    assert score({"type": "tool_call_output", "expected": expected}, made).value == 1


def test_an_expectation_without_arguments_accepts_calls_that_recorded_none():
    """Only what the expectation names is compared."""
    assert (
        score({"type": "tool_call_args", "expected": ["a", {"name": "b"}]}, run("a", "b")).value
        == 1.0
    )


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (
            {"type": "tool_call_args", "expected": [{"name": "a", "arguments": {}}]},
            "arguments of call 2 (a) not recorded",
        ),
        (
            {"type": "tool_call_output", "expected": [{"name": "a", "result": 1}]},
            "result of call 2 (a) not recorded",
        ),
        (
            {
                "type": "tool_correctness",
                "match": "exact",
                "compare": ["result"],
                "expected": [{"name": "a", "result": 1}],
            },
            "result of call 2 (a) not recorded",
        ),
    ],
)
def test_unrecorded_arguments_or_results_skip_the_run(spec, why):
    """The run is skipped even if another call of the same name matches."""
    calls = trajectory(call("a", arguments={}, result=1), call("a"))
    assert score(spec, calls) == Skipped(why, reason="not_recorded")


@pytest.mark.parametrize("expected", [3, "3", " 3 ", 3.0])
@pytest.mark.parametrize("actual", [3, "3"])
def test_results_are_equal_after_both_sides_were_decoded(expected, actual):
    """JSON text equals the value that it encodes."""
    spec = {"type": "tool_call_output", "expected": [{"name": "add", "result": expected}]}
    assert score(spec, trajectory(call("add", result=actual))).value == 1.0


def test_the_assignment_is_optimal_and_not_greedy():
    """The first call fits both expectations, the second only the first."""
    spec = {
        "type": "tool_call_args",
        "expected": [
            {"name": "f", "arguments": {"x": 1}},
            {"name": "f", "arguments": {"x": 1, "y": 2}},
        ],
    }
    calls = trajectory(call("f", arguments={"x": 1, "y": 2}), call("f", arguments={"x": 1}))
    assert score(spec, calls).value == 1.0


def test_a_runs_own_reference_replaces_the_expectation():
    """The reference may be JSON text or a list."""
    scorer = create_scorer(
        {"type": "tool_call_order", "expected": ["x"], "reference": "my.expected"}
    )
    assert scorer.attribute_keys == {"my.expected"}
    assert scorer(run("a", "b", attributes={"my.expected": '["a", "b"]'})).value == 1.0
    assert scorer(run("a", "b", attributes={"my.expected": ["a", "c"]})).value == 0.5
    assert scorer(run("x")).value == 1.0


def test_a_run_without_any_reference_is_skipped():
    """A run that cannot be compared does not score 0."""
    scorer = create_scorer({"type": "tool_call_order", "reference": "my.expected"})
    assert scorer(run("a")) == Skipped(
        "no reference: my.expected not recorded", reason="no_reference"
    )


@pytest.mark.parametrize("reference", ["search", 3, '[{"name": 1}]', "[[]]"])
def test_a_reference_that_cannot_be_used_fails(reference):
    """The outcome is neither 0 nor skipped."""
    scorer = create_scorer({"type": "tool_call_order", "reference": "my.expected"})
    outcome = scorer(run("a", attributes={"my.expected": reference}))
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "InvalidReference"


SPANS = (SpanRef("plan", 1, 2), SpanRef("act", 2, 3), SpanRef("act", 3, 4), SpanRef("end", 4, 5))


def test_execution_order_also_scores_visits_of_nodes():
    """All spans of the run by name, filtered; the instrumentation need not record tools."""
    spec = {
        "type": "execution_order",
        "of": "spans",
        "match": "exact",
        "expected": ["plan", "act", "act"],
        "tools": {"exclude": ["end"]},
    }
    scorer = create_scorer(spec)
    assert scorer.needs == {"spans"}
    assert scorer(trajectory(spans=SPANS, calls_unknown="no tool spans")).value == 1.0


def test_no_span_at_all_is_no_evidence():
    """Every run has at least its own span, so none means that spans were not recorded."""
    assert isinstance(
        score({"type": "execution_order", "of": "spans", "expected": ["plan"]}, trajectory()),
        Skipped,
    )


def test_spans_of_failed_calls_are_removed_with_the_calls():
    """A span without an id, and that of a call that succeeded, stay."""
    spans = (SpanRef("act", 1, 2, "01"), SpanRef("act", 3, 4, "02"), SpanRef("end", 5, 6))
    run = trajectory(
        call("act", error="no", span_id="01"),
        call("act", span_id="02"),
        call("x", error="no"),
        spans=spans,
    )
    spec = {"type": "execution_order", "of": "spans", "match": "exact", "expected": ["act", "end"]}
    assert score(spec | {"failed_calls": "exclude"}, run).value == 1.0
    assert score(spec, run).value == 0.0


def test_a_call_without_a_span_does_not_matter_to_the_order_of_spans():
    """Spans of failed calls are removed; whether a call that is known only from messages failed
    changes no span.
    """
    scorer = create_scorer(
        {"type": "execution_order", "of": "spans", "expected": ["plan"], "failed_calls": "exclude"}
    )
    unsure = replace(call("look"), failure_unknown=True)
    assert scorer(trajectory(unsure, spans=SPANS)) == scorer(trajectory(spans=SPANS))
    plan = replace(SPANS[0], span_id="01")
    decides = trajectory(replace(unsure, span_id="01"), spans=(plan, *SPANS[1:]))
    assert isinstance(scorer(decides), Skipped)


def test_strict_values_below_one_become_zero_whatever_the_threshold():
    """The details still list everything."""
    spec = {"type": "execution_order", "expected": ["a", "b"], "strict": True, "threshold": 0}
    outcome = score(spec, run("a"))
    assert (outcome.value, outcome.passed, outcome.details["missing"]) == (
        0.0,
        False,
        [{"tool": "b", "expected": 1}],
    )


@pytest.mark.parametrize(("threshold", "passed"), [(0.5, True), (0.51, False), (0, True)])
def test_a_score_passes_from_its_threshold_on(threshold, passed):
    """The threshold itself passes."""
    assert (
        score(
            {"type": "execution_order", "expected": ["a", "b"], "threshold": threshold}, run("a")
        ).passed
        is passed
    )


@pytest.mark.parametrize(
    ("chosen", "value"),
    [
        ({"tools": {"include": ["s*"]}}, 1.0),
        ({"tools": {"exclude": ["open"]}}, 1.0),
        ({"tools": {"include": ["S*"]}}, 0.0),
        ({"failed_calls": "exclude"}, 1.0),
        ({}, 0.0),
    ],
)
def test_calls_are_chosen_before_anything_is_compared(chosen, value):
    """Calls are selected by case-sensitive patterns and by failure."""
    calls = trajectory(call("search"), call("open", error="no"))
    assert (
        score(
            {"type": "execution_order", "match": "exact", "expected": ["search"], **chosen}, calls
        ).value
        == value
    )


@pytest.mark.parametrize("kind", ["tool_call_order", "execution_order", "tool_correctness"])
def test_evidence_that_is_missing_is_never_a_zero(kind):
    """Incomplete runs, and instrumentations that record no tools, are skipped."""
    scorer = create_scorer({"type": kind, "expected": ["a"]})
    assert scorer(trajectory(incomplete="run span missing")) == Skipped(
        "incomplete: run span missing", reason="incomplete"
    )
    assert scorer(trajectory(calls_unknown="no tool spans")) == Skipped(
        "calls unknown: no tool spans", reason="calls_unknown"
    )


def nested(depth):
    """A list nested to this depth."""
    found: list = []
    for _ in range(depth):
        found = [found]
    return found


def test_values_nested_beyond_all_measure_are_compared_or_fail():
    """It depends on the version of Python and on the size of its stack; the process goes on."""
    spec = {"type": "tool_call_output", "expected": [{"name": "a", "result": nested(100_000)}]}
    outcome = score(spec, trajectory(call("a", result=nested(100_000))))
    failed = isinstance(outcome, Failed) and outcome.error_type == "RecursionError"
    assert failed or (isinstance(outcome, Scored) and outcome.value == 1.0)


def test_long_lists_of_names_are_cut_in_the_explanation():
    """The details have all names."""
    outcome = score(
        {"type": "tool_call_order", "expected": [f"t{at}" for at in range(30)]}, run("x" * 500)
    )
    assert "and 22 more" in outcome.explanation
    assert len(outcome.explanation) < 300
    assert len(outcome.details["missing"]) == 30
