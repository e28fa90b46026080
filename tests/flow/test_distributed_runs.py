"""Runs over several services, with pauses and export delays: whatever arrives first and however
late the rest is, the final results are those of a replay of the same spans. Default times.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from otel_eval import EvalSpanProcessor
from otel_eval.app.build import build_limits
from otel_eval.app.inprocess import _limits as exporter_limits
from otel_eval.assembly import Limits
from otel_eval.config import load
from otel_eval.counters import Counters
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.model import Report
from otel_eval.otlp import Encoding
from otel_eval.otlp.protobuf import read_traces
from otel_eval.pipeline import Pipeline
from otel_eval.sources.inprocess.sdk_spans import frames_of
from otel_eval.sources.kafka.offsets import Start
from otel_eval.sources.kafka.partition import Partition, Services
from otel_eval.sources.kafka.records import RecordReader, TopicRecord
from tests.support import distributed_runs
from tests.support.distributed_runs import AGENT, CHAT, CONFIG, FORMS, MCP, Run, tool
from tests.support.listening import Listener
from tests.support.partition_evaluation import ReportingEvaluation

DEFAULTS = load({})
STEP_S = 1.0  # of the driven clock
SETTLED_S = 70.0  # after which nothing of a run with its root is left to be evaluated

Arrivals = list[tuple[float, Run, list[str]]]
"""When which spans of a run arrive."""


def through_pipeline(limits: Limits, arrivals: Arrivals) -> list[Report]:
    """What a receiver, or the exporter in a process, reports."""
    reports, now = list[Report](), [0.0]
    listener = Listener(reports.append)
    pipeline = Pipeline(distributed_runs.engine(), listener, limits, clock=lambda: now[0])
    for at, run, names in sorted(arrivals, key=lambda arrival: arrival[0]):
        drive(pipeline, now, at)
        pipeline.spans(read_traces(run.body(names)).spans)
    drive(pipeline, now, now[0] + SETTLED_S)
    assert pipeline.counts()["spans_too_late"] == 0
    return reports


def drive(pipeline: Pipeline, now: list[float], until: float) -> None:
    while now[0] < until:
        now[0] = min(until, now[0] + STEP_S)
        while pipeline.step():
            pass


def through_receiver(arrivals: Arrivals) -> list[Report]:
    return through_pipeline(build_limits(DEFAULTS), arrivals)


def through_exporter(arrivals: Arrivals) -> list[Report]:
    return through_pipeline(exporter_limits(DEFAULTS), arrivals)


def through_kafka(arrivals: Arrivals) -> list[Report]:
    """What the owner of a partition reports; record times are in the past."""
    reports, began = list[Report](), time.time() - 100_000
    services = Services(
        "t",
        RecordReader(Encoding.PROTOBUF, 100_000, 100, needs_key=True),
        Counters(),
        None,
        60.0,
        3600.0,
        1000,
        Undelivered(),
    )
    evaluation = ReportingEvaluation(
        distributed_runs.engine(), reports.append, build_limits(DEFAULTS)
    )
    partition = Partition(0, "e", Start(0, 0), services, evaluation)
    last_s = began
    for offset, (at, run, names) in enumerate(sorted(arrivals, key=lambda arrival: arrival[0])):
        rest(partition, began + at - last_s)
        last_s = began + at
        key = run.trace_id.hex().encode()
        partition.process([TopicRecord(offset, last_s, key, run.body(names))])
    rest(partition, SETTLED_S)
    assert partition.watermark.low == len(arrivals), "every trace is finished"
    return reports


def rest(partition: Partition, for_s: float) -> None:
    """Pass time at the end of the partition."""
    partition.is_at_end = True
    for _ in range(int(for_s / 0.5)):
        partition.idle(0.5)
        partition.evaluate()


WAYS = {
    "receiver": through_receiver,
    "exporter in a process": through_exporter,
    "Kafka": through_kafka,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Callable[[Arrivals], list[Report]]:
    """A way in, which returns all reports on what arrives."""
    return WAYS[request.param]


@pytest.mark.parametrize("gap_s", [45.0, 480.0])
@pytest.mark.parametrize("form", FORMS)
def test_a_run_with_a_pause_is_scored_whatever_arrives_first(
    way: Callable[[Arrivals], list[Report]], form: str, gap_s: float
):
    """The spans of another service, or some of the agent's own; the others after the pause."""
    run = distributed_runs.paused_run(form, gap_s)
    rest = [name for name in run.spans if name not in FORMS[form]]
    reports = way([(0.0, run, FORMS[form]), (gap_s, run, rest)])
    distributed_runs.check(run, reports)
    assert run.replayed()["invoke_agent a"][0] == 1.0


def test_runs_of_services_that_export_late_are_scored_as_a_replay_scores_them(
    way: Callable[[Arrivals], list[Report]],
):
    """60 runs, each of whose services exports after 0 to 60 seconds."""
    rng, arrivals, runs = random.Random(7), Arrivals(), []
    for number in range(60):
        run = distributed_runs.random_run(number)
        runs.append(run)
        delays = {service: rng.uniform(0, 60) for service, _ in run.spans.values()}
        for name, (service, made) in run.spans.items():
            ended = number / 5 + made.end_time_unix_nano / 1e9
            arrivals.append((ended + delays[service], run, [name]))
    reports = way(arrivals)
    for run in runs:
        distributed_runs.check(run, reports)


