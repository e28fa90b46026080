"""Exports scores as `gen_ai.evaluation.result` events through the OpenTelemetry providers of the
process.

A provider is looked up at the first result, and again while it is missing: programs configure
logging before or after tracing.

Events are log events in the context of the run, or events of an evaluation span. Log records are
the SDK's own until 1.38, later the API's; they have an event name from 1.35 on, before that an
attribute `event.name`.

Ended spans cannot be changed, so events on spans need a span of their own. It is a child of the
run's span, so that it is shown in the run's trace, and it starts and ends at the run's end, so that
the duration of the trace does not change. Its link is what OpenInference requires of evaluations
after the fact (spec/annotations.md).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final

from opentelemetry._logs import LogRecord, SeverityNumber, get_logger_provider
from opentelemetry.context import Context
from opentelemetry.metrics import get_meter_provider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, Tracer
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, StatusCode, get_current_span, get_tracer_provider

from otel_eval.counters import Counters, Warnings
from otel_eval.exporters import Exporter, ProviderExporter
from otel_eval.exporters import attributes as names
from otel_eval.exporters.attributes import PLAIN, SIGNALS, ResultFormat
from otel_eval.exporters.metrics import MetricsExporter
from otel_eval.exporters.window import WindowLimits
from otel_eval.interfaces import RunSource, Scorer
from otel_eval.model import Failed, Report
from otel_eval.retry import ExportResult, suppress_instrumentation
from otel_eval.sdk_internals import has_no_processor, is_shut_down

# Imported here and not where they are used: if a process forks while a thread imports, the child
# has half a module.


_API: Final = ("opentelemetry._logs", "opentelemetry.trace", "opentelemetry.metrics")


def is_real(provider: Any) -> bool:
    """Whether a provider was configured: it is neither None nor one of the API's proxies and
    no-ops.
    """
    return provider is not None and not type(provider).__module__.startswith(_API)


def global_tracer_provider() -> Any:
    """The global tracer provider; None if none was set."""
    return _real(get_tracer_provider())


def sampler_of(provider: Any) -> str:
    """The description of a tracer provider's sampler, or "unknown"."""
    sampler: Any = getattr(provider, "sampler", None)
    return str(sampler.get_description()) if hasattr(sampler, "get_description") else "unknown"


def _real(provider: Any) -> Any:
    return provider if is_real(provider) else None


_MISSING: Final = {
    "logs": (
        "no logger provider with a processor; configure a LoggerProvider with a processor"
        " (opentelemetry._logs.set_logger_provider) or pass logger_provider"
    ),
    "metrics": (
        "no meter provider; configure a MeterProvider (opentelemetry.metrics.set_meter_provider) or"
        " pass meter_provider"
    ),
    "spans": (
        "no tracer provider with another processor; "
        "add a span processor with an exporter to the TracerProvider, pass tracer_provider, "
        "or name exporters in the configuration, e.g. exporters: {console: {}}"
    ),
}
_SHUT_DOWN: Final = (
    "the provider was shut down; shut the TracerProvider (or the processor) down first, so that the"
    " last scores still find their way"
)


