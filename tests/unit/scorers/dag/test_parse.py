"""Trees that cannot be used are refused when built, in lines that name the node."""

from __future__ import annotations

import pytest

from otel_eval.errors import ConfigError
from otel_eval.scorers import create_scorer

LEAVES = [{"verdict": True, "score": 10}, {"verdict": False, "score": 0}]


def task(*children, **keys):
    return {"type": "task", "cel": "calls.size()", "children": [*children], **keys}


def binary(true=10, false=0, **keys):
    return {
        "type": "binary",
        "cel": "true",
        "children": [leaf(True, true), leaf(False, false)],
        **keys,
    }


def choice(*verdicts, **keys):
    return {"type": "choice", "cel": "'a'", "children": [leaf(*each) for each in verdicts], **keys}


def leaf(verdict, score):
    return {"verdict": verdict, "then" if isinstance(score, str) else "score": score}


def asks(**keys):
    return {"type": "binary", "criteria": "Is it good?", "children": LEAVES, **keys}


async def judge(prompt):
    raise AssertionError(prompt)


REFUSED = [
    # what is wrong, the nodes, and what is said of it
    ("a cycle", {"a": binary("b"), "b": binary("a")}, "nodes.a: leads back to itself (a → b → a)"),
    ("a cycle of one", {"a": binary("a")}, "nodes.a: leads back to itself (a → a)"),
    (
        "a cycle through a task",
        {"a": task("b"), "b": binary("a")},
        "nodes.a: leads back to itself (a → b → a)",
    ),
    (
        "a leaf that is no verdict",
        {"a": task()},
        "nodes.a.children: [] is not a list of the nodes that read the output",
    ),
    (
        "a decision without children",
        {"a": binary(children=[])},
        "nodes.a.children: [] are not one verdict true and one false",
    ),
    (
        "a verdict as root",
        {"a": {"type": "verdict", **leaf(True, 1)}},
        "nodes.a: no decision has this verdict",
    ),
    (
        "a task whose child is a verdict",
        {"a": task("v"), "v": {"type": "verdict", **leaf(True, 1)}},
        (
            "nodes.a.children[0]: 'v' is not the name of a task, binary or choice; name one; a"
            " verdict follows a decision only"
        ),
    ),
    (
        "a verdict in a task's children",
        {"a": task(leaf(True, 1))},
        "nodes.a.children[0]: {'verdict': True",
    ),
    (
        "a bare node among verdicts",
        {"a": binary(children=["b", leaf(False, 0)]), "b": binary()},
        "nodes.a.children[0]: 'b' is no verdict; write {verdict: true, then: b}",
    ),
    (
        "only one verdict",
        {"a": binary(children=LEAVES[:1])},
        "nodes.a.children: [true] are not one verdict true and one false",
    ),
    (
        "true twice",
        {"a": binary(children=[*LEAVES, leaf(True, 3)])},
        "nodes.a.children: [true, false, true] are not one verdict true and one false",
    ),
    (
        "a text as verdict of a binary",
        {"a": binary(children=[leaf("yes", 1), leaf(False, 0)])},
        'nodes.a.children: ["yes", false] are not one verdict true and one false',
    ),
    (
        "quoted verdicts of a binary",
        {"a": binary(children=[leaf("true", 1), leaf("false", 0)])},
        'nodes.a.children: ["true", "false"] are not one verdict true and one false',
    ),
    (
        "a boolean as verdict of a choice",
        {"a": choice((True, 1), ("b", 2))},
        'nodes.a.children: [true, "b"] are not one or more texts, each once',
    ),
    (
        "a number as verdict",
        {"a": choice((1, 1), ("b", 2))},
        "nodes.a.children[0].verdict: 1 is not a verdict",
    ),
    (
        "a verdict without verdict",
        {"a": choice((None, 1))},
        "nodes.a.children[0].verdict: null (no value) is not a verdict",
    ),
    (
        "a choice without verdicts",
        {"a": choice()},
        "nodes.a.children: [] are not one or more texts",
    ),
    (
        "two alike",
        {"a": choice(("x", 1), ("x", 2))},
        'nodes.a.children: ["x", "x"] are not one or more texts, each once',
    ),
    (
        "a score above 10",
        {"a": binary(10.5)},
        "nodes.a.children[0].score: 10.5 is not a score from 0 to 10",
    ),
    ("a score below 0", {"a": binary(-1)}, "nodes.a.children[0].score: -1 is not a score"),
    (
        "a score that is none",
        {"a": binary(float("nan"))},
        "nodes.a.children[0].score: nan is not a score",
    ),
    ("a boolean score", {"a": binary(True)}, "nodes.a.children[0].score: True is not a score"),
    (
        "neither score nor successor",
        {"a": binary(None)},
        "nodes.a.children[0]: the verdict 'true' has no score",
    ),
    (
        "both score and successor",
        {
            "a": binary(children=[{"verdict": True, "score": 1, "then": "b"}, leaf(False, 0)]),
            "b": binary(),
        },
        "nodes.a.children[0]: the verdict 'true' has both a score and a successor",
    ),
    (
        "an unknown successor",
        {"a": binary("order"), "ordered": binary()},
        "nodes.a.children[0].then: there is no node 'order'; did you mean 'ordered'?",
    ),
    ("an unknown child", {"a": task("b")}, "nodes.a.children[0]: there is no node 'b'"),
    (
        "an unknown verdict",
        {"a": binary(children=["v", leaf(False, 0)])},
        "nodes.a.children[0]: there is no node 'v'",
    ),
    (
        "a verdict as successor",
        {"a": binary("v"), "v": {"type": "verdict", **leaf(True, 1)}},
        "nodes.a.children[0].then: 'v' is a verdict itself",
    ),
    ("an unreachable node", {"a": binary(), "b": binary()}, "nodes.b: cannot be reached from a"),
    (
        "an unreachable verdict",
        {"a": binary(), "v": {"type": "verdict", **leaf(True, 1)}},
        "nodes.v: no decision has this verdict",
    ),
    (
        "an unknown variable",
        {"a": binary(cel="headngs == []")},
        "nodes.a.cel: column 1: 'headngs' is not known",
    ),
    (
        "a misspelt label",
        {"a": task("b", output_label="headings"), "b": binary(cel="headngs == 3")},
        "nodes.b.cel: column 1: 'headngs' is not known; did you mean 'headings'?",
    ),
    (
        "a label of a task that does not lead here",
        {"a": binary("b", "t"), "b": binary(cel="t == 1"), "t": task("c"), "c": binary()},
        "nodes.b.cel: t is the output of 't', which does not lead here; add b to the children of t",
    ),
    (
        "a label twice",
        {"a": task("b", output_label="x"), "b": task("c", output_label="x"), "c": binary()},
        "nodes.b.output_label: 'x' is the output of 'a' already",
    ),
    (
        "a label that means something else",
        {"a": task("b", output_label="calls"), "b": binary()},
        (
            "nodes.a.output_label: 'calls' is not a name of letters, digits, _ and blanks that is"
            " free in expressions"
        ),
    ),
    (
        "a label that is a type",
        {"a": task("b", output_label="list"), "b": binary(cel="list == 3")},
        "nodes.a.output_label: 'list' is not a name of letters",
    ),
    (
        "a label that is no name",
        {"1st task": task("b"), "b": binary()},
        "nodes.1st task.output_label: '1st task' is not a name of letters",
    ),
    (
        "an expression of another type",
        {"a": binary(cel="calls.size()")},
        "nodes.a.cel: gives INT, not true or false",
    ),
    (
        "an expression that gives no text",
        {"a": choice(("x", 1), cel="true")},
        "nodes.a.cel: gives BOOL, not a text",
    ),
    (
        "a wrong type of a label",
        {"a": task("b", output_label="n"), "b": binary(cel="n == 'x'")},
        "nodes.b.cel: column 3: found no matching overload for '_==_' applied to '(int, string)'",
    ),
    (
        "a field that there is not",
        {"a": binary(cel="run.outptu == 1")},
        "nodes.a.cel: there is no field run.outptu; did you mean 'output'?",
    ),
    ("two ways to decide", {"a": asks(cel="true")}, "nodes.a.cel: stands beside criteria"),
    (
        "no way to decide",
        {"a": {"type": "binary", "children": LEAVES}},
        "nodes.a.cel: missing; write an expression, or criteria for a judge",
    ),
    ("no judge", {"a": asks(reads=["output"])}, "judge: missing, and nodes.a asks one"),
    ("nothing to be shown", {"a": asks()}, "nodes.a.reads: missing; name what the judge is shown"),
    (
        "something unknown to be shown",
        {"a": asks(reads=["ouput"])},
        "nodes.a.reads: there is no 'ouput' to read; did you mean 'output'?",
    ),
    (
        "reads beside an expression",
        {"a": binary(reads=["output"])},
        "nodes.a.reads: an expression determines what it reads",
    ),
    (
        "no reference for an expression",
        {"a": binary(cel="reference == 1")},
        "reference: missing, and nodes.a reads it",
    ),
    (
        "no reference for a judge",
        {"a": asks(reads=["reference"])},
        "reference: missing, and nodes.a reads it",
    ),
    (
        "a misspelt type",
        {"a": {"type": "tsak"}},
        "nodes.a.type: 'tsak' is not a kind of node; did you mean 'task'?",
    ),
    ("no type", {"a": {"cel": "true"}}, "nodes.a.type: None is not a kind of node; choose one of"),
    (
        "a misspelt key",
        {"a": binary(cretiria="x")},
        "nodes.a.cretiria: unknown key; did you mean 'criteria'?",
    ),
    (
        "a misspelt key of a verdict",
        {"a": binary(children=[{"verdict": True, "than": "b"}, leaf(False, 1)])},
        "nodes.a.children[0].than: unknown key; did you mean 'then'?",
    ),
    ("no node", {"a": "b"}, "nodes.a: 'b' is not a node"),
    ("a name that is a number", {1: binary()}, "nodes: 1 is not a non-empty text"),
    (
        "a name that is a truth value",
        {True: task("b"), "b": binary()},
        "nodes: True is not a non-empty text",
    ),
    ("no nodes", {}, "nodes: {} is not a mapping of names to nodes"),
    (
        "an unknown scorer",
        {
            "a": binary(
                children=[
                    {"verdict": True, "then": {"scorer": {"type": "tool_erors"}}},
                    leaf(False, 0),
                ]
            )
        },
        "nodes.a.children[0].then.scorer.type: 'tool_erors'",
    ),
    (
        "a successor that is none",
        {"a": binary(children=[{"verdict": True, "then": ["b"]}, leaf(False, 0)])},
        "nodes.a.children[0].then: ['b'] is not the name of a node or a scorer",
    ),
    (
        "a scorer beside something else",
        {
            "a": binary(
                children=[
                    {"verdict": True, "then": {"scorer": {"type": "tool_errors"}, "of": 1}},
                    leaf(False, 0),
                ]
            )
        },
        ("nodes.a.children[0].then.of: unknown key; choose one of scorer"),
    ),
    (
        "an empty successor",
        {"a": binary("")},
        "nodes.a.children[0].then: '' is not the name of a node or a scorer",
    ),
    (
        "two scores",
        {"a": task("b", "c"), "b": binary(), "c": binary()},
        "nodes.c: a run may reach a score here and at b as well",
    ),
    (
        "two scores on one way",
        {"a": task("b", "c"), "b": binary("d"), "c": binary("d", 1), "d": binary()},
        "a run may reach a score here and at",
    ),
    (
        "no score, as a task's child is a successor",
        {"a": binary("c", "t"), "t": task("c"), "c": binary()},
        (
            "nodes.c: after 'a: false' no score is reached, as this node runs only where a verdict"
            " leads to it"
        ),
    ),
    (
        "no score, as two tasks that exclude one another are read",
        {"a": binary("s", "t"), "s": task("c"), "t": task("c"), "c": binary()},
        (
            "nodes.c: after 'a: false' no score is reached, as this node waits for s, which does"
            " not run then"
        ),
    ),
    (
        "no score, as two tasks are read that do not run",
        {"a": binary("s", "c"), "s": task("t", "c"), "t": task("c"), "c": binary()},
        (
            "nodes.c: after 'a: false' no score is reached, as this node waits for s, which does"
            " not run then"
        ),
    ),
]


