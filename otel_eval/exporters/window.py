"""Aggregates over the latest results of each scorer (a sliding window), published as observable
gauges.

The number of labels is bounded, because runs may have any.
"""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import KW_ONLY, field, replace
from typing import TYPE_CHECKING, Any, Final

from otel_eval.counters import BoundedNames, Warnings, in_each_child
from otel_eval.exporters import attributes as names
from otel_eval.model import Report, Result, Scored, Skipped
from otel_eval.records import record
from otel_eval.scorers.recorded import distribution

if TYPE_CHECKING:
    from opentelemetry.metrics import Observation

PERCENTILES: Final = (50, 90, 95)


@record
class WindowState:
    """The aggregates of a window at an instant. Unknown is None, never zero.

    Attributes:
        results: the number of results.
        pass_rate: the share that passed of those that passed or failed.
        mean: the mean of the scores.
        quantiles: the quantiles of the scores by percentile (nearest rank); empty without scores.
        counts: the number of results by label, sorted.
        skew: the largest share of a label minus the smallest, of the results with a label; 0
            without labels.
    """

    _: KW_ONLY
    results: int
    pass_rate: float | None
    mean: float | None
    quantiles: Mapping[int, float]
    counts: Mapping[str, int]
    skew: float


@record
class RunResult:
    """A result in a window; without value, passed and label if it was not scored and has no
    label.
    """

    value: float | None = None
    passed: bool | None = None
    label: str | None = None
    revision: int = 0

    @property
    def is_counted(self) -> bool:
        """Whether the result has a value, passed or a label, so that it is counted."""
        return (self.value, self.passed, self.label) != (None, None, None)


