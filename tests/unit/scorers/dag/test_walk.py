"""How a tree is walked: what runs, when, how often, and what comes out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from otel_eval.model import Failed, Scored, Skipped, Unnamed
from otel_eval.scorers import create_scorer
from otel_eval.scorers.user_code import private_copy
from otel_eval.testing import call, trajectory


def dag(nodes, root="a", **parameters):
    return create_scorer({"type": "dag", "root": root, "nodes": nodes, **parameters})


def task(cel, *children, **keys):
    return {"type": "task", "cel": cel, "children": [*children], **keys}


def binary(cel, true=10, false=0):
    return {"type": "binary", "cel": cel, "children": [leaf(True, true), leaf(False, false)]}


class Careless:
    """A user's scorer that returns a number, though its protocol asks for an outcome."""

    name = type = "careless"
    version = "1"
    needs: frozenset[str] = frozenset()

    def __call__(self, run):
        return 0.5


def leaf(verdict, end):
    return {"verdict": verdict, "score" if isinstance(end, int | float) else "then": end}


RUN = trajectory(
    call("search", arguments={"q": "x"}), call("open", error="404"), output="# One\n# Two"
)
HEADINGS = {
    "a": task(r'run.output.split("\n")', "there", "right", output_label="headings"),
    "there": binary("headings.size() == 2", "right", 0),
    "right": {
        "type": "choice",
        "cel": (
            'headings == ["# One", "# Two"] ? "right" : headings[0] == "# Two" ? "wrong" : "other"'
        ),
        "children": [leaf("right", 10), leaf("wrong", 2.5)],
    },
}


@pytest.mark.parametrize(
    ("output", "value", "path"),
    [
        ("# One\n# Two", 1.0, "a → there: true → right: right → 10 of 10"),
        ("# Two\n# One", 0.25, "a → there: true → right: wrong → 2.5 of 10"),
        ("# One", 0.0, "a → there: false → 0 of 10"),
    ],
)
def test_the_score_is_the_leafs_and_the_explanation_the_way(output, value, path):
    """The score is that of the leaf / 10."""
    outcome = dag(HEADINGS)(trajectory(output=output))
    assert isinstance(outcome, Scored)
    assert (outcome.value, outcome.explanation) == (value, path)


def test_details_tell_the_way_as_data():
    """Verdicts have the values of the configuration; a task has none."""
    path = [
        {"node": "a"},
        {"node": "there", "verdict": True},
        {"node": "right", "verdict": "right"},
    ]
    assert dag(HEADINGS)(RUN).details == {"path": path, "score": 10}


def test_strict_floors_everything_below_ten():
    """A leaf below 10 gives 0."""
    tree = {"a": binary("calls.size() == 2", 9.9, 10)}
    assert dag(tree, strict=True)(RUN) == Scored(
        0.0, False, "a: true → 9.9 of 10", {"path": [{"node": "a", "verdict": True}], "score": 9.9}
    )
    assert dag(tree, strict=True)(trajectory()).value == 1


def test_the_threshold_is_of_the_value():
    """As everywhere."""
    assert dag({"a": binary("true", 7)}, threshold=0.7)(RUN).passed
    assert not dag({"a": binary("true", 7)}, threshold=0.71)(RUN).passed


def test_a_verdict_outside_those_allowed_fails():
    """It may be content, so only the message, which stays in the process, quotes it."""
    outcome = dag(HEADINGS)(trajectory(output="x\ny"))
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "UnknownVerdict"
    assert outcome.message.startswith("right: ")
    assert outcome.details["path"][-1] == {"node": "there", "verdict": True}


def test_one_is_not_true():
    """0 is not false either."""
    outcome = dag({"a": binary("run.output")})(trajectory(output=1))
    assert isinstance(outcome, Failed)


def test_a_node_that_reads_an_unrecorded_value_skips_the_tree_and_is_named():
    """Values that only nodes outside of the path read do not matter."""
    tree = {"a": binary("calls.size() == 2", "b", 3), "b": binary("run.input == 'x'")}
    assert dag(tree)(RUN) == Skipped(
        "b: run.input not recorded", "not_recorded", {"path": [{"node": "a", "verdict": True}]}
    )
    assert dag(tree)(trajectory()).value == 0.3


