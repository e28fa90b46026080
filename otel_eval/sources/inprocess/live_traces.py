"""The state that the recorder keeps of open traces and of spans on their way to the worker, its limits, and detached runs.

Detached are agent runs that have ended although spans of their trace are open, none of them an agent's: nothing of them is
missing. A server's or a worker's span may be open for hours, with one agent run after the other below it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_eval.assembly import Limits


@dataclass(frozen=True, slots=True, kw_only=True)
class InProcessLimits(Limits):
    """What may be held in a process; times of waiting do not count here, as the SDK says when a span ends.

    Attributes:
        max_traces: open traces; beyond it the oldest is handed over as `overflow`.
        max_spans_per_trace: further spans of that trace are dropped, counted, and it is handed over as `overflow`.
        max_bytes_per_trace: of spans of one trace that have ended; beyond it they are handed over as `overflow`, and further
            spans of the trace are dropped and counted.
        max_bytes: of all spans of open traces; beyond it what has ended of the oldest traces is handed over as `overflow`.
        max_spans: spans of all open traces, looked at once a second; beyond it the oldest traces are handed over as `overflow`.
        max_waiting_spans: spans of closed traces that wait for the worker; a trace that comes when so many wait is dropped.
        idle_s: a trace without a span started or ended for so long is handed over as `idle`; what it has open stays known.
        max_age_s: a trace open for so long, or since spans of it were handed over, is handed over as `aged` and forgotten.
    """

    max_spans: int = 1_000_000
    max_waiting_spans: int = 200_000

    @property
    def max_waiting_bytes(self) -> int:
        """Of spans of closed traces that wait for the worker; a trace that comes when more wait is dropped and counted."""
        return max(self.max_bytes // 2, self.max_bytes_per_trace)


OWN_SCOPE: Final = "otel_eval"
_SAMPLED: Final = 1


@dataclass(slots=True, eq=False)
class EndedSpans:
    """Spans of one trace on their way to the worker, and why: closed, detached, idle, aged, overflow or shutdown.

    `below`: ids of spans that are handed over as if they hung from another span. `early`: some of the trace started before
    we looked. `size`: bytes of the first `measured` spans. `counted`: so many of them wait. `draws`: 0, as none is taken out.
    """

    trace_id: int
    spans: list[ReadableSpan]
    why: str
    below: Mapping[int, int] = field(default_factory=dict)
    early: bool = False
    size: int = 0
    measured: int = 0
    counted: int = 0
    draws: int = 0

    @classmethod
    def detached(
        cls, trace_id: int, ended: Sequence[ReadableSpan], live: Mapping[int, Any], is_agent: Callable[[Any], bool]
    ) -> EndedSpans | None:
        """The ended spans that can be evaluated, if an agent's is among them.

        Where the parent of some span is not known, that may be an agent's, or the span a part of any run: then nothing can be.
        What is below an open span is handed over as if it hung from the outermost open span above: what is between is open and no
        agent's, so it belongs to no run, and spans with one missing parent are known to be no parts of one another.

        Args:
            ended: what has ended of the trace and was not handed over.
            live: what is open, by id.
            is_agent: whether a span, open or ended, is an agent's.
        """
        trees = _Trees({_id(span): span for span in ended}, live, is_agent)
        tops = {span_id: trees.below(_parent(span)) for span_id, span in trees.ended.items()}
        if _UNKNOWN in tops.values():
            return None
        spans = [span for span in ended if tops[_id(span)] >= 0 and _id(span) not in trees.busy]
        if not any(map(is_agent, spans)):
            return None
        handed = {_id(span) for span in spans}
        below = {each: tops[each] for each in handed if tops[each] and _parent(trees.ended[each]) not in handed}
        return cls(trace_id, spans, "detached", below)


class LiveTrace:
    """A trace with a span that has not ended.

    `open` holds spans by id, None for one that we did not see start, `spans` what ended. `early`: some of it started before
    we looked. `queued`: it is on its way to the worker, its spans `counted` as waiting. `seen` and `still_since` are the
    sweep's: how much it saw last time and since when nothing changed. `looked`: so many spans had ended when those were
    looked for that can be handed over. `rests`: some were, so that it stays known, however long nothing of it ends. `room`:
    more spans than so many call for a look; below 0 every further span is dropped.

    Bytes: `size` is what the first `measured` of `spans` take; `draws` counts how often spans were taken out. `live_size` is
    what the `live_measured` open spans took when they were measured, which happens again at `live_due`. `asked`: it is on
    its way to the worker, too, which looks for spans that can be handed over.
    """

    __slots__ = (
        *("trace_id", "room", "open", "looked", "rests", "spans", "closed", "queued", "early", "cut"),
        *("since", "still_since", "seen", "counted"),
        *("size", "measured", "draws", "live_size", "live_measured", "live_due", "asked"),
    )

    def __init__(self, trace_id: int, now: float, room: int) -> None:
        self.trace_id, self.room = trace_id, room
        self.open: dict[int, Any] = {}
        self.looked, self.rests = 0, False
        self.spans: deque[ReadableSpan] = deque()
        self.closed = self.queued = self.early = self.cut = self.asked = False
        self.since = self.still_since = self.live_due = now
        self.seen = (0, 0)
        self.counted = self.size = self.measured = self.draws = 0
        self.live_size = self.live_measured = 0

    def forget_size(self) -> None:
        """Spans were taken out: those that are left are measured again."""
        self.size = self.measured = 0
        self.draws += 1


def is_relevant(span: Any) -> bool:
    """Whether a span is to be looked at: sampled, and not one that we emitted."""
    scope = span.instrumentation_scope
    return bool(span.context.trace_flags & _SAMPLED) and (scope is None or scope.name != OWN_SCOPE)


_AGENT: Final = -1
_UNKNOWN: Final = -2


class _Trees:
    """Parent links between ended and open spans.

    `busy`: ids of ended spans with an open one below them.
    """

    def __init__(self, ended: Mapping[int, ReadableSpan], live: Mapping[int, Any], is_agent: Callable[[Any], bool]) -> None:
        self.ended, self._is_agent = ended, is_agent
        self._spans: Final = {**live, **ended}
        self.busy: Final = set[int]()
        for span in live.values():
            while (parent := _parent(span)) in ended and parent not in self.busy:
                self.busy.add(parent)
                span = ended[parent]
        self._below: Final[dict[int, int]] = {0: 0}

    def below(self, span_id: int) -> int:
        """The id of the outermost open span above what is below a span, 0 if none is; `_AGENT` or `_UNKNOWN` if one is that."""
        chain = []
        while span_id in self._spans and span_id not in self._below:
            chain.append(span_id)
            self._below[span_id] = 0 if span_id in self.ended else _UNKNOWN  # links may run in a circle
            span_id = _parent(self._spans[span_id])
        top = self._below.get(span_id, _UNKNOWN)
        for each in reversed(chain):
            top = self._below[each] = self._passed(each, top)
        return top

    def _passed(self, span_id: int, top: int) -> int:
        """What is above the spans below this one, if `top` is above it."""
        is_open = span_id not in self.ended
        if (is_open or span_id in self.busy) and self._is_agent(self._spans[span_id]):
            return _AGENT
        if is_open and _parent(self._spans[span_id]) in self.ended:
            return _UNKNOWN  # open below one that has ended: what else is there is not known
        return top or span_id if is_open else top


def _id(span: Any) -> int:
    own: int = span.context.span_id
    return own


def _parent(span: Any) -> int:
    parent = span.parent
    return 0 if parent is None or parent.is_remote else parent.span_id
