"""Reports for sinks to send."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from otel_eval.model import Completeness, Failed, Report, Result, Scored, Skipped, verdict_of
from otel_eval.testing import call, trajectory

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
OUTCOMES = {
    "scored": Scored(
        value=0.75, passed=True, explanation="3 of 4 in order", details={"missing": ["refund"]}
    ),
    "below": Scored(value=0.25, passed=False, explanation="1 of 4 in order"),
    "skipped": Skipped(explanation="arguments not recorded", reason="not_recorded"),
    "failed": Failed(error_type="KeyError", message="secret content"),
}


def make_report(*kinds: str, evaluation: str = "policy", revision: int = 0, **facts: Any) -> Report:
    """A report of one result per kind of outcome, on a run with two calls."""
    known = {
        "trace_id": TRACE,
        "span_id": SPAN,
        "agent": "helpdesk",
        "service": "shop",
        "conversation_id": "c-1",
    }
    calls = (
        call("search", span_id="1" * 16, start_ns=0, end_ns=200_000_000),
        call("refund", span_id="2" * 16, start_ns=10, end_ns=10, error="boom"),
    )
    run = trajectory(
        *facts.pop("calls", calls), **(known | {"completeness": Completeness.REMOTE_PARENT} | facts)
    )
    results = tuple(
        Result(
            evaluation=evaluation,
            scorer=kind,
            type="tool_call_order",
            version="1",
            outcome=OUTCOMES[kind],
            revision=revision,
            result_id=f"{index:032x}",
            threshold=0.5,
            policy="0123456789abcdef",
        )
        for index, kind in enumerate(kinds)
    )
    return Report(run, evaluation, revision, results, standing=verdict_of(results))


@pytest.fixture
def report() -> Callable[..., Report]:
    """Makes reports: `report("scored", "failed", revision=1)`."""
    return make_report
