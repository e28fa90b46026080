"""Scores that are expressions: what they see, what they may cost, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from types import MappingProxyType

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Scored, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

MS = 1_000_000
RUN = trajectory(
    call(
        "search",
        arguments={"q": "a", "limit": 3},
        result='{"found": 2}',
        start_ns=2 * MS,
        end_ns=5 * MS,
    ),
    call("open", arguments={"id": 1}, error="404", start_ns=6 * MS, end_ns=7 * MS),
    agent="helper",
    name="invoke_agent helper",
    service="shop",
    conversation_id="s1",
    input="Find it",
    output='{"titles": ["One", "Two"], "words": 120}',
    start_ns=1 * MS,
    end_ns=11 * MS,
    model_calls=2,
    input_tokens=10,
    output_tokens=20,
    attributes={"user.tier": "gold", "wanted": '["One"]'},
)


def scored(expression, run=RUN, **parameters):
    return create_scorer({"type": "expression", "expression": expression, **parameters})(run)


TRUE = [
    "calls.size() == 2",
    "calls[0].name == 'search' && calls[1].name == 'open'",
    "calls[0].arguments.q == 'a' && calls[0]['arguments']['limit'] == 3",
    "calls[0].result.found == 2",
    "calls[0].error == null && calls[1].error.message == '404'",
    "calls[0].duration_ms == 3 && calls[0].start_ms == 1",
    "calls.exists(c, c.error != null)",
    "!calls.all(c, c.error == null)",
    "calls.exists_one(c, c.name == 'open')",
    "calls.filter(c, c.name == 'open').size() == 1",
    "calls.map(c, c.name) == ['search', 'open']",
    "calls.map(c, c.name).join('-') == 'search-open'",
    (
        "run.agent == 'helper' && run.name == 'invoke_agent helper' && run.service == 'shop' &&"
        " run.conversation == 's1'"
    ),
    "run.duration_ms == 10 && run.duration_ms < 10.5",
    "run.model_calls == 2 && run.input_tokens + run.output_tokens == 30",
    "run.input == 'Find it' && run.input.lowerAscii() == 'find it'",
    "run.output.titles[1] == 'Two' && run.output.words > 100",
    "run.attributes['user.tier'] == 'gold' && 'user.tier' in run.attributes",
    (
        "!has(run.attributes.absent) && has(run.output) && !has(calls[1].result) &&"
        " !has(calls[0].agent)"
    ),
    (
        "' a, b '.trim().split(', ') == ['a', 'b'] && 'aXa'.replace('a', 'b') == 'bXb' &&"
        " 'ab'.split('') == ['a', 'b']"
    ),
    "'é😀'.size() == 2",
    "'@AZ[É'.lowerAscii() == '@az[É'",
    "calls.all(run, run.name != '')",
    "run.output.titles.all(title, title.matches('^[A-Z]'))",
]


@pytest.mark.parametrize("expression", TRUE)
def test_an_expression_sees_what_the_run_recorded(expression):
    """Each of these is true of the run above."""
    assert scored(expression) == Scored(1.0, True, f"{said(expression)} is true")


def said(expression):
    return expression if len(expression) <= 80 else expression[:79] + "…"


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("true", 1.0),
        ("false", 0.0),
        ("0.25", 0.25),
        ("1", 1.0),
        ("0u", 0.0),
        ("double(1) / 4.0", 0.25),
    ],
)
def test_true_is_one_false_is_zero_and_a_number_is_itself(expression, value):
    """Whatever kind of number."""
    outcome = scored(expression)
    assert (outcome.value, outcome.passed) == (value, value >= 0.5)


def test_scorers_of_one_expression_are_one_in_a_set():
    """Whatever the library made of it for each."""
    assert (
        len(
            {
                create_scorer({"type": "expression", "expression": "calls.map(c, c.name) == []"})
                for _ in range(2)
            }
        )
        == 1
    )


RECORDED = {
    "name": "'a'",
    "arguments": "{'x': 1}",
    "result": "'r'",
    "error": "null",
    "duration_ms": "3.0",
    "start_ms": "1.0",
}


@pytest.mark.parametrize("fields", range(len(RECORDED) + 1))
def test_a_call_shows_as_many_fields_as_are_looked_at(fields):
    """None of them, one, all: each under its own name."""
    run = trajectory(
        *[call("a", arguments={"x": 1}, result="r", start_ns=2 * MS, end_ns=5 * MS)] * 2,
        start_ns=MS,
    )
    shown = [f"calls.all(c, c.{name} == {value})" for name, value in [*RECORDED.items()][:fields]]
    assert scored(" && ".join(["calls.size() == 2", *shown]), run).value == 1


def test_strict_leaves_only_one():
    """As everywhere."""
    assert scored("0.99", strict=True).value == 0


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("2", "ValueError"),
        ("-0.5", "ValueError"),
        ("double('NaN')", "ValueError"),
        ("run.input", "TypeError"),
        ("run.output", "TypeError"),
        ("1 / 0", "ExpressionError"),
        ("calls[7].name == ''", "ExpressionError"),
        ("calls[0].arguments.absent == 1", "ExpressionError"),
        ("calls[0].arguments.input == run.input", "ExpressionError"),
        ("calls[0].arguments.calls == 1", "ExpressionError"),
        ("calls[0].arguments.reference == 1", "ExpressionError"),
        ("calls[0].arguments.name == calls[0].name", "ExpressionError"),
        ("calls[0].arguments.wanted == run.attributes.wanted", "ExpressionError"),
        ("run.input + 1 > 2", "ExpressionError"),
        ("run.input.matches(run.input + '(')", "ExpressionError"),
    ],
)
def test_a_result_that_is_no_score_fails(expression, error):
    """And so does an expression that does not go with what was recorded."""
    outcome = scored(expression)
    assert isinstance(outcome, Failed)
    assert outcome.error_type == error


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("run.output == 'x'", "run.output not recorded"),
        ("run.duration_ms < 3", "run.duration_ms not recorded"),
        ("run.agent == 'a'", "run.agent not recorded"),
        ("run.input_tokens < 3", "run.input_tokens not recorded"),
        ("run.model_calls < 3", "run.model_calls not recorded"),
        ("run.attributes.tier == 'gold'", "attribute tier not recorded"),
        ("calls.all(c, c.result == 1)", "result of call 2 (b) not recorded"),
        ("calls[0].arguments.q == 1", "arguments of call 1 (a) not recorded"),
        ("calls[0].duration_ms < 3.0", "duration_ms of call 1 (a) not recorded"),
        ("!(run.output == 'x')", "run.output not recorded"),
    ],
)
def test_an_unrecorded_value_skips(expression, why):
    """Unknown is neither true nor false."""
    assert scored(expression, trajectory(call("a", result=1), call("b"))) == Skipped(
        why, reason="not_recorded"
    )


@pytest.mark.parametrize(("start_ns", "end_ns"), [(0, 0), (5, 3), (5, 0)])
@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("run.duration_ms < 3.0", "run.duration_ms not recorded"),
        ("calls[0].duration_ms < 3.0", "duration_ms of call 1 (a) not recorded"),
    ],
)
def test_times_that_are_none_are_not_recorded(expression, why, start_ns, end_ns):
    """A span without times has 0 for both; one that ended before it started has no duration."""
    timed = {"start_ns": start_ns, "end_ns": end_ns}
    assert scored(expression, trajectory(call("a", **timed), **timed)) == Skipped(
        why, reason="not_recorded"
    )


def test_a_start_is_not_recorded_where_the_call_or_the_run_has_no_time():
    timed, untimed = {"start_ns": 5, "end_ns": 6}, {"start_ns": 0, "end_ns": 0}
    for of_call, of_run in ((timed, untimed), (untimed, timed)):
        outcome = scored("calls[0].start_ms < 3.0", trajectory(call("a", **of_call), **of_run))
        assert outcome == Skipped("start_ms of call 1 (a) not recorded", reason="not_recorded")


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("calls.exists(c, c.result == 1)", 1),
        ("calls.all(c, c.result == 2)", 0),
        ("run.output == 'x' || calls.size() == 2", 1),
        ("run.output == 'x' && calls.size() == 3", 0),
        ("has(run.output) ? run.output == 'x' : false", 0),
    ],
)
def test_an_expression_is_decided_where_unknown_values_do_not_matter(expression, value):
    """As in three-valued logic."""
    assert scored(expression, trajectory(call("a", result=1), call("b"))).value == value


def test_unrecorded_calls_skip():
    """An instrumentation without tool calls says nothing about them; of the run it may."""
    run = trajectory(calls_unknown="no tool spans", output="x")
    assert scored("calls.size() == 0", run) == Skipped(
        "calls unknown: no tool spans", reason="calls_unknown"
    )
    assert scored("run.output == 'x'", run).value == 1


def test_calls_are_those_left_by_tools_and_failed_calls():
    """The common parameters come first."""
    assert scored("calls.size() == 1", tools={"include": ["open"]}).value == 1
    assert scored("calls.size() == 1", failed_calls="exclude").value == 1


def test_a_reference_is_an_attribute():
    """JSON text is opened."""
    assert scored("run.output.titles[0] == reference[0]", reference="wanted").value == 1
    assert scored("reference == 1", reference="absent") == Skipped(
        "no reference: absent not recorded", reason="no_reference"
    )


@pytest.mark.parametrize(
    ("expression", "needs", "asked"),
    [
        ("calls.size() < 3", set(), set()),
        ("calls.all(c, c.name != 'arguments')", set(), set()),
        ("calls.all(c, c.arguments.q == 1)", {"arguments"}, set()),
        ("calls.all(c, 'result' in c)", {"results"}, set()),
        ("run.input == run.output", {"content"}, set()),
        ("run.input == 'x'", {"content"}, set()),
        ("run.output == 'x'", {"content"}, set()),
        ("run.input_tokens > 3", {"tokens"}, set()),
        (
            (
                "run.model_calls > 3 && run.duration_ms > 3.0 && run.agent == run.name &&"
                " run.service == run.conversation"
            ),
            set(),
            set(),
        ),
        (
            "calls.all(c, c.error == null && c.agent == '' && c.start_ms > c.duration_ms)",
            set(),
            set(),
        ),
        ("{'a': run.output}.a == 'x'", {"content"}, set()),
        ("{run.output: 'a'}.size() == 1", {"content"}, set()),
        ("[run.output][0] == 'x'", {"content"}, set()),
        ("calls.map(c, c.result).exists(r, r == run.output)", {"results", "content"}, set()),
        ("calls.filter(c, c.arguments.q == 1).map(c, c.name).size() == 1", {"arguments"}, set()),
        ("calls[0].arguments == calls[1].arguments", {"arguments"}, set()),
        ("[calls[0]].size() == 1", {"arguments", "results"}, set()),
        ("calls[0]['result'] == 1", {"results"}, set()),
        ("run['output'] == 1 && has(run.attributes.tier)", {"content"}, {"tier"}),
        ("'tier' in run.attributes", set(), {"tier"}),
        ("run.output_tokens > 3", {"tokens"}, set()),
        (
            "run.attributes.tier == run.attributes['user.tier']",
            set(),
            {"tier", "user.tier"},
        ),
        ("calls.map(c, {'call': c}).size() == 1", {"arguments", "results"}, set()),
    ],
)
def test_the_expression_determines_needs_and_attributes(expression, needs, asked):
    """Nothing is decoded that it does not look at."""
    scorer = create_scorer({"type": "expression", "expression": expression})
    assert (scorer.needs, scorer.attribute_keys) == (needs, asked)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("calls.size( <= 3", "expression: column 13: Syntax error"),
        ("calls.size( <= 3", "; correct the expression"),
        ("1 + 'a' == 2", "; convert one side, e.g. by double()"),
        (
            "1 + 'a' == 2",
            "expression: column 3: found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "true &&\n  rnu.output == 1",
            "expression: line 2, column 6: 'rnu.output' is not known; did you mean 'run'?",
        ),
        (
            "nothing(1)",
            "expression: column 8: 'nothing' is not known; choose one of calls, reference, run",
        ),
        (
            "run.ouput == 1",
            "expression: there is no field run.ouput; did you mean 'output'?",
        ),
        (
            "calls.all(c, c.argument == 1)",
            "expression: there is no field calls[].argument; did you mean 'arguments'?",
        ),
        ("run == run", "run: cannot be looked at as a whole"),
        ("calls[0] == calls[1]", "calls[]: a call cannot be compared as a whole"),
        ("calls[0] in calls", "calls[]: a call cannot be compared as a whole"),
        ("run.attributes.size() == 1", "run.attributes: name the attribute"),
        ("run.attributes[run.input] == 1", "run.attributes: name the attribute"),
        (
            "run.attributes.user.tier == 'a'",
            'run.attributes.user.tier: name the attribute, as run.attributes["user.tier"]',
        ),
        ("has(run.attributes.user.tier)", "run.attributes.user.tier: name the attribute"),
        ("'a'", "is not a score, it gives STRING"),
        ("calls", "is not a score, it gives LIST<MAP<STRING, DYN>>"),
        (
            "calls.size() < 3.0",
            "found no matching overload for '_<_' applied to '(int, double)'",
        ),
        ("", "expression: '' is not an expression; write e.g."),
        (3, "expression: 3 is not an expression"),
        (
            "run.output == '\ud800'",
            "has half of a surrogate pair in it; write letters of Unicode",
        ),
        ("1 + " * 40 + "1 == 2", "expression: too many operators in one another"),
        ("(" * 200 + "true" + ")" * 200, "recursion limit"),
        ("true || " * 20_000 + "true", "expression size exceeds codepoint limit"),
        ("reference == 1", "reference: missing"),
        ("calls.all(c, c.name.matches('[z-a]'))", "'[z-a]' is no pattern of RE2 (invalid char"),
        ("run.output.matches('(?=x)')", "'(?=x)' is no pattern of RE2 (invalid perl operator"),
    ],
)
def test_an_invalid_expression_is_refused_when_built(expression, said):
    """In one line, with its place."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "expression", "expression": expression})
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_every_problem_is_reported():
    """Not only the first."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "expression", "expression": "a && run.agnt == b"})
    assert len(refused.value.problems) == 2


def deep(levels):
    value = 1
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("expression", "run"),
    [
        ("run.output.size() == 1", trajectory(output=deep(100_000))),
        ("run.output.size() == 1", trajectory(output=["x"] * 200_000)),
        ("run.output.contains('y')", trajectory(output="x" * 300_000)),
        ("run.output.filter(x, x == 'y').size() == 0", trajectory(output=["x"] * 2001)),
        ("run.output.split('x').size() == 0", trajectory(output="x" * 2001)),
    ],
    ids=["nesting", "values", "text", "list", "parts"],
)
def test_values_that_are_too_large_are_skipped_before_they_are_evaluated(expression, run):
    """The evaluator would take seconds, gigabytes or the process."""
    outcome = scored(expression, run)
    assert isinstance(outcome, Skipped)
    assert outcome.explanation.startswith("too large: ")


def test_values_that_are_not_read_may_be_of_any_size():
    """Only names are."""
    nested = deep(5000)
    run = trajectory(*(call("a", result=nested) for _ in range(2000)), output="x" * 1_000_000)
    assert scored("calls.all(c, c.name == 'a')", run).value == 1


def test_an_evaluation_ends():
    """Steps are counted."""
    outcome = scored(
        "calls.all(a, calls.all(b, calls.all(c, a.name + b.name != c.name)))",
        trajectory(*(call("a") for _ in range(100))),
    )
    assert outcome == Skipped("too large: more than 10000 steps", reason="too_large")


@pytest.mark.parametrize("pattern", ["^(a+)+$", "(a|a)*b", "(a*)*b", "(x+x+)+y"])
def test_no_regular_expression_goes_back(pattern):
    """Time is linear in the text: others take years for these, and the test would not end."""
    assert (
        scored(f"run.output.matches('{pattern}')", trajectory(output="a" * 200_000 + "!")).value
        == 0
    )


@pytest.mark.parametrize(
    ("output", "expression"),
    [
        (2**70, "run.output > 1e20"),
        (-(2**70), "run.output < -1e20"),
        (2**63, "type(run.output) == double && run.output == 9223372036854775808.0"),
        (2**63 - 1, "type(run.output) == int && run.output == 9223372036854775807"),
        (2**62, "type(run.output) == int && run.output == 4611686018427387904"),
        (-(2**63), "type(run.output) == int && run.output == -9223372036854775807 - 1"),
        (-(2**63) - 1, "type(run.output) == double && run.output == -9223372036854775808.0"),
        (7, "type(run.output) == int && run.output / 2 == 3"),
        ((7, 2**63), "type(run.output[0]) == int && type(run.output[1]) == double"),
        (-(10**400), "run.output < -1e300"),
        (2**1023, "run.output < 1e308 && run.output > 8e307"),
        ([True, None, 2**70], "run.output[0] == true && run.output[1] == null"),
        ([1.5, 2**70], "run.output[0] == 1.5"),
        ({"price": Decimal("1.50")}, "run.output.price == '1.50'"),
        ({1: {2: "x"}}, "run.output[1][2] == 'x'"),
        (MappingProxyType({"a": {"b": (1,)}}), "run.output.a.b[0] == 1"),
        (10**400, "run.output > 1e300"),
        ({"half": "\ud800"}, "run.output.half == '?'"),
        ({"\ud800": "half"}, "run.output['?'] == 'half'"),
        ({"end": "ok\0rm"}, "run.output.end != 'ok' && run.output.end.contains('rm')"),
        ({"k\0": "end"}, "!has(run.output.k)"),
        ((1, 2), "run.output == [1, 2]"),
        (None, "run.output == null"),
        ("[not json", "run.output == '[not json'"),
        ("3", "run.output == '3'"),
        (1.0, "run.output == 1"),
    ],
    ids=str,
)
def test_any_json_value_can_be_looked_at(output, expression):
    """Also those that CEL has no word for."""
    assert scored(expression, trajectory(output=output)).value == 1


def test_without_the_extra_the_configuration_is_refused():
    """In a process that has no CEL."""
    script = (
        "import sys; sys.modules['cel_expr_python'] = None\n"
        "from otel_eval import create_scorer\n"
        "create_scorer({'type': 'tool_errors'})\n"
        "try: create_scorer({'type': 'expression', 'expression': 'true'})\n"
        "except ValueError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert "expression: expressions need the extra cel" in done.stdout
    assert "pip install 'otel-eval[cel]'" in done.stdout


def test_the_library_is_loaded_only_for_an_expression():
    """Other scorers do not pay for it."""
    script = (
        "import sys; from otel_eval import create_scorer; create_scorer({'type': 'tool_errors'})\n"
        "print([name for name in sys.modules if 'cel_expr' in name])"
    )
    assert (
        subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout
        == "[]\n"
    )
