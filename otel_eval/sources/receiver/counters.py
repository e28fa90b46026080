"""What the receiver has seen, in numbers, by transport.

Of spans, received = accepted + rejected + own + refused; a refused span was not taken and will be sent again.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Final

__all__ = ["Counters"]


class Counters:
    """Numbers that only rise; safe to use from any thread.

    Names: requests, bad_requests, oversized_requests, refused_requests, unauthenticated_requests, refused_connections,
    failed_handshakes (HTTP only), internal_errors, accepted_spans, rejected_spans, own_spans, refused_spans, accepted_logs,
    rejected_logs, own_logs, ignored_logs, refused_logs, discarded_metrics (requests).
    """

    NAMES: Final = (
        "requests",
        "bad_requests",
        "oversized_requests",
        "refused_requests",
        "unauthenticated_requests",
        "refused_connections",
        "failed_handshakes",
        "internal_errors",
        "accepted_spans",
        "rejected_spans",
        "own_spans",
        "refused_spans",
        "accepted_logs",
        "rejected_logs",
        "own_logs",
        "ignored_logs",
        "refused_logs",
        "discarded_metrics",
    )

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _counts
        self._counts: Counter[tuple[str, str]] = Counter()

    def add(self, transport: str, **amounts: int) -> None:
        """Raise the named counters of `transport` ("grpc" or "http")."""
        with self._lock:
            for name, amount in amounts.items():
                if amount:
                    self._counts[name, transport] += amount

    def total(self, name: str) -> int:
        """A counter over all transports."""
        with self._lock:
            return sum(amount for (each, _), amount in self._counts.items() if each == name)

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Every counter by name, then by transport; those that never rose are there as {}."""
        with self._lock:
            counts = dict(self._counts)
        return {
            name: {transport: amount for (each, transport), amount in sorted(counts.items()) if each == name}
            for name in self.NAMES
        }