class ResultWindow:
    """The latest result of each run: at most `results` runs, and only results that are less than
    `time_s` seconds old.

    A further result of a run replaces the earlier one, and its age counts from now; so does a
    result without value and label, which is not counted. If time goes back, the latest time before
    is used.

    Args:
        time_s: the age in seconds at which a result is removed.
        results: how many results are held; if there are more, the oldest are removed.
    """

    __slots__ = ("_entries", "_latest", "_results", "_time_s")

    def __init__(self, time_s: float, results: int) -> None:
        self._time_s, self._results = time_s, results
        # by run, with the time, oldest first
        self._entries: OrderedDict[Hashable, tuple[float, RunResult]] = OrderedDict()
        self._latest = -math.inf

    def __len__(self) -> int:
        """The number of results that are held, some of them perhaps too old."""
        return len(self._entries)

    def add(self, now: float, run: Hashable, result: RunResult) -> None:
        """Add a result. One without value and label is added only if its revision is above 0, to
        replace an earlier one.

        A revision that comes after a newer one of the same run is ignored.
        """
        now = self._expire(now)
        earlier = self._entries[run][1].revision if run in self._entries else 0
        if earlier > result.revision or not (result.revision or result.is_counted):
            return
        self._entries[run] = now, result
        self._entries.move_to_end(run)
        if len(self._entries) > self._results:
            self._entries.popitem(last=False)

    def drop_oldest(self) -> None:
        """Remove the oldest result."""
        self._entries.popitem(last=False)

    def state(self, now: float) -> WindowState:
        """Compute the aggregates of the window."""
        self._expire(now)
        results = [result for _, result in self._entries.values() if result.is_counted]
        values = sorted(result.value for result in results if result.value is not None)
        passes = [result.passed for result in results if result.passed is not None]
        labels = distribution(result.label for result in results if result.label is not None)
        return WindowState(
            results=len(results),
            pass_rate=sum(passes) / len(passes) if passes else None,
            mean=math.fsum(values) / len(values) if values else None,
            quantiles={rank: values[-(-len(values) * rank // 100) - 1] for rank in PERCENTILES}
            if values
            else {},
            counts=labels["counts"],
            skew=labels["skew"],
        )

    def _expire(self, now: float) -> float:
        self._latest = max(self._latest, now)
        while self._entries:
            run, (at, _) = next(iter(self._entries.items()))
            if self._latest - at < self._time_s:
                break
            del self._entries[run]
        return self._latest


_RESULT_BYTES: Final = 400  # of memory, about


@record
class WindowLimits:
    """Limits of windows: seconds, results, fewer results for some scorers, by (evaluation, scorer),
    and the bytes of all windows together.
    """

    time_s: float
    results: int
    fewer: Mapping[tuple[str, str], int] = field(default_factory=dict)
    max_bytes: int = 2**30

    @property
    def all_results(self) -> int:
        """How many results all windows hold together."""
        return self.max_bytes // _RESULT_BYTES

    @property
    def enabled(self) -> bool:
        """Whether windows hold results at all."""
        return self.time_s > 0 and self.results > 0

    def window(self, evaluation: str, scorer: str) -> ResultWindow:
        """Create an empty window for a scorer."""
        return ResultWindow(
            self.time_s, min(self.results, self.fewer.get((evaluation, scorer), self.results))
        )


_MOST: Final = 200  # labels of one window that are reported by name: an SDK never removes a series
_LONGEST: Final = 200  # characters of a label

_SERIES: Final = (names.EVALUATION, names.NAME, names.SCORER_TYPE)
_Points = list[tuple[float | None, dict[str, str]]]
"""Values of a gauge with labels of their own; None is no value."""


class WindowGauges:
    """The windows of every scorer that had results, published by gauges of one meter.

    Args:
        meter: creates the gauges.
        limits: the limits of the windows.
        clock: monotonic seconds.
    """

    def __init__(
        self, meter: Any, limits: WindowLimits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits, self._clock = limits, clock
        self._begin()
        for name, (unit, text, points) in _GAUGES.items():
            meter.create_observable_gauge(
                f"otel_eval.window.{name}", [self._observe(name, points)], unit, text
            )
        in_each_child(self, WindowGauges._begin)

    def _begin(self) -> None:
        """Begin without windows, at the start and in a child process; its parent publishes the
        earlier results.
        """
        self._lock = threading.Lock()
        self._windows: dict[tuple[str, str, str], ResultWindow] = {}
        self._held = 0  # results in all windows
        self._warnings = Warnings()
        self._known: dict[tuple[str, str, str], BoundedNames] = {}
        self._states: list[tuple[dict[str, str], WindowState]] = []  # of each window, its labels

    def add(self, report: Report) -> None:
        """Add the results of a report; those of a revision replace the earlier ones of the run."""
        run = report.trajectory
        # without an id each result counts as another run's
        key = (run.trace_id, run.span_id) if run.span_id else object()
        for result in report.results:
            with self._lock:
                series = (result.evaluation, result.scorer, result.type)
                if series not in self._windows:
                    self._windows[series] = self._limits.window(*series[:2])
                window = self._windows[series]
                before = len(window)
                window.add(self._clock(), key, _entry(result, report.revision))
                self._held += len(window) - before
                while self._held > self._limits.all_results:
                    self._make_room(window)

    def _make_room(self, window: ResultWindow) -> None:
        """Remove the oldest result of this window if it has its share, else of the largest."""
        if len(window) * len(self._windows) <= self._limits.all_results:
            window = max(self._windows.values(), key=len)
        window.drop_oldest()
        self._held -= 1
        self._warnings.say(
            "window",
            "window.max_size is reached: the windows of %d scorers hold %d results together, and"
            " the oldest of the largest windows are removed",
            len(self._windows),
            self._held,
        )

    def _update_states(self) -> None:
        """Store the aggregates of all windows, for the gauges."""
        with self._lock:
            now = self._clock()
            states = {key: window.state(now) for key, window in self._windows.items()}
            self._held = sum(map(len, self._windows.values()))
            self._states = [
                (dict(zip(_SERIES, key, strict=True)), self._named(key, state))
                for key, state in states.items()
            ]

    def _named(self, key: tuple[str, str, str], state: WindowState) -> WindowState:
        """Return the state with counts of the labels that are reported by name, and one of all
        others.
        """
        names_of_key = self._known.setdefault(key, BoundedNames(_MOST))
        counts = Counter[str]()
        # the most frequent ones get a name first
        for label, number in Counter(state.counts).most_common():
            counts[names_of_key.name(label)] += number
        return replace(state, counts=counts)

    def _observe(
        self, name: str, points: Callable[[WindowState], _Points]
    ) -> Callable[[Any], list[Observation]]:
        """Return the callback of one gauge."""
        from opentelemetry.metrics import Observation  # deferred: windows are kept without it, too

        def observe(_: Any) -> list[Observation]:
            # The first gauge computes the aggregates; the others, called after it in a collection,
            # report the same instant.
            if name == next(iter(_GAUGES)):
                self._update_states()
            return [
                Observation(value, series | labels)
                for series, state in self._states
                for value, labels in points(state)
                if value is not None
            ]

        return observe


def _by_label(state: WindowState) -> _Points:
    return [(number, {"otel_eval.label": label}) for label, number in state.counts.items()]


def _fractions(state: WindowState) -> _Points:
    total = sum(state.counts.values())
    return [(number / total, {"otel_eval.label": label}) for label, number in state.counts.items()]


_GAUGES: Final[Mapping[str, tuple[str, str, Callable[[WindowState], _Points]]]] = {
    "results": ("{result}", "Results in the window.", lambda state: [(state.results, {})]),
    "pass_rate": (
        "{share}",
        "Share of the window's scores that passed.",
        lambda state: [(state.pass_rate, {})],
    ),
    "score.mean": ("{score}", "Mean of the window's scores.", lambda state: [(state.mean, {})]),
    "score.quantile": (
        "{score}",
        "Quantiles of the window's scores.",
        lambda state: [
            (value, {"otel_eval.quantile": f"p{rank}"}) for rank, value in state.quantiles.items()
        ],
    ),
    "label.count": ("{result}", "Results in the window by label.", _by_label),
    "label.fraction": ("{share}", "Shares of the window's labels.", _fractions),
    "label.skew": (
        "{share}",
        "Largest share of a label in the window minus the smallest.",
        lambda state: [(state.skew if state.counts else None, {})],
    ),
}


_OF_PROVIDERS: Final[weakref.WeakKeyDictionary[Any, WindowGauges]] = weakref.WeakKeyDictionary()


def gauges_of(provider: Any, limits: WindowLimits | None) -> WindowGauges | None:
    """Return the windows of a provider, created for its first user; None if the limits allow no
    results.

    A provider calls only the first callback of a gauge, so all users of one provider share the
    windows, with the limits of the first.
    """
    if limits is None or not limits.enabled:
        return None
    gauges = _OF_PROVIDERS.get(provider)
    if gauges is None:
        gauges = _OF_PROVIDERS[provider] = WindowGauges(
            provider.get_meter(*names.INSTRUMENTATION_SCOPE), limits
        )
    return gauges


def _entry(result: Result, revision: int) -> RunResult:
    match result.outcome:
        case Scored(value=value, passed=passed):
            return RunResult(float(value), passed, revision=revision)
        case Skipped(details=details) if isinstance(details.get("label"), str):
            return RunResult(label=names.sendable(details["label"][:_LONGEST]), revision=revision)
    return RunResult(revision=revision)
