"""What is easily broken without a value changing: what is read, what is shown, and which alignment
is chosen.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.model import Skipped
from otel_eval.scorers import create_scorer
from otel_eval.scorers.alignment.assignment import WeightedAssignment
from otel_eval.scorers.alignment.ordered import align_masks_in_order, prepare
from otel_eval.scorers.partial_order import walk
from otel_eval.testing import call, trajectory

HALVES = st.lists(
    st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), min_size=4, max_size=4),
    min_size=4,
    max_size=4,
)


def in_fixed_order(weights, rows, columns):
    """The heaviest common subsequence of two orders."""
    line = [0.0] * 5
    for row in rows:
        after = [0.0]
        for at, column in enumerate(columns):
            after.append(max(after[at], line[at + 1], line[at] + weights[row][column]))
        line = after
    return line[-1]


@given(HALVES)
def test_two_groups_of_two_against_two_batches_of_two_weigh_what_the_best_order_weighs(weights):
    """Every order of all four pairs is tried."""
    orders = [[a, 1 - a, 2 + b, 3 - b] for a in (0, 1) for b in (0, 1)]
    best = max(in_fixed_order(weights, rows, columns) for rows in orders for columns in orders)
    sparse = [{at: weight for at, weight in enumerate(row) if weight} for row in weights]
    pairs = walk(sparse, [range(2), range(2, 4)], [range(2), range(2, 4)])
    assert sum(weights[row][column] for row, column in pairs) == pytest.approx(best)


async def unused_judge(prompt):
    """A judge that is not asked."""
    raise AssertionError(prompt)


@pytest.mark.parametrize(
    ("specification", "needs"),
    [
        ({"type": "execution_order", "expected": ["a"]}, set()),
        ({"type": "tool_call_order", "expected": ["a"]}, set()),
        (
            {"type": "tool_call_order", "expected": ["a"], "include_content": True},
            {"arguments", "results"},
        ),
        ({"type": "tool_call_args", "expected": ["a"]}, {"arguments"}),
        ({"type": "tool_call_output", "expected": ["a"]}, {"results"}),
        ({"type": "tool_correctness", "expected": ["a"]}, set()),
        ({"type": "tool_correctness", "expected": ["a"], "compare": ["arguments"]}, {"arguments"}),
        ({"type": "tool_correctness", "expected": ["a"], "compare": ["result"]}, {"results"}),
        ({"type": "trajectory_structure", "required_keys": ["result"]}, {"results"}),
        ({"type": "trajectory_structure", "required_keys": ["arguments"]}, {"arguments"}),
        ({"type": "trajectory_structure", "required_keys": ["call_id"]}, {"arguments"}),
        ({"type": "trajectory_structure", "steps": "plan"}, {"content"}),
        ({"type": "tool_call_count", "criteria": {"a": "> 0"}}, set()),
        ({"type": "time_cost"}, set()),
        ({"type": "step_efficiency", "max_calls": 1}, set()),
        ({"type": "step_efficiency", "max_tokens": 1}, {"tokens"}),
        ({"type": "redundant_calls"}, {"arguments"}),
        ({"type": "redundant_calls", "ignore_arguments": True}, set()),
        ({"type": "loop_detection"}, {"arguments"}),
        ({"type": "loop_detection", "ignore_arguments": True}, set()),
        ({"type": "label_distribution", "label": "x"}, {"content"}),
        (
            {"type": "llm_judge", "criteria": "Good?", "judge": unused_judge},
            {"arguments", "results", "content"},
        ),
        ({"type": "answer_accuracy", "judge": unused_judge}, {"content"}),
        (
            {
                "type": "tool_correctness",
                "expected": ["a"],
                "available_tools": ["a"],
                "judge": unused_judge,
            },
            {"content"},
        ),
        ({"type": "trajectory_match", "expected": ["a"]}, {"arguments", "results"}),
        ({"type": "execution_order", "expected": ["a"], "of": "spans"}, {"spans"}),
        ({"type": "trajectory_pattern", "pattern": ["a"]}, set()),
        ({"type": "precedence", "rules": ["a before b"]}, set()),
        ({"type": "tool_errors"}, set()),
    ],
)
def test_a_scorer_reads_no_more_than_it_needs(specification, needs):
    """Arguments and results cost time and may be private."""
    assert create_scorer(specification).needs == needs


@pytest.mark.parametrize(
    ("specification", "reads", "asked"),
    [
        ({"type": "time_cost"}, False, set()),
        ({"type": "time_cost", "of": "tools"}, True, set()),
        ({"type": "step_efficiency", "max_tokens": 1}, False, set()),
        ({"type": "step_efficiency", "max_calls": 1}, True, set()),
        ({"type": "label_distribution", "label": "x"}, False, {"x"}),
        ({"type": "trajectory_structure"}, True, set()),
        ({"type": "trajectory_structure", "steps": "plan"}, False, {"plan"}),
        ({"type": "answer_accuracy", "judge": unused_judge}, False, {"question", "answer"}),
        ({"type": "llm_judge", "criteria": "Good?", "judge": unused_judge}, True, set()),
        ({"type": "execution_order", "expected": ["a"], "of": "spans"}, False, set()),
        ({"type": "execution_order", "expected": ["a"]}, True, set()),
        ({"type": "execution_order", "reference": "r"}, True, {"r"}),
        ({"type": "expression", "expression": "true", "reference": "r"}, False, {"r"}),
        ({"type": "tool_errors"}, True, set()),
    ],
)
def test_a_scorer_declares_whether_it_reads_calls_and_which_attributes(specification, reads, asked):
    """Where calls are not recorded, scorers of calls are skipped."""
    scorer = create_scorer(specification)
    assert (scorer.reads_calls, scorer.attribute_keys) == (reads, asked)


def test_the_agent_of_a_call_is_the_innermost():
    """Of those it was made within, as an expression sees it."""
    run = trajectory(replace(call("a"), agent_path=("outer", "inner")))
    assert (
        create_scorer({"type": "expression", "expression": "calls[0].agent == 'inner'"})(run).value
        == 1
    )


@pytest.mark.parametrize("half", [{"start_ns": 1}, {"end_ns": 1}])
def test_an_expression_sees_no_duration_where_one_end_was_not_recorded(half):
    """Neither of the run nor of a call."""
    for expression, what in (
        ("run.duration_ms < 1.0", "run.duration_ms"),
        ("calls[0].duration_ms < 1.0", "duration_ms of call 1 (a)"),
    ):
        outcome = create_scorer({"type": "expression", "expression": expression})(
            trajectory(call("a", **half), **half)
        )
        assert outcome == Skipped(f"{what} not recorded", reason="not_recorded")


@pytest.mark.parametrize(
    ("key", "there", "absent"),
    [
        ("call_id", {"call_id": "c1"}, {}),
        ("span_id", {"span_id": "s1"}, {}),
        ("start_ns", {"start_ns": 0, "end_ns": 1}, {}),
        ("error", {"error": "broken"}, {}),
        ("result", {"result": None}, {}),
        ("arguments", {"arguments": {}}, {}),
    ],
)
def test_a_required_field_counts_only_where_it_was_recorded(key, there, absent):
    """Empty arguments, a null result and a start of 0 were; an empty id was not."""
    structure = create_scorer({"type": "trajectory_structure", "required_keys": [key]})
    assert structure(trajectory(call("a", **there))).value == 1
    assert structure(trajectory(call("a", **there), call("a", **absent))).value == 0.5
    assert structure(trajectory(call("a", **absent))) == Skipped(
        f"no call recorded {key}", reason="not_recorded"
    )


def test_a_failed_call_that_needs_no_result_does_not_make_the_others_invalid():
    """Results that no call recorded are unknown; calls that all failed need none."""
    structure = create_scorer({"type": "trajectory_structure", "required_keys": ["result"]})
    failed = call("a", error="broken")
    assert structure(trajectory(failed, call("a"))) == Skipped(
        "no call recorded result", reason="not_recorded"
    )
    assert structure(trajectory(failed)).value == 1
    assert structure(trajectory(call("a", error="broken", result=1), call("a"))).value == 0.5


@pytest.mark.parametrize(("plan", "error"), [("text", "no list"), ([], "no steps")])
def test_an_attribute_without_steps_has_none_valid_of_none(plan, error):
    """No list, or an empty one."""
    outcome = create_scorer({"type": "trajectory_structure", "steps": "plan"})(
        trajectory(attributes={"plan": plan})
    )
    assert outcome.value == 0
    assert outcome.details == {"valid": 0, "total": 0, "errors": [error]}


def test_content_shows_the_pairs_that_agree_in_part():
    """Those that agree whole are left out."""
    expected = [{"name": "a", "arguments": {"x": 1, "y": 1}}, {"name": "b", "arguments": {"x": 1}}]
    specification = {
        "type": "tool_correctness",
        "expected": expected,
        "compare": ["arguments"],
        "include_content": True,
    }
    outcome = create_scorer(specification)(
        trajectory(call("a", arguments={"x": 1, "y": 2}), call("b", arguments={"x": 1}))
    )
    (shown,) = outcome.details["content"]
    assert (shown["expected"], shown["actual"]) == (0, 0)
    assert shown["found"] == {"tool": "a", "arguments": {"x": 1, "y": 2}}


def test_no_content_is_shown_where_all_arguments_agree():
    """Neither in the explanation nor in the details."""
    specification = {
        "type": "tool_call_args",
        "expected": [{"name": "a", "arguments": {"x": 1}}],
        "include_content": True,
    }
    outcome = create_scorer(specification)(trajectory(call("a", arguments={"x": 1})))
    assert outcome.explanation == "1 of 1 expected call matched"
    assert "content" not in outcome.details


@pytest.mark.parametrize("over", [0, 1])
def test_content_in_an_explanation_is_cut_at_four_hundred_characters(over):
    """One more is cut, with a sign that it was."""
    specification = {"type": "tool_call_args", "expected": [], "include_content": True}
    frame = len('[{"actual": 0, "found": {"tool": "a", "arguments": ""}}]')
    outcome = create_scorer(specification)(
        trajectory(call("a", arguments="x" * (400 - frame + over)))
    )
    shown = outcome.explanation.split("content: ")[1]
    assert len(shown) == 400
    assert shown.endswith("…") == bool(over)


NAMES_AS_TASK = {"type": "task", "cel": "calls.map(c, c.name)", "children": ["none"]}
NONE_CALLED = {
    "type": "binary",
    "cel": "names == []",
    "children": [{"verdict": each, "score": 1} for each in (True, False)],
}


@pytest.mark.parametrize(
    "specification",
    [
        {"type": "tool_call_count", "criteria": {"a": "> 0"}},
        {"type": "forbidden_tools", "patterns": ["a"]},
        {"type": "required_tools", "patterns": ["a"]},
        {"type": "step_efficiency", "max_calls": 3},
        {"type": "time_cost", "max_ms": 3},
        {"type": "trajectory_structure", "required_keys": ["result"]},
        {"type": "tool_call_order", "expected": ["a"], "tools": {"include": ["a*"]}},
        {"type": "tool_call_order", "expected": ["a"]},
        {"type": "tool_call_args", "expected": [{"name": "a", "arguments": {"x": 1}}]},
        {
            "type": "tool_call_args",
            "expected": [{"name": "a", "arguments": {"x": 1}}],
            "arguments": ["x"],
        },
        {"type": "expression", "expression": "calls.size() <= 3"},
        {"type": "dag", "root": "names", "nodes": {"names": NAMES_AS_TASK, "none": NONE_CALLED}},
    ],
)
def test_a_scorer_is_a_value(specification):
    """Equal if built alike, and immutable."""
    one, other = create_scorer(specification), create_scorer(specification)
    assert one == other
    with pytest.raises((FrozenInstanceError, AttributeError)):
        one.threshold = 0.1


def heaviest(weights):
    """The heaviest assignment by the set of columns taken."""
    best = {0: 0.0}
    for row in weights:
        after = dict(best)
        for taken, total in best.items():
            for column, weight in row.items():
                key = taken | 1 << column
                if key != taken and total + weight > after.get(key, -1.0):
                    after[key] = total + weight
        best = after
    return max(best.values())


@pytest.mark.parametrize("density", [0.3, 0.6, 1.0])
def test_dense_assignments_are_the_heaviest_after_every_row(density):
    """Many alternating paths: more rows than columns, few ties, three hundred times."""
    random = Random(density)
    for _ in range(300):
        rows = [
            {at: random.randint(1, 20) / 20 for at in range(6) if random.random() < density}
            for _ in range(8)
        ]
        assignment = WeightedAssignment()
        for count, row in enumerate(rows, start=1):
            assignment.add(row)
            assert assignment.total == pytest.approx(heaviest(rows[:count]))
        assert sum(rows[row][column] for row, column in assignment.pairs()) == pytest.approx(
            assignment.total
        )


def test_rows_wait_for_the_next_batch_where_that_is_worth_more():
    """Two rows that wait for the next batch get 1 each there, though half was to be had at once."""
    rows = [{0: 0.5, 2: 1.0}, {1: 0.5, 3: 1.0}, {4: 0.5}, {5: 0.5}]
    pairs = walk(rows, [range(2), range(2, 4)], [range(2), range(2, 4), range(4, 6)])
    assert sorted(pairs) == [(0, 2), (1, 3), (2, 4), (3, 5)]


@pytest.mark.parametrize(
    ("expected", "actual", "sizes", "pairs"),
    [
        ("aa", "aa", [2], [(0, 0), (1, 1)]),
        ("aa", "aaa", [1, 2], [(0, 1), (1, 2)]),
        ("ab", "ba", [2], [(0, 1), (1, 0)]),
        ("a", "aa", [1, 1], [(0, 0)]),
    ],
)
def test_calls_of_one_name_are_paired_in_the_order_in_which_they_were_made(
    expected, actual, sizes, pairs
):
    """Calls of one name in the order in which they were made."""
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    groups = [range(end - size, end) for size, end in zip(sizes, ends, strict=True)]
    masks = [prepare(actual).masks.get(name, 0) for name in expected]
    alone = [range(row, row + 1) for row in range(len(expected))]
    assert align_masks_in_order(masks, len(actual), alone, groups) == pairs
