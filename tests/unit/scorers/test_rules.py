"""Policies that say what they seem to say: patterns, budgets of runs, guards and differences."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from otel_eval import ConfigError
from otel_eval.app.checking import suggestions
from otel_eval.config import load
from otel_eval.model import Failed, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory


def score(spec, *calls, **fields):
    """The outcome of a scorer on a run with these calls."""
    return create_scorer(spec)(trajectory(*calls, **fields))


RUN = [call("search"), call("search"), call("delete_user"), call("open")]


@pytest.mark.parametrize(
    ("criteria", "value", "explanation"),
    [
        ({"*": "<= 2"}, 0.0, "0 of 1 criteria hold; *: 4 calls, not <= 2"),
        (
            {"*": "<= 4", "delete_*": "== 0"},
            0.5,
            "1 of 2 criteria hold; delete_*: 1 call, not == 0",
        ),
        ({"search": [">= 1", "<= 2"]}, 1.0, "1 of 1 criteria hold"),
        ({"search": [[">=", 3], "<= 9"]}, 0.0, "0 of 1 criteria hold; search: 2 calls, not >= 3"),
        (
            {"search": [">= 3", "!= 2"]},
            0.0,
            "0 of 1 criteria hold; search: 2 calls, not >= 3 and != 2",
        ),
        ({"[so]*": "== 3"}, 1.0, "1 of 1 criteria hold"),
    ],
)
def test_a_pattern_counts_all_that_match_and_all_criteria_of_a_tool_must_hold(
    criteria, value, explanation
):
    """A budget for every call is written as a pattern."""
    outcome = score({"type": "tool_call_count", "criteria": criteria}, *RUN)
    assert (outcome.value, outcome.explanation) == (value, explanation)


def test_several_criteria_of_a_tool_are_lists_in_the_details():
    """One is as before."""
    outcome = score(
        {"type": "tool_call_count", "criteria": {"search": [">= 1", "<= 1"], "*": "< 9"}}, *RUN
    )
    assert outcome.details["tools"] == {
        "search": {"actual": 2, "operator": [">=", "<="], "expected": [1, 1], "score": 0.0},
        "*": {"actual": 4, "operator": "<", "expected": 9, "score": 1.0},
    }


@pytest.mark.parametrize(
    ("criteria", "key"),
    [
        ({"a": [">= 1", "=< 2"]}, "criteria.a[1]: '=< 2'"),
        ({"a": ["<=", "3"]}, "criteria.a[1]: '3'"),
        ({"a": []}, "criteria.a: []"),
        ({"a": [[">=", 1], 3]}, "criteria.a[0]: ['>=', 1]"),
    ],
)
def test_an_invalid_criterion_in_a_list_is_named(criteria, key):
    """By its place."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "tool_call_count", "criteria": criteria})
    assert key in str(refused.value)


def test_counts_and_budgets_of_time_may_come_from_the_run():
    """They replace the inline ones; without either the run is skipped, an invalid one fails."""
    count = {"type": "tool_call_count", "reference": "my.criteria"}
    time = {"type": "time_cost", "reference": "my.budget"}
    own = {"my.criteria": '{"search": "== 2"}', "my.budget": "100"}
    timed = {"start_ns": 0, "end_ns": 50_000_000}
    assert score(count, *RUN, attributes=own).value == 1.0
    assert score({**count, "criteria": {"search": "> 9"}}, *RUN, attributes=own).value == 1.0
    assert score({**count, "criteria": {"search": "> 9"}}, *RUN).value == 0.0
    assert score(time, attributes=own, **timed).value == 0.5
    assert score({**time, "max_ms": 200}, **timed).value == 0.75
    for spec in (count, time):
        assert score(spec, *RUN, **timed).reason == "no_reference"
        wrong = score(spec, attributes={"my.criteria": "[1]", "my.budget": "-3"}, **timed)
        assert isinstance(wrong, Failed)
        assert wrong.error_type == "InvalidReference"


@pytest.mark.parametrize("name", ["search_*", "search?", "search[12]"])
@pytest.mark.parametrize(
    "spec",
    [
        {"type": "tool_call_order", "expected": ["NAME"]},
        {"type": "execution_order", "expected": [["a", "NAME"]]},
        {"type": "trajectory_match", "expected": [{"name": "NAME"}]},
        {"type": "trajectory_pattern", "pattern": ["a", {"optional": "NAME"}]},
        {"type": "time_cost", "of": "NAME"},
    ],
)
def test_a_pattern_where_names_are_literal_is_refused_with_the_remedy(spec, name):
    """It would match no tool, and the rule would hold or fail for ever."""
    with pytest.raises(ConfigError, match="patterns have no effect here; write the whole name"):
        create_scorer(json.loads(json.dumps(spec).replace("NAME", name)))


def test_names_of_spans_may_have_any_characters():
    """They are routes and queries as well."""
    spec = {"type": "execution_order", "of": "spans", "expected": ["GET /orders?id=*"]}
    assert create_scorer(spec).of == "spans"
    with pytest.raises(ConfigError):
        create_scorer({**spec, "of": "tools"})


GUARD = {"type": "precedence", "rules": ["refund only after verify"]}
UNKNOWN = replace(call("verify"), failure_unknown=True)


def test_a_call_that_failed_guards_nothing():
    """A later one that succeeded does."""
    failed = call("verify", error="denied")
    broken = score(GUARD, failed, call("refund"))
    assert (broken.value, broken.explanation) == (
        0.0,
        "0 of 1 rules hold; broken: refund only after verify: call 2 (refund)",
    )
    assert score(GUARD, failed, call("verify"), call("refund")).value == 1.0
    assert score(GUARD, call("verify"), failed, call("refund")).value == 1.0
    assert score(GUARD, failed).value == 1.0


