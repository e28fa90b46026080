"""The names under which results are exported, the attributes of one result, and the context and
time of its run.

Sources: the `gen_ai.evaluation.result` event of the OpenTelemetry GenAI semantic conventions
(Development) for what is standard, `otel_eval.*` for what is ours, OpenInference's span kind for
the span that carries results, pydantic-evals for the target of an evaluation.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_eval.exporters.result_rows import (
    SCHEMA,
    compact_json,
    duration_ms,
    outcome_of,
    rfc3339,
    start_time,
)
from otel_eval.model import Failed, Report, Result, Scored, Skipped, Trajectory
from otel_eval.native import VERSION
from otel_eval.records import record

SIGNALS: Final = ("logs", "metrics", "spans")
"""The signals in which scores can be exported."""

SCOPE: Final = "otel_eval"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.38.0"
"""The schema of the first version of the semantic conventions that defines the event and all of its
attributes used here.
"""
INSTRUMENTATION_SCOPE: Final = (SCOPE, VERSION, SCHEMA_URL)
"""The arguments of `get_tracer`, `get_logger` and `get_meter`."""
EVENT_NAME: Final = "gen_ai.evaluation.result"
EVENT_NAME_ATTRIBUTE: Final = "event.name"

NAME: Final = "gen_ai.evaluation.name"
SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
ERROR_TYPE: Final = "error.type"
AGENT_NAME: Final = "gen_ai.agent.name"
TOOL_NAME: Final = "gen_ai.tool.name"

EVALUATION: Final = "otel_eval.evaluation"
SCORER_TYPE: Final = "otel_eval.scorer.type"
OUTCOME: Final = "otel_eval.outcome"
_KIND: Final = (
    NAME,
    SCORE_LABEL,
    ERROR_TYPE,
    SCORER_TYPE,
    "otel_eval.scorer.version",
    "otel_eval.policy",
    "otel_eval.severity",
    OUTCOME,
    "otel_eval.skip.reason",
)
SERVICE: Final = "otel_eval.service"
SERVICE_VERSION: Final = "otel_eval.service_version"
ENVIRONMENT: Final = "otel_eval.environment"
VERDICT: Final = "otel_eval.verdict"
_ORIGIN: Final = (
    EVALUATION,
    "otel_eval.completeness",
    "otel_eval.revision",
    SERVICE,
    AGENT_NAME,
    # Not in the conventions. Logfire shows only events that have it, grouped by it (docs:
    # evaluate/live-evals, 2026-11-22).
    "gen_ai.evaluation.target",
    SERVICE_VERSION,
    ENVIRONMENT,
    "otel_eval.evaluator.id",
    "otel_eval.schema",
    VERDICT,
)
# Before the name of each score, or of the evaluation, on the run's own span. Names of scorers may
# have dots, so that what belongs to one score is not below its name.
_SCORE_VALUES: Final = "otel_eval.score."
_SCORE_LABELS: Final = "otel_eval.label."
_SCORE_REASONS: Final = "otel_eval.explanation."
PAGE: Final = "otel_eval.page"
_RUN_ATTRIBUTES: Final = "otel_eval.attributes."  # before each key of an attribute of the run

SPAN_KIND: Final = "openinference.span.kind"
EVALUATOR: Final = "EVALUATOR"


@record
class ResultFormat:
    """What results carry besides the attributes of their events.

    Attributes:
        page: the address at which people reach the page with runs; "" if there is none.
        log_body: whether log events have a body and a severity.
        name_of: returns the name of a score; None: spans have no attributes of scores.
        by_version: whether metrics have the version of the service as a label.
    """

    page: str = ""
    log_body: bool = False
    name_of: Callable[[Result], str] | None = None
    by_version: bool = False


PLAIN: Final = ResultFormat()
"""No more than the attributes of events."""


def page_of(page: str, run: Trajectory) -> str:
    """The address of a run on the page; "" if there is no page, or the run has no ids.

    >>> run = Trajectory(trace_id="a" * 32, span_id="b" * 16, agent="", service="", calls=())
    >>> page_of("http://localhost:4319", run)[:32]
    'http://localhost:4319/#/runs/aaa'
    """
    has_address = page and run.trace_id and run.span_id
    return f"{page}/#/runs/{run.trace_id}/{run.span_id}" if has_address else ""


def page_attributes(page: str, run: Trajectory) -> dict[str, str]:
    """The attribute with the address of a run on the page, if it has one."""
    address = page_of(page, run)
    return {PAGE: address} if address else {}


_IN_WORDS: Final = {"pass": "passed", "fail": "did not pass"}


def log_line(report: Report, result: Result) -> str:
    """A result as one line for people: the body of a log event."""
    run, outcome = report.trajectory, result.outcome
    state = _IN_WORDS.get(label_of(result)) or (
        "failed" if isinstance(outcome, Failed) else "was skipped"
    )
    value = f" ({outcome.value:.3f})" if isinstance(outcome, Scored) else ""
    subject = run.agent or run.name or run.span_id
    text = f"{subject}: {result.scorer} {state}{value}"
    return sendable(f"{text}: {outcome.explanation}" if outcome.explanation else text)


def log_severity(result: Result) -> tuple[int, str]:
    """Number and text of the severity of a log event: ERROR if a scorer failed, WARN if the run did
    not pass, INFO otherwise.
    """
    if isinstance(result.outcome, Failed):
        return 17, "ERROR"
    if label_of(result) == "fail" and result.severity != "warn":
        return 13, "WARN"
    return 9, "INFO"


def score_attributes(report: Report, name_of: Callable[[Result], str]) -> dict[str, Any]:
    """What backends that search spans by attributes only find a run by: the verdict of the
    evaluation, and value, label and explanation of each score.
    """
    # all reports of one revision that have a verdict have the same: the first one has it
    attributes: dict[str, Any] = {}
    if report.verdict is not None and not report.late:
        attributes[f"{VERDICT}.{report.evaluation}"] = report.verdict
    for result in report.results:
        name = name_of(result)
        if isinstance(result.outcome, Scored):
            attributes[f"{_SCORE_VALUES}{name}"] = float(result.outcome.value)
        attributes[f"{_SCORE_LABELS}{name}"] = label_of(result)
        if result.outcome.explanation:
            attributes[f"{_SCORE_REASONS}{name}"] = result.outcome.explanation
    return {sendable(key): _sendable(value) for key, value in attributes.items()}


def label_of(result: Result) -> str:
    """pass, fail or not_evaluated."""
    if isinstance(result.outcome, Scored):
        return "pass" if result.outcome.passed else "fail"
    return "not_evaluated"


def event_attributes(report: Report, result: Result) -> dict[str, Any]:
    """The attributes of one `gen_ai.evaluation.result` event; what is not known is left out."""
    return run_attributes(report) | result_attributes(result)


def run_attributes(report: Report) -> dict[str, Any]:
    """What the events of all results of a report share: which run, when, which case, made from
    which spans.
    """
    return origin_attributes(origin_of(report)) | single_attributes(report)


def origin_attributes(origin: tuple[Any, ...]) -> dict[str, Any]:
    """What the events of all reports with one origin, as of `origin_of`, share."""
    return {
        name: _sendable(value) for name, value in zip(_ORIGIN, origin, strict=True) if value != ""
    }


def origin_of(report: Report) -> tuple[Any, ...]:
    """The values of attributes of a run of which there are few combinations, so that encoding can
    remember them.
    """
    run = report.trajectory
    return (
        report.evaluation,
        run.completeness.value,
        report.revision,
        run.service,
        run.agent,
        run.agent or run.name,
        run.service_version,
        run.environment,
        report.stamp.evaluator,
        SCHEMA,
        report.verdict or "",
    )


def single_attributes(report: Report) -> dict[str, Any]:
    """What differs between the runs of one origin."""
    run, evidence = report.trajectory, report.evidence
    named: dict[str, Any] = {
        "gen_ai.conversation.id": run.conversation_id or None,
        "otel_eval.start_time": start_time(run),
        "otel_eval.duration_ms": duration_ms(run),
        "otel_eval.evaluated_at": rfc3339(report.stamp.at_ns),
        "gen_ai.response.id": run.response_id or None,
    }
    if evidence is not None:
        named |= {
            "otel_eval.spans": evidence.spans,
            "otel_eval.spans_digest": evidence.digest or None,
        }
    for key, value in report.attributes.items():
        named[sendable(f"{_RUN_ATTRIBUTES}{key}")] = _primitive(value)
    return {name: _sendable(value) for name, value in named.items() if value is not None}


def _sendable(value: Any) -> Any:
    return sendable(value) if type(value) is str else value


def result_attributes(result: Result) -> dict[str, Any]:
    """The attributes of an event that differ between the results of a report."""
    return kind_attributes(kind_of(result)) | outcome_attributes(result)


def kind_attributes(kind: tuple[str, ...]) -> dict[str, Any]:
    """The attributes that results of one kind, as of `kind_of`, share."""
    return {name: sendable(value) for name, value in zip(_KIND, kind, strict=True) if value}


def kind_of(result: Result) -> tuple[str, ...]:
    """The values of attributes that have few combinations, so that their encoding can be cached; ""
    for none.
    """
    outcome = result.outcome
    error = outcome.error_type if isinstance(outcome, Failed) else ""
    reason = outcome.reason if isinstance(outcome, Skipped) else ""
    return (
        result.scorer,
        label_of(result),
        error,
        result.type,
        result.version,
        result.policy,
        result.severity,
        outcome_of(result),
        reason,
    )


def outcome_attributes(result: Result) -> dict[str, Any]:
    """The attributes that differ between results of one kind."""
    outcome = result.outcome
    named: dict[str, Any] = {}
    if isinstance(outcome, Scored):
        named["gen_ai.evaluation.score.value"] = float(outcome.value)
    if result.threshold is not None:
        named["otel_eval.threshold"] = result.threshold
    if explanation := sendable(result.outcome.explanation):
        named["gen_ai.evaluation.explanation"] = explanation
    if result.result_id:
        named["otel_eval.result_id"] = result.result_id
    if outcome.details:
        named["otel_eval.details"] = sendable(compact_json(outcome.details))
    return named


def _primitive(value: Any) -> Any:
    """The value if an attribute can hold it, else its JSON."""
    return (
        value
        if value is None or isinstance(value, str | bool | int | float)
        else compact_json(value)
    )


def sendable(text: str) -> str:
    """The text without lone surrogates, which JSON may contain and with which an encoder would
    leave out the attribute.

    >>> sendable(chr(0xD800) + "é")
    '?é'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def evaluated_ns(report: Report) -> int:
    """When the run was evaluated, in Unix nanoseconds."""
    return report.stamp.at_ns or time.time_ns()


def run_ended_ns(report: Report) -> int:
    """The time of events and evaluation spans: the end of the run, so that the durations of run and
    trace do not change.

    If no time was recorded, it is the time of the evaluation.
    """
    return report.trajectory.ended_ns or evaluated_ns(report)


def run_context(run: Trajectory) -> Context:
    """A context whose current span is the run's: remote, since it has ended, and sampled, since we
    saw it.

    A run without ids (one built by hand) gives the empty context.
    """
    if not run.trace_id or not run.span_id:
        return Context()
    # Only a sampled context makes an exemplar of a measurement and passes parent-based samplers.
    context = SpanContext(
        int(run.trace_id, 16),
        int(run.span_id, 16),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )
    return set_span_in_context(NonRecordingSpan(context), Context())
