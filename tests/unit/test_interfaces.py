"""Instances created without the `__init__` of a frozen dataclass are frozen and equal like
others.
"""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import Any

import pytest

from otel_eval.interfaces import ClosedTrace, constructor, copier
from otel_eval.model import UNRECORDED, Report, Result, Scored, ToolCall, Trajectory


@pytest.mark.parametrize("cls", [ToolCall, Trajectory, Scored, Result, Report, ClosedTrace])
def test_an_instance_has_the_class_and_the_values_given_in_order(cls: type[Any]) -> None:
    """Every field is in its own slot."""
    names = [each.name for each in fields(cls)]
    made = constructor(cls)(*names)
    assert type(made) is cls
    assert [getattr(made, name) for name in names] == names


def test_an_instance_equals_one_made_by_its_class_and_is_as_frozen() -> None:
    """It equals one that was created by keyword arguments."""
    call = ToolCall(name="a", arguments={"q": 1}, start_ns=1, end_ns=2)
    made = constructor(ToolCall)(*(getattr(call, each.name) for each in fields(ToolCall)))
    assert made == call
    assert repr(made) == repr(call)
    with pytest.raises(FrozenInstanceError):
        made.name = "b"  # type: ignore[misc]


def test_a_missing_value_is_an_error() -> None:
    """There are no defaults."""
    with pytest.raises(TypeError):
        constructor(ToolCall)("too", "few")


def test_a_copy_has_the_fields_that_were_changed_and_shares_the_others():
    """It behaves like `dataclasses.replace`; the original is unchanged."""
    call = ToolCall(name="search", arguments={"query": "x"}, call_id="c1", start_ns=1)
    copy = copier(ToolCall, "arguments", "start_ns")
    assert copy(call, UNRECORDED, 2) == replace(call, arguments=UNRECORDED, start_ns=2)
    assert call.arguments == {"query": "x"}
    assert type(copy(call, None, None)) is ToolCall
