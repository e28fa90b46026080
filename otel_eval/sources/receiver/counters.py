"""The counters of the receiver, by transport ("grpc" or "http").

Of spans, received = accepted + rejected + own + refused; a refused span was not accepted and the sender keeps it to retry.
"""

from __future__ import annotations

from typing import Final

from otel_eval.counters import Counters

__all__ = ["NAMES", "add_counts", "counts_by_transport"]

NAMES: Final = (
    "requests",
    "bad_requests",
    "oversized_requests",
    "refused_requests",
    "unauthenticated_requests",
    "refused_connections",
    "failed_handshakes",  # HTTP only
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
    "discarded_metrics",  # requests
)


def add_counts(counters: Counters, transport: str, **amounts: int) -> None:
    """Raise the named counters of a transport."""
    for name, amount in amounts.items():
        if amount:
            counters.add(name, amount, transport=transport)


def counts_by_transport(counters: Counters) -> dict[str, dict[str, int]]:
    """Every counter by name, then by transport; counters that were never raised are {}."""
    counts: dict[str, dict[str, int]] = {}
    for name in NAMES:
        by_transport = {transport: counters.get(name, transport=transport) for transport in ("grpc", "http")}
        counts[name] = {transport: count for transport, count in by_transport.items() if count}
    return counts
