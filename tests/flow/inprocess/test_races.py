"""Races between two threads, played step by step: one thread acts in the middle of a step of the
other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from otel_eval.sources.inprocess.live_traces import EndedSpans, InProcessLimits, LiveTrace
from otel_eval.sources.inprocess.recorder import Recorder, SpanCallbacks
from otel_eval.sources.inprocess.sdk_spans import keep


class Desk:
    """A recorder called by hand, with what it queued for the worker."""

    def __init__(self, is_agent: Callable[[Any], bool] = lambda span: False) -> None:
        self.put: list[Any] = []
        self.recorder = Recorder(
            InProcessLimits(), self.put.append, lambda span: None, is_agent, lambda: None
        )
        self.callbacks = SpanCallbacks(self.recorder)
        self.tracer = TracerProvider(shutdown_on_exit=False).get_tracer("app")

    def start(self, name: str, parent: Any = None) -> Any:
        span = self.tracer.start_span(
            name, context=None if parent is None else trace.set_span_in_context(parent)
        )
        self.callbacks.on_start(
            span, trace.set_span_in_context(parent) if parent is not None else None
        )
        return span

    def end(self, span: Any) -> None:
        span.end()
        self.callbacks.on_end(span._readable_span())

    def serve(self) -> list[list[str]]:
        """Take what was queued so far as the worker does; return the names of the spans of each
        trace.
        """
        taken, self.put[:] = self.put[:], []
        submitted = filter(None, map(self.recorder.take, taken))
        return [[span.name for span in each.spans] for each in submitted]

    def entry(self) -> LiveTrace:
        return next(iter(self.recorder._traces.values()))


class BeforeAdd(dict[int, Any]):
    """A dictionary to which something is added after something else happens, as if on another
    thread.
    """

    def __init__(self, known: dict[int, Any], happens: Callable[[], None]) -> None:
        super().__init__(known)
        self.happens = happens

    def __setitem__(self, key: int, value: Any) -> None:
        self.happens()
        super().__setitem__(key, value)


class BeforeAppend(deque[Any]):
    """A deque of a trace's spans to which a span is appended after something else happens, as if on
    another thread.
    """

    happens: Callable[[], None]

    def append(self, element: Any) -> None:
        self.happens()
        super().append(element)


@pytest.fixture
def desk() -> Desk:
    """A recorder whose limits are not reached."""
    return Desk()


def test_a_span_that_starts_before_the_worker_came_keeps_its_trace_together(desk: Desk):
    """The root ended and its trace was queued; by the time the worker takes it a child is open."""
    root = desk.start("root")
    desk.end(root)
    child = desk.start("child", root)
    assert desk.serve() == []
    desk.end(child)
    assert desk.serve() == [["root", "child"]]


def test_spans_that_are_submitted_while_their_trace_is_searched_are_submitted_once(
    monkeypatch: pytest.MonkeyPatch,
):
    """By the thread that limits memory; a span that ends meanwhile stays in the trace."""
    desk = Desk(is_agent=lambda span: span.name == "agent")
    root = desk.start("root")
    for name in ("agent", "other"):
        desk.end(desk.start(name, root))
    search = EndedSpans.detached

    def interrupted(*args: Any) -> EndedSpans | None:
        found = search(*args)
        desk.recorder.submit_ended(desk.entry())
        desk.end(desk.start("later", root))
        return found

    monkeypatch.setattr(EndedSpans, "detached", interrupted)
    desk.recorder.request_search(desk.entry())
    assert desk.serve() == []
    desk.end(root)
    assert desk.serve() == [["agent", "other"], ["later", "root"]]


class BeforeLock:
    """A lock that is acquired after something else happens once, as if on another thread."""

    def __init__(self, lock: Any, happens: Callable[[], None]) -> None:
        self._lock, self._happens = lock, [happens]

    def __enter__(self) -> None:
        while self._happens:
            self._happens.pop()()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_a_trace_whose_last_span_is_ending_is_not_searched_for_detached_runs():
    """The thread that ends it has recorded the span, and has not queued the trace yet."""
    desk = Desk(is_agent=lambda span: span.name == "agent")
    agent = desk.start("agent")
    desk.end(desk.start("tool", agent))
    agent.end()
    entry = desk.entry()
    entry.spans.append(keep(agent))
    desk.recorder.sweep(entry.since)
    entry.open.clear()
    desk.recorder.sweep(entry.since)
    assert desk.put == []


def test_a_trace_that_empties_again_while_the_worker_takes_it_counts_once_as_queued(desk: Desk):
    """What counts as queued for ever would in the end keep every trace from being queued."""
    root = desk.start("root")
    desk.end(root)
    desk.recorder._lock = BeforeLock(
        desk.recorder._lock, lambda: desk.end(desk.start("child", root))
    )  # type: ignore[assignment]
    assert desk.serve() == [["root", "child"]]
    assert desk.serve() == []
    assert desk.recorder.waiting_bytes == 0


def test_a_dropped_span_that_was_measured_does_not_count_as_queued(desk: Desk):
    """The thread that limits memory measures it between its end and its drop."""
    root = desk.start("root")
    desk.end(desk.start("before", root))
    desk.recorder.truncate(entry := desk.entry())
    entry.spans.append(keep(root))
    desk.recorder.add_size(entry, entry.removals, 1, 3000)
    entry.spans.pop()
    desk.end(root)
    assert desk.serve() == [["before"], []]
    assert desk.recorder.waiting_bytes == 0


def test_a_trace_that_empties_twice_before_the_worker_came_is_put_once(desk: Desk):
    """The second time it is queued already."""
    root = desk.start("root")
    desk.end(root)
    desk.end(desk.start("child", root))
    assert len(desk.put) == 1
    assert desk.serve() == [["root", "child"]]


def test_a_span_that_starts_while_its_trace_is_being_closed_opens_it_anew(desk: Desk):
    """The worker takes the trace after the start looked it up and before it counted itself; its
    siblings join it.
    """
    root = desk.start("root")
    served: list[list[str]] = []
    desk.entry().open = BeforeAdd(desk.entry().open, lambda: served.extend(desk.serve()))
    desk.end(root)
    first = desk.start("first", root)
    second = desk.start("second", root)
    desk.end(second)
    assert (served, desk.serve()) == ([["root"]], [])
    desk.end(first)
    assert desk.serve() == [["second", "first"]]


def test_a_span_that_ends_while_its_trace_is_closed_is_not_lost(desk: Desk):
    """The trace is closed for its age after the end looked it up and before it left its span
    there.
    """
    root = desk.start("root")
    child, other = desk.start("child", root), desk.start("other", root)
    desk.end(other)
    entry = desk.entry()
    entry.spans = BeforeAppend(entry.spans)
    entry.spans.happens = lambda: desk.recorder.close(entry, "aged")
    desk.end(child)
    assert desk.serve() == [["other"], ["child"]]


def test_a_span_that_was_submitted_when_its_trace_closed_is_not_submitted_again(desk: Desk):
    """The trace is closed after the end left its span there and before it went on."""
    root = desk.start("root")
    child = desk.start("child", root)
    entry = desk.entry()

    class Closing(dict[int, Any]):
        def pop(self, *given: Any) -> Any:
            desk.recorder.close(entry, "aged")
            return super().pop(*given)

    entry.open = Closing(entry.open)
    desk.end(child)
    assert desk.serve() == [["child"]]
    desk.end(root)
    assert desk.serve() == [["root"]]
