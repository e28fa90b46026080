"""A report as JSON and back: what exporters send of it.

Knows the facts of a run that leave with its results. The calls, their arguments and results, input and output are not
among them: they are in the spans, and a report that is read again needs them no more.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from otel_eval.model import Completeness, Evidence, Failed, NoRun, Outcome, Report, Result, Scored, Skipped, Stamp, Trajectory

__all__ = ["key_of", "pending_of", "report_from", "report_to"]

_FACTS: Final = ("trace_id", "span_id", "agent", "name", "service", "conversation_id", "incomplete")
_MORE_FACTS: Final = ("start_ns", "end_ns", "service_version", "environment")  # not in what older versions wrote
_PENDING: Final = 6
_OUTCOMES: Final[dict[str, type[Scored] | type[Skipped] | type[Failed]]] = {"s": Scored, "k": Skipped, "f": Failed}


def key_of(report: Report) -> bytes | None:
    """16 bytes that name the report, the same wherever it is made; None if there is nothing to deliver."""
    named = report.results[0] if report.results else report.no_run
    return None if named is None else bytes.fromhex(named.result_id)


def report_to(report: Report) -> list[Any]:
    """The report as JSON values."""
    run = report.trajectory
    facts = [getattr(run, name) for name in _FACTS]
    results = [_result_to(result) for result in report.results]
    pending = [each.result_id for each in report.pending]
    more = [[getattr(run, name) for name in _MORE_FACTS], _occasion_to(report)]
    return [facts, run.completeness.value, report.evaluation, report.revision, results, report.late, pending, *more]


def _occasion_to(report: Report) -> list[Any]:
    evidence, stamp = report.evidence, report.stamp
    known = [evidence.spans, evidence.digest] if evidence else None
    no_run = [report.no_run.why, report.no_run.result_id] if report.no_run else None
    return [dict(report.attributes), known, stamp.evaluator, stamp.at_ns, no_run]


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
    facts, completeness, evaluation, revision, results, late, _, *more = values
    told = dict(zip(_FACTS, facts, strict=True)) | (dict(zip(_MORE_FACTS, more[0], strict=True)) if more else {})
    run = Trajectory(**told, completeness=Completeness(completeness))
    again = tuple([_result_from(each, evaluation, revision) for each in results])
    report = Report(run, evaluation, revision, again, late=late)
    return _with_occasion(report, more[1]) if more else report


def _with_occasion(report: Report, values: list[Any]) -> Report:
    attributes, known, evaluator, at_ns, no_run = values
    return replace(
        report,
        attributes=attributes,
        evidence=Evidence(*known) if known else None,
        stamp=Stamp(evaluator, at_ns),
        no_run=NoRun(*no_run) if no_run else None,
    )


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
    pending: list[str] = values[_PENDING]
    return pending
