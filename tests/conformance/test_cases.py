"""Recorded cases: what this project must give for a scorer and a trajectory, and where a peer gave
something else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Scored, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.testing import call, trajectory

CASES = [
    json.loads(line)
    for line in Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines()
]


def outcome(case: Mapping[str, Any]) -> dict[str, Any]:
    """The outcome in the words of the cases."""
    try:
        scorer = create_scorer(case["scorer"])
    except ConfigError:
        return {"rejected": True}
    scored = scorer(trajectory(*[call(**fields) for fields in case["calls"]]))
    match scored:
        case Scored(value=value):
            return {"value": pytest.approx(value, abs=1e-9)}
        case Skipped():
            return {"skipped": True}
        case Failed(error_type=error_type):
            return {"failed": error_type}


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_recorded_case_gives_the_value_that_was_decided(case):
    """Within 1e-9, or skipped, or rejected when built."""
    assert outcome(case) == case["want"]


SCORED = [case for case in CASES if "value" in case["want"]]
SKIPPED = [case for case in CASES if "skipped" in case["want"]]


def passes(spec: Mapping[str, Any], scored: Scored) -> bool:
    """By the rule that is written down: 1 where nothing is given, the budget of `time_cost`, and
    only 1 where strict.
    """
    if spec.get("strict"):
        return scored.value == 1
    if spec["type"] == "time_cost" and "threshold" not in spec:
        return scored.details["elapsed_ms"] <= scored.details["max_ms"]
    return scored.value >= spec.get("threshold", 1.0)


@pytest.mark.parametrize("case", SCORED, ids=[case["id"] for case in SCORED])
def test_a_recorded_case_passes_by_its_threshold(case):
    """As given; also with thresholds just at the value and above it."""
    run = trajectory(*[call(**fields) for fields in case["calls"]])
    value = create_scorer(case["scorer"])(run).value
    thresholds = [{}, {"threshold": value}, {"threshold": min(1.0, value + 1e-6)}, {"strict": True}]
    for frame in thresholds:
        spec = {**case["scorer"], **frame}
        scored = create_scorer(spec)(run)
        assert isinstance(scored, Scored)
        assert scored.passed is passes(spec, scored), frame


@pytest.mark.parametrize("case", SKIPPED, ids=[case["id"] for case in SKIPPED])
def test_a_recorded_case_is_skipped_for_a_reason(case):
    """What was not recorded; no threshold makes a skip a pass."""
    for frame in ({}, {"threshold": 0.0}, {"strict": True}):
        skipped = create_scorer({**case["scorer"], **frame})(
            trajectory(*[call(**fields) for fields in case["calls"]])
        )
        assert isinstance(skipped, Skipped)
        assert (skipped.reason, "not recorded" in skipped.text) == ("not_recorded", True)


def test_all_cases_are_there():
    """390 of them, none twice."""
    assert len({case["id"] for case in CASES}) == len(CASES) == 390
