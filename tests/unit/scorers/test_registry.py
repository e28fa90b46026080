"""Users' scorers: registered or imported, synchronous or asynchronous."""

from __future__ import annotations

import asyncio
import pkgutil
from dataclasses import dataclass
from importlib import import_module

import pytest

from otel_eval import scorers
from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Scored, Skipped
from otel_eval.scorers import create_scorer, get_scorer, list_scorers, registry, scorer
from otel_eval.testing import call, trajectory

RUN = trajectory(call("a"), call("b", error=True))


@scorer("test.share_of_a", version="7", needs=["arguments"])
def share_of_a(trajectory, *, name_of="a"):
    """A user's function with a parameter."""
    return sum(each.name == name_of for each in trajectory.calls) / len(trajectory.calls)


@scorer("test.slow")
async def slow(trajectory):
    """A user's coroutine."""
    await asyncio.sleep(0)
    return len(trajectory.calls) == 2


@scorer("test.given")
def given(trajectory, returned):
    """Return the given value."""
    return returned


@scorer("test.broken")
def broken(trajectory):
    """Always raises."""
    raise LookupError("no such thing")


@scorer("test.class")
@dataclass
class AtMost:
    """A user's class: built from its parameters, called with a trajectory."""

    limit: int

    def __call__(self, trajectory):
        return len(trajectory.calls) <= self.limit


def test_a_function_is_registered_and_returned_unchanged():
    """It is registered under its name, with its version and needs."""
    built = create_scorer({"type": "test.share_of_a", "name_of": "b"})
    assert get_scorer("test.share_of_a") is share_of_a
    assert (built.type, built.version, built.needs) == ("test.share_of_a", "7", {"arguments"})
    assert built(RUN) == Scored(0.5, False)


def test_the_common_parameters_surround_a_function():
    """Calls are filtered before the function, `strict` and `threshold` are applied after it."""
    assert create_scorer({"type": "test.share_of_a", "strict": True})(RUN) == Scored(0.0, False)
    assert create_scorer({"type": "test.share_of_a", "threshold": 0.6})(RUN).passed is False
    assert create_scorer({"type": "test.share_of_a", "failed_calls": "exclude"})(RUN).value == 1.0
    assert create_scorer({"type": "test.share_of_a"})(trajectory(incomplete="cut")) == Skipped(
        "incomplete: cut", reason="incomplete"
    )


def test_a_coroutine_is_run_to_its_end():
    """No event loop runs in the thread."""
    assert create_scorer({"type": "test.slow"})(RUN) == Scored(1.0, True)


def test_inside_a_running_loop_a_coroutine_is_awaited():
    """A synchronous call there fails with the remedy."""
    built = create_scorer({"type": "test.slow"})

    async def inside():
        return built(RUN), await built.evaluate(RUN)

    called, awaited = asyncio.run(inside())
    assert isinstance(called, Failed)
    assert "await scorer.evaluate" in called.message
    assert awaited == Scored(1.0, True)


@pytest.mark.parametrize(
    ("returned", "outcome"),
    [
        (True, Scored(1.0, True)),
        (False, Scored(0.0, False)),
        (0.25, Scored(0.25, False)),
        (1, Scored(1.0, True)),
        (Scored(0.9, False, "because"), Scored(0.9, False, "because")),
        (Skipped("why"), Skipped("why")),
        (Failed("Oops"), Failed("Oops")),
        (1.5, Failed("ValueError", "test.given returned 1.5, not a number in [0, 1]")),
        (-1, Failed("ValueError", "test.given returned -1, not a number in [0, 1]")),
        (float("nan"), Failed("ValueError", "test.given returned nan, not a number in [0, 1]")),
        (
            Scored(2.0, True),
            Failed("ValueError", "test.given returned the value 2.0, not a number in [0, 1]"),
        ),
        (
            None,
            Failed(
                "TypeError", "test.given returned a NoneType, not an outcome, a number or a bool"
            ),
        ),
        ("1", Failed("TypeError", "test.given returned a str, not an outcome, a number or a bool")),
    ],
)
def test_a_function_returns_an_outcome_a_number_or_a_bool(returned, outcome):
    """Anything else fails."""
    assert create_scorer({"type": "test.given", "returned": returned})(RUN) == outcome


def test_a_threshold_that_was_given_decides_over_a_functions_own_verdict():
    """Without one the function decides."""
    own = Scored(0.9, False)
    assert (
        create_scorer({"type": "test.given", "returned": own, "threshold": 0.8})(RUN).passed is True
    )


@pytest.mark.parametrize(
    ("kind", "version", "needs"),
    [
        ("test.broken", "1", {"arguments", "results", "content", "tokens"}),
        ("os.path:isabs", "1", {"arguments", "results", "content", "tokens"}),
    ],
)
def test_a_function_without_declared_needs_reads_everything_but_spans(kind, version, needs):
    """It reads calls, so that runs with unknown calls are skipped."""
    built = create_scorer({"type": kind})
    assert (built.version, built.needs, built.reads_calls) == (version, needs, True)
    assert built(trajectory(calls_unknown="no tool spans")) == Skipped(
        "calls unknown: no tool spans", reason="calls_unknown"
    )


def test_a_function_that_raises_fails():
    """The outcome has the type and the message of the exception."""
    assert create_scorer({"type": "test.broken"})(RUN) == Failed("LookupError", "no such thing")


