"""Completes reports whose results come later, in the order of the reports.

Up to 64 reports are waited for at one time, so that judges work on several runs in parallel.
"""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Final

from otel_eval.model import Report, Result
from otel_eval.pipeline_ports import AsyncResults

__all__ = ["LateResults"]

_AHEAD: Final = 64
_LOOK_S: Final = 1.0  # a wait is interrupted this often, so that Ctrl-C works


class LateResults:
    """Waits for what comes later.

    Args:
        later: makes what runs it, given what takes a late report; None if nothing comes later.
    """

    def __init__(self, later: Callable[[Callable[[Report], None]], AsyncResults | None]) -> None:
        self._came: Final = threading.Condition()  # guards _results
        self._results: Final[defaultdict[str, deque[Result]]] = defaultdict(deque)
        self._later: Final = later(self._take)

    def _take(self, report: Report) -> None:
        with self._came:
            for result in report.results:
                self._results[result.result_id].append(result)
            self._came.notify_all()

    def whole(self, reports: Iterable[Report]) -> Iterator[Report]:
        """The reports with all their results, late ones last."""
        later = self._later
        if later is None:
            yield from reports
            return
        waiting: deque[Report] = deque()
        for report in reports:
            later.put(report)
            waiting.append(report)
            while waiting and (len(waiting) > _AHEAD or self._is_there(waiting[0])):
                yield self._joined(waiting.popleft())
        while waiting:
            yield self._joined(waiting.popleft())

    def _is_there(self, report: Report) -> bool:
        return all(self._results.get(pending.result_id) for pending in report.pending)

    def _joined(self, report: Report) -> Report:
        with self._came:
            while not self._is_there(report):
                self._came.wait(_LOOK_S)
                if self._later is not None:
                    self._later.wait(0.0)  # lets the evaluator replace a thread that is blocked
            came = [self._results[pending.result_id].popleft() for pending in report.pending]
            for pending in report.pending:
                if not self._results[pending.result_id]:
                    del self._results[pending.result_id]
        return replace(report, results=(*report.results, *came), pending=())

    def stop(self) -> None:
        """Stop waiting for results."""
        if self._later is not None:
            self._later.stop(0.0)
