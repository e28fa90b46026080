"""Recorded cases: what this project must give for a scorer and a trajectory, and where a peer gave something else."""

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

CASES = [json.loads(line) for line in Path(__file__).with_name("cases.jsonl").read_text(encoding="utf-8").splitlines()]


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


def test_all_cases_are_there():
    """390 of them, none twice."""
    assert len({case["id"] for case in CASES}) == len(CASES) == 390
