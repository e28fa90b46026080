"""How much of a run is read: its calls, what its spans recorded, and how many of its spans are
compared with one another because they may describe one call.

A run that exceeds a limit is not read, and neither are the runs inside it. What is measured is what
the run recorded: not what scorers need of it, not time, and nothing of the other runs of the trace.
So the same trace has the same outcome wherever it is evaluated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate
from typing import Any, Final

from otel_eval.caching import cached_property
from otel_eval.conventions.fields import NO_TABLE
from otel_eval.interfaces import SpanEvent, Wanted, all_but
from otel_eval.span_trees import within
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.runs import Candidate

MOST_CALLS: Final = 10_000
"""Tool spans of a run, and calls that its model calls requested."""

MOST_BYTES: Final = 64 * 2**20
"""Text that the spans of a run recorded; each value, also in JSON text, counts 16 bytes more."""

MOST_PAIRS: Final = 1_000_000
"""Pairs of spans and requests that are compared one by one. Nearly all are found by their ids."""

_VALUE_BYTES: Final = 16
# A byte of a payload is at most a value of its own.
_MOST_BYTES_PER_BYTE: Final = 1 + _VALUE_BYTES
_MOST_BYTES_PER_FRAME_BYTE: Final = 2 * _MOST_BYTES_PER_BYTE  # see `ResourceScope.size`
_EVERY_ATTRIBUTE: Final = Wanted(frozenset(), ("",))
_NOT_VALUES: Final = all_but(b",{[")

_CALLS: Final = f"the run has more than {MOST_CALLS:,} calls"
_BYTES: Final = f"the run recorded more than {MOST_BYTES // 2**20} MiB"
_PAIRS: Final = "too many spans of the run may describe the same calls"


class TooLarge(Exception):
    """A run exceeds a limit; the text says which."""


class RunLimits:
    """Which runs of a trace are too large to be read.

    Args:
        runs: for each outermost run the ranges of indexes of its spans.
    """

    def __init__(self, runs: Sequence[Sequence[tuple[int, int]]]) -> None:
        self._runs: Final = runs
        self._reasons: Final[dict[int, str]] = {}
        self._pairs: Final[dict[int, int]] = {}

    @cached_property
    def _ranges(self) -> list[tuple[int, int, int]]:
        """The first and the last index of each range, and the number of its run."""
        return sorted(
            (*span_range, run) for run, ranges in enumerate(self._runs) for span_range in ranges
        )

    @cached_property
    def _starts(self) -> list[int]:
        """The first index of each range, ascending."""
        return [first for first, _, _ in self._ranges]

    def run_of(self, index: int) -> int:
        """The number of the outermost run that a span is part of, -1 if there is none."""
        number = bisect_right(self._starts, index) - 1
        is_within = number >= 0 and index < self._ranges[number][1]
        return self._ranges[number][2] if is_within else -1

    @property
    def is_any_refused(self) -> bool:
        """Whether a run is not read."""
        return bool(self._reasons)

    def refuse(self, run: int, reason: str) -> None:
        """Do not read an outermost run any further."""
        self._reasons.setdefault(run, reason)

    def reason(self, index: int) -> str:
        """Why the run that a span is part of is not read, or ""."""
        return self._reasons.get(self.run_of(index), "") if self._reasons else ""

    def readable(self, indexes: list[int]) -> list[int]:
        """The indexes that are in no run that is not read."""
        return [index for index in indexes if not self.reason(index)]

    def limit_requests(self, indexes: Collection[int]) -> None:
        """Refuse runs with too many requests; `indexes` are the spans that hold one, each as often
        as it holds one.
        """
        if len(indexes) > MOST_CALLS:
            for run, count in Counter(map(self.run_of, indexes)).items():
                if count > MOST_CALLS:
                    self.refuse(run, _CALLS)

    def allow_pairs(self, index: int, pairs: int) -> bool:
        """Whether so many more pairs of spans or requests may be compared for the run that a span
        is part of; the run is refused if not.
        """
        run = self.run_of(index)
        self._pairs[run] = self._pairs.get(run, 0) + pairs
        if self._pairs[run] > MOST_PAIRS:
            self.refuse(run, _PAIRS)
        return run not in self._reasons


def limits_of(spans: ClassifiedTrace, candidates: Iterable[Candidate]) -> RunLimits:
    """The limits of the runs of a trace; runs with too many tool spans, or that recorded too much,
    are refused already.
    """
    runs = [run.ranges for run in candidates if run.outermost]
    limits, size = RunLimits(runs), spans.trace.bytes_at_most
    has_few_calls = len(spans.tools) <= MOST_CALLS
    if has_few_calls and size is not None and size * _MOST_BYTES_PER_FRAME_BYTE <= MOST_BYTES:
        return limits  # as for nearly every trace
    sizes_at_most = _sizes_at_most(spans)
    if has_few_calls and sum(sizes_at_most) <= MOST_BYTES:
        return limits
    sizes = [0, *accumulate(sizes_at_most)]
    for number, ranges in enumerate(runs):
        if sum(len(within(spans.tools, *span_range)) for span_range in ranges) > MOST_CALLS:
            limits.refuse(number, _CALLS)
        elif (
            sum(sizes[last] - sizes[first] for first, last in ranges) > MOST_BYTES
            and _recorded_size(spans, ranges) > MOST_BYTES
        ):
            limits.refuse(number, _BYTES)
    return limits


def _sizes_at_most(spans: ClassifiedTrace) -> list[int]:
    """What each span recorded at most, by index; known without reading it."""
    frames = map(spans.trace.frames.__getitem__, spans.tree.ids)
    sizes = [_MOST_BYTES_PER_BYTE * scope.size(payload) for _, payload, scope in frames]
    if not spans.trace.logs:
        return sizes
    return [size + sum(map(_size_of_event, spans.logs(index))) for index, size in enumerate(sizes)]


def limit_overlaps(intervals: Sequence[tuple[int, int]]) -> None:
    """Refuse a run of which too many pairs of intervals (start, end) overlap.

    Raises:
        TooLarge: there are too many.
    """
    starts, ends = sorted(start for start, _ in intervals), sorted(end for _, end in intervals)
    pairs = sum(number - bisect_left(ends, start) for number, start in enumerate(starts))
    if pairs > MOST_PAIRS:
        raise TooLarge(_PAIRS)


def _recorded_size(spans: ClassifiedTrace, ranges: Iterable[tuple[int, int]]) -> int:
    """The size of what the spans that a table recognises recorded."""
    return sum(
        _size_of_span(spans, index)
        for first, last in ranges
        for index in range(first, last)
        if spans.tables[index] is not NO_TABLE
    )


def _size_of_span(spans: ClassifiedTrace, index: int) -> int:
    """The size, as `MOST_BYTES` counts it, of the attributes and the events of a span."""
    span = spans.readers[index]
    size = _size(span.attributes(_EVERY_ATTRIBUTE))
    return size + sum(map(_size_of_event, spans.events(index)))


def _size_of_event(event: SpanEvent) -> int:
    """The size, as `MOST_BYTES` counts it, of the name, the attributes and the body of an event."""
    return _size([event.name, event.attributes, event.body])


def _size(value: Any) -> int:
    """The bytes of all text in a value, and 16 for each value, also for those in JSON text."""
    size, values = 0, [value]
    while values:
        value = values.pop()
        if isinstance(value, str):
            text = value.encode("utf-8", "surrogatepass")
            size += len(text) + _VALUE_BYTES * len(text.translate(None, _NOT_VALUES))
        elif isinstance(value, dict):
            size += _VALUE_BYTES * len(value)
            values += value.keys()
            values += value.values()
        elif isinstance(value, list):
            size += _VALUE_BYTES * len(value)
            values += value
    return size
