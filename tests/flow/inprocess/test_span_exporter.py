"""Children are exported at once, a run's own span later with its scores, and no span is lost."""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import (
    BatchSpanProcessor,
    SimpleSpanProcessor,
    SpanExporter,
    SpanExportResult,
)
from opentelemetry.trace import SpanKind

from otel_eval import ConfigError, EvalSpanExporter, EvalSpanProcessor
from tests.support import agent_programs
from tests.support.waiting import STAYS_OPEN

RESULT = "gen_ai.evaluation.result"
AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


class Backend(SpanExporter):
    """Keeps what it gets, tells whether it was ever called by two threads at once, and may be told
    to fail.
    """

    def __init__(self) -> None:
        self.spans: list[ReadableSpan] = []
        self.stopped = self.overlapped = False
        self.answer: Callable[[Sequence[ReadableSpan]], SpanExportResult] = lambda _: (
            SpanExportResult.SUCCESS
        )
        self._busy = threading.Lock()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not self._busy.acquire(blocking=False):
            self.overlapped = True
            return SpanExportResult.FAILURE
        try:
            time.sleep(0.002)
            self.spans.extend(spans)
            return self.answer(spans)
        finally:
            self._busy.release()

    def shutdown(self) -> None:
        self.stopped = True

    def names(self) -> list[str]:
        return [span.name for span in self.spans]


def results(span: ReadableSpan) -> list[str]:
    return [
        str((event.attributes or {})["gen_ai.evaluation.name"])
        for event in span.events
        if event.name == RESULT
    ]


def traced(exporter: SpanExporter, **options: Any) -> tuple[TracerProvider, Any]:
    provider = TracerProvider(shutdown_on_exit=False, **options)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, provider.get_tracer("app")


def run_agent(tracer: Any, name: str = "agent") -> None:
    with (
        tracer.start_as_current_span(name, attributes=AGENT),
        tracer.start_as_current_span("tool", attributes=TOOL),
    ):
        pass


def test_a_root_leaves_by_itself_with_its_scores(until: Any):
    """The child is there before the root ended, the root after it settled."""
    backend = Backend()
    provider, tracer = traced(EvalSpanExporter(backend))
    with tracer.start_as_current_span("agent", attributes=AGENT):
        with tracer.start_as_current_span("tool", attributes=TOOL):
            pass
        assert backend.names() == ["tool"]
    assert backend.names() == ["tool"]
    until(lambda: len(backend.spans) == 2)
    assert [results(span) for span in backend.spans] == [[], ["tool_errors", "time_cost"]]
    provider.shutdown()
    assert backend.stopped


@pytest.mark.parametrize("asked", [True, False])
def test_scores_are_attributes_of_the_root_where_asked(asked: bool):
    """With those that it had, and without a change of the span of the program."""
    backend, kept = Backend(), Backend()
    settings = {"results": {"score_attributes": asked}}
    provider, tracer = traced(EvalSpanExporter(backend, settings))
    provider.add_span_processor(SimpleSpanProcessor(kept))
    run_agent(tracer)
    provider.shutdown()
    added = {
        "otel_eval.verdict.default": "pass",
        "otel_eval.score.tool_errors": 1.0,
        "otel_eval.label.tool_errors": "pass",
    }
    attributes = dict(backend.spans[-1].attributes or {})
    assert attributes.items() >= AGENT.items()
    assert (attributes.items() >= added.items()) is asked
    assert kept.spans[-1].attributes == AGENT


@pytest.mark.parametrize("end", ["force_flush", "shutdown"])
def test_flush_and_shutdown_bring_the_scores_out_at_once(end: str):
    """However long the configuration would have waited."""
    backend = Backend()
    exporter = EvalSpanExporter(backend, {"traces": STAYS_OPEN})
    provider, tracer = traced(exporter)
    run_agent(tracer)
    getattr(exporter, end)()
    assert results(backend.spans[-1]) == ["tool_errors", "time_cost"]
    assert (backend.names(), backend.stopped) == (["tool", "agent"], end == "shutdown")
    provider.shutdown()
    exporter.shutdown()
    assert len(backend.spans) == 2


