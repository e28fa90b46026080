"""Records the spans of tests: a span belongs to the test in which its trace began."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakSet

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider


class Recording:
    """The spans of one test.

    Attributes:
        ended: the spans that have ended, in that order.
        open: the spans that have not, by span id.
    """

    def __init__(self) -> None:
        self.ended: list[ReadableSpan] = []
        self.open: dict[int, ReadableSpan] = {}


class SpanRecorder(SpanProcessor):
    """The one span processor of a session; outside of tests that record it does nothing."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._current: Recording | None = None
        self._owners: dict[int, Recording] = {}  # trace id → the test in which the trace began
        self._providers: WeakSet[TracerProvider] = WeakSet()

    def attach(self, provider: TracerProvider) -> None:
        """Record the spans of a provider from now on; a second call changes nothing."""
        if provider not in self._providers:
            self._providers.add(provider)
            provider.add_span_processor(self)

    @contextmanager
    def recording(self) -> Iterator[Recording]:
        """Record the traces that begin within the block."""
        recording = Recording()
        with self._changed:
            before, self._current = self._current, recording
        try:
            yield recording
        finally:
            with self._changed:
                self._current = before
                recording.ended.clear()
                # Traces with open spans are remembered until these end, so that no later test gets
                # what belongs to this one.
                unfinished = {span.context.trace_id for span in recording.open.values()}
                for trace_id, owner in list(self._owners.items()):
                    if owner is recording and trace_id not in unfinished:
                        del self._owners[trace_id]

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note an open span, if its trace began in a test."""
        begins = span.parent is None or span.parent.is_remote
        with self._changed:
            recording = self._owners.get(span.context.trace_id)
            if recording is None and begins and self._current is not None:
                recording = self._owners[span.context.trace_id] = self._current
            if recording is not None:
                recording.open[span.context.span_id] = span

    def on_end(self, span: ReadableSpan) -> None:
        """Keep an ended span for the test that it belongs to, while that test runs."""
        with self._changed:
            recording = self._owners.get(span.context.trace_id)
            if recording is None:
                return
            recording.open.pop(span.context.span_id, None)
            if recording is self._current:
                recording.ended.append(span)
            elif not recording.open:
                self._owners = {
                    trace_id: owner
                    for trace_id, owner in self._owners.items()
                    if owner is not recording
                }
            self._changed.notify_all()

    def wait_until_ended(self, recording: Recording, timeout_s: float) -> list[str]:
        """Wait until every span of the test has ended, except those around the caller.

        Returns:
            The names of the spans that are still open after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        with self._changed:
            around = self._ids_around(recording)
            while waited_for := [
                span.name for span_id, span in recording.open.items() if span_id not in around
            ]:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    return waited_for
                self._changed.wait(left_s)
        return []

    def _ids_around(self, recording: Recording) -> set[int]:
        """The ids of the caller's current span and of the spans that it is in."""
        ids: set[int] = set()
        span_id: int | None = trace.get_current_span().get_span_context().span_id
        while span_id in recording.open and span_id not in ids:
            ids.add(span_id)
            parent = recording.open[span_id].parent
            span_id = parent.span_id if parent is not None else None
        return ids


def attach_to_global_provider(recorder: SpanRecorder) -> None:
    """Record the global SDK provider; where none was set, set one. A provider of another kind
    cannot be recorded: `RecordedRuns.attach` takes one that can.
    """
    provider = trace.get_tracer_provider()
    if isinstance(provider, trace.ProxyTracerProvider):
        provider = TracerProvider(resource=Resource.create({"service.name": "pytest"}))
        trace.set_tracer_provider(provider)
    if isinstance(provider, TracerProvider):
        recorder.attach(provider)
