"""Bytes of spans are limited in a process: `max_bytes` and `max_bytes_per_trace`."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry import trace
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.util import BoundedList

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.sources.inprocess.live_traces import EndedSpans, InProcessLimits
from otel_eval.sources.inprocess.memory_limiter import SpanMemoryLimiter, _open_size
from otel_eval.sources.inprocess.processor import InProcessSource
from otel_eval.sources.inprocess.recorder import Recorder, SpanCallbacks
from otel_eval.sources.inprocess.sdk_spans import SdkSpan, keep, size_of
from tests.support.waiting import wait_until

MIB = 2**20
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
EVALUATIONS = [
    {"name": "e", "scorers": [{"type": "tool_call_count", "criteria": {"search": "== 3"}}]}
]
ORDER = 280  # bytes that assembly adds for each span


def tools(tracer: Any, parent: Any, count: int, size: int) -> None:
    context = trace.set_span_in_context(parent)
    for n in range(count):
        text = f"{n} ".ljust(size, "x")
        tracer.start_span(
            "execute_tool search",
            context=context,
            attributes={**TOOL, "gen_ai.tool.call.arguments": text},
        ).end()


class Program:
    """A provider with our processor whose results go to a file."""

    def __init__(self, results: Path, **traces: Any) -> None:
        exporters = {"jsonl": {"path": str(results)}}
        self.processor = EvalSpanProcessor(
            {"traces": traces, "evaluations": EVALUATIONS, "exporters": exporters}
        )
        self.provider = TracerProvider(shutdown_on_exit=False)
        self.provider.add_span_processor(self.processor)
        self.tracer = self.provider.get_tracer("app")
        self.results = results

    def rows(self) -> list[dict[str, Any]]:
        self.processor.force_flush()
        return [json.loads(line) for line in self.results.read_text().splitlines()]


@pytest.mark.parametrize(
    "way",
    [
        "processor",
        "exporter",
        *(
            pytest.param(way, marks=pytest.mark.slow)
            for way in ("threads", "asyncio", "detached", "unended", "slow")
        ),
    ],
)
def test_spans_of_540_mb_do_not_take_that(way: str, tmp_path: Path):
    """`max_bytes: 32MiB`, 9,000 spans of 60 kB as fast as they can be made: the program's memory
    grew by 541 MiB.
    """
    command = [
        sys.executable,
        str(Path(__file__).with_name("memory_program.py")),
        way,
        str(tmp_path / "results.jsonl"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = json.loads(done.stdout)
    assert found["grew_mib"] < 250, done.stdout
    assert (
        found["counts"].get("callback_errors", 0) == found["counts"].get("handover_errors", 0) == 0
    )


def test_a_trace_beyond_its_limit_has_the_receivers_result(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Outcome, reason, explanation and completeness; the root ends later and changes nothing. One
    warning names the key.
    """
    limits = {"max_bytes_per_trace": "1MiB", "max_bytes": "100MiB"}
    program = Program(tmp_path / "here.jsonl", **limits)
    sent = InMemorySpanExporter()
    program.provider.add_span_processor(SimpleSpanProcessor(sent))
    with program.tracer.start_as_current_span("invoke_agent a", attributes=AGENT) as root:
        tools(program.tracer, root, 20, 100_000)
        wait_until(lambda: program.processor.counts()["spans_over_limit"] > 0)
    here = program.rows()
    program.provider.shutdown()
    assert len(warnings(caplog, "raise the limit", "traces.max_bytes_per_trace")) == 1
    there = received(
        [sent.get_finished_spans()[:-1], sent.get_finished_spans()[-1:]],
        tmp_path / "there.jsonl",
        limits,
    )
    assert summary(here) == summary(there)
    assert summary(here) == [
        (
            "skipped",
            "incomplete",
            "incomplete: more than 1048576 bytes (traces.max_bytes_per_trace)",
            "overflow",
        )
    ]


