"""The scores of the last run are exported, in whichever order providers and processors are set up
and however a program ends.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.support import traced_program
from tests.support.waiting import LIMIT_S

HERE = Path(__file__).parent


class KeptLogs:
    """A log exporter that keeps what it gets; all SDK versions accept it."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def export(self, batch: Any) -> Any:
        self.records.extend(batch)

    def shutdown(self) -> None:
        return

    def force_flush(self, timeout_millis: int = 0) -> bool:
        return True


def evaluations(exporter: InMemorySpanExporter) -> list[str]:
    return [
        span.name
        for span in exporter.get_finished_spans()
        if span.instrumentation_scope.name == "otel_eval"
    ]


class Spans(InMemorySpanExporter):
    """Keeps what it exported beyond its shutdown."""

    def shutdown(self) -> None:
        return


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "batch first"])
@pytest.mark.parametrize("batch", [True, False], ids=["batch", "simple"])
@pytest.mark.parametrize("flush", [True, False], ids=["flush then shutdown", "shutdown alone"])
def test_scores_of_the_last_run_leave_as_a_span_of_the_same_trace(
    ours_first: bool, batch: bool, flush: bool
):
    """Without any other provider the evaluation span goes out with the run's own spans."""
    exporter = Spans()
    program = traced_program.Program()
    provider = traced_program.provider_with(
        program.source, ours_first=ours_first, exporter=exporter, batch=batch
    )
    traced_program.run_agent(provider)
    if flush:
        assert provider.force_flush(300_000)
    provider.shutdown()
    assert evaluations(exporter) == ["evaluate e"]
    run, evaluated = (
        exporter.get_finished_spans()[-2:]
        if exporter.get_finished_spans()[-1].events
        else [None, None]
    )
    assert evaluated is not None
    assert (evaluated.context.trace_id, evaluated.attributes["openinference.span.kind"]) == (
        run.context.trace_id,
        "EVALUATOR",
    )


@pytest.mark.parametrize("ours_first", [True, False], ids=["ours first", "batch first"])
@pytest.mark.parametrize("flush", [True, False], ids=["flush then shutdown", "shutdown alone"])
def test_scores_of_the_last_run_leave_as_log_events_where_there_is_a_logger_provider(
    ours_first: bool, flush: bool
):
    """Given a logger provider, the scores are log events, delivered by our flush, and there is no
    span of ours.
    """
    kept, exporter = KeptLogs(), Spans()
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(BatchLogRecordProcessor(kept, schedule_delay_millis=60_000))
    program = traced_program.Program(logger_provider=logs)
    provider = traced_program.provider_with(
        program.source, ours_first=ours_first, exporter=exporter
    )
    traced_program.run_agent(provider)
    if flush:
        assert provider.force_flush(300_000)
        assert len(kept.records) == 1
    provider.shutdown()
    assert (len(kept.records), evaluations(exporter)) == (1, [])
    logs.shutdown()


# those that shut the provider down are tried in one process above
ENDS = [
    "exit",
    *(pytest.param(end, marks=pytest.mark.slow) for end in ("shutdown", "flush-shutdown")),
]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("first", ["ours", "batch"])
@pytest.mark.parametrize(
    ("whose", "signal", "when"),
    [
        ("own", "spans", "early"),
        ("global", "spans", "early"),
        ("own", "logs", "early"),
        ("global", "logs", "early"),
        ("global", "logs", "late"),
    ],
)
def test_scores_arrive_when_the_interpreter_ends(
    whose: str, first: str, signal: str, end: str, when: str
):
    """Also at exit, where the logger provider closes before the tracer provider."""
    out = end_program(whose, first, signal, end, when)
    wanted = "LOG gen_ai.evaluation.result" if signal == "logs" else "SPAN evaluate e 1"
    assert out.count(wanted) == 1, out
    assert out.count("SPAN invoke_agent a") == 1


def end_program(*arguments: str) -> str:
    env = os.environ | {"PYTHONPATH": str(HERE.parents[2])}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(HERE / "exit_program.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env=env,
        check=True,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout + done.stderr


def test_a_logger_provider_that_was_shut_down_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
):
    """Nothing can be sent through it any more; the warning tells the remedy."""
    logs = LoggerProvider(shutdown_on_exit=False)
    logs.add_log_record_processor(BatchLogRecordProcessor(KeptLogs(), schedule_delay_millis=60_000))
    program = traced_program.Program(logger_provider=logs)
    provider = traced_program.provider_with(program.source, ours_first=True)
    logs.shutdown()
    traced_program.run_agent(provider)
    traced_program.run_agent(provider)
    provider.shutdown()
    assert program.tally.get("results.undeliverable", signal="logs") == 2
    assert [
        record.getMessage()
        for record in caplog.records
        if "shut down; shut the TracerProvider" in record.getMessage()
    ] != []
    assert len([record for record in caplog.records if record.name == "otel_eval"]) == 1


def test_scores_with_no_provider_to_take_them_are_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
):
    """Metrics were asked for and there is no meter provider."""
    program = traced_program.Program(signals=["metrics"])
    provider = traced_program.provider_with(program.source, ours_first=True)
    traced_program.run_agent(provider)
    traced_program.run_agent(provider)
    provider.shutdown()
    assert program.tally.get("results.undeliverable", signal="metrics") == 2
    assert ["no meter provider" in record.getMessage() for record in caplog.records] == [True]


def test_a_provider_that_flushes_itself_through_us_does_not_recurse():
    """The provider that our spans are to go through is the one we are added to."""
    from opentelemetry.sdk.trace import TracerProvider

    provider, exporter = TracerProvider(shutdown_on_exit=False), Spans()
    program = traced_program.Program(tracer_provider=provider)
    provider.add_span_processor(program.source)
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    traced_program.run_agent(provider)
    assert provider.force_flush(300_000)
    assert evaluations(exporter) == ["evaluate e"]
    provider.shutdown()


def test_scores_leave_with_the_concurrent_pipeline_too():
    """It shuts processors down side by side, so a run is scored before its root's end returns."""
    from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, TracerProvider

    provider = TracerProvider(
        shutdown_on_exit=False, active_span_processor=ConcurrentMultiSpanProcessor(2)
    )
    exporter, program = Spans(), traced_program.Program()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    provider.add_span_processor(program.source)
    traced_program.run_agent(provider)
    provider.shutdown()
    assert evaluations(exporter) == ["evaluate e"]


def test_threads_that_share_a_concurrent_pipeline_do_not_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
):
    """Each thread of its pool would otherwise wait for scores, and none would be left to export
    them.
    """
    from opentelemetry.sdk.trace import ConcurrentMultiSpanProcessor, TracerProvider

    monkeypatch.setattr("otel_eval.sources.inprocess.processor._AT_ONCE_S", 2 * LIMIT_S)
    provider = TracerProvider(
        shutdown_on_exit=False, active_span_processor=ConcurrentMultiSpanProcessor(2)
    )
    exporter, program = Spans(), traced_program.Program()
    provider.add_span_processor(BatchSpanProcessor(exporter, schedule_delay_millis=60_000))
    provider.add_span_processor(program.source)
    traced_program.run_agent(provider)  # its scores find the way
    began = time.monotonic()
    with ThreadPoolExecutor(6) as threads:
        list(threads.map(lambda _: traced_program.run_agent(provider), range(30)))
    assert time.monotonic() - began < LIMIT_S
    assert program.source.force_flush(300_000)
    provider.shutdown()
    assert evaluations(exporter) == ["evaluate e"] * 31
