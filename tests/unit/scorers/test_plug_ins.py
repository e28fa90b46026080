"""Scorers of third-party packages, and how their errors are reported."""

from __future__ import annotations

import json
import sys

import pytest

from otel_eval import config
from otel_eval.cli import main
from otel_eval.engine import Engine
from otel_eval.errors import ConfigError
from otel_eval.evaluations import ScorerSet
from otel_eval.model import Failed, Scored, Skipped
from otel_eval.scorers import create_scorer, get_scorer, list_scorers, registry, scorer
from otel_eval.scorers.build import FunctionScorer
from otel_eval.testing import call, trajectory
from tests.support.made_spans import closed, span

RUN = trajectory(call("a"))
CODE = """
from otel_eval.model import Scored
from otel_eval.scorers import scorer

NUMBER = 5

def always(trajectory):
    return True

def alone():
    return True

def leaves(trajectory):
    raise SystemExit(3)

@scorer("plugged.named", version="7", needs=["spans"])
def named(trajectory):
    return True

class Versioned:
    version = "3"

    def __call__(self, trajectory):
        return True

class Silent:
    pass

class Deaf:
    def __call__(self):
        return True
"""
NAMES = ["always", "alone", "leaves", "named", "Versioned", "Silent", "Deaf", "NUMBER", "missing"]


def install(folder, package, entry_points):
    """Write a module and its metadata as an installer does."""
    info = folder / f"{package}-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[otel_eval.scorers]\n" + "".join(f"{line}\n" for line in entry_points)
    )


@pytest.fixture(scope="module", autouse=True)
def _packages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    (folder / "plugged.py").write_text(CODE)
    (folder / "leaving.py").write_text("raise SystemExit(4)\n")
    own = [f"plugged_{name.lower()} = plugged:{name}" for name in NAMES]
    more = [
        "plugged_leaving = leaving:x",
        "plugged_twice = plugged:always",
        "plugged.dotted = plugged:always",
    ]
    install(
        folder,
        "plugged",
        [*own, *more, "tool_errors = plugged:always", "trajectory = plugged:always"],
    )
    install(folder, "other", ["plugged_twice = plugged:alone"])
    install(folder, "again", ["plugged_always = plugged:always"])
    for name in list_scorers():  # a module registers its scorers once, when it is imported
        get_scorer(name)
    before = {**registry._registered}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        registry._registered.clear()
        registry._registered.update(before)


