"""A run under one evaluation as one JSON object: its facts, its tool calls and its results.

A row has one result and no calls, which suits databases. Where a person looks at a run (the page,
reports of tests, comparisons) the calls belong beside the results. The fields are described in
docs/reference/run-documents.md.
"""

from __future__ import annotations

from typing import Any, Final

from otel_eval.exporters.result_rows import duration_ms, outcome_fields, run_fields, shared_fields
from otel_eval.model import UNRECORDED, Report, ToolCall, Trajectory

DOCUMENT: Final = 1
"""Version of the fields: raised when one is removed or changes its meaning."""

_NS_PER_MS: Final = 1_000_000


def run_document(report: Report, *, content: bool) -> dict[str, Any]:
    """Return the run of a report, with the results that the report has.

    Args:
        report: the results of one run under one evaluation, not of a trace without a run.
        content: whether to include arguments and results of calls, as far as they were read.
    """
    run = report.trajectory
    return {
        "document": DOCUMENT,
        **run_fields(report),
        "name": run.name,
        "evaluation": report.evaluation,
        **shared_fields(report),
        "revision": report.revision,
        "model_calls": run.model_calls,
        "input_tokens": run.input_tokens,
        "output_tokens": run.output_tokens,
        "awaited": report.awaited,
        "calls_unknown": run.calls_unknown,
        "calls": None
        if run.calls_unknown or report.call_count is not None
        else [_call_fields(call, run, content=content) for call in run.calls],
        "results": [outcome_fields(result) for result in report.results],
    }


def _call_fields(call: ToolCall, run: Trajectory, *, content: bool) -> dict[str, Any]:
    begins = call.start_ns is not None and run.start_ns is not None
    fields: dict[str, Any] = {
        "name": call.name,
        "start_ms": ((call.start_ns or 0) - (run.start_ns or 0)) / _NS_PER_MS if begins else None,
        "duration_ms": duration_ms(call),
        "error": call.error.type if call.error else None,
        "failure_unknown": call.failure_unknown,
        "agent": call.agent_path[-1] if call.agent_path else "",
        "span_id": call.span_id,
        "enclosing": list(call.enclosing),
    }
    return fields | (_content_of(call) if content else {})


def _content_of(call: ToolCall) -> dict[str, Any]:
    values = {"arguments": call.arguments, "result": call.result}
    return {key: value for key, value in values.items() if value is not UNRECORDED}