@pytest.mark.parametrize(
    ("nodes", "said"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED]
)
def test_a_tree_that_cannot_be_used_is_refused(nodes, said):
    """On one line, with the node and a remedy."""
    with pytest.raises(ConfigError) as refused:
        create_scorer(
            {"type": "dag", "root": "a" if "a" in nodes else next(iter(nodes), "a"), "nodes": nodes}
        )
    assert said in str(refused.value)
    assert "; " in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("root", "said"),
    [
        (
            "b",
            "root: 'b' is not a task, binary or choice that follows no other node; choose one of t",
        ),
        (
            ["t", "v"],
            "root: 'v' is not a task, binary or choice that follows no other node; choose one of t",
        ),
        (
            ["t", "a"],
            "root: 'a' is not a task, binary or choice that follows no other node; choose one of t",
        ),
        ([], "root: [] is not the name of a node"),
        (3, "root: 3 is not the name of a node"),
    ],
)
def test_a_root_has_to_be_a_beginning(root, said):
    """The name of a node that follows no other."""
    verdict = {"type": "verdict", **leaf(False, 0)}
    nodes = {"t": task("a"), "a": binary(children=[leaf(True, 10), "v"]), "v": verdict}
    with pytest.raises(ConfigError, match="root: ") as refused:
        create_scorer({"type": "dag", "root": root, "nodes": nodes})
    assert said in str(refused.value)


