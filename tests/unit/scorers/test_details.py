"""Explanations and details of the scorers that count or measure: patterns, calls, loops, budgets
and times.
"""

from __future__ import annotations

import pytest

from otel_eval.model import Result, Scored, Skipped
from otel_eval.scorers import create_scorer, summarize
from otel_eval.testing import call, trajectory

RUN = trajectory(*map(call, ["delete_user", "search", "delete_file"]), model_calls=4)
SEEN = ["delete_file", "delete_user", "search"]


def test_the_forbidden_pattern_that_calls_match_is_reported():
    """The positions of the matching calls are reported, too."""
    outcome = create_scorer({"type": "forbidden_tools", "patterns": ["pay", "delete_*", "drop"]})(
        RUN
    )
    details = {"broken": ["delete_*"], "calls": [0, 2], "seen": SEEN}
    assert outcome == Scored(
        2 / 3, False, "called: call 1 (delete_user), call 3 (delete_file)", details
    )


def test_no_positions_are_reported_where_no_forbidden_tool_was_called():
    """No position is reported."""
    outcome = create_scorer({"type": "forbidden_tools", "patterns": ["pay"]})(RUN)
    assert outcome == Scored(
        1.0, True, "no forbidden tool was called", {"broken": [], "calls": [], "seen": SEEN}
    )


def test_required_patterns_that_no_call_matches_are_reported():
    """They are in the order of the parameter."""
    outcome = create_scorer({"type": "required_tools", "patterns": ["pay", "delete_*", "drop"]})(
        RUN
    )
    assert outcome == Scored(
        1 / 3, False, "never called: pay, drop", {"missing": ["pay", "drop"], "seen": SEEN}
    )


def test_nothing_is_missing_where_every_required_tool_was_called():
    """`missing` is empty."""
    outcome = create_scorer({"type": "required_tools", "patterns": ["search"]})(RUN)
    assert outcome == Scored(
        1.0, True, "every required tool was called", {"missing": [], "seen": SEEN}
    )


@pytest.mark.parametrize(
    ("calls", "model_calls", "value", "explained"),
    [
        (2, 1, 2 / 3 / 4, "3 calls, budget 2; 4 model calls, budget 1"),
        (3, 2, 2 / 4, "4 model calls, budget 2"),
        (3, 4, 1.0, "within every budget"),
    ],
)
def test_budgets_that_were_exceeded_are_reported(calls, model_calls, value, explained):
    """The used amount is reported, too; using exactly the budget is allowed."""
    outcome = create_scorer(
        {"type": "step_efficiency", "max_calls": calls, "max_model_calls": model_calls}
    )(RUN)
    assert (outcome.value, outcome.explanation) == (pytest.approx(value), explained)
    budgets = {
        "calls": {"used": 3, "budget": calls},
        "model calls": {"used": 4, "budget": model_calls},
    }
    assert outcome.details == budgets


@pytest.mark.parametrize(
    ("of", "named"),
    [
        ("run", "the run"),
        ("tools", "tools"),
        ("critical_path", "the critical path"),
        ("open", "open"),
    ],
)
def test_the_details_name_what_was_timed(of, named):
    """A tool is reported by its name."""
    timed = trajectory(
        call("open", start_ns=1_000_000, end_ns=5_000_000), start_ns=1_000_000, end_ns=5_000_000
    )
    outcome = create_scorer({"type": "time_cost", "max_ms": 10, "of": of})(timed)
    details = {"elapsed_ms": 4.0, "max_ms": 10.0, "of": of} | (
        {"seen": ["open"]} if of == "open" else {}
    )
    assert outcome == Scored(0.6, True, f"{named} took 4 ms of 10 ms", details)


@pytest.mark.parametrize(
    ("elapsed_ns", "said"),
    [
        (166_012, "0.166 ms of 10 ms"),
        (1_234_567_890, "1235 ms of 10 ms"),
        (9_999_999, "10 ms of 10 ms"),
        (10_000_100, "10.0001 ms of 10 ms"),
    ],
)
def test_times_have_no_more_digits_than_show_which_side_of_the_budget_they_are(elapsed_ns, said):
    timed = trajectory(start_ns=1, end_ns=1 + elapsed_ns)
    outcome = create_scorer({"type": "time_cost", "max_ms": 10})(timed)
    assert outcome.explanation == f"the run took {said}"
    assert outcome.details["elapsed_ms"] == elapsed_ns / 1_000_000


@pytest.mark.parametrize(
    ("names", "options", "loops"),
    [
        ("aaaaaaaa", {}, [(0, 1, 8)]),
        ("aaaabaaaa", {}, [(0, 1, 4)]),
        ("xabababa", {"max_repeats": 2}, [(1, 2, 3)]),
        ("ababababcdecde", {"max_repeats": 1}, [(0, 2, 4), (8, 3, 2)]),
    ],
)
def test_the_first_of_the_shortest_loops_is_reported(names, options, loops):
    """One loop of each length is reported, unless it consists of repetitions of a shorter one."""
    outcome = create_scorer({"type": "loop_detection", "ignore_arguments": True, **options})(
        trajectory(*map(call, names))
    )
    explained = [
        (each["first"], each["length"], each["times"]) for each in outcome.details["loops"]
    ]
    assert explained == loops
    assert [each["tools"] for each in outcome.details["loops"]] == [
        [*names[at : at + length]] for at, length, _ in loops
    ]


