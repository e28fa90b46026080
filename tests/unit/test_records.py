"""Records that scorers of users get refuse assignment; what type checkers refuse: `tests/typed`."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, replace

import pytest

from otel_eval.interfaces import Wanted
from otel_eval.model import (
    Failed,
    ImmutableCall,
    ImmutableTrajectory,
    Skipped,
    ToolCall,
    Trajectory,
)
from otel_eval.records import changed, make_immutable


def immutable_run() -> Trajectory:
    call = make_immutable(ToolCall(name="search", arguments={"q": 1}), ImmutableCall)
    return make_immutable(Trajectory(agent="planner", calls=(call,)), ImmutableTrajectory)


def test_an_immutable_record_refuses_assignment_and_deletion():
    """Of fields, and of anything else."""
    run = immutable_run()
    with pytest.raises(FrozenInstanceError, match="'agent'"):
        run.agent = "another"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError, match="'name'"):
        run.calls[0].name = "another"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del run.agent
    with pytest.raises(FrozenInstanceError):
        run.more = 1  # type: ignore[attr-defined]
    assert (run.agent, run.calls[0].name) == ("planner", "search")


def test_an_immutable_record_is_a_value_like_its_record():
    """It is equal, hashable, picklable, copied and changed by `replace`, and stays immutable."""
    run = immutable_run()
    plain = Trajectory(agent="planner", calls=(ToolCall(name="search", arguments={"q": 1}),))
    assert run == plain
    assert plain == run
    assert run != replace(plain, agent="another")
    assert run != "planner"
    call = ToolCall(name="search")
    assert hash(make_immutable(replace(call), ImmutableCall)) == hash(call)
    for same in (copy.copy(run), copy.deepcopy(run), pickle.loads(pickle.dumps(run))):
        assert (same, type(same)) == (plain, ImmutableTrajectory)
    other = replace(run, agent="another")
    assert (other.agent, other.calls) == ("another", run.calls)
    with pytest.raises(FrozenInstanceError):
        other.agent = "planner"  # type: ignore[misc]


def test_records_are_compared_hashed_and_shown_by_their_fields():
    """Those that are not compared or shown are left out, and another class is never equal."""
    keys, equal_keys = Wanted(frozenset({"a"}), named=True), Wanted(frozenset("a"), named=True)
    assert (keys, hash(keys)) == (equal_keys, hash(equal_keys))
    assert keys != replace(keys, named=False)
    assert Skipped("why") != Failed("why", "")
    assert repr(keys) == (
        "Wanted(keys=frozenset({'a'}), prefixes=(), presence=frozenset(), short=False, named=True)"
    )


def test_a_changed_record_is_what_replace_makes():
    """The record itself stays as it is."""
    run = Trajectory(agent="planner", calls=(ToolCall(name="search"),))
    other = changed(run, calls=(), agent="another")
    assert (other, type(other)) == (replace(run, calls=(), agent="another"), Trajectory)
    assert run.calls == (ToolCall(name="search"),)
