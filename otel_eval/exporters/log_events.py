"""Scores as OpenTelemetry log events, each in the context of the run that it evaluates.

The Logs API has three shapes: `emit` by keywords (1.38 on), log records with an event name (1.35 on), and before that an
attribute `event.name`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry._logs import SeverityNumber
from opentelemetry.context import Context
from opentelemetry.sdk import _logs as sdk_logs
from opentelemetry.trace import get_current_span

from otel_eval.exporters import attributes as names
from otel_eval.exporters.attributes import evaluated_ns, run_context, run_ended_ns
from otel_eval.exporters.interface import Exporter
from otel_eval.model import Report
from otel_eval.retry import ExportResult
from otel_eval.suppression import suppress_instrumentation

__all__ = ["LogEventExporter"]

_Emit = Callable[[dict[str, Any], Context, int, int], None]
"""Takes attributes, the run's context, the time of the event and the time at which it was observed."""
_SEVERITY: Final = {"severity_number": SeverityNumber.INFO, "severity_text": "INFO"}


class LogEventExporter(Exporter):
    """One `gen_ai.evaluation.result` event per result.

    Args:
        logger_provider: an SDK `LoggerProvider`.
        name: the exporter's name in counters and warnings.
    """

    def __init__(self, logger_provider: Any, name: str = "logs") -> None:
        self.name = name
        self._provider = logger_provider
        self._emit: Final = _emitter(logger_provider.get_logger(*names.INSTRUMENTATION_SCOPE))

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Emit the events of each report in its run's context, at the run's end; they were observed when it was evaluated."""
        with suppress_instrumentation():
            for report in batch:
                context = run_context(report.trajectory)
                ended, evaluated = run_ended_ns(report), evaluated_ns(report)
                for result in report.results:
                    self._emit(names.event_attributes(report, result), context, ended, evaluated)
        return ExportResult.ok()

    def flush(self, timeout_s: float) -> bool:
        """Flush the provider; False if it did not finish in time."""
        flush = getattr(self._provider, "force_flush", None)
        return flush is None or flush(int(timeout_s * 1000)) is not False

    def close(self, timeout_s: float) -> None:
        """Flush. The owner of the provider shuts it down."""
        self.flush(timeout_s)


def _emitter(logger: Any) -> _Emit:
    """How this version of the API takes an event."""
    if "event_name" in inspect.signature(logger.emit).parameters:

        def by_keywords(attributes: dict[str, Any], context: Context, at_ns: int, observed_ns: int) -> None:
            logger.emit(
                timestamp=at_ns,
                observed_timestamp=observed_ns,
                context=context,
                attributes=attributes,
                event_name=names.EVENT_NAME,
                **_SEVERITY,
            )

        return by_keywords
    return _by_record(logger)


def _by_record(logger: Any) -> _Emit:
    record, accepted = _record_class()

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


def _record_class() -> tuple[Any, frozenset[str]]:
    try:
        record: Any = sdk_logs.LogRecord  # type: ignore[attr-defined]  # until 1.38
    except AttributeError:
        from opentelemetry._logs import LogRecord as record
    return record, frozenset(inspect.signature(record.__init__).parameters)
