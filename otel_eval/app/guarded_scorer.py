"""Limits how long a user-defined scorer may take."""

from __future__ import annotations

import logging
from concurrent.futures import Future
from functools import partial
from typing import Final

from otel_eval.counters import Counters
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Outcome, Trajectory
from otel_eval.retry import suppress_tracing
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.outcomes import checked_outcome, failed_from
from otel_eval.scorers.policy import policy_of, severity_of
from otel_eval.worker_thread import WorkerThread

_log = logging.getLogger("otel_eval")

MOST_TIMEOUTS: Final = 3
"""How many calls of a scorer may hang before it is no longer called: each of them blocks a thread
until the process ends.
"""


def guard_scorer(scorer: Scorer, limit_s: float, counters: Counters) -> Scorer:
    """The scorer, with a time limit if it is user-defined; asynchronous scorers have a limit of
    their own.
    """
    is_excepted = is_own_scorer(scorer) or getattr(scorer, "asynchronous", False)
    return scorer if is_excepted else GuardedScorer(scorer, limit_s, counters)


class GuardedScorer:
    """Limits how long a user-defined scorer may take, so that it cannot delay other runs. Called
    for one run at a time.

    The scorer runs on a thread of its own. If it does not return in time, the result of the run is
    a failure, and the next run gets a new thread, because Python cannot end the old one; after
    three timeouts the scorer is no longer called. Code that holds the interpreter's lock, such as a
    regular expression with catastrophic backtracking, cannot be limited this way.

    Args:
        scorer: the scorer to call.
        limit_s: how long a call may take, in seconds.
        counters: counts `scorers.hung` by scorer.
    """

    def __init__(self, scorer: Scorer, limit_s: float, counters: Counters) -> None:
        self.name, self.type, self.version, self.needs = (
            scorer.name,
            scorer.type,
            scorer.version,
            scorer.needs,
        )
        self.applied_threshold: Final[float | None] = getattr(scorer, "applied_threshold", None)
        self.policy: Final = policy_of(scorer)
        self.severity: Final = severity_of(scorer)
        self.tool_names: Final = getattr(scorer, "tool_names", None)
        self.attribute_keys: Final[frozenset[str]] = getattr(scorer, "attribute_keys", frozenset())
        self._scorer, self._limit_s, self._counters = scorer, limit_s, counters
        self._worker: WorkerThread | None = None
        self._timeouts = 0

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome of the scorer, or `Failed` if it does not return in time or is no longer
        called.
        """
        if self._timeouts >= MOST_TIMEOUTS:
            return Failed(
                "quarantined", f"did not return within {self._limit_s:g} s for {MOST_TIMEOUTS} runs"
            )
        worker = self._worker = self._worker or WorkerThread(
            f"otel-eval-{self.name}", f"scorer {self.name} was not called"
        )
        outcome: Future[Outcome] = Future()
        worker.put(partial(_score, self._scorer, trajectory, outcome))
        if not worker.ensure():
            worker.serve_here()
        try:
            return outcome.result(self._limit_s)
        except TimeoutError:
            worker.end()  # the thread ends if the call ever returns
        self._worker = None
        self._timeouts += 1
        self._counters.add("scorers.hung", scorer=self.name)
        effect = (
            "it is no longer called"
            if self._timeouts >= MOST_TIMEOUTS
            else "this run goes without it"
        )
        _log.warning("scorer %s did not return within %g s; %s", self.name, self._limit_s, effect)
        return Failed("timeout", f"did not return within {self._limit_s:g} s")


def _score(scorer: Scorer, trajectory: Trajectory, outcome: Future[Outcome]) -> None:
    """Call the scorer without tracing and set its outcome; an error is a `Failed`."""
    # spans of an agent that the scorer runs would be scored by it again, in an endless loop
    with suppress_tracing():
        try:
            outcome.set_result(checked_outcome(scorer(trajectory)))
        except BaseException as error:  # noqa: BLE001
            # also SystemExit: only the scorer runs on this thread
            outcome.set_result(failed_from(error))
