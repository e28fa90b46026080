"""The recorder's state of open traces and of spans queued for the worker, its limits, and the
search for detached runs.

A run is detached if its trace has open spans, but none below the run, and no unfinished agent run
encloses it: it is complete. The span of a server or a job may be open for hours, with one agent run
after the other below it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.assembly import Limits
from otel_eval.records import record
from otel_eval.sources.inprocess.sdk_spans import SdkSpan


@record
class InProcessLimits(Limits):
    """Limits of what a process holds. The decision waits do not apply: the SDK reports the end of
    every span.

    Spans are submitted to the worker with a reason, here `overflow`, `idle` or `aged`.

    Attributes:
        max_traces: open traces; over the limit the oldest is submitted as `overflow`.
        max_spans_per_trace: further spans of the trace are dropped and counted, and it closes as
            `overflow`.
        max_bytes_per_trace: bytes of the ended spans of one trace; over the limit they are
            submitted as `overflow`, and further spans of the trace are dropped and counted.
        max_bytes: bytes of all spans of open traces; over the limit the ended spans of the oldest
            are submitted as `overflow`.
        idle_s: after this time without a start or end of a span, the ended spans of a trace are
            submitted as `idle`; its open spans are still tracked.
        max_age_s: a trace is submitted as `aged` and forgotten when it has been open for this time,
            or for this time since spans of it were last submitted as detached.
    """

    @property
    def max_waiting_bytes(self) -> int:
        """The bytes of spans of closed traces that are queued for the worker; over the limit,
        traces are dropped and counted.
        """
        return max(self.max_bytes // 2, self.max_bytes_per_trace)


@dataclass(slots=True, eq=False)
class EndedSpans:
    """Spans of one trace that were submitted to the worker, and why: closed, detached, idle, aged,
    overflow or shutdown.

    Attributes:
        early: whether a span of the trace started before the processor was added.
        size: the bytes of the first `measured` spans.
        counted: how many of the spans count as queued for the worker.
        removals: 0, since no spans are removed.
    """

    trace_id: int
    spans: list[SdkSpan]
    why: str
    early: bool = False
    size: int = 0
    measured: int = 0
    counted: int = 0
    removals: int = 0

    @classmethod
    def detached(
        cls,
        trace_id: int,
        ended: Sequence[SdkSpan],
        live: Mapping[int, SdkSpan],
        is_agent: Callable[[SdkSpan], bool],
    ) -> EndedSpans | None:
        """Return the ended spans that are complete; None if no agent's span is among them, or a
        parent of any span is unknown.

        An unknown parent may be an agent's, and its span may be part of any run. A span below open
        spans gets the outermost of them as its parent: those between are open and not agents', so
        they belong to no run, and evaluation treats spans with the same missing parent as siblings.

        Args:
            ended: the ended spans of the trace that were not submitted yet.
            live: the open spans by id.
            is_agent: whether a span, open or ended, is an agent's.
        """
        trees = _Trees({span.span_id: span for span in ended}, live, is_agent)
        outermost = {
            span_id: trees.outermost_open(span.local_parent_id)
            for span_id, span in trees.ended.items()
        }
        if _UNKNOWN in outermost.values():
            return None
        complete = [
            span
            for span in ended
            if outermost[span.span_id] >= 0 and span.span_id not in trees.busy
        ]
        if not any(map(is_agent, complete)):
            return None
        submitted = {span.span_id for span in complete}
        spans = [
            span.with_ids(span.span_id, outermost[span.span_id])
            if outermost[span.span_id] and span.local_parent_id not in submitted
            else span
            for span in complete
        ]
        return cls(trace_id, spans, "detached")


class LiveTrace:
    """A trace with a span that has not ended.

    Attributes:
        open: the open spans by id; None for a span whose start was not seen.
        spans: the ended spans that were not submitted yet.
        early: whether a span of it started before the processor was added.
        queued: whether it is queued for the worker to be closed; `counted` of its spans count as
            queued then.
        search_queued: whether it is queued for the worker to search it for detached runs.
        closed: whether it was closed; spans that end later are late.
        cut: whether spans of it are dropped at a limit.
        since: when it was created, or spans of it were last submitted as detached.
        last_counts: the numbers of open and ended spans at the last sweep, which have not changed
            since `unchanged_since`.
        searched: the number of ended spans when it was last searched for detached runs.
        had_detached: whether detached runs of it were submitted: then it is not closed for its age
            while no ended spans are held.
        check_above: the number of ended spans above which it is searched for detached runs (at half
            of the limit), or spans are dropped (at the limit); below 0 every further span is
            dropped.
        size: the bytes of the first `measured` ended spans.
        removals: how often spans were removed, so that a measurement or search that overlapped a
            removal is discarded.
        live_size: the bytes of the `live_measured` open spans at the last measurement; the next is
            at `live_due`.
    """

    closed = queued = search_queued = early = cut = had_detached = False
    last_counts = (0, 0)
    searched = counted = size = measured = removals = live_size = live_measured = 0

    def __init__(self, trace_id: int, now: float, check_above: int) -> None:
        self.trace_id, self.check_above = trace_id, check_above
        self.open: dict[int, Any] = {}
        self.spans: deque[SdkSpan] = deque()
        self.since = self.unchanged_since = self.live_due = now

    def note_removal(self) -> None:
        """Have the ended spans measured and searched again, after spans were removed."""
        self.size = self.measured = self.searched = 0
        self.removals += 1


_AGENT: Final = -1
_UNKNOWN: Final = -2


class _Trees:
    """Parent links between ended and open spans.

    Attributes:
        busy: the ids of ended spans that have an open descendant.
    """

    def __init__(
        self,
        ended: Mapping[int, SdkSpan],
        live: Mapping[int, SdkSpan],
        is_agent: Callable[[SdkSpan], bool],
    ) -> None:
        self.ended, self._is_agent = ended, is_agent
        self._spans: Final = {**live, **ended}
        self.busy: Final = set[int]()
        for span in live.values():
            while (parent := span.local_parent_id) in ended and parent not in self.busy:
                self.busy.add(parent)
                span = ended[parent]
        self._outermost: Final[dict[int, int]] = {0: 0}

    def outermost_open(self, span_id: int) -> int:
        """Return the id of the outermost open span among a span and its ancestors; 0 if none of
        them is open.

        `_AGENT` if one of them is an agent's span of an unfinished run, `_UNKNOWN` if a parent is
        unknown.
        """
        chain = []
        while span_id in self._spans and span_id not in self._outermost:
            chain.append(span_id)
            # parent links may form a circle
            self._outermost[span_id] = 0 if span_id in self.ended else _UNKNOWN
            span_id = self._spans[span_id].local_parent_id
        outermost = self._outermost.get(span_id, _UNKNOWN)
        for below in reversed(chain):
            outermost = self._outermost[below] = self._outermost_of(below, outermost)
        return outermost

    def _outermost_of(self, span_id: int, outermost: int) -> int:
        """Return the result of `outermost_open` for a span, given the result for its parent."""
        is_open = span_id not in self.ended
        if (is_open or span_id in self.busy) and self._is_agent(self._spans[span_id]):
            return _AGENT
        if is_open and self._spans[span_id].local_parent_id in self.ended:
            return _UNKNOWN  # an open span below an ended one: it is unknown what else is there
        return outermost or span_id if is_open else outermost