def test_a_class_is_built_from_its_parameters():
    """The instance is called like a function."""
    assert create_scorer({"type": "test.class", "limit": 1})(RUN) == Scored(0.0, False)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "test.class", "limits": 1}, "did you mean 'limit'?"),
        ({"type": "test.class"}, "limit: is missing"),
        ({"type": "test.given"}, "returned: is missing"),
        ({"type": "test.share_of_a", "name_off": "b"}, "did you mean 'name_of'?"),
        ({"type": "test.share_of_a", "threshold": 2}, "threshold: 2"),
    ],
)
def test_parameters_that_a_users_scorer_does_not_take_are_refused(spec, message):
    """They are rejected when the scorer is built, not when it is called."""
    with pytest.raises(ConfigError, match="(?s)" + message.replace("?", r"\?")):
        create_scorer(spec)


@scorer("test.open")
def open_to_all(trajectory, known, **more):
    """A scorer with `**kwargs`."""
    return len(more) / 2


def test_a_function_that_takes_any_parameter_is_given_any():
    """No parameter is unknown."""
    assert create_scorer({"type": "test.open", "known": 1, "other": 2})(RUN).value == 0.5


@scorer("test.refusing")
class Refusing:
    """A user's class that rejects all parameters."""

    def __init__(self, **given):
        raise LookupError("nothing suits")


@pytest.mark.parametrize(
    ("given", "received"),
    [({}, "no parameters"), ({"limit": 1}, "limit"), ({"limit": 1, "name": "x"}, "limit, name")],
)
def test_an_exception_of_a_users_constructor_is_a_configuration_error(given, received):
    """The error has the type and the message of the exception."""
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "test.refusing", **given})
    said = (
        f"type: 'test.refusing' refused {received} (LookupError: 'nothing suits'); see its"
        " documentation"
    )
    assert str(refused.value) == said


@scorer("test.whole")
class Whole:
    """A user's class whose instances satisfy `Scorer`."""

    name, type, version, needs = "mine", "test.whole", "3", frozenset()

    def __call__(self, trajectory):
        return Scored(0.5, False)


def test_a_users_scorer_is_wrapped_only_if_common_parameters_are_given():
    """Without common parameters its own version and `passed` are used."""
    assert isinstance(create_scorer({"type": "test.whole"}), Whole)
    framed = create_scorer({"type": "test.whole", "name": "other", "threshold": 0.1})
    assert (framed.name, framed(RUN)) == ("other", Scored(0.5, True))


@pytest.mark.parametrize("path", ["os.path:isabs", "os.path.isabs"])
def test_a_dotted_path_names_a_function(path):
    """With a colon or a dot before the attribute; here one that fails when called."""
    built = create_scorer({"type": path})
    assert built.type == path
    assert isinstance(built(RUN), Failed)


def test_a_second_registration_of_a_name_is_an_error():
    """It holds for built-in names, registered names and aliases."""
    for taken in ("test.slow", "tool_errors", "trajectory"):
        with pytest.raises(ValueError, match="registered already"):
            scorer(taken)(share_of_a)


def test_a_definition_that_is_run_again_replaces_the_scorer():
    """As in a notebook's cell, or a module that is reloaded."""

    def define(value):
        @scorer("test.redefined")
        def redefined(run):
            return value

    define(0.25)
    define(0.75)
    assert create_scorer({"type": "test.redefined"})(RUN).value == 0.75


@pytest.mark.parametrize("name", ["", " ", 3])
def test_a_scorer_has_a_name(name):
    """The name is a text that is not blank."""
    with pytest.raises(ValueError, match="is no name for a scorer"):
        scorer(name)


@pytest.mark.parametrize("key", ["ty", "strict"])
def test_a_specification_has_a_type(key):
    """The message shows how to write it."""
    with pytest.raises(ConfigError, match="type: missing; write a mapping"):
        create_scorer({"threshold": 0.1, key: "tool_errors"})


def test_a_name_that_is_not_there_lists_what_is():
    """The error is a KeyError."""
    with pytest.raises(KeyError, match=r"tool_call_count.*trajectory_structure"):
        get_scorer("nothing")


def test_scorers_are_listed_in_order():
    """Built-in and registered scorers are listed."""
    assert list_scorers() == sorted(list_scorers())
    assert {"tool_errors", "test.slow"} <= {*list_scorers()}


@pytest.mark.parametrize(
    ("alias", "kind"),
    [
        ("tool-call-count", "tool_call_count"),
        ("tool-call-order", "tool_call_order"),
        ("tool-call-args", "tool_call_args"),
        ("tool-call-output", "tool_call_output"),
        ("trajectory", "trajectory_structure"),
    ],
)
def test_the_names_of_other_systems_are_aliases(alias, kind):
    """An alias refers to the same class."""
    assert get_scorer(alias) is get_scorer(kind)


def test_an_installed_package_adds_scorers_by_its_entry_points(tmp_path, monkeypatch):
    """The group is `otel_eval.scorers`."""
    (tmp_path / "plugin_for_a_test.py").write_text("def always(trajectory):\n    return True\n")
    info = tmp_path / "plugin_for_a_test-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin-for-a-test\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[otel_eval.scorers]\nplugin_always = plugin_for_a_test:always\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert "plugin_always" in list_scorers()
    assert create_scorer({"type": "plugin_always"})(RUN) == Scored(1.0, True)


def test_every_built_in_scorer_is_found_by_its_name():
    """Its module is imported when the name is used, so the registry must know which it is."""
    for module in pkgutil.walk_packages(scorers.__path__, f"{scorers.__name__}."):
        import_module(module.name)
    modules = {
        name: str(getattr(registration.thing, "__module__", ""))
        for name, registration in registry._registered.items()
    }
    ours = {name: at for name, at in modules.items() if at.startswith(f"{scorers.__name__}.")}
    assert ours == dict(registry.BUILT_IN)


def test_no_function_takes_the_name_of_a_built_in_scorer():
    """Also of one that is not imported yet."""
    with pytest.raises(ValueError, match="is registered already"):
        scorer("trajectory_pattern")(lambda run: 1.0)
