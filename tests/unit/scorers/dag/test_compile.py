"""A tree as one expression: its value is the path that a walk takes, or it has none."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED, Scored
from otel_eval.scorers import create_scorer
from otel_eval.scorers.cel import ExpressionEvaluator
from otel_eval.scorers.cel.binding import Bindings
from otel_eval.scorers.dag.walk import finished, walk
from otel_eval.testing import call, trajectory

TASKS = [
    "calls",
    "calls.map(c, c.name)",
    "calls.filter(c, has(c.result))",
    "calls.map(c, c.arguments.q)",
    "calls.map(c, calls.map(d, d.result))",
    "run.output",
    "run.output.a",
    "run.input.split(' ').filter(word, word != 'b') // of the question",
    "run.input + 'b'",
    "1 / run.input_tokens",
    "null",
    "1u",
    "dyn([1u, 2])",
    "b'a'",
    "{1: 'a', true: 'b'}",
    "timestamp('2026-01-01T00:00:00.000000001Z')",
    "type(run.input)",
]
BINARIES = [
    "true",
    "calls.size() > 1",
    "calls.all(c, c.error == null)",
    "calls.exists(c, c.result == 'a')",
    "calls[0].arguments.q > 1 // at first",
    "run.output",
    "run.output == run.input",
    "run.output.contains('a')",
    "has(run.output.a) && run.output.a == 1",
    "run.input_tokens < 3 || run.input == 'a'",
]
CHOICES = ["run.output", "run.input", "calls.size() > 1 ? 'a' : 'b\\n'", "calls[0].name // verdict"]
READS = [
    "{} == run.output",
    "{}.size() > 1",
    "{} > 1",
    "{} == 1",
    "{} == 1u",
    "'a' in {}",
    "{}[0] == 'a'",
    "[1, 2].all(c, c in {})",
]
READS += [
    "string({}) == '2026-01-01T00:00:00.000000001Z'",
    "{}[0].name == 'a'",
    "run.input == 'b'",
    "{}",
]

TEXTS = ["a", "b\n", "", "é\ud800", '{"a": 1}']
MAPPINGS = [
    {"a": 1},
    {"a": "a", "q": 2},
    {"q": "a"},
    {"q": [None]},
    {},
    {1: "a"},
    {"é": {"a": 2.0}},
]
JSON = st.sampled_from(
    [
        None,
        True,
        False,
        0,
        1,
        2**70,
        1.5,
        float("nan"),
        ("a",),
        ["a"],
        ["a", {}],
        [1, [2]],
        *TEXTS,
        *MAPPINGS,
    ]
)
RECORDED = JSON | st.just(UNRECORDED)
CALLS = st.builds(
    call,
    st.sampled_from(["a", "b"]),
    arguments=st.dictionaries(st.just("q"), JSON) | RECORDED,
    result=RECORDED,
    error=st.sampled_from([None, "timeout"]),
)


@st.composite
def runs(draw):
    """Runs of a few calls, with many unusual or unrecorded values."""
    numbers = {"input_tokens": draw(st.sampled_from([None, 0, 2, 5]))}
    calls = draw(st.lists(CALLS, max_size=3))
    return trajectory(*calls, input=draw(RECORDED), output=draw(RECORDED), **numbers)


@st.composite
def specs(draw):
    """Trees whose nodes form a sequence, in which verdicts may end or skip nodes."""
    names = "mnopqs"[: draw(st.integers(2, 6))]
    nodes, labels = {}, []
    for at, name in enumerate(names):
        later = names[at + 1 :]
        if later and draw(st.booleans()):
            further = draw(st.lists(st.sampled_from(later), max_size=2, unique=True))
            children = list(dict.fromkeys([later[0], *further]))
            nodes[name] = {
                "type": "task",
                "cel": draw(st.sampled_from(TASKS)),
                "children": children,
            }
            labels.append(name)
            continue
        asked = [each.format(label) for label in labels for each in READS]
        choice = draw(st.integers(0, 3)) == 0
        own = CHOICES if choice else BINARIES
        cel = draw(st.sampled_from(own) | st.sampled_from(asked if asked and not choice else own))
        verdicts = ["a", "b\n", 'é"'] if choice else [True, False]
        ends = [
            {"then": later[0]} if later else {"score": 10},
            *draw(st.lists(st.sampled_from(end_of(later)), min_size=3)),
        ]
        children = [
            {"verdict": verdict, **end} for verdict, end in zip(verdicts, ends, strict=False)
        ]
        nodes[name] = {"type": "choice" if choice else "binary", "cel": cel, "children": children}
    return {"type": "dag", "root": "m", "nodes": nodes}


def end_of(later):
    return [{"score": 3}, {"score": 4}, *({"then": each} for each in later)]


def scorer_of(spec):
    """Return the scorer, or discard a specification that is refused."""
    try:
        return create_scorer(spec)
    except ConfigError:
        assume(False)


def outcome_of(scorer, run):
    """Return the result by one expression, and by a walk."""
    by_one = scorer.compiled and scorer.compiled.walked(
        ExpressionEvaluator(Bindings(scorer.reading, run))
    )
    return by_one, finished(
        walk(scorer.plan, ExpressionEvaluator(Bindings(scorer.reading, run)), None)
    )


@pytest.mark.slow
@given(specs(), st.lists(runs(), min_size=5, max_size=5))
@settings(
    max_examples=100,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)
def test_one_expression_tells_the_way_that_a_walk_takes(spec, drawn):
    """It has that path or no value, for any runs and expressions."""
    scorer = scorer_of(spec)
    for run in drawn:
        by_one, walked = outcome_of(scorer, run)
        assert by_one is None or (by_one.end is walked.end and [*by_one.path] == [*walked.path])


def binary(cel, true=10, false=0):
    ends = [{"score" if isinstance(end, int) else "then": end} for end in (true, false)]
    return {
        "type": "binary",
        "cel": cel,
        "children": [{"verdict": True, **ends[0]}, {"verdict": False, **ends[1]}],
    }


def task(cel, *children):
    return {"type": "task", "cel": cel, "children": [*children]}


RUN = trajectory(call("search", arguments={"q": "x"}), call("open"), output="one two", input="b\n")
COMMENTED = {"a": binary("true // or (", "b"), "b": binary("calls.size() == 2 // )")}
LABELLED = {
    "a": task("calls.map(c, c.name)", "b"),
    "b": task("a.filter(c, c != 'open')", "c"),
    "c": binary("b == ['search']"),
}
CHOSEN = [{"verdict": "one\\", "score": 1}, {"verdict": "b\n", "then": "b"}]
CHOICE = {
    "a": {"type": "choice", "cel": "run.input", "children": CHOSEN},
    "b": binary("run.output == 'one two'"),
}
JOINED = {"z": task("a", "d"), "c": task("b", "d"), "d": binary("z + c == 'one twob\\n'")}
TWO_WAYS = {"a": task("run.output", "z"), "b": task("run.input", "c"), **JOINED}
LONG = {
    f"n{at:02}": binary("calls.size() > 1", f"n{at + 1:02}" if at < 19 else 10) for at in range(20)
}
TOO_LONG = {
    f"n{at:02}": binary("calls.size() > 1", f"n{at + 1:02}" if at < 39 else 10) for at in range(40)
}
TOO_MANY = {
    f"n{at:02}": binary("calls.size() > 1", *[f"n{at + 1:02}"] * 2 if at < 9 else (10, 0))
    for at in range(10)
}


@pytest.mark.parametrize(
    ("nodes", "root"),
    [(COMMENTED, "a"), (LABELLED, "a"), (CHOICE, "a"), (TWO_WAYS, ["a", "b"]), (LONG, "n00")],
)
def test_an_ordinary_run_is_decided_by_one_expression(nodes, root):
    """Such a run is not walked."""
    by_one, walked = outcome_of(create_scorer({"type": "dag", "root": root, "nodes": nodes}), RUN)
    assert (by_one.end, [*by_one.path]) == (walked.end, [*walked.path])


EARLY = [
    "calls.exists(c, c.name == 'search')",
    "!calls.all(c, c.name == 'open')",
    "calls.exists(c, calls.exists(d, d.name == 'search'))",
]


@pytest.mark.parametrize("cel", EARLY)
@pytest.mark.parametrize("asked", ["run.output", "run.output.split(' ')[0] + ' two'"])
def test_a_loop_that_ends_early_leaves_nothing_in_the_outputs_of_tasks(cel, asked):
    """The evaluator may use the last item as a value that is evaluated later at the same depth."""
    nodes = {"a": binary(cel, "b"), "b": task(asked, "c"), "c": binary("b == 'one two'")}
    scorer = create_scorer({"type": "dag", "root": "a", "nodes": nodes})
    by_one, walked = outcome_of(scorer, RUN)
    assert (by_one.end, [*by_one.path]) == (walked.end, [*walked.path])
    assert scorer(RUN).value == 1


@pytest.mark.parametrize("nodes", [TOO_LONG, TOO_MANY])
def test_a_tree_that_is_too_much_for_one_expression_is_walked(nodes):
    """The result is the same."""
    scorer = create_scorer({"type": "dag", "root": "n00", "nodes": nodes})
    assert scorer.compiled is None
    assert scorer(RUN).value == 1


@pytest.mark.parametrize(
    "cel", ["run.output + run.output", "1u", "dyn([1u])", "dyn({1: 'a'})", "run.agent", "calls[7]"]
)
def test_what_is_out_of_the_ordinary_is_walked(cel):
    """The causes: an output too large for a label, a type that Python does not distinguish, an
    unrecorded value, an error.
    """
    scorer = create_scorer(
        {"type": "dag", "root": "a", "nodes": {"a": task(cel, "b"), "b": binary("[a].size() == 1")}}
    )
    run = trajectory(call("search"), output="x" * 200_000)
    assert outcome_of(scorer, run)[0] is None


def test_explanation_and_details_are_made_when_asked_for():
    """They are those of the path, for equal outcomes, too."""
    scorer = create_scorer({"type": "dag", "root": "a", "nodes": LABELLED})
    path = [{"node": "a"}, {"node": "b"}, {"node": "c", "verdict": True}]
    assert scorer(RUN) == Scored(
        1.0, True, "a → b → c: true → 10 of 10", {"path": path, "score": 10}
    )


@given(st.sampled_from([each for each in BINARIES if each != "true"]), runs())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_what_others_look_at_makes_no_difference(cel, run):
    """The value of an expression does not depend on which other variables are bound."""
    everything = (
        "[run.agent, run.duration_ms, run.model_calls, run.input, run.output, calls].size() == 0"
    )
    ends = {"b": binary(everything)}
    alone = create_scorer({"type": "dag", "root": "a", "nodes": {"a": binary(cel)}})
    among = create_scorer(
        {"type": "dag", "root": "a", "nodes": {"a": binary(cel, 10, "b"), **ends}}
    )
    outcome = alone(run)
    assert not isinstance(outcome, Scored) or outcome.value == 0 or among(run) == outcome
    assert isinstance(outcome, Scored) or among(run) == outcome


def test_a_verdict_that_no_expression_can_come_to_keeps_a_tree_from_being_one():
    """No text in CEL has an unpaired surrogate."""
    leaves = [{"verdict": "\ud800", "score": 1}, {"verdict": "b\n", "score": 10}]
    scorer = scorer_of(
        {
            "type": "dag",
            "root": "a",
            "nodes": {"a": {"type": "choice", "cel": "run.input", "children": leaves}},
        }
    )
    assert (scorer.compiled, scorer(RUN).value) == (None, 1)
