"""Attempts to export one signal to one endpoint, the same for every exporter and for forwarding."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from otel_eval.sinks.responses import ExportResult, SignalHistory
from otel_eval.sinks.retry import Backoff, RetryPolicy

__all__ = ["Attempts"]

_log = logging.getLogger("otel_eval")


class Attempts:
    """Makes attempts, and none while the endpoint does not support the signal, but for one in a while.

    Args:
        name: of the exporter, and after the last dot what it exports.
        retry: how long to wait between attempts.
        history: what the endpoint has accepted before.
        refusals: what happens to data of a signal that the endpoint does not support, for the log.
    """

    def __init__(self, name: str, retry: RetryPolicy, history: SignalHistory, refusals: str) -> None:
        self._exporter, _, self._signal = name.rpartition(".")
        self._retry, self._history, self._refusals = retry, history, refusals

    @property
    def unsupported(self) -> bool:
        """Whether the endpoint does not support the signal."""
        return bool(self._history.unsupported)

    @property
    def allowed(self) -> bool:
        """Whether the next one is made."""
        return self._history.allows()

    def make(self, send: Callable[[], ExportResult]) -> ExportResult:
        """Make an attempt, if one is due. The result is ok, retryable, permanent or unsupported."""
        before = self._history.unsupported
        if not self.allowed:
            return ExportResult("unsupported", before)
        result = self._history.resolve(send())
        if before and not self._history.unsupported:
            _log.info("the endpoint of %s supports %s now", self._exporter, self._signal)
        elif self._history.unsupported and not before:
            _log.warning(
                "the endpoint of %s does not support %s (%s): %s; one is tried again every %g s",
                *(self._exporter, self._signal, result.reason, self._refusals, self._retry.recheck_s),
            )
        return result

    def backoff(self, stopping: threading.Event) -> Backoff:
        """The waits between the attempts for one batch; `stopping` interrupts them."""
        return Backoff(self._retry, stopping)
