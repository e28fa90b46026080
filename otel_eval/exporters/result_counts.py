"""Counts of results by scorer, outcome and error type, and one log line a minute for each scorer that fails."""

from __future__ import annotations

import os
import threading
from collections import Counter
from typing import Final

from otel_eval.counters import BoundedNames, Warnings, named_count, renew_after_fork
from otel_eval.exporters.attributes import outcome_of
from otel_eval.model import UNKNOWN_REASONS, Failed, Report, Result, Skipped

__all__ = ["ResultCounts"]

_MOST_ERRORS: Final = 100  # error types; a scorer of your own may raise anything


class ResultCounts:
    """Counts results by scorer and outcome. May be called from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards what follows
        renew_after_fork(self)
        self._by_scorer: Final[Counter[tuple[str, str, str]]] = Counter()  # scorer, outcome, error type
        self._skipped: Final[Counter[str]] = Counter()  # by reason
        self._errors: Final = BoundedNames(_MOST_ERRORS)
        self._pending = 0
        self._warnings: Final = Warnings()
        self._shows_place: Final = os.environ.get("OTEL_EVAL_DEBUG") == "1"

    def add(self, report: Report) -> None:
        """Count the report's results."""
        failed: list[tuple[Result, str, int]] = []
        with self._lock:
            self._pending += len(report.pending)
            for result in report.results:
                outcome = result.outcome
                error = self._errors.name(outcome.error_type) if isinstance(outcome, Failed) else ""
                key = (result.scorer, outcome_of(result), error)
                self._by_scorer[key] += 1
                if isinstance(outcome, Skipped):
                    self._skipped[outcome.reason] += 1
                if error:
                    failed.append((result, error, self._by_scorer[key]))
        for each in failed:
            self._warn(*each)

    def _warn(self, result: Result, error: str, times: int) -> None:
        outcome = result.outcome
        assert isinstance(outcome, Failed)
        status = outcome.details.get("http_status")
        more = f" (HTTP status {status})" if status is not None else ""
        place = f" at {outcome.place}" if self._shows_place and outcome.place else ""
        subject = f"{result.scorer} {error}"
        self._warnings.say(subject, "scorer %s failed: %s%s%s; %d so far", result.scorer, error, more, place, times)

    @property
    def evaluated(self) -> bool:
        """Whether a result is pending, or is more than a skip for missing evidence."""
        with self._lock:
            unknown = sum([self._skipped[reason] for reason in UNKNOWN_REASONS])
            return self._pending > 0 or self._by_scorer.total() > unknown

    def skipped(self) -> list[tuple[str, int]]:
        """Skipped results by reason, the most frequent first."""
        with self._lock:
            return self._skipped.most_common()

    def counts(self) -> dict[str, int]:
        """Every count as `name{label=value,…}`."""
        with self._lock:
            by_scorer, skipped = list(self._by_scorer.items()), list(self._skipped.items())
        found = {}
        for (scorer, outcome, error), count in sorted(by_scorer):
            labels = {"scorer": scorer, "outcome": outcome} | ({"error_type": error} if error else {})
            found[named_count("scorers.results", labels)] = count
        return found | {named_count("results.skipped", {"reason": reason}): count for reason, count in sorted(skipped)}