def test_a_tree_is_sampled_as_a_whole():
    """What a verdict leads to is asked about every run that comes to it."""
    further = {"type": "llm_judge", "judge": judge, "criteria": "It is good.", "sample": 0.1}
    nodes = {
        "a": {
            "type": "binary",
            "cel": "true",
            "children": [leaf(True, 10), {"verdict": False, "then": {"scorer": further}}],
        }
    }
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "dag", "root": "a", "nodes": nodes})
    place = "nodes.a.children[1].then.scorer.sample"
    assert (
        str(refused.value) == f"{place}: a tree is sampled as a whole; write sample beside its root"
    )
    nodes["a"]["children"][1]["then"] = {"scorer": {**further, "sample": 1.0}}
    assert create_scorer({"type": "dag", "root": "a", "nodes": nodes, "sample": 0.1}).sample == 0.1


def test_a_broken_node_is_reported_once_and_not_by_its_parents():
    """Whether as child, as successor or as what is read."""
    nodes = {
        "a": task("b", "x"),
        "b": binary("x"),
        "c": binary("x"),
        "d": binary(cel="x == 1"),
        "x": 3,
    }
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "dag", "root": ["a", "c", "d"], "nodes": nodes})
    assert [problem.split(";")[0] for problem in refused.value.problems] == [
        "nodes.x: 3 is not a node"
    ]


