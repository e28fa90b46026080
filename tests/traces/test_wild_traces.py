"""Situations that were reported in public or recorded from new releases, rebuilt with invented
data: the calls are those that were made, or it is said that they are unknown.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from otel_eval.model import UNRECORDED, Scored
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.recorded_traces import FOLDER, traces

TRUTH: list[dict[str, Any]] = json.loads((FOLDER / "wild" / "truth.json").read_text())


@pytest.mark.parametrize("truth", TRUTH, ids=lambda truth: truth["file"])
def test_the_calls_are_those_that_were_made_or_unknown(truth: dict[str, Any]) -> None:
    """`calls` is null where they cannot be known; `or_skipped`: to skip is right, too;
    `or_names`: these calls, recovered, are right where the others are null.
    """
    plan = Plan(needs=ALL_NEEDS)
    runs = [
        run.trajectory
        for trace in traces(f"wild/{truth['file']}")
        for run in build(trace, plan)
        if run.trajectory.outermost
    ]
    rule = create_scorer({"type": "forbidden_tools", "patterns": ["never_called_*"]})
    is_scored = any(isinstance(rule(run), Scored) for run in runs)
    calls = [call for run in runs for call in run.calls]
    if truth["calls"] is None:
        names = [call.name for call in calls]
        assert is_scored == (bool(names) and names == truth.get("or_names"))
        return
    if truth.get("or_skipped") and not is_scored:
        return
    assert is_scored
    got = [
        (call.name, None if call.arguments is UNRECORDED else call.arguments, bool(call.error))
        for call in calls
    ]
    assert got == [
        (want["name"], given if want["arguments"] == "ANY" else want["arguments"], want["error"])
        for want, (_, given, _) in zip(truth["calls"], got, strict=True)
    ]
