"""The memory that expressions take is limited, and no value changes for that."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED, Failed, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.scorers.base_scorer import NoScore
from otel_eval.scorers.cel import ExpressionEvaluator, compiled
from otel_eval.scorers.cel.binding import Bindings
from otel_eval.scorers.cel.vocabulary import BUDGET, Memory
from otel_eval.testing import call, trajectory

# Runs as source, for another process.
MANY = "run(5000, output='x' * 100_000)"
FEW = "run(90, output='x' * 100_000)"
LISTED = "run(9, input=[*range(1000)])"
KEYS = "run(2, output={f'k{at}': at for at in range(40_000)})"
CHAIN = "".join(f".map({name}, {name} + {name})" for name in "abcdefghijklm")
SHARED = "".join(f".map({name}, [{name}, {name}])" for name in "abcdefghijk")
EMOJI = "run(1000, output=chr(0x1F600) * 60_000)"

ADVERSARIAL = [
    ("calls.all(c, (run.output + c.name).size() > 3)", MANY),
    ("calls.exists(c, (run.output + c.name).size() == 3)", MANY),
    ("calls.exists(a, calls.exists(b, (run.output + a.name + b.name).size() == 3))", FEW),
    (
        "calls.all(c, !run.output.replace('x', c.name).contains('zz'))",
        "run(5000, output='x' * 50_000)",
    ),
    ("calls.exists(c, run.output.replace('z', c.name).contains('zz'))", MANY),
    ("calls.exists(c, (run.output + c.name).lowerAscii().contains('zz'))", MANY),
    ("calls.exists(c, (run.output + c.name).trim().contains('zz'))", MANY),
    ("calls.exists(c, run.output.split(c.name).size() == 0)", MANY),
    ("calls.exists(c, run.output.split('y').join(c.name) == '')", "run(5000, output='xy' * 900)"),
    ("calls.exists(c, [run.output, run.output, c.name].join('') == '')", MANY),
    ("calls.exists(c, calls.map(d, run.output + d.name).join(c.name) == '')", FEW),
    ("calls.map(d, run.output).join('') == ''", EMOJI),
    ("calls.map(d, run.output).map(e, e).join('') == ''", EMOJI),
    ("calls.exists(c, string(bytes(run.output) + bytes(c.name)) == 'x')", MANY),
    ("calls.exists(c, bytes(run.output + c.name).size() == 3)", MANY),
    ("calls.exists(c, run.input.map(i, [i, c.name]).size() == 3)", LISTED),
    ("calls.exists(c, run.input.filter(i, i != c.name).size() == 3)", LISTED),
    ("calls.exists(c, (run.input + [c.name]).size() == 3)", "run(5000, input=[*range(999)])"),
    (f"calls.exists(c, [{','.join(['c.name'] * 400)}].size() == 3)", MANY),
    (f"calls.exists(c, {{{','.join(f'{at}: c.name' for at in range(250))}}}.size() == 3)", MANY),
    (f"[run.output]{CHAIN}.size() == 1", MANY),
    (f"[run.output]{SHARED}.size() == 1", MANY),
    (f"[run.input]{CHAIN}.size() == 1", LISTED),
    (f"({' + '.join(['run.output'] * 29)}).size() == 1", MANY),
    (f"({' + '.join(['run.input'] * 9)}).map(k, k).size() == 1", LISTED),
    ("calls.exists(c, 'a'.matches(run.output + c.name + '('))", MANY),
    ("calls.exists(c, {'a': 1}[run.output + c.name] == 1)", MANY),
    ("calls.exists(c, int(run.output + c.name) == 1)", MANY),
    ("calls.exists(c, timestamp(run.output + c.name) == timestamp('2026-01-01T00:00:00Z'))", MANY),
    ("run.output.map(k, k).size() == 1", KEYS),
    ("run.output.exists(k, k + 'x' == 'y')", KEYS),
    ("calls.exists(c, c.name + string(c.start_ms) == 'y')", MANY),
    ("run.output.size() > 0", "run(1, output=[{'a': at} for at in range(49_999)])"),
    ("calls.size() == 9 && calls.exists(c, c.name == 'x')", "run(30_000)"),
]

MEASURED = """
import json, os, re, sys
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

