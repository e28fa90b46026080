"""Between the receiver and a backend: requests go through at once, runs' own spans when their trace was judged.

Knows the order of the steps; knows neither how a request is cut nor how it is sent. A request is taken here and by
assembly, or by neither: then its sender comes again with all of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Protocol

from otel_eval.engine import Engine
from otel_eval.model import Report
from otel_eval.ports import Frame
from otel_eval.sinks.forward.cut import cut
from otel_eval.sinks.forward.events import events_of
from otel_eval.sinks.forward.held import Held, Root
from otel_eval.sinks.forward.lane import Lane
from otel_eval.sinks.forward.send import Target, sender
from otel_eval.sinks.forward.waiting import Waiting
from otel_eval.sinks.tally import Counters, Warnings

__all__ = ["Assembly", "Forward"]

Spans = Sequence[tuple[bytes, bytes, Frame, int]]


class Assembly(Protocol):
    """Where spans are put together to be judged."""

    def spans(self, spans: Spans) -> None:
        """Take spans, or raise `Overloaded`."""
        ...

    def undecided(self, trace_ids: Collection[bytes]) -> set[bytes]:
        """Those of the traces that are still to be judged."""
        ...


class Forward:
    """The forwarding stage, and the sink that brings it scores.

    Args:
        to: the backend.
        engine: tells what may be a run of some evaluation.
        counters: `forward.*`, by signal.
        limit_bytes: of what waits to be sent, for each signal.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    name: Final = "forward"

    def __init__(
        self, to: Target, engine: Engine, counters: Counters, *, limit_bytes: int = 64 * 2**20, signals: Collection[str] = ()
    ) -> None:
        self._counters: Final = counters
        self._held: Final = Held()
        self._waiting = Waiting(engine)
        warnings = Warnings()
        senders = {signal: sender(to, signal) for signal in (signals or ("traces", "logs", "metrics"))}
        self._closers: Final = [close for _, close in senders.values()]
        self._lanes: Final = {
            signal: Lane(signal, send, counters, warnings, limit_bytes=limit_bytes) for signal, (send, _) in senders.items()
        }

    def judge_by(self, engine: Engine) -> None:
        """From now on this one tells what may be a run; what waits already goes on when its trace was judged."""
        self._waiting = Waiting(engine)

    def start(self) -> None:
        """Begin to send."""
        for lane in self._lanes.values():
            lane.start()

    # ------------------------------------------------------------------ in

    def traces(self, body: bytes, items: int, spans: Spans, assembly: Assembly) -> None:
        """Take a request of traces: what need not wait is queued, the rest held, all of it given to assembly.

        Args:
            body: the request.
            items: how many spans are in it.
            spans: those of them that can be evaluated, in order.
            assembly: takes these.

        Raises:
            Overloaded: there is no room here or there; nothing was taken.
        """
        lane = self._lanes.get("traces")
        if lane is None:
            return assembly.spans(spans)  # only logs or metrics are passed on
        lane.reserve(len(body))
        roots: list[Root] = []
        try:
            rest, roots = self._part(body, spans)
            self._held.hold(roots)  # first, so that a verdict finds them
            if spans:
                assembly.spans(spans)
        except BaseException:
            self._held.drop(roots)
            lane.cancel(len(body))
            raise
        lane.put(rest, items - len(roots), len(body))
        self._let_go(lane, roots, assembly)
        return None

    def _part(self, body: bytes, spans: Spans) -> tuple[bytes, list[Root]]:
        waiting = self._waiting.chosen(spans)
        if not waiting:
            return body, []
        try:
            rest, shells = cut(body, [payload for _, _, payload in waiting])
        except ValueError:  # fields that protobuf itself no longer writes: passed on whole, without scores
            self._counters.add("forward.uncut")
            return body, []
        return rest, [Root(*each, shell) for each, shell in zip(waiting, shells, strict=True)]

    def _let_go(self, lane: Lane, roots: Sequence[Root], assembly: Assembly) -> None:
        """Roots that no verdict will come for, because their trace is over and forgotten."""
        if not roots:
            return
        ids = {root.trace_id for root in roots}
        for trace_id in ids - assembly.undecided(ids):
            lane.add(self._held.release(trace_id))

    def pass_on(self, signal: str, body: bytes, items: int, take: Callable[[], None] = lambda: None) -> None:
        """Queue a request that nothing is to be done to; `take` is who else wants it.

        Raises:
            Overloaded: there is no room here or there; nothing was taken.
        """
        lane = self._lanes.get(signal)
        if lane is None:
            return take()
        lane.reserve(len(body))
        try:
            take()
        except BaseException:
            lane.cancel(len(body))
            raise
        return lane.put(body, items, len(body))

    def takes(self, signal: str) -> bool:
        """Whether the signal is passed on."""
        return signal in self._lanes

    # -------------------------------------------------------------- scores

    def emit(self, report: Report) -> None:
        """Put the results on the run's own span, if it is still here; else they are counted."""
        run = report.trajectory
        if not self._held.score(bytes.fromhex(run.trace_id), bytes.fromhex(run.span_id), events_of(report)):
            self._counters.add("forward.scores_unplaced", len(report.results))

    def judged(self, trace_id: bytes) -> None:
        """Every verdict on the trace was emitted: its roots may leave."""
        lane = self._lanes.get("traces")
        if lane is not None:
            lane.add(self._held.release(trace_id))

    def flush(self, timeout_s: float) -> bool:
        """Scores are delivered with their spans, which `stop` sees to."""
        return True

    def close(self, timeout_s: float) -> None:
        """Nothing; `stop` ends the stage."""

    # ----------------------------------------------------------------- end

    def stop(self, timeout_s: float) -> bool:
        """Let every root go with the scores it has, deliver what waits, end; False if something is left."""
        if "traces" in self._lanes:
            self._lanes["traces"].add(self._held.release_all())
        deadline = time.monotonic() + timeout_s
        # One after the other, within one deadline: each sends by itself all the while.
        done = [lane.stop(max(0.0, deadline - time.monotonic())) for lane in self._lanes.values()]
        for close in self._closers:
            close()
        return all(done)

    def counts(self) -> dict[str, Any]:
        """What waits now."""
        return {
            "forward.held_spans": len(self._held),
            **{f"forward.waiting_bytes{{signal={name}}}": lane.waiting_bytes for name, lane in self._lanes.items()},
        }