@pytest.mark.parametrize(
    "kind", ["plugged_always", "plugged.dotted", "plugged:always", "plugged.always"]
)
def test_a_scorer_is_found_by_the_name_its_package_gave_or_by_its_path(kind):
    """A name with a dot is looked up as a name first; two packages with the same entry point do not
    conflict.
    """
    assert create_scorer({"type": kind})(RUN) == Scored(1.0, True)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (
            "plugged_twice",
            "two packages register 'plugged_twice', plugged:alone and plugged:always; remove one",
        ),
        ("plugged_number", "'plugged_number' names a value of type int, no function or class"),
        (
            "plugged_missing",
            "'plugged_missing' cannot be loaded (AttributeError: plugged has no missing)",
        ),
        ("plugged_leaving", "'plugged_leaving' cannot be loaded (SystemExit, line 1 of "),
        ("leaving:x", "'leaving:x' cannot be imported (SystemExit, line 1 of "),
        (
            "plugged_alone",
            "'plugged_alone' cannot be called with a trajectory (too many positional arguments)",
        ),
        (
            "plugged_deaf",
            "'plugged_deaf' cannot be called with a trajectory (too many positional arguments)",
        ),
        (
            "plugged_silent",
            (
                "'plugged_silent' makes a Silent, which cannot be called; give it __call__(self,"
                " trajectory)"
            ),
        ),
        ("plugged_alwys", "'plugged_alwys' is not a scorer; did you mean 'plugged_always'?"),
    ],
)
def test_a_plug_in_that_could_only_fail_is_refused_when_built(kind, said):
    """The error is one line, and the program goes on."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": kind})
    assert str(refused.value).startswith(f"type: {said}")


def test_entry_points_under_built_in_names_are_ignored():
    """The name of a built-in scorer always means that scorer."""
    assert create_scorer({"type": "tool_errors"})(RUN).details["total"] == 1


def test_the_list_of_scorers_marks_those_that_cannot_be_loaded(capsys):
    """An import that would end the program does not end the command."""
    assert main(["scorers"]) == 0
    printed = capsys.readouterr()
    assert "(cannot be loaded: SystemExit, line 1 of" in printed.out
    assert "(cannot be used: a value of type int)" in printed.out
    assert "two packages register 'plugged_twice'" in printed.out


@pytest.mark.parametrize("kind", ["plugged_named", "plugged:named", "plugged.named"])
def test_arguments_of_the_decorator_hold_under_every_name(kind):
    """Version and needs are those of the decorator."""
    built = create_scorer({"type": kind})
    assert (built.version, built.needs) == ("7", {"spans"})


@pytest.mark.parametrize("given", [{}, {"name": "mine"}])
def test_the_version_of_a_class_is_its_own(given):
    """No parameter changes it."""
    assert create_scorer({"type": "plugged_versioned", **given}).version == "3"


@pytest.mark.parametrize(
    ("printed", "said"),
    [
        ({"version": 2}, "version 2 is no text; write e.g. version='2'"),
        ({"version": ""}, "version '' is no text"),
        ({"needs": "arguments"}, "needs is a text; write needs=['arguments']"),
        ({"needs": ["argument"]}, "'argument' is none of the needs; did you mean 'arguments'?"),
        ({"needs": [1]}, "1 is none of the needs"),
    ],
)
def test_invalid_arguments_of_the_decorator_raise_at_once(printed, said):
    """The error is raised at once: a misspelt need would never be read."""
    with pytest.raises(ValueError, match="plugged_wrong: ") as refused:
        scorer("plugged_wrong", **printed)
    assert said in str(refused.value)
    assert "plugged_wrong" not in list_scorers()


def test_only_what_can_be_called_is_registered():
    """Classes and functions are accepted."""
    with pytest.raises(ValueError, match="cannot be called; register a function or a class"):
        scorer("plugged_wrong")(5)


class Object:
    """A scorer object that returns, or raises, the given answer."""

    name, type, version, needs = "object", "object", "1", frozenset()

    def __init__(self, answer):
        self.answer = answer

    def __call__(self, trajectory):
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


class Unspeakable:
    """An object whose conversion to text raises."""

    def __str__(self):
        raise LookupError


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Scored(7, True), "ValueError"),
        (Scored("1", True), "ValueError"),
        (Scored(0.5, "yes"), "TypeError"),
        (Scored(0.5, True, 5), "TypeError"),
        (Scored(0.5, True, "", [1]), "TypeError"),
        (Scored(0.5, True, "", {(1, 2): 3}), "TypeError"),
        (Scored(0.5, True, "", {"x": Unspeakable()}), "TypeError"),
        (Skipped(None), "TypeError"),
        (Skipped("why", "recorded", None), "TypeError"),
        (Failed(LookupError), "TypeError"),
        (Failed("Oops", LookupError()), "TypeError"),
        (0.5, "TypeError"),
        (SystemExit(3), "SystemExit"),
        (LookupError(), "LookupError"),
    ],
)
def test_an_invalid_outcome_fails_alone(answer, error):
    """Other results are not affected, for scorer objects and for functions."""
    engine = Engine(
        [ScorerSet(name="x", scorers=(Object(answer), create_scorer({"type": "tool_errors"})))]
    )
    run = span("run", "", "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"})
    tool = span(
        "tool",
        "run",
        "execute_tool b",
        attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "b"},
    )
    first, second = (result.outcome for result in engine.evaluate(closed(run, tool))[0].results)
    assert (type(first), first.error_type) == (Failed, error)
    assert second.value == 1.0


def test_a_function_that_leaves_the_program_has_failed():
    """The calling thread goes on."""
    assert create_scorer({"type": "plugged_leaves"})(RUN) == Failed("SystemExit", "3")


@pytest.mark.parametrize("details", [{}, {"x": [1, 2.5, None, {"y": True}]}, {1: 2}])
def test_details_that_are_json_are_left_as_they_are(details):
    """Keys that are numbers become text when they are written."""
    answer = Scored(0.5, True, "", details)
    assert create_scorer({"type": "test.answer", "answer": answer})(RUN) is answer


@pytest.mark.parametrize(
    ("details", "why"),
    [
        ({"a": 1, "when": object()}, "(TypeError in 'when', a object)"),
        ({"ratio": float("nan")}, "(ValueError in 'ratio', a float)"),
        ({(1, 2): 3}, "(TypeError in (1, 2), a int)"),
        ({"tools": {"search"}}, "(TypeError in 'tools', a set)"),
    ],
)
def test_details_that_are_not_json_fail_the_result(details, why):
    """The message names the key and the type, not the value."""
    outcome = create_scorer({"type": "test.answer", "answer": Scored(0.5, True, "", details)})(RUN)
    assert outcome == Failed("TypeError", outcome.message)
    assert (
        f"details that are not JSON {why}; use texts, numbers, lists and mappings"
        in outcome.message
    )


def test_a_failure_tells_the_place_in_the_users_code():
    """The line is in the file that was called, not in a library that it uses; it is not compared
    when results are.
    """

    def parses(trajectory):
        return json.loads("{")  # here

    line = parses.__code__.co_firstlineno + 1
    outcome = FunctionScorer(type="x", function=parses, arguments={})(RUN)
    assert (outcome.error_type, outcome.place) == ("JSONDecodeError", f"{__file__}:{line}")
    assert outcome == Failed("JSONDecodeError", outcome.message)


@scorer("test.answer")
def _answer(trajectory, answer):
    """Return the given answer."""
    return answer


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"name": 5}, "scorers[0]: 5 is not the name of a scorer; give the object a text as name"),
        ({"type": ""}, "scorers[0]: '' is not the type of a scorer"),
        ({"version": 1}, "scorers[0]: 1 is not the version of a scorer"),
        (
            {"needs": "arguments"},
            "scorers[0].needs: 'object': needs is a text; write needs=['arguments']",
        ),
        (
            {"needs": {"args"}},
            "scorers[0].needs: 'object': 'args' is none of the needs; did you mean 'arguments'?",
        ),
        ({"needs": None}, "scorers[0].needs: "),
    ],
)
def test_invalid_names_types_versions_and_needs_of_an_object_are_refused(facts, said):
    """Otherwise its results could not be distinguished, or what it needs would not be read."""
    given = Object(True)
    for key, value in facts.items():
        setattr(given, key, value)
    with pytest.raises(ConfigError) as refused:
        config.Evaluation(name="x", scorers=[given])
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (
            {"tool_call_count": {"criteria": {"a": "<= 3"}}},
            "type: missing; write a mapping, e.g. {type: tool_errors}",
        ),
        (
            "time_cost",
            (
                "'time_cost' is not a scorer's specification; write a mapping, e.g. {type:"
                " tool_errors}"
            ),
        ),
        ({"type": Object}, "register a function or class by @scorer('my_metric') first"),
        (Object, "register a function or class by @scorer('my_metric') first"),
        (
            {"type": "tool_call_count", "criteria": {"": "<= 3"}},
            'write e.g. {"search": "<= 3"}',
        ),
    ],
)
def test_a_near_miss_of_a_specification_is_refused_with_the_remedy(spec, said):
    """A type as the key, a type alone, a function or class in its place."""
    with pytest.raises(ConfigError) as refused:
        create_scorer(spec)
    assert said in str(refused.value)
