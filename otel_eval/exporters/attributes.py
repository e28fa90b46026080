"""The names under which results are exported, the attributes of one result, and the context and time of its run.

Sources: the `gen_ai.evaluation.result` event of the OpenTelemetry GenAI semantic conventions (Development) for what is
standard, `otel_eval.*` for what is ours, OpenInference's span kind for the span that carries results, pydantic-evals for
the target of an evaluation.
"""

from __future__ import annotations

import json
import time
from typing import Any, Final

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_eval.exporters.result_rows import SCHEMA, duration_ms, rfc3339, start_time
from otel_eval.model import Failed, Report, Result, Scored, Skipped, Trajectory
from otel_eval.native import VERSION

SCOPE: Final = "otel_eval"
SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.38.0"
"""Of the first version of the semantic conventions that defines the event and all attributes of theirs that are used here."""
INSTRUMENTATION_SCOPE: Final = (SCOPE, VERSION, SCHEMA_URL)
"""The arguments of `get_tracer`, `get_logger` and `get_meter`."""
EVENT_NAME: Final = "gen_ai.evaluation.result"
EVENT_NAME_ATTRIBUTE: Final = "event.name"

NAME: Final = "gen_ai.evaluation.name"
SCORE_VALUE: Final = "gen_ai.evaluation.score.value"
SCORE_LABEL: Final = "gen_ai.evaluation.score.label"
EXPLANATION: Final = "gen_ai.evaluation.explanation"
TARGET: Final = "gen_ai.evaluation.target"
"""Not in the conventions. Logfire shows only events that have it, grouped by it (docs: evaluate/live-evals, 2026-11-22)."""
RESPONSE_ID: Final = "gen_ai.response.id"
ERROR_TYPE: Final = "error.type"
AGENT_NAME: Final = "gen_ai.agent.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
TOOL_NAME: Final = "gen_ai.tool.name"

EVALUATION: Final = "otel_eval.evaluation"
SCORER_TYPE: Final = "otel_eval.scorer.type"
SCORER_VERSION: Final = "otel_eval.scorer.version"
OUTCOME: Final = "otel_eval.outcome"
SKIP_REASON: Final = "otel_eval.skip.reason"
THRESHOLD: Final = "otel_eval.threshold"
COMPLETENESS: Final = "otel_eval.completeness"
REVISION: Final = "otel_eval.revision"
RESULT_ID: Final = "otel_eval.result_id"
SERVICE: Final = "otel_eval.service"
SERVICE_VERSION: Final = "otel_eval.service_version"
ENVIRONMENT: Final = "otel_eval.environment"
START_TIME: Final = "otel_eval.start_time"
DURATION_MS: Final = "otel_eval.duration_ms"
EVALUATED_AT: Final = "otel_eval.evaluated_at"
SPANS: Final = "otel_eval.spans"
SPANS_DIGEST: Final = "otel_eval.spans_digest"
EVALUATOR_ID: Final = "otel_eval.evaluator.id"
SCHEMA_VERSION: Final = "otel_eval.schema"
RUN_ATTRIBUTES: Final = "otel_eval.attributes."  # before each key of an attribute of the run
SCORE_ATTRIBUTES: Final = "otel_eval.score."  # before the name of each score on the run's own span
DETAILS: Final = "otel_eval.details"
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, default=str, separators=(",", ":"))  # making one costs more than using it

SPAN_KIND: Final = "openinference.span.kind"
EVALUATOR: Final = "EVALUATOR"

SCORE_METRIC: Final = "otel_eval.score"
COUNT_METRIC: Final = "otel_eval.results"
REVISIONS_METRIC: Final = "otel_eval.revisions"
CALLS_METRIC: Final = "otel_eval.tool.calls"
DURATION_METRIC: Final = "otel_eval.tool.call.duration"
ERRORS_METRIC: Final = "otel_eval.tool.errors"

WINDOW_LABEL: Final = "otel_eval.label"
WINDOW_QUANTILE: Final = "otel_eval.quantile"
WINDOW_RESULTS_METRIC: Final = "otel_eval.window.results"
WINDOW_PASS_RATE_METRIC: Final = "otel_eval.window.pass_rate"
WINDOW_MEAN_METRIC: Final = "otel_eval.window.score.mean"
WINDOW_QUANTILE_METRIC: Final = "otel_eval.window.score.quantile"
WINDOW_COUNT_METRIC: Final = "otel_eval.window.label.count"
WINDOW_FRACTION_METRIC: Final = "otel_eval.window.label.fraction"
WINDOW_SKEW_METRIC: Final = "otel_eval.window.label.skew"


def outcome_of(result: Result) -> str:
    """scored, skipped or failed."""
    match result.outcome:
        case Scored():
            return "scored"
        case Skipped():
            return "skipped"
        case Failed():
            return "failed"


def label_of(result: Result) -> str:
    """pass, fail or not_evaluated."""
    if isinstance(result.outcome, Scored):
        return "pass" if result.outcome.passed else "fail"
    return "not_evaluated"