def test_the_agent_below_a_server_span_is_the_one_that_carries_scores():
    """The server's own span leaves as it was."""
    backend = Backend()
    provider, tracer = traced(EvalSpanExporter(backend))
    with tracer.start_as_current_span("POST /chat", kind=SpanKind.SERVER):
        run_agent(tracer)
    provider.shutdown()
    assert {span.name: len(results(span)) for span in backend.spans} == {
        "tool": 0,
        "agent": 2,
        "POST /chat": 0,
    }


def test_what_no_evaluation_matches_never_waits():
    """Another agent's span is exported where it ended."""
    backend = Backend()
    config = {
        "evaluations": [
            {"name": "e", "match": {"span": "planner"}, "scorers": [{"type": "tool_errors"}]}
        ]
    }
    provider, tracer = traced(EvalSpanExporter(backend, config))
    run_agent(tracer)
    assert backend.names() == ["tool", "agent"]
    provider.shutdown()


def test_a_span_below_something_endless_leaves_without_scores_in_time(until: Any):
    """Whether it is the run's own span cannot be told before what is around it has ended."""
    backend = Backend()
    exporter = EvalSpanExporter(backend, max_wait=0.1)
    provider, tracer = traced(exporter)
    with tracer.start_as_current_span("outer", attributes=AGENT):
        run_agent(tracer, "inner")
        until(lambda: backend.names() == ["tool", "inner"])
    provider.shutdown()
    assert {span.name: len(results(span)) for span in backend.spans} == {
        "tool": 0,
        "inner": 0,
        "outer": 2,
    }
    assert exporter.counts()["exporter.unscored_spans"] == 1


def test_what_the_sdk_dropped_stays_reported():
    """Counts of dropped attributes, events and links, and all that OTLP carries, are those of the
    span that ended.
    """
    plain, marked = Backend(), Backend()
    limits = SpanLimits(max_span_attributes=2, max_events=1)
    provider, tracer = traced(EvalSpanExporter(marked), span_limits=limits)
    provider.add_span_processor(SimpleSpanProcessor(plain))
    with tracer.start_as_current_span(
        "agent", attributes={"a": 1, "b": 2, "c": 3, **AGENT}
    ) as span:
        span.add_event("one")
        span.add_event("two")
    provider.shutdown()
    before, after = (
        encode_spans(backend.spans).resource_spans[0].scope_spans[0].spans[0]
        for backend in (plain, marked)
    )
    assert (after.dropped_attributes_count, after.dropped_events_count) == (2, 1)
    assert [event.name for event in after.events] == ["two", RESULT, RESULT]
    del after.events[1:]
    assert after == before


@pytest.mark.parametrize("how", ["raises", "refuses"])
def test_an_exporter_that_fails_on_roots_is_said_once_and_counted(
    how: str, caplog: pytest.LogCaptureFixture
):
    """Three runs, one line."""
    backend = Backend()

    def answer(spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if not any(results(span) for span in spans):
            return SpanExportResult.SUCCESS
        if how == "raises":
            raise OSError("no")
        return SpanExportResult.FAILURE

    backend.answer = answer
    # so that only the flushes export roots, and no thread before them
    exporter = EvalSpanExporter(backend, {"traces": STAYS_OPEN}, max_wait=600)
    provider, tracer = traced(exporter)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            run_agent(tracer)
            assert not exporter.force_flush()
    provider.shutdown()
    assert (
        len([record for record in caplog.records if "could not be exported" in record.message]) == 1
    )
    assert exporter.counts()["exporter.failed_spans"] == 3


def test_no_export_runs_beside_another():
    """Four threads that end spans, flushes between them, and roots that leave by themselves."""
    backend = Backend()
    exporter = EvalSpanExporter(backend, {"traces": {"decision_wait": "10ms"}})
    provider = TracerProvider(shutdown_on_exit=False)
    for _ in range(2):
        provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=5, max_export_batch_size=3)
        )
    tracer = provider.get_tracer("app")

    def work() -> None:
        for _ in range(15):
            run_agent(tracer)
            exporter.force_flush()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    # both processors: the first one's shutdown ends the exporter for the second
    provider.force_flush()
    provider.shutdown()
    assert not backend.overlapped
    assert len(backend.spans) == 2 * 4 * 15 * 2
    assert exporter.counts()["exporter.held_spans"] == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_scores_are_the_same_as_the_processors(seed: int, tmp_path: Path):
    """Equal result ids and values, and every span leaves exactly once. Spans older than the
    exporter: joined.
    """
    live = tmp_path / "live.jsonl"
    spans = agent_programs.play(
        seed,
        EvalSpanProcessor({**agent_programs.CONFIG, "exporters": {"jsonl": {"path": str(live)}}}),
        traces=6,
    )
    backend = Backend()
    exporter = EvalSpanExporter(backend, agent_programs.CONFIG)
    for at in range(0, len(spans), 5):
        exporter.export(spans[at : at + 5])
    exporter.shutdown()
    expected = {
        row["result_id"]: (row["value"], "joined")
        for row in map(json.loads, live.read_text().splitlines())
    }
    attributes = [
        event.attributes or {}
        for span in backend.spans
        for event in span.events
        if event.name == RESULT
    ]
    found = {
        str(each["otel_eval.result_id"]): (
            each.get("gen_ai.evaluation.score.value"),
            each["otel_eval.completeness"],
        )
        for each in attributes
    }
    assert found == expected
    assert sorted(s.context.span_id for s in backend.spans) == sorted(
        s.context.span_id for s in spans
    )


