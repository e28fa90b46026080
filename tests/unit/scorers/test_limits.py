"""Limits: the largest values that are accepted, and that larger ones are cut, skipped or
rejected.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Scored, Skipped, ToolError
from otel_eval.scorers import create_scorer
from otel_eval.scorers.base_scorer import Finding
from otel_eval.scorers.judge import build_prompt
from otel_eval.scorers.nfa import NFA, PatternTooLarge, fewest_edits
from otel_eval.scorers.outcomes import NoScore
from otel_eval.testing import call, trajectory
from tests.support.configurations import pattern_of


def told(spec, run):
    """The explanation of a score."""
    outcome = create_scorer(spec)(run)
    assert isinstance(outcome, Scored)
    return outcome.explanation


@pytest.mark.parametrize(
    ("value", "outcome"),
    [(-1e-9, 0.0), (1 + 1e-9, 1.0), (-2e-9, None), (1 + 2e-9, None), (float("nan"), None)],
)
@pytest.mark.parametrize("strict", [False, True])
def test_a_value_may_be_off_by_what_sums_are_off_by(value, outcome, strict):
    """A value within the rounding error of [0, 1] is clamped; beyond, the outcome is `Failed`."""
    judged = create_scorer({"type": "tool_errors", "strict": strict}).to_outcome(Finding(value, ""))
    assert (
        isinstance(judged, Failed)
        if outcome is None
        else judged == Scored(outcome, outcome == 1, "", {})
    )


@pytest.mark.parametrize(
    ("value", "shown"), [(-0.0, "0.0"), (0, "0.0"), (1, "1.0"), (-1e-9, "0.0"), (1 + 1e-9, "1.0")]
)
def test_a_value_is_shown_as_a_number_from_0_to_1(value, shown):
    """A float, and 0 without a sign."""
    assert str(create_scorer({"type": "tool_errors"}).to_outcome(Finding(value, "")).value) == shown


@pytest.mark.parametrize(("budget", "left"), [(0.5, 0.0), (1, 0.0), (2, 0.5)])
def test_a_budget_of_time_may_be_less_than_a_millisecond(budget, left):
    """It only has to be positive."""
    assert (
        create_scorer({"type": "time_cost", "max_ms": budget})(
            trajectory(start_ns=0, end_ns=10**6)
        ).value
        == left
    )


@pytest.mark.parametrize(("number", "more"), [(8, ""), (9, " and 1 more")])
def test_eight_names_are_listed(number, more):
    """Further names are only counted."""
    names = [f"t{at}" for at in range(number)]
    listed = ", ".join(f"call {at} ({name})" for at, name in enumerate(names[:8], 1))
    assert told(
        {"type": "tool_call_order", "expected": []}, trajectory(*map(call, names))
    ).endswith(f"extra: {listed}{more}")


@pytest.mark.parametrize(("length", "shown"), [(60, "x" * 60), (61, "x" * 59 + "…")])
@pytest.mark.parametrize("of", ["list", "sentence"])
def test_a_name_is_cut_at_sixty_characters(length, shown, of):
    """Names are cut in lists and in sentences."""
    run = trajectory(call("x" * length))
    if of == "list":
        assert told({"type": "tool_call_order", "expected": []}, run).endswith(
            f"extra: call 1 ({shown})"
        )
    else:
        criteria = {"x" * length: "> 1"}
        assert f"; {shown}: 1 call, not > 1" in told(
            {"type": "tool_call_count", "criteria": criteria}, run
        )


@pytest.mark.parametrize(("steps", "more"), [(5, ""), (6, "; and 1 more")])
def test_five_invalid_steps_are_reported(steps, more):
    """Further steps are only counted."""
    plan = [{"id": at} for at in range(steps)]
    said = told(
        {"type": "trajectory_structure", "steps": "plan"}, trajectory(attributes={"plan": plan})
    )
    assert said.endswith(f"step 5: missing action{more}")
    said = told(
        {"type": "trajectory_structure"},
        trajectory(*[call("a", arguments={})] * steps, call("a", arguments={}, result=1)),
    )
    assert said.endswith(f"call 5 (a): missing result{more}")


@pytest.mark.parametrize(("edits", "more"), [(8, ""), (9, " and 1 more")])
def test_eight_edits_are_reported(edits, more):
    """Further edits are only counted."""
    said = told({"type": "trajectory_pattern", "pattern": []}, trajectory(*[call("a")] * edits))
    assert (
        said == f"{edits} edits: {', '.join(f'delete call {at} (a)' for at in range(1, 9))}{more}"
    )


@pytest.mark.parametrize(("blanks", "shown"), [(0, "true || {0}"), (1, "true || {1}…")])
def test_an_expression_is_quoted_in_eighty_characters(blanks, shown):
    """Without the line breaks it was written with."""
    name = "x" * 70
    source = f"true ||\n   '{name}' == ''"
    whole = " ".join(source.split())
    said = told({"type": "expression", "expression": source}, trajectory())
    assert said == f"{whole if len(whole) <= 80 else whole[:79] + '…'} is true"


@pytest.mark.parametrize("length", [80, 81])
def test_an_expression_of_eighty_characters_is_quoted_whole(length):
    """One more is cut."""
    source = f"'{'x' * (length - 8)}' != ''"
    shown = source if length == 80 else f"{source[:79]}…"
    assert len(source) == length
    assert told({"type": "expression", "expression": source}, trajectory()) == f"{shown} is true"


def nested(levels):
    """A list in a list in a list."""
    value = 1
    for _ in range(levels):
        value = [value]
    return value


TOO_LARGE = [
    # an expression, the largest that it can look at, and the smallest that it cannot
    ("run.output != ''", "x" * 2**18, "x" * (2**18 + 1)),
    ("run.output != {}", {"x" * (2**18 - 1): "x"}, {"x" * 2**18: "x"}),
    ("run.output.size() > 0", [[1] * 1998] * 50, [[1] * 1999] * 50),
    ("run.output.size() > 0", nested(63), nested(64)),
    ("run.output.filter(x, true).size() > 0", [1] * 2000, [1] * 2001),
    ("run.output.size() > 0", (1,) * 2000, (1,) * 2001),
    ("run.output.split('-').size() > 0", "-" * 1999, "-" * 2000),
    ("run.output.split('').size() > 0", "x" * 2000, "x" * 2001),
]


@pytest.mark.parametrize(("expression", "fits", "does_not"), TOO_LARGE, ids=range(len(TOO_LARGE)))
def test_an_expression_looks_at_values_up_to_a_size(expression, fits, does_not):
    """Beyond, it would cost seconds, gigabytes or the process."""
    scorer = create_scorer({"type": "expression", "expression": expression})
    assert scorer(trajectory(output=fits)).value == 1
    assert scorer(trajectory(output=does_not)).explanation.startswith("too large: ")


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        ("arguments", {"arguments": "x" * (2**18 + 1)}),
        ("result", {"result": "x" * (2**18 + 1)}),
        ("error", {"error": ToolError("Timeout", "x" * (2**18 + 1))}),
        ("agent", {"agent_path": ("x" * (2**18 + 1),)}),
    ],
)
def test_values_of_calls_are_limited_where_they_are_read(field, fields):
    """But only where it is looked at."""
    run = trajectory(replace(call("a"), **fields))
    scorer = create_scorer({"type": "expression", "expression": f"calls.all(c, c.{field} != 1)"})
    assert scorer(run) == Skipped("too large: more than 262144 characters", reason="too_large")
    assert (
        create_scorer({"type": "expression", "expression": "calls.all(c, c.name == 'a')"})(
            run
        ).value
        == 1
    )


def test_a_long_text_has_few_parts():
    """Parts are counted, not characters."""
    scorer = create_scorer(
        {"type": "expression", "expression": "run.output.split('-').size() == 2"}
    )
    assert scorer(trajectory(output="x" * 2000 + "-x")).value == 1


def test_an_expression_reads_two_thousand_calls_at_most():
    """One that does not read calls is scored whatever their number."""
    run = trajectory(*[call("a")] * 2001, output="x")
    reads_calls = create_scorer({"type": "expression", "expression": "calls.size() > 0"})
    assert reads_calls(trajectory(*[call("a")] * 2000)).value == 1
    assert reads_calls(run) == Skipped("too large: a list of 2001 items", reason="too_large")
    assert create_scorer({"type": "expression", "expression": "run.output == 'x'"})(run).value == 1


def test_an_evaluation_error_is_cut_at_two_hundred_characters():
    """On one line."""
    scorer = create_scorer({"type": "expression", "expression": "run.output[run.input] == 1"})
    outcome = scorer(trajectory(output='{"a": 1}', input="x" * 300))
    assert isinstance(outcome, Failed)
    assert (len(outcome.message), outcome.message[-1]) == (200, "x")
    scorer = create_scorer({"type": "expression", "expression": "'x'.matches(run.input)"})
    said = scorer(trajectory(input="one\ntwo(")).message
    assert said == "INVALID_ARGUMENT: invalid regular expression: missing ): one"


def test_a_compiler_error_is_cut_at_two_hundred_characters():
    """Place and remedy are not counted."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "expression", "expression": "[" * 30 + "1" + "]" * 30 + " == 1"})
    said = (
        str(refused.value)
        .removeprefix("expression: column 63: ")
        .removesuffix("; convert one side, e.g. by double()")
    )
    assert said == f"found no matching overload for '_==_' applied to '({'list(' * 30}"[:200]


