"""When a trace is closed, with which spans and for which reason: real SDK, real threads."""

from __future__ import annotations

import asyncio
import os
import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import Decision, Sampler, SamplingResult

from otel_eval.sources.inprocess.live_traces import InProcessLimits
from otel_eval.sources.inprocess.processor import InProcessSource
from tests.support.waiting import LIMIT_S, wait_until


class Traced:
    """A provider with our source, and the traces that it passed on: (trace id, sorted span names,
    why).
    """

    def __init__(self, *, add: bool = True, sampler: Any = None, **options: Any) -> None:
        self.handed: list[tuple[str, list[str], str]] = []
        self.may_hand_over = threading.Event()
        self.may_hand_over.set()
        self.source = InProcessSource(self.handover, tick_s=0.02, **options)
        self.provider = TracerProvider(shutdown_on_exit=False, sampler=sampler)
        self.tracer = self.provider.get_tracer("app")
        if add:
            self.add()

    def add(self) -> None:
        self.provider.add_span_processor(self.source)

    def handover(self, trace_id: bytes, frames: list[Any], why: str) -> None:
        assert threading.current_thread().name == "otel-eval-spans"
        assert self.may_hand_over.wait(LIMIT_S)
        self.handed.append(
            (trace_id.hex(), sorted(frame[1].name for _, _, frame, _ in frames), why)
        )

    def start(self, name: str, parent: Any = None) -> Any:
        return self.tracer.start_span(
            name, context=trace.set_span_in_context(parent) if parent is not None else None
        )

    def seen(self) -> list[tuple[list[str], str]]:
        self.source.force_flush()
        return [(names, why) for _, names, why in self.handed]

    def eventually(self, count: int) -> list[tuple[list[str], str]]:
        wait_until(lambda: len(self.handed) >= count)
        return self.seen()


@pytest.fixture
def traced() -> Iterator[Traced]:
    """A provider whose limits are not reached."""
    program = Traced()
    yield program
    program.source.shutdown()


def test_a_trace_is_handed_over_when_its_last_span_ends(traced: Traced):
    """Not before: the child outlives the root."""
    root = traced.start("root")
    child = traced.start("child", root)
    root.end()
    assert traced.seen() == []
    child.end()
    assert traced.seen() == [(["child", "root"], "closed")]


def test_a_span_that_starts_after_the_hand_over_comes_by_itself(traced: Traced):
    """The core makes a revision of it."""
    root = traced.start("root")
    root.end()
    traced.seen()
    traced.start("late", root).end()
    assert traced.seen() == [(["root"], "closed"), (["late"], "closed")]


def test_two_traces_do_not_wait_for_one_another(traced: Traced):
    """One stays open."""
    one, two = traced.start("one"), traced.start("two")
    two.end()
    assert traced.seen() == [(["two"], "closed")]
    one.end()
    assert len(traced.seen()) == 2


def test_shutdown_hands_over_what_is_open_and_takes_nothing_more(traced: Traced):
    """A second shutdown does nothing."""
    root = traced.start("root")
    traced.start("child", root).end()
    traced.provider.shutdown()
    root.end()
    traced.start("after").end()
    traced.source.shutdown()
    assert traced.seen() == [(["child"], "shutdown")]
    assert traced.source.counts()["spans_after_shutdown"] == 1 + 1


def test_our_own_spans_and_those_not_sampled_are_never_handed_over():
    """Neither alone nor within another's trace."""
    program = Traced(sampler=_RecordOnly())
    ours = program.provider.get_tracer("otel_eval")
    root = program.start("root")
    ours.start_span("evaluate", context=trace.set_span_in_context(root)).end()
    program.start("unsampled child", root).end()
    root.end()
    ours.start_span("evaluate alone").end()
    program.start("unsampled alone").end()
    assert program.seen() == [(["root"], "closed")]
    assert program.source.counts()["open_traces"] == 0
    program.source.shutdown()


class _RecordOnly(Sampler):
    """Samples what is not called unsampled, and records everything."""

    def should_sample(
        self, parent_context: Any, trace_id: int, name: str, *_: Any, **__: Any
    ) -> SamplingResult:
        return SamplingResult(
            Decision.RECORD_ONLY if name.startswith("unsampled") else Decision.RECORD_AND_SAMPLE
        )

    def get_description(self) -> str:
        return "record only"


def test_a_processor_added_in_the_middle_of_a_run_waits_for_its_root():
    """The parents started before us; we learn of them from the child that starts and from the
    parents that end.
    """
    program = Traced(add=False)
    root = program.start("root")
    agent = program.start("agent", root)
    early = program.start("early tool", agent)
    program = _added_now(program)
    early.end()
    with trace.use_span(agent):
        program.tracer.start_span("tool").end()
    assert program.seen() == []
    agent.end()
    assert program.seen() == []
    root.end()
    assert program.seen() == [(["agent", "early tool", "root", "tool"], "closed")]
    program.source.shutdown()


def _added_now(program: Traced) -> Traced:
    program.source.shutdown()
    program.source = InProcessSource(program.handover, tick_s=0.02)
    program.add()
    return program


def test_a_parent_of_another_provider_is_not_waited_for(traced: Traced):
    """Its end would not be known."""
    with TracerProvider(shutdown_on_exit=False).get_tracer("http").start_as_current_span("request"):
        traced.tracer.start_span("agent").end()
        assert traced.seen() == [(["agent"], "closed")]