def explanation_of(result: Result) -> str:
    """Why, without content: what a failing scorer's exception said stays in the process."""
    match result.outcome:
        case Scored(explanation=text) | Skipped(text=text):
            return text
        case Failed(error_type=error_type):
            return f"the scorer failed with {error_type}"


def event_attributes(report: Report, result: Result) -> dict[str, Any]:
    """The attributes of one `gen_ai.evaluation.result` event; what is not known is left out."""
    own = own_attributes(result)
    if DETAILS in own:
        own[DETAILS] = as_json(own[DETAILS])
    attributes = kind_attributes(result) | own
    return run_attributes(report) | {key: sendable(value) if type(value) is str else value for key, value in attributes.items()}


def kind_attributes(result: Result) -> dict[str, Any]:
    """What a scorer's results of one kind share: there are few combinations."""
    outcome = result.outcome
    named = {
        NAME: result.scorer,
        SCORE_LABEL: label_of(result),
        ERROR_TYPE: outcome.error_type if isinstance(outcome, Failed) else "",
        SCORER_TYPE: result.type,
        SCORER_VERSION: result.version,
        OUTCOME: outcome_of(result),
        SKIP_REASON: outcome.reason if isinstance(outcome, Skipped) else "",
    }
    return {key: value for key, value in named.items() if value != ""}


def own_attributes(result: Result) -> dict[str, Any]:
    """What is a result's own; the details as they are, which are sent `as_json`."""
    outcome = result.outcome
    named: dict[str, Any] = {SCORE_VALUE: float(outcome.value)} if isinstance(outcome, Scored) else {}
    if result.threshold is not None:
        named[THRESHOLD] = result.threshold
    if text := explanation_of(result):
        named[EXPLANATION] = text
    if result.result_id:
        named[RESULT_ID] = result.result_id
    if outcome.details:
        named[DETAILS] = outcome.details
    return named


def run_attributes(report: Report) -> dict[str, Any]:
    """What all results of a report share."""
    return source_attributes(report) | occasion_attributes(report)


def source_attributes(report: Report) -> dict[str, Any]:
    """Of what is shared, that which many runs have in common."""
    run: Trajectory = report.trajectory
    named = {
        EVALUATION: report.evaluation,
        COMPLETENESS: run.completeness.value,
        REVISION: report.revision,
        SERVICE: sendable(run.service),
        AGENT_NAME: sendable(run.agent),
        TARGET: sendable(run.agent or run.name),
        CONVERSATION_ID: sendable(run.conversation_id),
        SERVICE_VERSION: sendable(run.service_version),
        ENVIRONMENT: sendable(run.environment),
        EVALUATOR_ID: report.stamp.evaluator,
        SCHEMA_VERSION: SCHEMA,
    }
    return {key: value for key, value in named.items() if value != ""}


def occasion_attributes(report: Report) -> dict[str, Any]:
    """Of what is shared, that which differs from run to run: when, which case, made from which spans."""
    run, evidence = report.trajectory, report.evidence
    named = {
        START_TIME: start_time(run),
        DURATION_MS: duration_ms(run),
        EVALUATED_AT: rfc3339(report.stamp.at_ns),
        RESPONSE_ID: sendable(run.response_id) or None,
        SPANS: evidence.spans if evidence else None,
        SPANS_DIGEST: evidence.digest if evidence else None,
    } | {sendable(f"{RUN_ATTRIBUTES}{key}"): _primitive(value) for key, value in report.attributes.items()}
    return {key: value for key, value in named.items() if value is not None}


def _primitive(value: Any) -> Any:
    """The value if an attribute can hold it, else its JSON."""
    if isinstance(value, str):
        return sendable(value)
    return value if isinstance(value, bool | int | float) or value is None else sendable(as_json(value))


def as_json(details: Any) -> str:
    """Details as the text that is sent."""
    return _ENCODER.encode(details)


def sendable(text: str) -> str:
    """The text as UTF-8 can carry it: JSON may hold halves of surrogate pairs, whose attribute an encoder would leave out.

    >>> sendable(chr(0xD800) + "é")
    '?é'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def evaluated_ns(report: Report) -> int:
    """When the run was evaluated, in Unix nanoseconds."""
    return report.stamp.at_ns or time.time_ns()


def run_ended_ns(report: Report) -> int:
    """The time of events and evaluation spans: the end of the run, so that they change neither its time nor its trace's.

    Where no time was recorded, when the run was evaluated.
    """
    return report.trajectory.ended_ns or evaluated_ns(report)


def run_context(run: Trajectory) -> Context:
    """A context whose current span is the run's: remote, since it has ended, and sampled, since we saw it.

    A run without ids (one built by hand) gives the empty context.
    """
    if not run.trace_id or not run.span_id:
        return Context()
    # Only a sampled context makes an exemplar of a measurement and passes parent-based samplers.
    context = SpanContext(int(run.trace_id, 16), int(run.span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(context), Context())