def run(calls, **facts):
    made = (call(f"n{at % 10}", start_ns=1 + at, end_ns=1 + at) for at in range(calls))
    return trajectory(*made, start_ns=1, **facts)

def size(name):
    return int(re.search(rf"{name}:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024

def measured(expression, source):
    scorer, given = create_scorer({"type": "expression", "expression": expression}), eval(source)
    open("/proc/self/clear_refs", "w").write("5")  # the peak begins anew
    before = size("VmRSS")
    outcome = scorer(given)
    return [size("VmHWM") - before, type(outcome).__name__, getattr(outcome, "text", "")]

create_scorer({"type": "expression", "expression": "'a'.trim() == run.name"})(run(1))
for expression, source in json.load(sys.stdin):
    if not os.fork():
        print(json.dumps(measured(expression, source)), flush=True)
        os._exit(0)
    os.wait()
"""


def measured(rows):
    done = subprocess.run(
        [sys.executable, "-c", MEASURED],
        input=json.dumps(rows),
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


LINUX = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="Linux alone tells the peak of a process's memory since a certain time",
)


@pytest.mark.slow
@LINUX
def test_no_expression_takes_more_than_twice_its_budget():
    """It ends with its value, with an error of its own, or is too large."""
    found = measured(ADVERSARIAL)
    assert len(found) == len(ADVERSARIAL)
    assert [
        (row, size >> 20)
        for row, (size, _, _) in zip(ADVERSARIAL, found, strict=True)
        if size > 2 * BUDGET
    ] == []
    assert sum(why.startswith("too large: ") for _, _, why in found) >= 20
    assert [
        (row, outcome)
        for row, outcome in zip(ADVERSARIAL, found, strict=True)
        if not _is_known(*outcome[1:])
    ] == []


def _is_known(kind, why):
    return kind in ("Scored", "Failed") or why.startswith("too large: ")


@LINUX
def test_what_does_not_depend_on_a_loop_is_made_once():
    """So that the text of a run is written in lower case once, not for each of its calls."""
    expression = "calls.all(c, !run.output.lowerAscii().contains('zz' + c.name.lowerAscii()))"
    ((size, outcome, _),) = measured([(expression, "run(5000, output='x' * 240_000)")])
    assert (outcome, size < 2**24) == ("Scored", True)


@pytest.mark.parametrize(
    ("expression", "outcome"),
    [
        ("!calls.exists(c, run.output.contains(c.name))", "Scored"),
        (
            (
                "calls.exists(c, run.output.contains(c.name)) || calls.exists(c,"
                " run.output.contains(c.name + 'x'))"
            ),
            "Skipped",
        ),
        ("calls.exists(c, run.output.matches(c.name + 'y'))", "Skipped"),
    ],
)
def test_how_much_text_is_searched_is_limited(expression, outcome):
    """By the length of the text, whatever the time it takes for these names, of which no letter is
    in it.
    """
    run = trajectory(*[call("zz")] * 5000, output="x" * 200_000)
    found = create_scorer({"type": "expression", "expression": expression})(run)
    assert type(found).__name__ == outcome
    assert getattr(found, "reason", "too_large") == "too_large"


@pytest.mark.parametrize(
    "source",
    [
        "calls.exists(c, run.output.contains(c.name + 'x'))",
        "calls.exists(c, run.output.contains(c.name))",
    ],
)
def test_a_long_text_contains_what_a_short_one_contains(source):
    """Long texts are searched in another way."""
    for text in ("", "ab", "b€ba", "bb"):
        run = trajectory(call("ba"), call("€b"), output=text)
        long = trajectory(call("ba"), call("€b"), output=text + "-" * 5000)
        scorer = create_scorer({"type": "expression", "expression": source})
        assert scorer(run) == scorer(long)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("[].all(x, 1 / 0 == 1)", True),
        ("calls.all(c, c.name == 'a' || 1 / 0 == 1)", True),
        ("calls.exists(c, 1 / 0 == 1 || c.name == 'a')", True),
        ("calls.all(c, c.name == 'a' || run.output.lowerAscii() == '')", True),
        ("calls.exists(c, calls.all(d, d.name == 'a' ? true : run.output.trim() == c.name))", True),
        ("calls.all(c, ['b', 'a'].exists(x, x + 'b' == c.name + 'b'))", True),
        ("calls.map(c, calls.map(d, c.name + d.name).join('')).join('') == 'aaaaaaaa'", True),
    ],
)
def test_what_is_not_evaluated_is_no_error(expression, value):
    """An empty list, a short circuit, something else that decides: also where it stands before the
    loop.
    """
    assert (
        create_scorer({"type": "expression", "expression": expression})(
            trajectory(call("a"), call("a"))
        ).value
        == value
    )


def test_an_error_before_a_loop_is_the_error_in_it():
    """With the same message."""
    run = trajectory(call("a"))
    failed = create_scorer(
        {"type": "expression", "expression": "calls.all(c, 1 / (calls.size() - 1) == 1)"}
    )(run)
    assert failed == Failed("ExpressionError", "INVALID_ARGUMENT: divide by zero")
    skipped = create_scorer(
        {"type": "expression", "expression": "calls.all(c, run.output.trim() == 'x')"}
    )(run)
    assert skipped == Skipped("run.output not recorded", reason="not_recorded")


DEEP = [
    "calls.all(c, " + " && ".join(f"c.name != run.name.trim() + '{at}'" for at in range(25)) + ")",
    " + ".join(["run.name.trim()"] * 25) + " != ''",
    "(" * 12 + "run.name" + " + 'a').trim()" * 12 + " != ''",
    (
        "calls.all(a, calls.all(b, calls.all(c, calls.all(d, a.name + b.name + c.name + d.name !="
        " ''))))"
    ),
]


@pytest.mark.parametrize("expression", DEEP, ids=range(len(DEEP)))
def test_a_deep_expression_is_none_too_deep(expression):
    """What is added to an expression does not make one of ordinary depth too deep."""
    assert (
        create_scorer({"type": "expression", "expression": expression})(
            trajectory(call("a"), name="b")
        ).value
        == 1
    )


def test_what_is_too_deep_with_what_is_added_is_refused_when_built():
    """As what is too deep as it was written."""
    with pytest.raises(
        ConfigError, match="too many operators in one another; write it in several parts"
    ):
        create_scorer(
            {
                "type": "expression",
                "expression": "(" * 15 + "run.name" + " + 'a').trim()" * 15 + " != ''",
            }
        )


TREE = {
    **{
        f"t{at}": {
            "type": "task",
            "cel": f"run.output + '{at}'",
            "children": [f"t{at + 1}" if at < 9 else "end"],
        }
        for at in range(10)
    },
    "end": {
        "type": "binary",
        "cel": "calls.all(c, (run.output + c.name).size() > 0)",
        "children": [{"verdict": True, "score": 10}, {"verdict": False, "score": 0}],
    },
}


def test_the_nodes_of_a_tree_share_a_budget():
    """What one of them made is kept until all are evaluated."""
    tree = create_scorer({"type": "dag", "root": "t0", "nodes": TREE})
    assert tree(trajectory(*[call("a")] * 100, output="x" * 200_000)).value == 1
    outcome = tree(trajectory(*[call("a")] * 400, output="x" * 200_000))
    assert outcome == Skipped(
        "end: too large: more than 64 MiB of memory", outcome.details, "too_large"
    )


def test_what_a_task_gives_is_limited_although_it_shares_what_it_is_made_of():
    """In Python nothing is shared."""
    task = {"type": "task", "cel": f"[run.output]{SHARED}", "children": ["end"]}
    end = {"type": "binary", "cel": "m.size() == 1", "children": TREE["end"]["children"]}
    outcome = create_scorer({"type": "dag", "root": "m", "nodes": {"m": task, "end": end}})(
        trajectory(output="x" * 1000)
    )
    assert outcome == Skipped(
        "m: too large: what the expression gives", outcome.details, "too_large"
    )


# Expressions of every kind, by the variables that are bound around them.


def booleans(names, depth):
    if depth == 0:
        return st.sampled_from(["true", "false", "run.output.ok", "1 / run.model_calls == 1"])
    text, texts, boolean = (
        texts_of(names, depth - 1),
        lists(names, depth - 1),
        booleans(names, depth - 1),
    )
    return st.one_of(
        booleans(names, 0),
        st.builds("({} == {})".format, text, text),
        st.builds("({} {} {})".format, boolean, st.sampled_from(["&&", "||"]), boolean),
        st.builds("!{}".format, boolean),
        st.builds("({} ? {} : {})".format, boolean, boolean, boolean),
        st.builds("{}.{}({})".format, text, st.sampled_from(["contains", "matches"]), text),
        st.builds("({} in {})".format, text, texts),
        st.builds("({}.size() < {}.size())".format, text, texts),
        looped(names, depth, ("all", "exists", "exists_one"), booleans),
    )


def texts_of(names, depth):
    leaves = st.sampled_from(["'a'", "'B '", "run.input", "run.name", "run.output.text", *names])
    if depth == 0:
        return leaves
    text, texts, boolean = (
        texts_of(names, depth - 1),
        lists(names, depth - 1),
        booleans(names, depth - 1),
    )
    return st.one_of(
        leaves,
        st.builds("({} + {})".format, text, text),
        st.builds("({} + {} + {})".format, text, text, text),
        st.builds("{}.{}()".format, text, st.sampled_from(["lowerAscii", "trim"])),
        st.builds("{}.replace({}, 'x')".format, text, text),
        st.builds("{}.join({})".format, texts, text),
        st.builds("({} ? {} : {})".format, boolean, text, text),
        st.builds("{}[{}]".format, texts, st.sampled_from(["0", "1", "run.model_calls"])),
        st.builds("string({}.size())".format, text),
    )


def lists(names, depth):
    leaves = st.sampled_from(["['a', 'b']", "calls.map(each, each.name)", "run.output.texts"])
    if depth == 0:
        return leaves
    text, texts = texts_of(names, depth - 1), lists(names, depth - 1)
    return st.one_of(
        leaves,
        st.builds("[{}, {}]".format, text, text),
        st.builds("({} + {})".format, texts, texts),
        st.builds("{}.split({})".format, text, text),
        looped(names, depth, ("filter",), booleans),
        looped(names, depth, ("map",), texts_of),
    )


def looped(names, depth, macros, body):
    name = "vwxyz"[len(names)]
    within = body([*names, name], depth - 1)
    return st.builds(
        f"{{}}.{{}}({name}, {{}})".format, lists(names, depth - 1), st.sampled_from(macros), within
    )


OUTPUTS = st.sampled_from(
    [UNRECORDED, {"ok": True, "text": "a b", "texts": ["a", "b "]}, {"ok": False, "texts": []}]
)
RUNS = st.builds(
    lambda names, **facts: trajectory(*map(call, names), **facts),
    st.lists(st.sampled_from(["a", "B"]), max_size=3),
    output=OUTPUTS,
    input=st.sampled_from([UNRECORDED, "", "a B"]),
    name=st.sampled_from(["", "n "]),
    model_calls=st.sampled_from([0, 1]),
)


@given(booleans([], 3), st.lists(RUNS, min_size=4, max_size=4))
@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_values_and_errors_are_those_of_the_expression_as_it_is_written(source, runs):
    """Whatever is moved before a loop, and whatever is charged."""
    try:
        program = compiled("expression", source)
    except ConfigError:
        return
    written = program._environment.compile(source)
    for run in runs:
        evaluation = ExpressionEvaluator(Bindings(program.reading, run))
        Memory().use()
        found = written.eval(program._environment.Activation(evaluation._bound.values))
        expected = (
            found.plain_value()
            if found.type().name() == "BOOL"
            else evaluation._outcome_of(found.value(), program)
        )
        assert _found(evaluation, program) == expected


def _found(evaluation, program):
    try:
        return evaluation.of(program)
    except NoScore as ended:
        return ended.outcome
