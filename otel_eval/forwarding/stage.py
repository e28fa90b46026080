"""Forwards requests from the receiver to a backend: at once, except for runs' own spans, which wait
for their trace's evaluation.

A request is accepted by this stage and by assembly, or by neither: then its client receives a
retryable error.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from otel_eval.counters import Counters, CountName
from otel_eval.engine import Engine
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.exporters.result_requests import attributes_of, events_of
from otel_eval.forwarding.forward_queue import ForwardQueue
from otel_eval.forwarding.pending_spans import (
    HoldFilter,
    PendingSpan,
    PendingSpans,
    UnsentRequest,
    checksum_of,
)
from otel_eval.forwarding.splice import remove_spans
from otel_eval.interfaces import SpanFrame
from otel_eval.model import Report, Result
from otel_eval.otlp.client import OtlpClient
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.retry import RetryPolicy
from otel_eval.storage.durable import Ack, ForwardedRequests

_DEFAULT: Final = RetryPolicy()


class RequestToForward(NamedTuple):
    """A request that is being accepted.

    Attributes:
        ack: with it the request is journaled until all of it was forwarded; None: it is not
            journaled, or not forwarded.
        held_traces: the ids of the traces whose spans in it are held.
    """

    ack: Ack | None = None
    held_traces: frozenset[bytes] = frozenset()


class Forwarder(Exporter):
    """The forwarding stage; as an exporter it puts results on the spans that are held.

    Args:
        to: the backend.
        engine: decides which spans may be a run of some evaluation.
        counters: counts `forward.*`, by signal.
        limit_bytes: the limit of the queue of each signal.
        signals: the signals that are forwarded; all if left out.
        pending_spans: where spans are held; with a journal, the one that it knows.
        journal: journals requests until they were forwarded. With it, what is left at the end is
            forwarded after the next start.
        name_of: returns the name of a score, for its attribute; None: scores are recorded as events
            only.
        retry: how long to wait between attempts.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name = "forward"

    def __init__(
        self,
        to: Endpoint,
        engine: Engine,
        counters: Counters,
        *,
        limit_bytes: int = 64 * 2**20,
        signals: Collection[str] = (),
        pending_spans: PendingSpans | None = None,
        journal: ForwardedRequests | None = None,
        name_of: Callable[[Result], str] | None = None,
        retry: RetryPolicy = _DEFAULT,
    ) -> None:
        self._counters: Final = counters
        self._name_of: Final = name_of
        self._journal: Final = journal
        self._pending: Final = pending_spans if pending_spans is not None else PendingSpans()
        self._hold_filter = HoldFilter(engine)
        self._queues: Final[dict[str, ForwardQueue]] = {}
        for signal in signals or ("traces", "logs", "metrics"):
            self._queues[signal] = ForwardQueue(
                signal,
                OtlpClient(to, signal),
                counters,
                limit_bytes,
                journal,
                retry=retry,
                waits_for_access=journal is not None,
            )

    def use_engine(self, engine: Engine) -> None:
        """Hold spans for the evaluations of this engine from now on; held spans are released when
        their trace was evaluated.
        """
        self._hold_filter = HoldFilter(engine)

    def start(self) -> None:
        """Begin to send."""
        for queue in self._queues.values():
            queue.start()

    # ------------------------------------------------------------------ in

    @contextmanager
    def accepting(
        self, signal: str, body: bytes, items: int, spans: Sequence[SpanFrame] = ()
    ) -> Iterator[RequestToForward]:
        """A context in which a request is passed to assembly, or journaled if assembly does not
        need it. Its spans that may be runs are held, everything else is queued; nothing of it is
        forwarded if the block raises.

        Args:
            signal: traces, logs or metrics.
            body: the request.
            items: how many spans, log records or data points are in it.
            spans: the spans in it that can be evaluated, in order.

        Raises:
            Overloaded: the queue is full; the block was not entered.
        """
        queue = self._queues.get(signal)
        if queue is None:
            yield RequestToForward()  # only other signals are forwarded
            return
        ack = Ack() if self._journal is not None and body else None
        remainder, roots = body, list[PendingSpan]()
        queue.reserve(len(body))
        try:
            remainder, roots = self._split(body, self._hold_filter.chosen(spans), ack)
            # before assembly has the spans, so that no result comes too early
            self._pending.hold(roots)
            yield RequestToForward(ack, frozenset([root.trace_id for root in roots]))
        except BaseException:
            self._pending.drop(roots)
            queue.put(b"", 0, len(body))
            if self._journal is not None and ack is not None:
                self._journal.drop(ack)
            raise
        queue.put(remainder, items - len(roots), len(body), ack)

    def _split(
        self, body: bytes, spans: Sequence[tuple[bytes, bytes, Any]], ack: Ack | None
    ) -> tuple[bytes, list[PendingSpan]]:
        """Split a request into the part without the spans to hold, and these spans."""
        if not spans:
            return body, []
        remainder, containers = remove_spans(body, [payload for _, _, payload in spans])
        roots = [
            PendingSpan(*span, container, ack)
            for span, container in zip(spans, containers, strict=True)
        ]
        if ack is not None:
            ack.has_remainder, ack.checksum, ack.held_spans = (
                bool(remainder),
                checksum_of(roots),
                len(roots),
            )
        return remainder, roots

    def is_forwarded(self, signal: str) -> bool:
        """Whether the signal is forwarded."""
        return signal in self._queues

    # ------------------------------------------------------- after a restart

    def resume(self, unsent: UnsentRequest, undecided: Set[bytes]) -> None:
        """Forward what is left of a request of an earlier process; spans whose trace was evaluated
        with its results, those of `undecided` traces after their evaluation.
        """
        queue, ack = self._queues.get(unsent.signal), Ack(position=unsent.position)
        remainder, roots = (
            self._split(unsent.body, self._spans_to_hold(unsent), ack)
            if queue is not None
            else (b"", [])
        )
        items = unsent.items - len(roots)
        # If the spans to hold are others than before the restart, everything is forwarded again.
        if unsent.is_held or unsent.checksum == ack.checksum:
            remainder = b""
        roots = [root for root in roots if (root.trace_id, root.span_id) not in unsent.moved]
        ack.has_remainder, ack.held_spans = bool(remainder), len(roots)
        if queue is not None and (remainder or roots):
            queue.put(remainder, items, 0, ack)
            for root in roots:
                self._resume(queue, root, unsent.evaluated.get(root.trace_id), undecided)
        elif self._journal is not None:
            self._journal.drop(ack)

    def _spans_to_hold(self, unsent: UnsentRequest) -> Sequence[tuple[bytes, bytes, Any]]:
        if unsent.is_held:
            return [(trace_id, span_id, frame[1]) for trace_id, span_id, frame, _ in unsent.spans]
        return self._hold_filter.chosen(unsent.spans)

    def _resume(
        self,
        queue: ForwardQueue,
        root: PendingSpan,
        evaluated: Sequence[Report] | None,
        undecided: Set[bytes],
    ) -> None:
        if evaluated is None and root.trace_id in undecided:
            self._pending.hold([root])
            return
        span_id = root.span_id.hex()
        events = b"".join(
            [
                self._fields_of(report)
                for report in evaluated or ()
                if report.trajectory.span_id == span_id
            ]
        )
        queue.add([root.with_scores(events or self._pending.earlier_scores(root))])

    def keep_earlier_scores(self, reports: Iterable[Report]) -> None:
        """Keep results from before a restart, for runs' own spans that clients send again."""
        scores: dict[tuple[bytes, bytes], bytes] = {}
        for report in reports:
            key = (
                bytes.fromhex(report.trajectory.trace_id),
                bytes.fromhex(report.trajectory.span_id),
            )
            scores[key] = scores.get(key, b"") + self._fields_of(report)
        for (trace_id, span_id), events in scores.items():
            self._pending.add_earlier_scores(trace_id, span_id, events)

    # -------------------------------------------------------------- scores

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Put the results on the runs' own spans. Results of spans that are not held any more are
        counted as unplaced.
        """
        placed = [self._place(report) for report in batch]
        return ExportResult.ok() if all(placed) else ExportResult("accepted")

    def _fields_of(self, report: Report) -> bytes:
        """The fields with results that are appended to a run's own span."""
        return events_of(report) + (attributes_of(report, self._name_of) if self._name_of else b"")

    def _place(self, report: Report) -> bool:
        run = report.trajectory
        placed = self._pending.score(
            bytes.fromhex(run.trace_id), bytes.fromhex(run.span_id), self._fields_of(report)
        )
        if not placed:
            self._counters.add("forward.scores_unplaced", len(report.results))
        return placed

    def release(self, trace_ids: Iterable[bytes]) -> None:
        """Forward the held spans of traces that are not evaluated any more, or all of whose results
        were exported.
        """
        queue = self._queues.get("traces")
        if queue is not None:
            for trace_id in trace_ids:
                queue.add(self._pending.release(trace_id))

    # ----------------------------------------------------------------- end

    def stop(self, timeout_s: float) -> bool:
        """Release every held span with the scores it has, forward what is queued, and end; False if
        something is lost.

        With a journal nothing is lost: held spans whose trace was not evaluated are kept until the
        next start.
        """
        is_journaled = self._journal is not None
        if "traces" in self._queues and not is_journaled:
            self._queues["traces"].add(self._pending.release_all())
        deadline = time.monotonic() + timeout_s
        # One after the other, within one deadline: meanwhile the threads of the other queues go on
        # sending.
        done = [
            queue.close(max(0.0, deadline - time.monotonic()), is_journaled=is_journaled)
            for queue in self._queues.values()
        ]
        return all(done)

    def wait(self, timeout_s: float) -> bool:
        """Forward what is queued; False if not all of it was forwarded in time."""
        deadline = time.monotonic() + timeout_s
        return all(
            queue.drain(max(0.0, deadline - time.monotonic())) for queue in self._queues.values()
        )

    def counts(self) -> dict[CountName, Any]:
        """How many spans are held, and the gauges of the queues."""
        gauges = [queue.counts() for queue in self._queues.values()]
        return {
            "forward.held_spans": len(self._pending),
            **{name: count for counts in gauges for name, count in counts.items()},
        }
