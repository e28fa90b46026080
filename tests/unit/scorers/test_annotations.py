"""Annotations of users' scorers: what they return, and what their parameters may be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Outcome, Scored, Skipped, Trajectory
from otel_eval.scorers import create_scorer, get_scorer, list_scorers, registry, scorer
from otel_eval.testing import call, trajectory

RUN = trajectory(call("a"))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    for name in list_scorers():  # a module registers its scorers once, when it is imported
        get_scorer(name)
    before = {**registry._registered}
    yield
    registry._registered.clear()
    registry._registered.update(before)


def nothing(run: Trajectory) -> None: ...
def text(run: Trajectory) -> str: ...  # type: ignore[empty-body]
def mapping(run: Trajectory) -> dict[str, Any]: ...  # type: ignore[empty-body]
def either(run: Trajectory) -> str | None: ...
async def late_text(run: Trajectory) -> str: ...  # type: ignore[empty-body]


class Texts:
    def __call__(self, run: Trajectory) -> str: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("thing", "declared"),
    [
        (nothing, "None"),
        (text, "str"),
        (mapping, "dict[str, typing.Any]"),
        (either, "str | None"),
        (late_text, "str"),
        (Texts, "str"),
    ],
)
def test_a_scorer_that_declares_to_return_something_else_is_refused(thing: Any, declared: str):
    """Registration raises the error, before any run."""
    with pytest.raises(ValueError, match="is declared to return") as refused:
        scorer("test.declared")(thing)
    assert (
        str(refused.value)
        == f"test.declared: is declared to return {declared}; return an outcome, a number in [0, 1]"
        " or a bool"
    )


def number(run: Trajectory) -> float: ...  # type: ignore[empty-body]
def truth(run: Trajectory) -> bool: ...  # type: ignore[empty-body]
def outcome(run: Trajectory) -> Outcome: ...  # type: ignore[empty-body]
def some(run: Trajectory) -> Scored | Skipped | None: ...
async def late(run: Trajectory) -> float: ...  # type: ignore[empty-body]
def anything(run: Trajectory) -> Any: ...
def unknown(run: Trajectory) -> NotThere: ...  # type: ignore[name-defined] # noqa: F821
def undeclared(run): ...


ALLOWED = [number, truth, outcome, some, late, anything, unknown, undeclared]


@pytest.mark.parametrize("thing", ALLOWED, ids=lambda each: each.__name__)
def test_functions_that_may_return_an_outcome_can_be_registered(thing: Any):
    """A function without an annotation, or with one that is not defined yet, is registered as
    well.
    """
    assert scorer(f"test.{thing.__name__}")(thing) is thing


def limited(
    run: Trajectory,
    limit: int = 3,
    share: float = 0.5,
    on: bool = False,
    names: list[str] | None = None,
    how: Literal["all", "any"] = "all",
    free: Any = None,
) -> float:
    """A scorer with annotated parameters."""
    return 1.0


class Limited:
    def __init__(self, limit: int = 3) -> None:
        self.limit = limit

    def __call__(self, run: Trajectory) -> float:
        return 1.0


@pytest.mark.parametrize("thing", [limited, Limited])
def test_a_parameter_of_another_type_is_refused_in_one_line(thing: Any):
    """Parameters of functions and of classes are checked."""
    scorer("test.limited")(thing)
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "test.limited", "limit": "x"})
    assert str(refused.value) == "limit: 'x' is not int, its annotation; write a value of that type"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"limit": True}, "limit: True is not int"),
        ({"limit": 2.5}, "limit: 2.5 is not int"),
        ({"share": "half"}, "share: 'half' is not float"),
        ({"on": 1}, "on: 1 is not bool"),
        ({"names": [1]}, "names: [1] is not list[str] | None"),
        ({"how": "most"}, "how: 'most' is not typing.Literal['all', 'any']"),
    ],
)
def test_each_simple_annotation_is_checked(given: dict[str, Any], why: str):
    """The error quotes the value and names the annotation."""
    scorer("test.limited")(limited)
    with pytest.raises(ConfigError) as refused:
        create_scorer({"type": "test.limited", **given})
    assert str(refused.value).startswith(why)


def test_values_that_fit_their_annotation_are_accepted():
    """An int is a float; a parameter without a simple annotation may have any value."""
    scorer("test.limited")(limited)
    given = {"limit": 1, "share": 1, "on": True, "names": None, "how": "any", "free": object()}
    assert create_scorer({"type": "test.limited", **given})(RUN).value == 1.0
