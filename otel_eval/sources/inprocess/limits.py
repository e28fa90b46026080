"""How many spans, traces and bytes of a process may be held, and for how long."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What may be held in a process.

    Attributes:
        max_traces: open traces; beyond it the oldest is given over as `overflow`.
        max_spans_per_trace: further spans of that trace are dropped, counted, and it is given over as `overflow`.
        max_bytes_per_trace: of spans of one trace that have ended; beyond it they are given over as `overflow`, and further
            spans of the trace are dropped and counted.
        max_bytes: of all spans of open traces; beyond it what has ended of the oldest traces is given over as `overflow`.
        max_spans: spans of all open traces, looked at once a second; beyond it the oldest traces are given over as `overflow`.
        max_waiting_spans: spans of closed traces that wait for the worker; a trace that comes when so many wait is dropped.
        idle_s: a trace without a span started or ended for so long is given over as `idle`; what it has open stays known.
        max_age_s: a trace open for so long, or since spans of it were given over, is given over as `aged` and forgotten.
    """

    max_traces: int = 100_000
    max_spans_per_trace: int = 10_000
    max_bytes_per_trace: int = 64 * 2**20
    max_bytes: int = 512 * 2**20
    max_spans: int = 1_000_000
    max_waiting_spans: int = 200_000
    idle_s: float = 300.0
    max_age_s: float = 3600.0

    @property
    def max_waiting_bytes(self) -> int:
        """Of spans of closed traces that wait for the worker; a trace that comes when more wait is dropped and counted."""
        return max(self.max_bytes // 2, self.max_bytes_per_trace)
