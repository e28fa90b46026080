"""Limits how long a user's own scorer may take, so that it cannot hold up other runs.

Such a scorer runs on a thread of its own. If it does not return in time the run's result fails and the next run gets a
new thread, because Python cannot end the old one; after three of them the scorer is no longer called. Code that keeps
the interpreter's lock, such as a catastrophic regular expression, cannot be limited this way.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import Final, Protocol

from otel_eval.counters import Counters, Warnings
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Outcome, Trajectory
from otel_eval.scorers.base_scorer import checked_outcome, failed_from
from otel_eval.scorers.build import is_own_scorer

__all__ = ["MOST_HUNG", "Guard"]

MOST_HUNG: Final = 3
"""Runs on which a scorer may hang before it is no longer called: each of them costs a thread until the process ends."""


class Guard:
    """Wraps scorers that are not built in.

    Args:
        limit_s: how long one may take for one run.
        counters: counts `scorers.hung` by scorer.
    """

    def __init__(self, limit_s: float, counters: Counters) -> None:
        self._limit_s, self._counters = limit_s, counters
        self._warnings: Final = Warnings()

    def __call__(self, scorer: Scorer) -> Scorer:
        """The scorer, wrapped if it is a user's; asynchronous ones have a limit of their own."""
        if is_own_scorer(scorer) or getattr(scorer, "asynchronous", False):
            return scorer
        return _Guarded(scorer, self._limit_s, self._hung)

    def _hung(self, scorer: str, times: int) -> None:
        self._counters.add("scorers.hung", scorer=scorer)
        fate = "it is no longer called" if times >= MOST_HUNG else "this run goes without it"
        self._warnings.say(f"{scorer}{times}", "scorer %s did not return within %g s; %s", scorer, self._limit_s, fate)


class _Guarded:
    """One scorer, called on a thread of its own. Called for one run at a time."""

    def __init__(self, scorer: Scorer, limit_s: float, hung: _Tell) -> None:
        self.name: Final = scorer.name
        self.type: Final = scorer.type
        self.version: Final = scorer.version
        self.needs: Final = scorer.needs
        self.applied_threshold: Final[float | None] = getattr(scorer, "applied_threshold", None)
        self.tool_names: Final = getattr(scorer, "tool_names", None)
        self.attribute_keys: Final[frozenset[str]] = getattr(scorer, "attribute_keys", frozenset())
        self._scorer, self._limit_s, self._tell = scorer, limit_s, hung
        self._thread: _Thread | None = None
        self._times = 0

    def __call__(self, trajectory: Trajectory) -> Outcome:
        if self._times >= MOST_HUNG:
            return Failed("quarantined", f"did not return within {self._limit_s:g} s for {MOST_HUNG} runs")
        if self._thread is None:
            self._thread = _Thread(self._scorer)
        outcome = self._thread.ask(trajectory, self._limit_s)
        if outcome is not None:
            return outcome
        self._thread = None
        self._times += 1
        self._tell(self.name, self._times)
        return Failed("timeout", f"did not return within {self._limit_s:g} s")


class _Tell(Protocol):
    def __call__(self, scorer: str, times: int) -> None: ...


class _Thread:
    """A thread that calls one scorer until a call does not return in time."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        self._asked: SimpleQueue[Trajectory | None] = SimpleQueue()
        self._told: SimpleQueue[Outcome] = SimpleQueue()
        threading.Thread(target=self._work, name=f"otel-eval-{scorer.name}", daemon=True).start()

    def ask(self, trajectory: Trajectory, within_s: float) -> Outcome | None:
        """The outcome; None if it did not come in time, and then the thread ends by itself should it ever come."""
        self._asked.put(trajectory)
        try:
            return self._told.get(timeout=within_s)
        except Empty:
            self._asked.put(None)
            return None

    def _work(self) -> None:
        while (trajectory := self._asked.get()) is not None:
            self._told.put(self._outcome(trajectory))

    def _outcome(self, trajectory: Trajectory) -> Outcome:
        try:
            return checked_outcome(self._scorer(trajectory))
        except BaseException as error:  # noqa: BLE001 - also sys.exit: nothing but the scorer runs on this thread
            return failed_from(error)