def problems_of(nodes, **more):
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "dag", "root": "a", "nodes": nodes, **more})
    return refused.value.problems


def test_every_problem_of_the_nodes_is_reported_at_once():
    """Of values, of links and of expressions, with those of other keys."""
    nodes = {
        "a": task("b", "nobody"),
        "b": binary(11, "c", reads="all"),
        "c": {"type": "binry"},
        "d": choice(("x", 1), ("x", 2)),
        "e": binary(cel="1 +", rades=3),
    }
    begins = [
        "treshold: unknown key",
        "nodes.b.reads: 'all' is not a list",
        "nodes.b.children[0].score: 11",
        "nodes.c.type: 'binry'",
        "nodes.e.rades: unknown key",
        "nodes.a.children[1]: there is no node 'nobody'",
        'nodes.d.children: ["x", "x"] are not',
        "nodes.e.cel: column 4: Syntax error",
    ]
    problems = problems_of(nodes, treshold=1)
    assert [
        problem[: len(begin)] for problem, begin in zip(problems, begins, strict=True)
    ] == begins


def test_every_problem_of_the_expressions_is_reported_at_once():
    """With those of what judges are shown."""
    nodes = {
        "a": task("b", "c"),
        "b": binary("d", cel="run.agnt == 1"),
        "c": binary(cel="1 +"),
        "d": asks(reads=["ouput"]),
    }
    begins = [
        "nodes.b.cel: there is no field run.agnt",
        "nodes.c.cel: column 4: Syntax error",
        "nodes.d.reads: there is no 'ouput'",
    ]
    assert (
        sorted(
            problem[: len(begin)]
            for problem, begin in zip(sorted(problems_of(nodes)), begins, strict=True)
        )
        == begins
    )


def test_too_many_ways_to_be_checked_are_refused():
    """Within a bounded time."""
    nodes = {"t": task(*(f"b{at}" for at in range(30)))}
    for at in range(30):
        nodes |= {
            f"b{at}": binary(f"x{at}", f"y{at}"),
            f"x{at}": binary("end", "end"),
            f"y{at}": binary("end", "end"),
        }
    with pytest.raises(ConfigError, match="more ways lead on from here than can be checked"):
        create_scorer({"type": "dag", "root": "t", "nodes": {**nodes, "end": binary()}})
