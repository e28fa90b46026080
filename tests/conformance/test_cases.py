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


def passes(spec: Mapping[str, Any], scored: Scored) -> bool:
    """By the rule that is written down: 1 where nothing is given, the budget of `time_cost`, and
    only 1 where strict.
    """
    if spec.get("strict"):
        return scored.value == 1
    if spec["type"] == "time_cost" and "threshold" not in spec:
        return scored.details["elapsed_ms"] <= scored.details["max_ms"]
    return scored.value >= spec.get("threshold", 1.0)


TYPES = sorted({case["scorer"]["type"] for case in CASES})


@pytest.mark.parametrize("kind", TYPES)
def test_recorded_cases_of_a_scorer_give_the_outcome_that_was_decided(kind: str) -> None:
    """The value within 1e-9, or skipped, or rejected when built."""
    cases = [case for case in CASES if case["scorer"]["type"] == kind]
    outcomes = {case["id"]: outcome(case) for case in cases}
    assert outcomes == {case["id"]: case["want"] for case in cases}


@pytest.mark.parametrize("kind", TYPES)
def test_recorded_cases_of_a_scorer_pass_by_their_threshold(kind: str) -> None:
    """As given; also with thresholds just at the value and above it. No threshold makes what was
    skipped a pass.
    """
    for case in CASES:
        if case["scorer"]["type"] != kind or "rejected" in case["want"]:
            continue
        run = trajectory(*[call(**fields) for fields in case["calls"]])
        plain = create_scorer(case["scorer"])(run)
        value = plain.value if isinstance(plain, Scored) else 0.0
        for options in (
            {},
            {"threshold": value},
            {"threshold": min(1.0, value + 1e-6)},
            {"strict": True},
        ):
            spec = {**case["scorer"], **options}
            scored = create_scorer(spec)(run)
            if "skipped" in case["want"]:
                assert isinstance(scored, Skipped), case["id"]
                assert scored.reason == "not_recorded", case["id"]
                assert "not recorded" in scored.explanation, case["id"]
            else:
                assert isinstance(scored, Scored), case["id"]
                assert scored.passed is passes(spec, scored), (case["id"], options)


def test_no_case_is_lost():
    """390 of them, none twice."""
    assert len({case["id"] for case in CASES}) == len(CASES) == 390
