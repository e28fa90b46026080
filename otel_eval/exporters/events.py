"""Scores as `gen_ai.evaluation.result` events: log events in the context of the run, or events of an evaluation span.

Log records are the SDK's own until 1.38, later the API's; they have an event name from 1.35 on, before that an attribute
`event.name`.

Ended spans cannot be changed, so scores among spans need a span of their own. As a child of the run it shows in the run's trace
and does not add a trace of its own; at the run's end it leaves the duration of the trace as it is. The link is what OpenInference
requires of evaluations after the fact (spec/annotations.md).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk import _logs as sdk_logs
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, Tracer
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, StatusCode, get_current_span

from otel_eval.exporters import ProviderExporter
from otel_eval.exporters import attributes as names
from otel_eval.exporters.attributes import evaluated_ns, run_context, run_ended_ns
from otel_eval.model import Failed, Report
from otel_eval.retry import ExportResult, suppress_instrumentation


class SpanExporter(ProviderExporter):
    """One span per report, with one `gen_ai.evaluation.result` event per result.

    Args:
        tracer: makes the spans; from a provider, or `pipeline_tracer`.
        provider: of the tracer, to be flushed; None if that is done elsewhere.
    """

    name = "spans"

    def __init__(self, tracer: Any, provider: Any = None) -> None:
        self._tracer, self._provider = tracer, provider

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Make a span for each report that has results. It starts and ends when the run ended."""
        with suppress_instrumentation():
            for report in batch:
                if report.results:
                    self._make_span(report)
        return ExportResult.ok()

    def _make_span(self, report: Report) -> None:
        context, ended = run_context(report.trajectory), run_ended_ns(report)
        run = get_current_span(context).get_span_context()
        shared = names.run_attributes(report)
        span = self._tracer.start_span(
            f"evaluate {report.evaluation}",
            context=context,
            attributes={names.SPAN_KIND: names.EVALUATOR} | shared,
            links=[Link(run)] if run.is_valid else [],
            start_time=ended,
        )
        for result in report.results:
            span.add_event(names.EVENT_NAME, shared | names.result_attributes(result), ended)
        if any(isinstance(result.outcome, Failed) for result in report.results):
            span.set_status(StatusCode.ERROR)
        span.end(ended)


class _OwnIds(RandomIdGenerator):
    """Ids that neither disturb the program's random numbers nor repeat with its seed, as the SDK's do."""

    _random: Final = random.SystemRandom()

    def generate_span_id(self) -> int:
        """64 random bits, not all zero."""
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        """128 random bits, not all zero."""
        return self._random.getrandbits(128) or 1


def pipeline_tracer(pipeline: Any, resource: Resource) -> Tracer:
    """A tracer whose spans go to the processors of a provider that we do not hold.

    Raises:
        TypeError: this SDK makes tracers in another way.
    """
    scope = InstrumentationScope(*names.INSTRUMENTATION_SCOPE)
    no_info: Any = None  # the scope's deprecated predecessor, which warns when made
    return Tracer(ALWAYS_ON, resource, pipeline, _OwnIds(), no_info, SpanLimits(), scope)


_SEVERITY: Final = {"severity_number": SeverityNumber.INFO, "severity_text": "INFO"}


class LogEventExporter(ProviderExporter):
    """One `gen_ai.evaluation.result` event per result.

    Args:
        logger_provider: an SDK `LoggerProvider`.
    """

    name = "logs"

    def __init__(self, logger_provider: Any) -> None:
        self._provider = logger_provider
        self._emit: Final = _emitter(logger_provider.get_logger(*names.INSTRUMENTATION_SCOPE))

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Emit the events of each report in its run's context, at the run's end; they were observed when it was evaluated."""
        with suppress_instrumentation():
            for report in batch:
                context = run_context(report.trajectory)
                ended, evaluated, shared = run_ended_ns(report), evaluated_ns(report), names.run_attributes(report)
                for result in report.results:
                    self._emit(shared | names.result_attributes(result), context, ended, evaluated)
        return ExportResult.ok()


def _emitter(logger: Any) -> Callable[[dict[str, Any], Context, int, int], None]:
    """What emits an event: its attributes, the run's context, its time, and the time at which it was observed."""
    record, accepted = _record_class(logger)

    def emit(attributes: dict[str, Any], context: Context, at_ns: int, observed_ns: int) -> None:
        fields: dict[str, Any] = {"timestamp": at_ns, "observed_timestamp": observed_ns, "attributes": attributes, **_SEVERITY}
        if "event_name" in accepted:
            fields["event_name"] = names.EVENT_NAME
        else:
            fields["attributes"] = attributes | {names.EVENT_NAME_ATTRIBUTE: names.EVENT_NAME}
        if "resource" in accepted:
            fields["resource"] = logger.resource  # left out, the record detects the machine's: 2 ms each
        fields |= {"context": context} if "context" in accepted else _ids(context)
        logger.emit(record(**fields))

    return emit


def _ids(context: Context) -> dict[str, Any]:
    span = get_current_span(context).get_span_context()
    return {"trace_id": span.trace_id, "span_id": span.span_id, "trace_flags": span.trace_flags}


def _record_class(logger: Any) -> tuple[Any, frozenset[str]]:
    is_of_api = "event_name" in inspect.signature(logger.emit).parameters  # from 1.38 on
    record: Any = LogRecord if is_of_api else sdk_logs.LogRecord  # type: ignore[attr-defined]
    return record, frozenset(inspect.signature(record.__init__).parameters)
