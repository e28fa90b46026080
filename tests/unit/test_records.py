"""Records are checked by type checkers; the ones that users' scorers get refuse assignment."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path

import pytest

from otel_eval.model import ImmutableCall, ImmutableTrajectory, ToolCall, Trajectory
from otel_eval.records import make_immutable

MISTAKES = """
from dataclasses import replace
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Report, ToolCall, Trajectory

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
    changed = replace(run, agent="another")
    assert (changed.agent, changed.calls) == ("another", run.calls)
    with pytest.raises(FrozenInstanceError):
        changed.agent = "planner"  # type: ignore[misc]
