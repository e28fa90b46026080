"""Asks again, after a restart, for results that come later and had not come."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from otel_eval.model import Failed, Report
from otel_eval.pipeline_ports import MOST_CRASHES, AsyncResults
from otel_eval.storage.attempts import WHY, RecordedAttempts
from otel_eval.storage.durable import Durable

__all__ = ["PendingResults"]

_log = logging.getLogger("otel_eval")
_CRASHED: Final = Failed("crashed", "the process ended twice while it waited for the result")


class PendingResults:
    """Puts reports with pending results, on a thread of its own.

    Those that were worked on at a crash come first and one by one, once the closed traces were evaluated, so that nothing else
    of an earlier process is in progress if one of them ends the process again. After two crashes they fail instead.

    Args:
        reports: what is pending, those that were worked on at a crash first.
        durable: keeps their results.
        later: works on them.
        emit: takes failed results that cannot be written to the dead-letter file.
        caught_up: set when the traces that had been closed before the restart were evaluated.
        timeout_s: how long one of those that were worked on at a crash is waited for before the next one.
    """

    def __init__(
        self,
        reports: Sequence[Report],
        durable: Durable,
        later: AsyncResults,
        emit: Callable[[Report], None],
        caught_up: threading.Event,
        timeout_s: float,
    ) -> None:
        self._reports, self._durable, self._later, self._emit = reports, durable, later, emit
        self._attempts: Final[RecordedAttempts] = durable.attempts
        self._caught_up, self._timeout_s = caught_up, timeout_s
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin."""
        suspected = [each for each in self._reports if self._crashes(each)]
        if suspected:
            self._thread = threading.Thread(target=self._run, args=(suspected,), name="otel-eval-asking-again", daemon=True)
            self._thread.start()
        else:
            self._put(self._reports)

    @property
    def is_over(self) -> bool:
        """Whether everything was put."""
        return self._thread is None or not self._thread.is_alive()

    def _run(self, suspected: Sequence[Report]) -> None:
        self._caught_up.wait()
        for report in suspected:
            if self._crashes(report) >= MOST_CRASHES:
                self._give_up(report)
            else:
                self._later.put(report)
                self._later.wait(self._timeout_s)
        self._put([each for each in self._reports if not self._crashes(each)])

    def _put(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self._later.put(report)

    def _give_up(self, report: Report) -> None:
        results = tuple([each.result(_CRASHED) for each in report.pending])
        failed = replace(report, results=results, pending=(), late=True)
        if not self._durable.late(failed):
            return  # the process ends
        aside = self._attempts.set_aside([failed], WHY)
        _log.warning(
            "results of trace %s are not waited for again: %s; they are failed and %s",
            failed.trajectory.trace_id,
            WHY,
            "in the dead-letter file" if aside else "exported",
        )
        if aside:
            for sink in self._durable.takers(failed):
                self._durable.delivered(sink, [failed])
        else:
            self._emit(failed)

    def _crashes(self, report: Report) -> int:
        return self._attempts.crashes_later(bytes.fromhex(report.trajectory.trace_id))