@pytest.mark.parametrize(
    ("fits", "does_not", "says"),
    [
        (
            {"any_order": ["a"] * 10},
            {"any_order": ["a"] * 60},
            "too large for an exact answer; use smaller any_order groups",
        ),
        (
            {"repeat": "a", "max": 5000},
            {"repeat": "a", "max": 2**40},
            "too large for an exact answer; .* or a repeat without max",
        ),
        (
            {"repeat": "a", "min": 5000},
            {"repeat": "a", "min": 2**40},
            "too large for an exact answer",
        ),
        (
            {"repeat": "a", "min": 2, "max": 2},
            {"repeat": "a", "min": 2, "max": 1},
            "max: 1 is less than min 2; write e.g. min: 1, max: 3",
        ),
    ],
    ids=["any_order", "max", "min", "range"],
)
def test_a_pattern_is_of_a_size_that_can_be_searched(fits, does_not, says):
    """Members and copies, by the states that they need."""
    pattern_of(fits)
    with pytest.raises(ConfigError, match=says):
        pattern_of(does_not)


def test_a_pattern_has_ten_thousand_states_at_most():
    """The limit includes the first state."""
    automaton = NFA()
    assert [automaton.add_state() for _ in range(9_999)][-1] == 9_999
    with pytest.raises(PatternTooLarge):
        automaton.add_state()


