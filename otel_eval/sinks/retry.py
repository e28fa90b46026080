"""When to try an export again: exponential backoff with jitter, the same for every exporter and for forwarding."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

__all__ = ["Backoff", "RetryPolicy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Waits in seconds.

    Attributes:
        first_s, factor, longest_s: before the second attempt, how much longer each further wait is, and the longest.
        most_s: the longest wait that an endpoint may ask for.
        last_s: between attempts while the process ends.
        recheck_s: between attempts to export a signal that the endpoint does not support.
        clock: in seconds, for `recheck_s`.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 30.0
    most_s: float = 60.0
    last_s: float = 0.2
    recheck_s: float = 60.0
    clock: Callable[[], float] = time.monotonic


class Backoff:
    """The waits between attempts to send one batch.

    Args:
        stopping: set when the process ends; it interrupts a wait.
    """

    def __init__(self, policy: RetryPolicy, stopping: threading.Event) -> None:
        self._policy: Final = policy
        self._stopping: Final = stopping
        self._delay_s = policy.first_s

    def wait(self, at_least_s: float = 0.0, at_most_s: float = inf) -> None:
        """Wait before the next attempt: as long as the endpoint asks for, but no longer than `at_most_s`."""
        policy = self._policy
        if self._stopping.is_set():
            time.sleep(policy.last_s)
            return
        # Jitter: several receivers that lost one backend must not return at the same instant.
        delay_s = max(min(at_least_s, policy.most_s), self._delay_s * random.uniform(0.5, 1.5))
        self._stopping.wait(min(delay_s, at_most_s))
        self._delay_s = min(policy.longest_s, self._delay_s * policy.factor)