def test_an_unknown_failure_skips_only_if_the_rule_hangs_on_it():
    """What holds or is broken either way is scored."""
    outcome = score(GUARD, UNKNOWN, call("refund"))
    assert isinstance(outcome, Skipped)
    assert (outcome.reason, "whether call 1 (verify) failed" in outcome.explanation) == (
        "not_recorded",
        True,
    )
    assert score(GUARD, UNKNOWN, call("verify"), call("refund")).value == 1.0
    assert score(GUARD, call("refund"), UNKNOWN).value == 0.0
    assert score(GUARD, UNKNOWN).value == 1.0


def args(mode="subset", **more):
    """A scorer that compares the arguments of a booking."""
    expected = {"name": "book", "arguments": {"city": "Rome", "days": 3}}
    return {"type": "tool_call_args", "arguments": mode, "expected": [expected], **more}


BOOKED = call("book", arguments={"city": "SECRET", "x": 1, "SECRET": 2})


def test_a_mismatch_names_expected_arguments_and_counts_others():
    """No value, and no name that only the run has, unless content is included."""
    outcome = score(args(), call("search"), BOOKED)
    assert outcome.explanation.endswith("; call 2 (book): city differs, days missing; 2 unexpected")
    assert outcome.details["differences"] == [
        {
            "expected": 0,
            "actual": 1,
            "differs": ["city"],
            "missing": ["days"],
            "unexpected": 2,
            "result": False,
        }
    ]
    assert "SECRET" not in outcome.explanation + json.dumps(outcome.details)
    assert "SECRET" in score(args(include_content=True), BOOKED).explanation


@pytest.mark.parametrize(
    ("mode", "arguments", "text"),
    [
        ("exact", {"city": "Rome", "days": 3, "x": 1}, "1 unexpected"),
        ("superset", {"city": "Oslo"}, "city differs"),
        ("overlap", {"city": "Rome", "days": 4}, "days differs"),
        (["days"], {"city": "Oslo", "x": 1}, "days missing"),
    ],
)
def test_a_mismatch_is_that_of_the_mode(mode, arguments, text):
    """Only what is compared is named."""
    outcome = score(args(mode), call("book", arguments=arguments))
    assert outcome.explanation.endswith(f"; call 1 (book): {text}")


def test_a_result_that_differs_is_named_without_its_value():
    """As arguments are."""
    spec = {"type": "tool_call_output", "expected": [{"name": "add", "result": 3}]}
    outcome = score(spec, call("add", result="SECRET"))
    assert outcome.explanation.endswith("; call 1 (add): result differs")


def test_positions_are_those_among_the_calls_that_the_scorer_reads():
    """From 1; details count from 0."""
    spec = {"type": "tool_errors", "tools": {"exclude": ["search"]}}
    outcome = score(spec, call("search"), call("open"), call("book", error="full"))
    assert outcome.explanation == "1 of 2 calls failed: call 2 (book)"
    assert outcome.details["errors"][0]["actual"] == 1


@pytest.mark.parametrize(
    ("scorers", "warning"),
    [
        ([{"type": "tool_errors", "threshold": 0}], "threshold: 0 lets every score pass"),
        (
            [
                {"type": "required_tools", "patterns": ["pay"]},
                {"type": "forbidden_tools", "patterns": ["p*"]},
            ],
            "required_tools requires pay, and forbidden_tools forbids p*",
        ),
        (
            [
                {"type": "tool_call_order", "expected": ["pay"]},
                {"type": "tool_call_count", "criteria": {"pay": "< 1"}},
            ],
            "tool_call_order requires pay, and tool_call_count forbids pay",
        ),
        (
            [{"type": "tool_call_count", "criteria": {"a": ["> 3", "< 2"]}}],
            "criteria.a: no number of calls meets all of them",
        ),
        (
            [{"type": "tool_call_count", "criteria": {"a": ">= 3", "*": "<= 2"}}],
            "allows 2 calls of *, and requires 3 of tools that match it",
        ),
        (
            [{"type": "precedence", "rules": ["a only after b", "b only after a"]}],
            "'a only after b' and 'b only after a' cannot hold where a or b is called",
        ),
        (
            [{"type": "precedence", "rules": ["a then b within 5s", "never b after a"]}],
            "cannot hold where a is called",
        ),
        (
            [{"type": "precedence", "rules": ["a before b", "b before a"]}],
            "cannot hold where a and b are called one after the other",
        ),
    ],
)
def test_check_warns_of_rules_that_decide_nothing_or_contradict(scorers, warning):
    """In one line that names them."""
    config = load({"evaluations": [{"name": "e", "scorers": scorers}]})
    assert any(warning in line for line in suggestions(config))


def test_rules_that_can_hold_together_give_no_warning():
    """Also tools that exclude each other, and a guard written from both sides."""
    rules = [
        "never refund after cancel",
        "never cancel after refund",
        "refund only after verify",
        "never verify after refund",
    ]
    scorers = [
        {"type": "precedence", "rules": rules},
        {"type": "required_tools", "patterns": ["verify"]},
        {"type": "forbidden_tools", "patterns": ["delete_*"]},
        {"type": "tool_call_count", "criteria": {"verify": [">= 1", "<= 2"], "*": "<= 2"}},
    ]
    assert suggestions(load({"evaluations": [{"name": "e", "scorers": scorers}]})) == []