def test_calls_that_ran_together_are_tried_in_4096_ways_at_most():
    """For one name of a pattern, from none of its calls to all of them."""
    pattern = pattern_of(["a", "b"])
    assert len(fewest_edits(pattern, ["a"] * 4095, [range(4095)]).edits) == 4095
    with pytest.raises(NoScore, match="too many calls ran together to try every order"):
        fewest_edits(pattern, ["a"] * 4096, [range(4096)])


@pytest.mark.parametrize(
    "within",
    [
        lambda member: [member],
        lambda member: {"sequence": [member]},
        lambda member: {"any_order": [member]},
        lambda member: {"choice": ["a", member]},
        lambda member: {"optional": member},
        lambda member: {"repeat": member},
        lambda member: {"repeat": member, "max": 1},
        lambda member: {"repeat": member, "min": 1, "max": 1},
    ],
    ids=["list", "sequence", "any_order", "choice", "optional", "repeat", "max", "min"],
)
def test_a_pattern_may_be_nested_but_not_without_end(within):
    """All kinds of patterns, fifty deep."""
    member = "a"
    for _ in range(50):
        member = within(member)
    pattern_of(member)
    for _ in range(250):
        member = within(member)
    with pytest.raises(ConfigError, match="nested too deeply"):
        pattern_of(member)


def test_a_pattern_that_is_nested_without_end_is_refused():
    """Before Python or pydantic run out of stack."""
    member = "a"
    for _ in range(5000):
        member = [member]
    with pytest.raises(ConfigError, match="is nested too deeply; write it flatter"):
        pattern_of(member)


@pytest.mark.parametrize(("length", "cut"), [(78, False), (79, True)])
def test_a_value_is_quoted_in_eighty_characters(length, cut):
    """With its quotes."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "tool_errors", "failed_calls": "é" * length})
    quoted = f"'{'é' * length}'"
    assert str(refused.value).startswith(
        f"failed_calls: {quoted[:79] + '…' if cut else quoted} is invalid; "
    )


def test_a_prompt_has_four_hundred_thousand_characters_at_most():
    """All characters of the prompt count."""
    frame = len(build_prompt("Judge.", {"output": ""}))
    assert len(build_prompt("Judge.", {"output": "x" * (400_000 - frame)})) == 400_000
    with pytest.raises(NoScore, match="400001 characters, 400000 at most"):
        build_prompt("Judge.", {"output": "x" * (400_001 - frame)})


def test_explanations_of_judges_are_cut_at_two_thousand_characters():
    """Leading and trailing blanks do not count."""

    async def judge(prompt):
        await asyncio.sleep(0)
        return json.dumps({"score": 0.1234, "explanation": f" {'x' * 2001} "})

    outcome = create_scorer(
        {"type": "llm_judge", "judge": judge, "criteria": "Good?", "include_content": True}
    )(trajectory())
    assert outcome.details == {"score": 0.1234, "explanation": "x" * 2000}
    assert outcome.explanation == f"the judge gave 0.123: {'x' * 2000}"
