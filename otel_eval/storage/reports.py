"""A report as JSON and back: what exporters send of it.

Knows the facts of a run that leave with its results. The calls, their arguments and results, input and output are not
among them: they are in the spans, and a report that is read again needs them no more.
"""

from __future__ import annotations

from typing import Any, Final

from otel_eval.model import Completeness, Failed, Outcome, Report, Result, Scored, Skipped, Trajectory

__all__ = ["key_of", "pending_of", "report_from", "report_to"]

_FACTS: Final = ("trace_id", "span_id", "agent", "name", "service", "conversation_id", "incomplete")
_OUTCOMES: Final[dict[str, type[Scored] | type[Skipped] | type[Failed]]] = {"s": Scored, "k": Skipped, "f": Failed}


def key_of(report: Report) -> bytes | None:
    """16 bytes that name the report, the same wherever it is made; None if there is nothing to deliver."""
    return bytes.fromhex(report.results[0].result_id) if report.results else None


def report_to(report: Report) -> list[Any]:
    """The report as JSON values."""
    run = report.trajectory
    facts = [getattr(run, name) for name in _FACTS]
    results = [_result_to(result) for result in report.results]
    pending = [each.result_id for each in report.pending]
    return [facts, run.completeness.value, report.evaluation, report.revision, results, report.late, pending]


def _result_to(result: Result) -> list[Any]:
    return [result.scorer, result.type, result.version, result.result_id, result.threshold, *_outcome_to(result.outcome)]


def _outcome_to(outcome: Outcome) -> list[Any]:
    match outcome:
        case Scored():
            return ["s", outcome.value, outcome.passed, outcome.explanation, dict(outcome.details)]
        case Skipped():
            return ["k", outcome.why, dict(outcome.details), outcome.reason]
        case Failed():
            return ["f", outcome.error_type, "", dict(outcome.details)]  # its message may quote content


def report_from(values: list[Any]) -> Report:
    """The report again, its run with the facts alone and without what was pending."""
    facts, completeness, evaluation, revision, results, late, _ = values
    run = Trajectory(**dict(zip(_FACTS, facts, strict=True)), completeness=Completeness(completeness))
    again = tuple([_result_from(each, evaluation, revision) for each in results])
    return Report(run, evaluation, revision, again, late=late)


def _result_from(values: list[Any], evaluation: str, revision: int) -> Result:
    scorer, kind, version, result_id, threshold, outcome, *fields = values
    return Result(
        evaluation=evaluation,
        scorer=scorer,
        type=kind,
        version=version,
        outcome=_OUTCOMES[outcome](*fields),
        revision=revision,
        result_id=result_id,
        threshold=threshold,
    )


def pending_of(values: list[Any]) -> list[str]:
    """The ids of the results that a report announced."""
    pending: list[str] = values[-1]
    return pending