class GlobalProvidersExporter(ProviderExporter):
    """Exports log events, metrics or spans through the given providers, or else through the
    process's own.

    Without `signals`: log events if there is a `LoggerProvider`, else an evaluation span; metrics
    if there is a `MeterProvider`. With `signals`: exactly these. A provider without processors
    counts as absent.

    Counts `results.undeliverable` by signal: results for which there was no provider, or one that
    was shut down.

    Args:
        signals: any of logs, metrics, spans; None: the signals for which there are providers.
        tracer_provider, logger_provider, meter_provider: used instead of the process's own.
        pipeline: returns the processors and the resource of the provider whose spans are evaluated,
            or None.
        counters: where `results.undeliverable` is counted.
        on_use: called when a provider is first used, so that exit hooks can be moved in front of
            the provider's.
        window: the limits of the metrics' sliding windows; None: there are none.
        form: what results carry besides the attributes of their events.
        only: whether there is no other exporter; then missing providers are reported although no
            signal was named.
    """

    name = "opentelemetry"

    def __init__(
        self,
        signals: Collection[str] | None = None,
        tracer_provider: Any = None,
        logger_provider: Any = None,
        meter_provider: Any = None,
        pipeline: Callable[[], tuple[Any, Any] | None] = lambda: None,
        *,
        counters: Counters | None = None,
        on_use: Callable[[], None] = lambda: None,
        window: WindowLimits | None = None,
        form: ResultFormat = PLAIN,
        only: bool = True,
    ) -> None:
        self._form: Final = form
        self._only: Final = only
        self._signals = None if signals is None else frozenset(signals)
        self._tracers, self._loggers, self._meters = (
            tracer_provider,
            logger_provider,
            meter_provider,
        )
        self._pipeline, self._on_use, self._window = pipeline, on_use, window
        self._counters: Final = counters if counters is not None else Counters()
        self._warnings: Final = Warnings()
        # signal → exporter, and the provider or pipeline behind it
        self._exporters: dict[str, tuple[Exporter, Any]] = {}
        self._makers: Final = {"logs": self._logs, "metrics": self._metrics, "spans": self._spans}

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Send the reports; `accepted` instead of `ok` if no signal has a provider, which is
        counted, and logged once.
        """
        results = [self._export(report) for report in batch]
        return ExportResult.ok() if any(results) else ExportResult("accepted")

    def expect(self, evaluation: str, scorers: Sequence[Scorer], source: RunSource) -> None:
        """Start the counters of these results at 0, if metrics are exported."""
        if self._signals is not None and "metrics" not in self._signals:
            return
        metrics = self._exporter_of("metrics")
        if metrics is not None and not is_shut_down(metrics[1]):
            metrics[0].expect(evaluation, scorers, source)

    def _export(self, report: Report) -> bool:
        failure: Exception | None = None
        accepted = False
        for signal in self._signals_in_use():
            try:
                accepted = self._send(signal, report) or accepted
            except Exception as error:  # noqa: BLE001
                # the failure of one signal must not affect the others; raised below
                failure = error
        if failure is not None:
            raise failure
        return accepted

    def _signals_in_use(self) -> tuple[str, ...]:
        if self._signals is not None:
            return tuple(signal for signal in SIGNALS if signal in self._signals)
        metrics = ("metrics",) if self._exporter_of("metrics") else ()
        if self._exporter_of("logs"):
            return ("logs", *metrics)
        return ("spans", *metrics) if self._only or self._exporter_of("spans") else metrics

    def _send(self, signal: str, report: Report) -> bool:
        exporter = self._exporter_of(signal)
        if exporter is None:
            subject, reason = signal, f"there is {_MISSING[signal]}"
        elif is_shut_down(exporter[1]):
            subject, reason = f"{signal} closed", _SHUT_DOWN
        else:
            exporter[0].export((report,))
            return True
        self._counters.add("results.undeliverable", len(report.results), signal=signal)
        self._warnings.once(subject, "scores cannot be sent as %s: %s", signal, reason)
        return False

    def _exporter_of(self, signal: str) -> tuple[Exporter, Any] | None:
        """The exporter of a signal and its provider; None if there is no provider, or one without
        processors.
        """
        if signal in self._exporters:
            return self._exporters[signal]
        created = self._makers[signal]()
        # Looked up again each time: with OTEL_LOGS_EXPORTER=none there is a provider to which
        # processors may be added.
        if created is None:
            return None
        self._exporters[signal] = created
        self._on_use()
        return created

    def _logs(self) -> tuple[Exporter, Any] | None:
        provider = self._loggers if self._loggers is not None else _real(get_logger_provider())
        if provider is None or has_no_processor(provider):
            return None
        return LogEventExporter(provider, self._form), provider

    def _metrics(self) -> tuple[Exporter, Any] | None:
        provider = self._meters if self._meters is not None else _real(get_meter_provider())
        if provider is None:
            return None
        exporter = MetricsExporter(
            provider,
            window=self._window,
            by_version=self._form.by_version,
            counters=self._counters,
        )
        return exporter, provider

    def _spans(self) -> tuple[Exporter, Any] | None:
        if self._tracers is not None:
            return self._span_exporter(self._tracers)
        # The SDK does not give a processor its provider; the other processors and the resource are
        # what can be found of it.
        origin = self._pipeline()
        if origin is not None:
            if has_no_processor(origin[0]):
                return None
            try:
                # flushed by the provider that flushes us
                return SpanExporter(pipeline_tracer(*origin), form=self._form), origin[0]
            except (TypeError, AttributeError, ImportError):
                pass  # in this version of the SDK tracers are created in another way
        provider = global_tracer_provider()
        return self._span_exporter(provider) if provider is not None else None

    def _span_exporter(self, provider: Any) -> tuple[Exporter, Any] | None:
        if has_no_processor(provider):
            return None
        tracer = provider.get_tracer(*names.INSTRUMENTATION_SCOPE)
        return SpanExporter(tracer, provider, self._form), provider

    def flush(self, timeout_s: float) -> bool:
        """Flush every provider in use; False if one did not finish in time. The program shuts them
        down.
        """
        delivered = [exporter.flush(timeout_s) for exporter, _ in list(self._exporters.values())]
        return all(delivered)


class SpanExporter(ProviderExporter):
    """Exports one span per report, with one `gen_ai.evaluation.result` event per result.

    Args:
        tracer: creates the spans; from a provider, or from `pipeline_tracer`.
        provider: the tracer's provider, which is flushed; None if that is done elsewhere.
        form: what spans carry besides the attributes that their results share.
    """

    name = "spans"

    def __init__(self, tracer: Any, provider: Any = None, form: ResultFormat = PLAIN) -> None:
        self._tracer, self._provider, self._form = tracer, provider, form

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Create a span for each report that has results. It starts and ends when the run ended."""
        with suppress_instrumentation():
            for report in batch:
                if report.results:
                    self._make_span(report)
        return ExportResult.ok()

    def _make_span(self, report: Report) -> None:
        context, ended = names.run_context(report.trajectory), names.run_ended_ns(report)
        run = get_current_span(context).get_span_context()
        shared, name_of = names.run_attributes(report), self._form.name_of
        scores = names.score_attributes(report, name_of) if name_of else {}
        span = self._tracer.start_span(
            f"evaluate {report.evaluation}",
            context=context,
            attributes={names.SPAN_KIND: names.EVALUATOR} | shared | scores,
            links=[Link(run)] if run.is_valid else [],
            start_time=ended,
        )
        for result in report.results:
            span.add_event(names.EVENT_NAME, shared | names.result_attributes(result), ended)
        if any(isinstance(result.outcome, Failed) for result in report.results):
            span.set_status(StatusCode.ERROR)
        span.end(ended)


