"""Records are checked by type checkers; the ones that users' scorers get refuse assignment."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, fields
from dataclasses import replace as replace_field_by_field
from pathlib import Path
from typing import Any

import pytest

from otel_eval.model import ImmutableCall, ImmutableTrajectory, ToolCall, Trajectory
from otel_eval.records import make_immutable, replace

MISTAKES = """
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Report, ToolCall, Trajectory
from otel_eval.records import replace

run = Trajectory(agent="planner", name="invoke_agent planner", calls=(ToolCall(name="a"),))
Trajectory((), "trace", "span", "invoke_agent planner", "planner")
Trajectory(agent=None)
Trajectory(agents="planner")
ToolCall()
ToolCall("search")
replace(run, start_ns="now")
run.agent = "another"
run.calls[0].name = "b"
ClosedTrace(b"", {}, "complete")
Report(run, "e", "0", ())
"""


def test_a_type_checker_reports_swapped_missing_mistyped_and_changed_fields(tmp_path: Path):
    """Every line after the valid one is an error."""
    (tmp_path / "mistakes.py").write_text(MISTAKES)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path), "mistakes.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"MYPYPATH": str(Path(__file__).parents[2]), "PATH": ""},
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("mistakes.py")]
    wrong = [int(line.split(":")[1]) for line in lines if ": error:" in line]
    assert wrong == list(range(7, 17)), done.stdout + done.stderr


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
    for replaces in (replace, replace_field_by_field):
        changed = replaces(run, agent="another")
        assert (changed.agent, changed.calls) == ("another", run.calls)
        with pytest.raises(FrozenInstanceError):
            changed.agent = "planner"  # type: ignore[misc]


def test_replace_copies_every_field_of_a_record_and_changes_those_named():
    """As that of `dataclasses`; a field that the record does not have is an error."""
    values: dict[str, Any] = {key.name: object() for key in fields(Trajectory)}
    run = Trajectory(**values)
    changed = replace(run, agent="another", calls=())
    assert changed == Trajectory(**values | {"agent": "another", "calls": ()})
    assert run == Trajectory(**values)
    assert type(replace(run)) is Trajectory
    with pytest.raises(AttributeError):
        replace(run, agents="another")  # type: ignore[call-arg]