def test_unrecorded_calls_skip_only_the_nodes_that_read_them():
    """Other nodes still decide."""
    tree = {"a": binary("run.output == 'x'", 10, "b"), "b": binary("calls.size() == 0")}
    assert dag(tree)(trajectory(output="x", calls_unknown="no tool spans")).value == 1
    assert (
        dag(tree)(trajectory(output="y", calls_unknown="no tool spans")).explanation
        == "b: calls not recorded"
    )


def test_a_tree_with_a_users_scorer_gives_what_it_gives_without_it():
    """It gets a copy of the run, in which a bare argument is still one without a name."""
    run = trajectory(call("open", arguments=Unnamed(__value__=1)))
    compared = {
        "scorer": {"type": "tool_call_args", "expected": [{"name": "open", "arguments": {"id": 1}}]}
    }
    own, mixed = (dag({"a": binary("true", compared, end)}) for end in (0, Careless()))
    assert isinstance(mixed(private_copy(run, mixed.needs)), Skipped)
    assert mixed(private_copy(run, mixed.needs)) == own(run)


def test_a_users_object_that_returns_no_outcome_fails_with_a_reason():
    """As it does outside of a tree."""
    outcome = dag({"a": binary("true", Careless())})(RUN)
    assert isinstance(outcome, Failed)
    assert outcome.message == "careless: careless returned float, not an outcome"


@pytest.mark.parametrize("span_id", ["", "01"])
def test_a_call_that_may_have_failed_is_not_taken_for_one_that_succeeded(span_id):
    """With `failed_calls: exclude`, also a call that only messages recorded."""
    unsure = trajectory(replace(call("open", span_id=span_id), failure_unknown=True))
    outcome = dag({"a": binary("calls.size() == 1")}, failed_calls="exclude")(unsure)
    assert isinstance(outcome, Skipped)
    assert outcome.reason == "not_recorded"


def test_incomplete_evidence_skips():
    """As everywhere."""
    assert dag({"a": binary("true")})(trajectory(incomplete="spans dropped")) == Skipped(
        "incomplete: spans dropped", reason="incomplete"
    )


def test_an_expression_that_does_not_fit_fails_with_the_nodes_name():
    """The index does not exist."""
    outcome = dag({"a": binary("calls[5].name == 'x'")})(RUN)
    assert (outcome.error_type, outcome.message) == (
        "ExpressionError",
        "a: UNKNOWN: Index error: index=5 size=2",
    )


def test_a_task_that_cannot_tell_holds_up_only_those_that_wait_for_it():
    """Here the path ends without those nodes."""
    tree = {
        "asked": task("run.input.size()", "long"),
        "a": binary("calls.size() == 2", 10, "long"),
        "long": binary("asked > 3", 5, 4),
    }
    assert dag(tree, ["a", "asked"])(RUN).value == 1
    assert dag(tree, ["a", "asked"])(trajectory()) == Skipped(
        "asked: run.input not recorded", "not_recorded", {"path": [{"node": "a", "verdict": False}]}
    )
    assert dag(tree, ["a", "asked"])(trajectory(input="What?")).value == 0.5


def test_a_successor_that_is_a_tasks_child_as_well_runs_only_on_its_verdict():
    """Being a child of the task is not enough."""
    tree = {
        "a": task("1", "b", "c"),
        "b": binary("calls.size() == 2", "c", 1),
        "c": binary("a == 1", 7),
    }
    assert dag(tree)(RUN).explanation == "a → b: true → c: true → 7 of 10"
    assert dag(tree)(trajectory()).explanation == "a → b: false → 1 of 10"


def test_a_node_waits_for_every_task_that_it_reads():
    """The node may be listed as a child of the task or read its label."""
    tree = {
        "a": task("1", "b", "d"),
        "b": task("a + 1", "c"),
        "c": task("b + 1", "d"),
        "d": binary("a == 1 && c == 3", 10),
    }
    assert dag(tree)(RUN).explanation == "a → b → c → d: true → 10 of 10"


def test_a_shared_node_runs_once():
    """Two decisions lead to it, in different runs."""
    tree = {
        "t": task("1", "a", "b"),
        "a": binary("calls.size() == 2", "c", "c"),
        "b": binary("calls.size() == 2", "c", "c"),
        "c": binary("true", 8),
    }
    assert dag(tree, "t")(RUN).explanation == "t → a: true → b: true → c: true → 8 of 10"