def summary(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [
        (row["outcome"], row["reason"], row["explanation"], row["completeness"]) for row in rows
    ]


def received(requests: list[Any], results: Path, limits: Any) -> list[dict[str, Any]]:
    """What `otel-eval serve` makes of the spans, one request after the other."""
    protocols = {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    traces = {"decision_wait": 0, "decision_wait_partial": 0, "decision_wait_detached": 0, **limits}
    config = {
        "traces": traces,
        "evaluations": EVALUATIONS,
        "exporters": {"jsonl": {"path": str(results)}},
    }
    server = Server(load({**config, "receivers": {"otlp": {"protocols": protocols}}}))
    try:
        with grpc.insecure_channel(server.start().grpc) as channel:
            export = channel.unary_unary(
                "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
            )
            for spans in requests:
                export(encode_spans(spans).SerializeToString(), timeout=300)
                wait_until(lambda: not server.counts()["open_traces"])
    finally:
        server.stop(60.0)
    return [json.loads(line) for line in results.read_text().splitlines()]


def test_beyond_max_bytes_the_oldest_trace_is_evaluated_early_and_once_more_at_its_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The newer trace is not touched; one warning names key and remedy."""
    program = Program(
        tmp_path / "results.jsonl", max_bytes_per_trace="1MiB", max_bytes="1MiB", grace_period="1m"
    )
    old = program.tracer.start_span("invoke_agent a", attributes=AGENT)
    tools(program.tracer, old, 3, 100_000)
    new = program.tracer.start_span("invoke_agent a", attributes=AGENT)
    for _ in range(3):
        tools(program.tracer, new, 1, 250_000)
    for count, ending in enumerate((new, old), 1):
        wait_until(lambda: program.processor.counts()["reports"] == count)  # noqa: B023
        ending.end()
    assert program.processor.counts()["traces_evicted"] == 1
    rows = {
        (row["trace_id"], row["revision"]): row
        for row in program.rows()
        if row["outcome"] != "no_run"
    }
    ids = [f"{span.get_span_context().trace_id:032x}" for span in (old, new)]
    assert (rows[ids[1], 0]["value"], rows[ids[1], 0]["completeness"]) == (1.0, "complete")
    assert (rows[ids[0], 0]["outcome"], rows[ids[0], 0]["completeness"]) == ("skipped", "overflow")
    program.provider.shutdown()
    assert len(warnings(caplog, "raise it", "traces.max_bytes")) == 1


def warnings(caplog: pytest.LogCaptureFixture, *words: str) -> list[str]:
    """The messages that were logged and have these words."""
    return [
        text
        for each in caplog.records
        if all(word in (text := each.getMessage()) for word in words)
    ]


@pytest.mark.parametrize(
    ("limits", "words"),
    [({}, "traces.max_bytes "), ({"max_bytes_per_trace": "500KiB"}, "max_bytes_per_trace")],
)
def test_the_exporter_warns_too(
    limits: dict[str, str], words: str, caplog: pytest.LogCaptureFixture
):
    """Once, with key and remedy."""
    traces = {"max_bytes": "1MiB", "max_bytes_per_trace": "1MiB", **limits}
    exporter = EvalSpanExporter(
        InMemorySpanExporter(), {"traces": traces, "evaluations": EVALUATIONS}
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    for root in [tracer.start_span("invoke_agent a", attributes=AGENT) for _ in range(2)]:
        tools(tracer, root, 8, 100_000)
    provider.shutdown()
    assert len(warnings(caplog, "raise", words)) == 1


def test_spans_that_never_end_count(tmp_path: Path):
    """They are held by nothing else; their trace is closed and they are freed."""
    program = Program(tmp_path / "results.jsonl", max_bytes_per_trace="1MiB", max_bytes="1MiB")
    root = program.tracer.start_span("invoke_agent a", attributes=AGENT)
    for n in range(30):
        program.tracer.start_span(
            "leak", context=trace.set_span_in_context(root), attributes={"key": f"{n}" * 60_000}
        )
    wait_until(lambda: program.processor.counts().get("traces_evicted", 0) >= 1)
    wait_until(lambda: program.processor.counts()["held_bytes"] < MIB)
    program.provider.shutdown()


def test_what_waits_for_a_slow_scorer_is_limited_to_half(caplog: pytest.LogCaptureFixture):
    """Whole traces are dropped and counted, and one warning names key and remedy; no caller
    waits.
    """
    served, serving = threading.Event(), threading.Event()

    def handover(*_: Any) -> None:
        serving.set()
        served.wait(300)

    source = InProcessSource(
        handover, tick_s=0.01, limits=InProcessLimits(max_bytes=MIB, max_bytes_per_trace=MIB // 2)
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(source)
    tracer = provider.get_tracer("app")
    for _ in range(40):
        root = tracer.start_span("root")
        tools(tracer, root, 1, 100_000)
        root.end()
        serving.wait(300)
        wait_until(
            lambda: not any(len(each.spans) > each.measured for each in source._recorder.entries())
        )
    counts = source.counts()
    assert 30 < counts["traces_dropped"] < 40
    assert counts["held_bytes"] < 0.8 * MIB
    served.set()
    source.force_flush()
    assert source._recorder.waiting_bytes == 0
    source.shutdown()
    assert len(warnings(caplog, "raise it", "traces.max_bytes")) == 1


def test_what_was_scored_is_released_at_once_if_nothing_of_its_trace_is_open(tmp_path: Path):
    """It is not kept for late spans; a later span of the trace gets a row of its own."""
    program = Program(tmp_path / "results.jsonl")
    with program.tracer.start_as_current_span("invoke_agent a", attributes=AGENT) as root:
        tools(program.tracer, root, 3, 100_000)
    assert [row["outcome"] for row in program.rows()] == ["scored"]
    assert program.processor._core.counts()["held_bytes"] == 0
    program.provider.shutdown()


# ---------------------------------------------------------------------- the limiter, called by hand


class MeasuredText(str):
    """A text that counts how often it is measured."""

    measured = 0

    def __sizeof__(self) -> int:
        self.measured += 1
        return super().__sizeof__()


@pytest.fixture
def recorder() -> Recorder:
    return Recorder(
        InProcessLimits(max_bytes=MIB, max_bytes_per_trace=MIB),
        put=lambda _: None,
        on_first_span=lambda _: None,
        is_agent=lambda _: False,
        many=lambda: None,
    )


def begin(recorder: Recorder) -> tuple[Any, Any]:
    """An open trace: its root, and what the recorder holds of it."""
    root = TracerProvider(shutdown_on_exit=False).get_tracer("app").start_span("root")
    SpanCallbacks(recorder).on_start(root)
    return root, recorder.entries()[-1]


def end(recorder: Recorder, root: Any, size: int = 0) -> SdkSpan:
    """End a span of the trace; returns what is kept of it."""
    context = trace.SpanContext(
        root.context.trace_id, time.perf_counter_ns(), False, root.context.trace_flags
    )
    attributes = BoundedAttributes()
    attributes._dict = {"key": MeasuredText("x" * size)}
    span = ReadableSpan(
        "span",
        context=context,
        parent=root.context,
        attributes=attributes,
        events=BoundedList(1),
        start_time=time.time_ns(),
    )
    SpanCallbacks(recorder).on_end(span)
    return keep(span)


def times_measured(span: SdkSpan) -> int:
    """How often the attributes of a span were measured."""
    text = span.recorded_attributes["key"]
    assert isinstance(text, MeasuredText)
    return text.measured


def test_each_ended_span_is_measured_once(recorder: Recorder):
    """However often the limiter runs."""
    limiter = SpanMemoryLimiter(recorder, recorder.limits, lambda _: None)
    root, entry = begin(recorder)
    spans = []
    for _ in range(10):
        spans.append(end(recorder, root, 1000))
        limiter.enforce()
    assert list(map(times_measured, spans)) == [1] * 10
    assert entry.size == sum(map(size_of, spans)) + 10 * ORDER


def test_what_is_taken_out_while_it_is_measured_counts_no_longer(recorder: Recorder):
    """The worker takes the spans first."""
    root, entry = begin(recorder)
    end(recorder, root)
    removals = entry.removals
    recorder.submit_ended(entry)
    recorder.add_size(entry, removals, 1, 5000)
    assert (entry.size, entry.measured) == (0, 0)


def test_spans_that_wait_unmeasured_are_measured_there(recorder: Recorder):
    """Late spans are submitted one by one, before they are measured."""
    put: list[Any] = []
    recorder.reset(put.append)
    limiter = SpanMemoryLimiter(recorder, recorder.limits, lambda _: None)
    root, entry = begin(recorder)
    recorder.close(entry, "aged")
    late = end(recorder, root, 10_000)
    limiter.enforce()
    assert times_measured(late) == 1
    assert recorder.waiting_bytes == size_of(late) + ORDER
    (handed,) = put
    assert isinstance(handed, EndedSpans)
    recorder.take(handed)
    limiter.enforce()
    assert recorder.waiting_bytes == limiter.held_bytes == 0


def test_a_look_is_asked_for_after_as_many_spans_as_hold_an_eighth(recorder: Recorder):
    """Growth between two measurements does not depend on the clock."""
    asked: list[int] = []
    recorder = Recorder(
        recorder.limits,
        put=lambda _: None,
        on_first_span=lambda _: None,
        is_agent=lambda _: False,
        many=lambda: asked.append(1),
    )
    limiter = SpanMemoryLimiter(recorder, recorder.limits, lambda _: None)
    root, _ = begin(recorder)
    end(recorder, root, 4000)
    limiter.enforce()
    measured = size_of(end(recorder, root, 4000)) + _open_size(root) + ORDER
    for _ in range(1500):
        end(recorder, root)
    assert len(asked) == 1500 // (2 * (MIB // 8 * 2 // measured))


def test_what_is_kept_for_late_spans_makes_room_for_what_is_open(recorder: Recorder):
    """Both together are within `max_bytes`."""
    reserved: list[int] = []
    limiter = SpanMemoryLimiter(recorder, recorder.limits, reserved.append)
    root, entry = begin(recorder)
    end(recorder, root, 10_000)
    limiter.enforce()
    assert reserved == [limiter.held_bytes]
    assert reserved[0] > entry.size > 10_000
