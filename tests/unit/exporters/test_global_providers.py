"""Which of a process's providers export scores if none is configured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry._logs import NoOpLoggerProvider, get_logger_provider
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, get_value
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import ProxyTracerProvider

from otel_eval.counters import Counters, count_name
from otel_eval.exporters import ExportResult
from otel_eval.exporters import global_providers as providers
from otel_eval.exporters.global_providers import GlobalProvidersExporter
from otel_eval.model import Report
from otel_eval.sdk_internals import is_shut_down

Reports = Callable[..., Report]


class Counting:
    """A log exporter that counts, and notes whether instrumentations were to keep still."""

    def __init__(self) -> None:
        self.count = 0
        self.quiet: set[bool] = set()

    def export(self, batch: Any) -> None:
        self.count += len(batch)
        self.quiet.add(
            get_value(_SUPPRESS_INSTRUMENTATION_KEY) is True
            and get_value("suppress_instrumentation") is True
        )

    def shutdown(self) -> None:
        return


class Process:
    """Providers of each kind and what came out of them: (logs, spans, whether metrics)."""

    def __init__(self) -> None:
        self.logs, self.spans, self.reader = (
            Counting(),
            InMemorySpanExporter(),
            InMemoryMetricReader(),
        )
        self.loggers = LoggerProvider(shutdown_on_exit=False)
        self.loggers.add_log_record_processor(SimpleLogRecordProcessor(self.logs))
        self.tracers = TracerProvider(shutdown_on_exit=False)
        self.tracers.add_span_processor(SimpleSpanProcessor(self.spans))
        self.meters = MeterProvider(metric_readers=[self.reader], shutdown_on_exit=False)

    def came(self) -> tuple[int, int, bool]:
        return (
            self.logs.count,
            len(self.spans.get_finished_spans()),
            self.reader.get_metrics_data() is not None,
        )


@pytest.fixture
def process() -> Process:
    """A process that has everything."""
    return Process()


@pytest.mark.parametrize(
    ("signals", "given", "came"),
    [
        (None, "loggers tracers meters", (1, 0, True)),
        (None, "loggers tracers", (1, 0, False)),
        (None, "tracers meters", (0, 1, True)),
        (None, "tracers", (0, 1, False)),
        (["spans"], "loggers tracers meters", (0, 1, False)),
        (["logs", "spans"], "loggers tracers meters", (1, 1, False)),
        (["metrics"], "loggers tracers meters", (0, 0, True)),
        ([], "loggers tracers meters", (0, 0, False)),
    ],
)
def test_the_configured_providers_decide_unless_signals_are_named(
    report: Reports, process: Process, signals: Any, given: str, came: tuple[int, int, bool]
):
    """Log events before spans; metrics beside either."""
    named = {f"{kind[:-1]}_provider": getattr(process, kind) for kind in given.split()}
    sink = GlobalProvidersExporter(signals, **named)
    sink.export([report("scored")])
    assert process.came() == came


def test_the_pipeline_that_the_run_came_from_is_used_before_the_global_provider(
    report: Reports, process: Process
):
    """With the resource of its provider."""
    origin = (process.tracers._active_span_processor, Resource({"service.name": "shop"}))
    GlobalProvidersExporter(pipeline=lambda: origin).export([report("scored")])
    (span,) = process.spans.get_finished_spans()
    assert (span.resource.attributes["service.name"], span.instrumentation_scope.name) == (
        "shop",
        "otel_eval",
    )


def test_a_logger_provider_that_is_set_later_is_used(
    report: Reports, process: Process, monkeypatch: pytest.MonkeyPatch
):
    """Programs configure logging after tracing as often as before."""
    found: list[str] = []
    sink = GlobalProvidersExporter(
        tracer_provider=process.tracers, on_use=lambda: found.append("provider")
    )
    sink.export([report("scored")])
    monkeypatch.setattr(providers, "get_logger_provider", lambda: process.loggers)
    sink.export([report("scored")])
    assert process.came() == (1, 1, False)
    assert found == ["provider", "provider"]


def test_exports_are_not_traced_by_instrumentations(report: Reports, process: Process):
    """An exporter of HTTP would make spans of its own otherwise."""
    GlobalProvidersExporter(logger_provider=process.loggers).export([report("scored")])
    assert process.logs.quiet == {True}


def test_undeliverable_scores_are_counted_each_time_and_logged_once(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """With the remedy."""
    tally = Counters()
    sink = GlobalProvidersExporter(["logs"], counters=tally)
    for _ in range(3):
        sink.export([report("scored", "failed")])
    assert tally.get("results.undeliverable", signal="logs") == 6
    assert len(caplog.records) == 1
    assert "set_logger_provider" in caplog.records[0].getMessage()


def test_the_stand_ins_of_the_api_are_no_providers(process: Process):
    """Nor is a shut down one alive."""
    assert not any(
        providers.is_real(each)
        for each in (None, NoOpLoggerProvider(), ProxyTracerProvider(), get_logger_provider())
    )
    assert all(
        providers.is_real(each) for each in (process.loggers, process.tracers, process.meters)
    )


@pytest.mark.parametrize("kind", ["loggers", "tracers", "meters"])
def test_a_provider_that_was_shut_down_is_known_as_such(process: Process, kind: str):
    """The SDK drops what comes afterwards without a word."""
    process.tracers = TracerProvider(shutdown_on_exit=False)
    process.tracers.add_span_processor(BatchSpanProcessor(process.spans))
    provider = getattr(process, kind)
    before = is_shut_down(provider)
    provider.shutdown()
    assert (before, is_shut_down(provider)) == (False, True)


def test_a_logger_provider_without_processors_counts_as_absent(report: Reports, process: Process):
    """`OTEL_LOGS_EXPORTER=none` leaves one: it would drop every score. A processor that is added
    later is used.
    """
    empty, tally = LoggerProvider(shutdown_on_exit=False), Counters()
    sink = GlobalProvidersExporter(
        logger_provider=empty, tracer_provider=process.tracers, counters=tally
    )
    assert sink.export([report("scored")]) == ExportResult.ok()
    assert process.came()[:2] == (0, 1)
    empty.add_log_record_processor(SimpleLogRecordProcessor(process.logs))
    sink.export([report("scored")])
    assert process.came()[:2] == (1, 1)
    assert tally.snapshot() == {}


def test_scores_are_undeliverable_where_no_provider_has_a_processor(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """Neither a logger provider nor the run's own pipeline has a processor that could send them."""
    tally = Counters()
    alone = TracerProvider(shutdown_on_exit=False)
    pipeline = (alone._active_span_processor, Resource({}))
    sink = GlobalProvidersExporter(
        logger_provider=LoggerProvider(shutdown_on_exit=False),
        pipeline=lambda: pipeline,
        counters=tally,
    )
    assert sink.export([report("scored")]).status == "accepted"
    assert tally.snapshot() == {count_name("results.undeliverable", signal="spans"): 1}
    assert "no tracer provider with another processor" in caplog.records[0].getMessage()


def test_logs_that_were_asked_for_need_a_processor(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """The warning names what is missing."""
    tally = Counters()
    GlobalProvidersExporter(
        ["logs"], logger_provider=LoggerProvider(shutdown_on_exit=False), counters=tally
    ).export([report("scored")])
    assert tally.get("results.undeliverable", signal="logs") == 1
    assert "no logger provider with a processor" in caplog.records[0].getMessage()


def test_beside_other_exporters_a_process_without_providers_is_nothing_to_warn_of(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """A file of results was named, and that is enough."""
    tally = Counters()
    alone = TracerProvider(shutdown_on_exit=False)
    sink = GlobalProvidersExporter(
        pipeline=lambda: (alone._active_span_processor, Resource({})), counters=tally, only=False
    )
    assert sink.export([report("scored")]).status == "accepted"
    assert (tally.snapshot(), caplog.records) == ({}, [])
