"""Lines, rows and documents of recorded traces have the same fields, byte by byte."""

from __future__ import annotations

import json

import pytest

from otel_eval.engine import Engine
from otel_eval.evaluations import RunFilter, ScorerSet, result_id
from otel_eval.exporters.result_rows import encoded, lines_of, rows_of
from otel_eval.exporters.run_documents import run_document
from otel_eval.model import Stamp
from otel_eval.scorers import create_scorer
from tests.support.recorded_traces import SIXTH_OF_FILES, traces

SCORERS = tuple(
    create_scorer(scorer)
    for scorer in (
        {"type": "tool_call_count", "criteria": {"*": "<= 3"}},
        {"type": "tool_call_order", "expected": ["search"], "severity": "warn"},
        {"type": "tool_errors"},
        {"type": "error_recovery"},
        {"type": "time_cost", "max_ms": 2000},
        {"type": "label_distribution", "label": "gen_ai.agent.name"},
    )
)
ENGINE = Engine(
    [
        ScorerSet(name="policy", scorers=SCORERS),
        ScorerSet(name="zweite é", scorers=SCORERS[:2], match=RunFilter(runs="all")),
    ],
    exported=("gen_ai.agent.name", "service.name"),
    no_run=True,
)
STAMP = Stamp("e" * 32, 1_700_000_000_123_456_789)


@pytest.mark.parametrize("file", SIXTH_OF_FILES)
def test_lines_rows_and_documents_of_recorded_traces_agree(file: str) -> None:
    """What results of a run share is encoded once, with the bytes of each row alone."""
    reports = [report for trace in traces(file) for report in ENGINE.evaluate(trace, STAMP)]
    assert reports
    for report in reports:
        rows, lines = list(rows_of(report)), lines_of(report)
        assert lines == encoded(rows)
        assert [json.loads(line) for line in lines.splitlines()] == rows
        document = run_document(report, content=False)
        for row, result in zip(rows, document["results"], strict=bool(report.results)):
            named = {**document, **result}
            assert {key: named[key] for key in row} == row
        run = report.trajectory
        assert [row["result_id"] for row in rows if row["scorer"]] == [
            result_id(
                run.trace_id,
                run.span_id,
                report.evaluation,
                result.scorer,
                result.policy,
                report.revision,
            )
            for result in report.results
        ]