def test_a_root_that_comes_again_passes_at_once():
    """It is held no second time and never lost."""
    backend = Backend()
    exporter = EvalSpanExporter(backend)
    source = Backend()
    provider, tracer = traced(source)
    run_agent(tracer)
    provider.shutdown()
    exporter.export(source.spans)
    exporter.export(source.spans)
    exporter.shutdown()
    assert sorted(backend.names()) == ["agent", "agent", "tool", "tool"]


def test_held_spans_stay_within_what_assembly_may_hold():
    """The oldest run is evaluated on what it has when room is short."""
    backend = Backend()
    exporter = EvalSpanExporter(
        backend,
        {"traces": STAYS_OPEN | {"max_traces": 10}},
    )
    provider, tracer = traced(exporter)
    for _ in range(200):
        run_agent(tracer)
        exporter._core.step()
    assert exporter.counts()["exporter.held_spans"] <= 11
    provider.shutdown()
    assert len(backend.spans) == 400


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_exports_its_own_roots_only(tmp_path: Path):
    """What the parent held is the parent's."""
    backend = Backend()
    exporter = EvalSpanExporter(backend, {"traces": STAYS_OPEN})
    provider, tracer = traced(exporter)
    run_agent(tracer, "parent")
    written = tmp_path / "child"
    child = os.fork()
    if not child:
        try:
            backend.spans.clear()
            run_agent(tracer, "child")
            exporter.force_flush()
            written.write_text(
                " ".join(f"{span.name}:{len(results(span))}" for span in backend.spans)
            )
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    provider.shutdown()
    assert written.read_text() == "tool:0 child:2"
    assert [(span.name, len(results(span))) for span in backend.spans] == [
        ("tool", 0),
        ("parent", 2),
    ]


def test_a_wrong_configuration_is_refused_where_it_is_given():
    """One line that names the key."""
    with pytest.raises(ConfigError, match="evaluatoins"):
        EvalSpanExporter(Backend(), {"evaluatoins": []})


@pytest.mark.parametrize(
    ("inner", "more", "problem"),
    [
        (
            "eval.yaml",
            {},
            (
                r"^inner: 'eval\.yaml' is not a span exporter; write e\.g\. OTLPSpanExporter\(\),"
                r" then config$"
            ),
        ),
        (None, {}, r"^inner: None is not a span exporter"),
        (
            Backend(),
            {"max_wait": "30s"},
            r"^max_wait: '30s' is not a number of seconds; write e\.g\. 30$",
        ),
    ],
)
def test_an_argument_of_another_type_is_refused_at_once(
    inner: Any, more: dict[str, Any], problem: str
):
    """A configuration in place of the exporter would otherwise lose every span."""
    with pytest.raises(ConfigError, match=problem):
        EvalSpanExporter(inner, **more)