class _OwnIds(RandomIdGenerator):
    """Generates ids without the global random generator, whose state must not change and whose seed
    would repeat them.
    """

    _random: Final = random.SystemRandom()

    def generate_span_id(self) -> int:
        """64 random bits, not all zero."""
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        """128 random bits, not all zero."""
        return self._random.getrandbits(128) or 1


def pipeline_tracer(pipeline: Any, resource: Resource) -> Tracer:
    """Create a tracer for the processors of a provider to which there is no reference.

    Raises:
        TypeError: in this version of the SDK tracers are created in another way.
    """
    scope = InstrumentationScope(*names.INSTRUMENTATION_SCOPE)
    no_info: Any = None  # the scope's deprecated predecessor, which warns when made
    return Tracer(
        sampler=ALWAYS_ON,
        resource=resource,
        span_processor=pipeline,
        id_generator=_OwnIds(),
        instrumentation_info=no_info,
        span_limits=SpanLimits(),
        instrumentation_scope=scope,
    )


class LogEventExporter(ProviderExporter):
    """Exports one `gen_ai.evaluation.result` log event per result.

    Args:
        logger_provider: an SDK `LoggerProvider`.
        form: what events carry besides their attributes.
    """

    name = "logs"

    def __init__(self, logger_provider: Any, form: ResultFormat = PLAIN) -> None:
        self._provider, self._form = logger_provider, form
        self._logger: Final = logger_provider.get_logger(*names.INSTRUMENTATION_SCOPE)
        is_of_api = "event_name" in inspect.signature(self._logger.emit).parameters  # from 1.38 on
        self._record: Any = LogRecord
        if not is_of_api:
            # The provider has loaded it. A program without one saves the 10 ms that it takes.
            from opentelemetry.sdk import _logs as sdk_logs

            self._record = sdk_logs.LogRecord  # type: ignore[attr-defined]
        self._accepted: Final = inspect.signature(self._record.__init__).parameters

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Emit the events of each report in its run's context, at the run's end; they were observed
        when it was evaluated.
        """
        with suppress_instrumentation():
            for report in batch:
                self._emit(report)
        return ExportResult.ok()

    def _emit(self, report: Report) -> None:
        context = names.run_context(report.trajectory)
        shared = names.run_attributes(report)
        shared |= names.page_attributes(self._form.page, report.trajectory)
        fields: dict[str, Any] = {
            "timestamp": names.run_ended_ns(report),
            "observed_timestamp": names.evaluated_ns(report),
        }
        if "event_name" in self._accepted:
            fields["event_name"] = names.EVENT_NAME
        else:
            shared[names.EVENT_NAME_ATTRIBUTE] = names.EVENT_NAME
        if "resource" in self._accepted:
            # left out, the record detects the machine's: 2 ms each
            fields["resource"] = self._logger.resource
        fields |= {"context": context} if "context" in self._accepted else _ids(context)
        number, text = 9, "INFO"
        for result in report.results:
            if self._form.log_body:
                number, text = names.log_severity(result)
                fields["body"] = names.log_line(report, result)
            record = self._record(
                **fields,
                severity_number=SeverityNumber(number),
                severity_text=text,
                attributes=shared | names.result_attributes(result),
            )
            self._logger.emit(record)


def _ids(context: Context) -> dict[str, Any]:
    span = get_current_span(context).get_span_context()
    return {"trace_id": span.trace_id, "span_id": span.span_id, "trace_flags": span.trace_flags}