@pytest.mark.parametrize("kind", ["redundant_calls", "loop_detection"])
def test_arguments_that_one_call_did_not_record_may_have_been_the_same(kind):
    """The run is skipped, although other calls recorded their arguments."""
    calls = [call("a", arguments={"x": at}) for at in range(3)]
    assert create_scorer({"type": kind})(trajectory(*calls, call("a"))) == Skipped(
        "arguments not recorded", reason="not_recorded"
    )


@pytest.mark.parametrize(
    ("names", "value", "explained", "repeated"),
    [
        (
            "abaa",
            0.5,
            "2 of 4 calls repeat an earlier one: call 3 (a), call 4 (a)",
            [[2, 0], [3, 0]],
        ),
        ("ab", 1.0, "0 of 2 calls repeat an earlier one", []),
    ],
)
def test_calls_that_repeat_an_earlier_one_are_reported_with_the_first(
    names, value, explained, repeated
):
    """They are reported by position; without repetitions the explanation has only the count."""
    outcome = create_scorer({"type": "redundant_calls", "ignore_arguments": True})(
        trajectory(*map(call, names))
    )
    assert outcome == Scored(value, value == 1, explained, {"repeated": repeated})


def test_failures_are_reported_by_position_with_those_that_nothing_recovered():
    """A failure of the last call is included."""
    failing = call("b", error="x")
    run = trajectory(call("a", error="x"), failing, call("a", error="x"), call("a"), failing)
    said = "2 of 4 failed calls recovered; not: call 2 (b), call 5 (b)"
    assert create_scorer({"type": "error_recovery"})(run) == Scored(
        0.5, False, said, {"recovered": [0, 2], "lost": [1, 4]}
    )


def test_answer_to_an_earlier_call_is_timed_although_a_later_call_was_answered_too():
    """The earlier call may have been followed in time or not."""
    first, answer = call("a", start_ns=1, end_ns=2), call("b", start_ns=9, end_ns=10)
    again = call("a", start_ns=7, end_ns=8)
    rules = create_scorer({"type": "precedence", "rules": ["a then b within 5s"]})
    assert rules(trajectory(first, call("b"), again, answer)) == Skipped(
        "no time recorded for a call that 'a then b within 5s' asks about", reason="not_recorded"
    )


def test_a_label_that_is_no_text_is_one_whatever_the_order_of_its_keys():
    """The label is JSON, without escaping non-ASCII characters."""
    scorer = create_scorer({"type": "label_distribution", "label": "intent"})
    labels = [{"é": 1, "a": 2}, {"a": 2, "é": 1}]
    outcomes = [scorer(trajectory(attributes={"intent": label})) for label in labels]
    facts = {
        "evaluation": "e",
        "scorer": "l",
        "type": scorer.type,
        "version": "1",
        "revision": 0,
        "result_id": "0",
    }
    results = [Result(**facts, outcome=each) for each in outcomes]
    assert summarize(outcomes) == summarize(results)
    assert summarize(results)["counts"] == {'{"a": 2, "é": 1}': 2}


def test_missing_fields_of_calls_and_steps_are_reported_by_position():
    """The total and the number of valid ones are reported, too."""
    calls = trajectory(call("a", arguments={}, result=1), call("b", arguments={}))
    errors = [{"tool": "b", "actual": 1, "missing": ["result"]}]
    assert create_scorer({"type": "trajectory_structure"})(calls) == Scored(
        0.5,
        False,
        "1 of 2 valid; call 2 (b): missing result",
        {"valid": 1, "total": 2, "errors": errors},
    )
    plan = [{"id": 1, "action": "x"}, {"step": 2}, 3, {"action": "x"}]
    missing = [
        {"step": 1, "missing": ["action"]},
        {"step": 2, "missing": ["an object"]},
        {"step": 3, "missing": ["step or id"]},
    ]
    said = (
        "1 of 4 valid; step 2: missing action; step 3: missing an object; step 4: missing step"
        " or id"
    )
    assert create_scorer({"type": "trajectory_structure", "steps": "plan"})(
        trajectory(attributes={"plan": plan})
    ) == Scored(0.25, False, said, {"valid": 1, "total": 4, "errors": missing})


def test_how_soon_a_success_comes_is_counted_from_the_failure():
    """It is not counted from the start of the run."""
    run = trajectory(call("a"), call("a", error="x"), call("a"))
    assert create_scorer({"type": "error_recovery", "within": 1})(run).details == {
        "recovered": [1],
        "lost": [],
    }