class Program:
    """A program with an `EvalSpanProcessor`, some of whose spans serve callers elsewhere."""

    def __init__(self, results: Path) -> None:
        self.reports: list[Report] = []
        self.spans = InMemorySpanExporter()
        self.processor = EvalSpanProcessor(
            {**CONFIG, "exporters": {"jsonl": {"path": str(results)}}}
        )
        export = self.processor._exports.export
        self.processor._exports.export = lambda reports: (
            self.reports.extend(reports),
            export(reports),
        )
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.provider.add_span_processor(SimpleSpanProcessor(self.spans))
        self.tracer = self.provider.get_tracer("app")

    def start(self, name: str, parent: Any, attributes: Any, *, remote: bool = False) -> Any:
        """Start a span below another one; `remote`: as a service that was called."""
        if parent is not None and remote:
            context = parent.get_span_context()
            caller = SpanContext(
                context.trace_id, context.span_id, True, TraceFlags(TraceFlags.SAMPLED)
            )
            parent = NonRecordingSpan(caller)
        kind = SpanKind.SERVER if remote else SpanKind.INTERNAL
        below = api.set_span_in_context(parent) if parent is not None else None
        return self.tracer.start_span(name, below, kind, attributes)

    def pause(self, seconds: float) -> None:
        """Let the limits be checked as if the time had passed."""
        for share in (0.0, 0.5, 1.0):
            self.processor._recorder.sweep(time.monotonic() + share * seconds)
            self.processor.force_flush()


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    """A program that is shut down at the end."""
    found = Program(tmp_path / "results.jsonl")
    yield found
    found.provider.shutdown()


@pytest.mark.parametrize("gap_s", [45.0, 480.0, 1200.0])
@pytest.mark.parametrize("form", [form for form in FORMS if "the root" not in form])
def test_a_run_with_a_pause_in_one_process_is_scored_as_a_replay_scores_it(
    program: Program, form: str, gap_s: float
):
    """1,200 seconds are more than `idle_timeout`."""
    root = program.start("invoke_agent a", None, AGENT)
    if "model call" in form:
        program.start("chat m", root, CHAT).end()
    booking = program.start("execute_tool book", root, tool("book"))
    if "MCP" in form:
        program.start("tools/call book", booking, MCP | tool("book"), remote=True).end()
    elif "sub-agent" in form:
        sub = program.start("invoke_agent sub", booking, AGENT, remote=True)
        program.start("execute_tool look", sub, tool("look")).end()
        sub.end()
    else:
        program.start("POST /book", booking, {}, remote=True).end()
    program.pause(gap_s)
    booking.end()
    root.end()
    program.processor.force_flush()
    final = outcomes(program.reports)
    expected = outcomes(distributed_runs.evaluated(frames_of(program.spans.get_finished_spans())))
    assert {run: final.get(run) for run in expected} == expected
    assert all("part of run" in str(final[run]) for run in final.keys() - expected.keys())
    assert program.processor.counts()["spans_too_late"] == 0


def test_a_service_that_is_called_again_in_one_trace_scores_each_run(program: Program):
    """Nothing of the trace is open between the calls, so nothing is held; a span that is late for
    one of the runs gives one row that says so.
    """
    caller = NonRecordingSpan(
        SpanContext(1 << 100, 1 << 50, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    )
    for _ in range(2):
        run = program.start("invoke_agent sub", caller, AGENT, remote=True)
        program.start("execute_tool book", run, tool("book")).end()
        run.end()
        assert program.processor.force_flush(300_000)
        assert program.processor.counts()["held_bytes"] == 0
    passed = [(each.revision, each.results[0].outcome.passed) for each in program.reports]
    assert passed == [(0, True)] * 2
    for name in ("execute_tool look", "execute_tool fetch"):
        program.start(name, run, tool("look")).end()
        program.processor.force_flush()
    late = [each for each in program.reports if each.no_run]
    assert [(each.no_run and each.no_run.reason) for each in late] == ["late"]


def test_a_server_without_a_run_is_forgotten_when_its_last_span_ends(program: Program):
    """In one process no caller of it can arrive."""
    caller = NonRecordingSpan(
        SpanContext(1 << 100, 1 << 50, is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    )
    program.start("GET /", caller, {}, remote=True).end()
    assert program.processor.force_flush(300_000)
    assert [each.no_run and each.no_run.reason for each in program.reports] == [""]
    assert program.processor.counts()["held_bytes"] == 0


def outcomes(reports: list[Report]) -> dict[str, Any]:
    """The outcomes of the last revision of each run."""
    return {
        report.trajectory.span_id: [
            getattr(each.outcome, "value", None) or str(each.outcome) for each in report.results
        ]
        for report in reports
        if report.no_run is None
    }


def test_a_span_that_waits_without_a_run_keeps_its_name_place_and_times():
    """And the attributes that evaluations read of a run's own span."""
    run = distributed_runs.paused_run("a server span", 45.0)
    ((*_, frame, _),) = read_traces(run.body(["POST /book"])).spans
    judge = distributed_runs.engine()
    slim = judge.slim(frame)
    assert len(slim[1]) < len(frame[1])
    before, after = (each[2].reader(each[1]) for each in (frame, slim))
    for field in ("name", "span_kind", "parent_is_remote", "start_ns", "end_ns", "status_code"):
        assert getattr(before, field) == getattr(after, field)
    assert read_traces(run.body(["chat m"])).spans[0][2] == judge.slim(
        read_traces(run.body(["chat m"])).spans[0][2]
    )
