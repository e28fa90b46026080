"""What the latest results of one scorer come to.

Knows values, verdicts, labels and the instants it is told; knows no clock, no thread and no SDK.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_eval.scorers.labels import distribution

__all__ = ["PERCENTILES", "State", "Window", "WindowLimits"]

PERCENTILES: Final = (50, 90, 95)


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """What is in a window at an instant. Unknown is None, never zero.

    Attributes:
        results: how many results there are.
        pass_rate: the share that passed of those with a verdict.
        mean: of the scores.
        quantiles: by percentile, the smallest score that so many of a hundred do not exceed (nearest rank); empty
            without scores.
        counts, fractions: by label, sorted; the fractions are of all results with a label.
        skew: the largest fraction minus the smallest; 0 without labels.
    """

    results: int
    pass_rate: float | None
    mean: float | None
    quantiles: Mapping[int, float]
    counts: Mapping[str, int]
    fractions: Mapping[str, float]
    skew: float


@dataclass(frozen=True, slots=True)
class _Entry:
    at: float
    value: float | None
    passed: bool | None
    label: str | None
    revision: int


class Window:
    """The latest result of each run: the newest `results` of them, none of them `time_s` seconds old or older.

    A further result of a run takes the place of the earlier one and is as young as itself; so does one that says nothing, which
    is no result and is remembered only so that no earlier one comes after it. An instant before one that was told already
    counts as that one.

    Args:
        time_s: how old a result becomes.
        results: how many are held.
    """

    __slots__ = ("_entries", "_latest", "_removed", "_results", "_time_s")

    def __init__(self, time_s: float, results: int) -> None:
        self._time_s, self._results = time_s, results
        self._entries: OrderedDict[Hashable, _Entry] = OrderedDict()  # by run, oldest first
        self._removed: OrderedDict[Hashable, _Entry] = OrderedDict()  # the same of those that say nothing
        self._latest = -math.inf

    def __len__(self) -> int:
        """How many results are held, some of them perhaps too old."""
        return len(self._entries)

    def add(
        self,
        now: float,
        run: Hashable,
        value: float | None = None,
        passed: bool | None = None,
        label: str | None = None,
        *,
        revision: int = 0,
    ) -> None:
        """Take a result. One that knows neither value nor verdict nor label only removes the run's earlier one.

        A revision that comes after a newer one of the same run is ignored.
        """
        now = self._expire(now)
        earlier = self._entries.get(run) or self._removed.get(run)
        if earlier is not None and revision < earlier.revision:
            return
        self._entries.pop(run, None)
        self._removed.pop(run, None)
        says_nothing = value is None and passed is None and label is None
        if says_nothing and revision == 0:
            return  # there is none before it
        held = self._removed if says_nothing else self._entries
        held[run] = _Entry(now, value, passed, label, revision)
        if len(held) > self._results:
            held.popitem(last=False)

    def state(self, now: float) -> State:
        """What is in the window."""
        self._expire(now)
        entries = self._entries.values()
        values = sorted(each.value for each in entries if each.value is not None)
        verdicts = [each.passed for each in entries if each.passed is not None]
        told = distribution(each.label for each in entries if each.label is not None)
        return State(
            results=len(entries),
            pass_rate=sum(verdicts) / len(verdicts) if verdicts else None,
            mean=math.fsum(values) / len(values) if values else None,
            quantiles={each: values[-(-len(values) * each // 100) - 1] for each in PERCENTILES} if values else {},
            counts=told["counts"],
            fractions=dict(zip(told["labels"], told["fractions"], strict=True)),
            skew=told["skew"],
        )

    def _expire(self, now: float) -> float:
        self._latest = max(self._latest, now)
        for held in (self._entries, self._removed):
            while held:
                run, oldest = next(iter(held.items()))
                if self._latest - oldest.at < self._time_s:
                    break
                del held[run]
        return self._latest


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """How far back windows reach: seconds, results, and fewer results for some, by evaluation and scorer."""

    time_s: float
    results: int
    fewer: Mapping[tuple[str, str], int] = field(default_factory=dict)

    @property
    def on(self) -> bool:
        """Whether there is room for anything."""
        return self.time_s > 0 and self.results > 0

    def window(self, evaluation: str, scorer: str) -> Window:
        """An empty window for a scorer."""
        return Window(self.time_s, min(self.results, self.fewer.get((evaluation, scorer), self.results)))