def test_two_verdicts_that_lead_to_one_node_do_not_stand_in_for_a_task():
    """The node waits for all tasks that it reads, even if several verdicts lead to it."""
    tree = {
        "t": task("1", "a", "b", "u"),
        "u": task("t + 1", "v"),
        "v": task("u + 1", "c"),
        "a": binary("true", "c", "c"),
        "b": binary("true", "c", "c"),
        "c": binary("v == 3", 8),
    }
    assert dag(tree, "t")(RUN).value == 0.8


def test_named_verdicts_can_be_shared():
    """Any number of decisions may list them."""
    tree = {
        "good": {"type": "verdict", "verdict": True, "score": 10},
        "a": {"type": "binary", "cel": "calls.size() == 2", "children": ["good", leaf(False, "b")]},
        "b": {"type": "binary", "cel": "calls.size() == 0", "children": [leaf(False, 1), "good"]},
    }
    assert [dag(tree)(run).value for run in (RUN, trajectory(), trajectory(call("x")))] == [
        1,
        1,
        0.1,
    ]


def scores(spec):
    return {"verdict": True, "then": {"scorer": spec}}


def test_a_verdict_may_lead_to_another_scorer():
    """The score of that scorer is not divided by 10."""
    tree = {
        "a": {
            "type": "binary",
            "cel": "calls.size() > 0",
            "children": [scores({"type": "tool_errors"}), leaf(False, 0)],
        }
    }
    scorer = dag(tree)
    outcome = scorer(RUN)
    assert (outcome.value, outcome.explanation) == (
        0.5,
        "a: true → tool_errors: 1 of 2 calls failed: call 2 (open)",
    )
    details = {
        "failed": 1,
        "total": 2,
        "errors": [{"tool": "open", "actual": 1, "type": RUN.calls[1].error.type}],
    }
    assert outcome.details["scorer"] == {
        "name": "tool_errors",
        "type": "tool_errors",
        "details": details,
    }
    assert not scorer.asynchronous


def test_another_scorers_skip_and_failure_are_the_trees():
    """The text begins with the name of that scorer."""
    tree = {
        "a": {
            "type": "binary",
            "cel": "true",
            "children": [scores({"type": "error_recovery", "name": "mended"}), leaf(False, 0)],
        }
    }
    assert dag(tree)(trajectory()).explanation == "mended: no call failed"
    tree["a"]["children"][0] = scores({"type": "expression", "expression": "2"})
    assert dag(tree)(trajectory()).error_type == "ValueError"


def test_needs_are_those_of_all_nodes_and_scorers_in_the_tree():
    """Nodes on paths that are rarely taken are included."""
    tree = {
        "a": binary("calls.all(c, has(c.arguments.q))", "b", 0),
        "b": {
            "type": "binary",
            "cel": "run.attributes.tier == 'gold'",
            "children": [scores({"type": "label_distribution", "label": "intent"}), leaf(False, 0)],
        },
    }
    scorer = dag(tree)
    assert (scorer.needs, scorer.attribute_keys) == ({"arguments", "content"}, {"tier", "intent"})


def test_a_reference_is_read_from_an_attribute():
    """Every node may read it."""
    tree = {"a": binary("run.output == reference.answer")}
    run = trajectory(output="Rome", attributes={"wanted": '{"answer": "Rome"}'})
    assert dag(tree, reference="wanted")(run).value == 1
    assert dag(tree, reference="wanted")(RUN).explanation == "a: no reference: wanted not recorded"


def test_calls_kept_by_a_task_are_calls():
    """Their fields are read, and an unrecorded one is reported."""
    tree = {
        "a": task("calls.filter(c, c.error == null)", "b"),
        "b": binary("a.all(c, c.arguments.q == 'x')"),
    }
    assert dag(tree)(RUN).value == 1
    assert dag(tree)(trajectory(call("b"))).explanation == "b: arguments of call 1 (b) not recorded"


def test_long_ways_and_names_are_cut_in_the_explanation():
    """Details list all of them in full."""
    names = [f"{'n' * 70}{at}" for at in range(40)]
    tree = {
        name: binary("true", then, 0) for name, then in zip(names, [*names[1:], 10], strict=True)
    }
    outcome = dag(tree, names[0])(RUN)
    assert outcome.explanation.endswith(" → 10 more → 10 of 10")
    assert len(outcome.explanation) < 2200
    assert len(outcome.details["path"]) == 40