def test_a_still_trace_is_handed_over_as_idle_and_its_rest_when_it_ends():
    """A run that waits for a person."""
    program = Traced(limits=InProcessLimits(idle_s=0.05))
    root = program.start("root")
    program.start("tool", root).end()
    assert program.eventually(1) == [(["tool"], "idle")]
    program.start("tool 2", root).end()
    root.end()
    assert program.seen()[-1] in [(["root", "tool 2"], "closed"), (["root"], "closed")]
    program.source.shutdown()


def test_a_trace_that_never_ends_is_handed_over_as_aged_and_forgotten():
    """A span that is never ended does not keep its trace forever."""
    program = Traced(limits=InProcessLimits(max_age_s=0.05))
    root = program.start("root")
    program.start("tool", root).end()
    assert program.eventually(1) == [(["tool"], "aged")]
    assert program.source.counts()["open_traces"] == 0
    program.source.shutdown()


def test_too_many_open_traces_cost_the_oldest():
    """It is submitted as overflow; spans of it that end later are submitted one by one, and other
    traces are complete.
    """
    program = Traced(limits=InProcessLimits(max_traces=2))
    roots = [program.start(f"root {n}") for n in range(3)]
    program.start("tool", roots[1]).end()
    roots.append(program.start("root 3"))
    assert program.source.counts()["open_traces"] == 2
    for root in roots:
        root.end()
    wanted = [
        (["root 0"], "closed"),
        (["root 1"], "closed"),
        (["root 2"], "closed"),
        (["root 3"], "closed"),
        (["tool"], "overflow"),
    ]
    assert sorted(program.seen()) == wanted
    program.source.shutdown()


def test_too_many_spans_of_a_trace_are_dropped_counted_and_logged():
    """What was dropped may have been a tool call, so the trace is marked as cut."""
    program = Traced(limits=InProcessLimits(max_spans_per_trace=3))
    root = program.start("root")
    for _ in range(5):
        program.start("tool", root).end()
    root.end()
    assert program.seen() == [(["tool"] * 3, "overflow")]
    assert program.source.counts()["spans_dropped"] == 3
    program.source.shutdown()


def test_spans_that_never_end_do_not_pile_up_in_one_trace():
    """The set of open spans is bounded as the spans are."""
    program = Traced(limits=InProcessLimits(max_spans_per_trace=3))
    root = program.start("root")
    program.start("tool", root).end()
    leaked = [program.start("leak", root) for _ in range(5)]
    assert program.eventually(1) == [(["tool"], "overflow")]
    assert leaked
    program.source.shutdown()


def test_a_judge_that_raises_loses_its_trace_only(caplog: pytest.LogCaptureFixture):
    """The next trace is passed on; the traced program sees nothing."""
    handed: list[int] = []

    def handover(trace_id: bytes, frames: list[Any], why: str) -> None:
        handed.append(len(frames))
        raise ValueError("secret content")

    source = InProcessSource(handover)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(source)
    for _ in range(2):
        provider.get_tracer("app").start_span("root").end()
    source.shutdown()
    assert (handed, source.counts()["handover_errors"]) == ([1, 1], 2)
    assert "secret" not in caplog.text


def test_callbacks_never_raise(traced: Traced):
    """Whatever they are given."""
    traced.source.on_start(None)
    traced.source.on_end(None)
    assert traced.source.counts()["callback_errors"] == 2


# ---------------------------------------------------------------------- many at once


def test_no_span_is_lost_or_doubled_when_threads_end_and_start_spans_of_one_trace_at_once():
    """Traces whose last spans end on two threads while another child starts: each span arrives
    exactly once.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    program = Traced()
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: _quarrel(program, n), range(8)))
        program.source.force_flush()
        made = {f"{n}.{m}.{k}" for n in range(8) for m in range(120) for k in range(4)}
        got = Counter(name for _, names, _ in program.handed for name in names)
        assert got == Counter(dict.fromkeys(made, 1))
        assert program.source.counts()["open_traces"] == 0
        assert {why for _, _, why in program.handed} == {"closed"}
    finally:
        sys.setswitchinterval(interval)
        program.source.shutdown()


def _quarrel(program: Traced, n: int) -> None:
    """Three spans of a trace end on threads of their own, one of which starts a fourth
    meanwhile.
    """
    for m in range(120):
        root = program.start(f"{n}.{m}.0")
        tools = [program.start(f"{n}.{m}.{k}", root) for k in (1, 2)]
        threads = [threading.Thread(target=each.end) for each in (root, *tools)]
        threads.append(
            threading.Thread(target=lambda root=root, m=m: program.start(f"{n}.{m}.3", root).end())
        )
        random.shuffle(threads)
        for each in threads:
            each.start()
        for each in threads:
            each.join()


def test_tools_that_run_side_by_side_in_asyncio_come_with_their_runs(traced: Traced):
    """Fifty runs of ten concurrent calls each, in one loop."""

    async def tool() -> None:
        with traced.tracer.start_as_current_span("tool"):
            await asyncio.sleep(0)

    async def run() -> None:
        with traced.tracer.start_as_current_span("run"):
            await asyncio.gather(*(tool() for _ in range(10)))

    async def main() -> None:
        await asyncio.gather(*(run() for _ in range(50)))

    asyncio.run(main())
    assert traced.seen() == [(["run"] + ["tool"] * 10, "closed")] * 50


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_scores_its_own_runs_and_not_its_parents(traced: Traced):
    """The child begins empty, with a worker of its own."""
    root = traced.start("parent's")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        traced.handed.clear()
        traced.start("child's").end()
        os.write(write, repr(traced.seen()).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(write)
    with os.fdopen(read) as pipe:
        assert pipe.read() == repr([(["child's"], "closed")])
    root.end()
    assert traced.seen() == [(["parent's"], "closed")]
