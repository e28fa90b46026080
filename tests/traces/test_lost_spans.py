"""All spans of one tool removed from each recorded trace, as by a full queue: no rule about that
tool scores as if it had not been called where messages show that it was.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import UNRECORDED, Scored, Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan, classified
from otel_eval.trajectory.tool_calls import call_builders, mcp_name
from tests.support.recorded_traces import FILES, TRUTH, traces

PLAN = Plan(needs=ALL_NEEDS)
# Traces that do not show calls that lost their spans; the entry in the file says why.
SILENT = {truth["file"] for truth in TRUTH if "hides_lost_spans" in truth}


def outermost(trace: ClosedTrace) -> list[Trajectory]:
    return [run.trajectory for run in build(trace, PLAN) if run.trajectory.outermost]


def without_tools(trace: ClosedTrace) -> Iterator[tuple[set[str], ClosedTrace]]:
    """The trace without the spans of each tool and what lies below them, and its names."""
    spans = classified(trace, PLAN)
    tools: dict[str, tuple[set[str], set[bytes]]] = {}
    for place, call in call_builders(spans).items():
        names, gone = tools.setdefault(mcp_name(call), (set(), set()))
        names.add(call.name)
        gone.update(spans.tree.ids[place : spans.end(place)])
    for names, gone in tools.values():
        frames = {key: frame for key, frame in trace.frames.items() if key not in gone}
        logs = {key: records for key, records in trace.logs.items() if key not in gone}
        yield names, ClosedTrace(trace.trace_id, frames, trace.reason, logs)


def made(runs: list[Trajectory], names: set[str]) -> list[tuple[str, str]]:
    """Names and arguments of the calls of a tool, sorted."""
    return sorted(
        (call.name, "" if call.arguments is UNRECORDED else json.dumps(call.arguments))
        for run in runs
        for call in run.calls
        if call.name in names
    )


@pytest.mark.parametrize("file", [file for file in FILES if file not in SILENT])
def test_a_tool_whose_spans_were_lost_is_not_taken_for_one_that_was_never_called(file: str) -> None:
    """The calls are recovered, equal to the original ones, or the run is skipped."""
    for trace in traces(file):
        runs = outermost(trace)
        for names, rest in without_tools(trace):
            rule = create_scorer({"type": "forbidden_tools", "patterns": sorted(names)})
            if not any(isinstance(rule(run), Scored) and made([run], names) for run in runs):
                continue  # they were no calls, or the run was skipped before
            left = outermost(rest)
            for run in left:
                outcome = rule(run)
                assert not (isinstance(outcome, Scored) and outcome.passed), (
                    f"{names} were lost; if the recording cannot show that: hides_lost_spans"
                )
                if isinstance(outcome, Scored):
                    assert made(left, names) == made(runs, names)


def test_a_trace_that_is_silent_about_lost_spans_passes_as_documented() -> None:
    """Else it would be one of those above."""
    for file in sorted(SILENT):
        assert any(
            isinstance(outcome := rule(run), Scored) and outcome.passed
            for trace in traces(file)
            for names, rest in without_tools(trace)
            for rule in [create_scorer({"type": "forbidden_tools", "patterns": sorted(names)})]
            for run in outermost(rest)
        ), file
