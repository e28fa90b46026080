"""What is held of one trace, and how it is handed over.

Knows the shape; when a trace closes and what it may hold is the buffer's to say.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Final

from otel_eval.assembly.evidence import Version
from otel_eval.assembly.records import Logs, listed
from otel_eval.assembly.subtrees import SpanTrees
from otel_eval.construction import constructor
from otel_eval.interfaces import ClosedTrace, Frame, Verdict
from otel_eval.model import Completeness

__all__ = ["SPAN_OVERHEAD_BYTES", "HeldTrace", "closed", "reopen"]

# What one span costs beside its payload: ids, the frame's tuple, its place in a dictionary (measured, CPython 3.11).
SPAN_OVERHEAD_BYTES: Final = 280


@dataclass(slots=True, eq=False)
class HeldTrace:
    """What is held of one trace."""

    touched: float
    created: float
    check: float  # when it is looked at next
    frames: dict[bytes, Frame] = field(default_factory=dict)
    logs: Logs = field(default_factory=dict)
    records: int = 0  # in `logs`
    versions: dict[bytes, Version] = field(default_factory=dict)  # of spans that arrived more than once
    size: int = 0
    cut: str = ""
    changed: set[bytes] | None = None
    verdicts: dict[bytes, Verdict] = field(default_factory=dict)
    look: float = inf  # when its trees are looked at, however many spans arrive
    trees: SpanTrees | None = None

    @property
    def kept_bytes(self) -> int:
        """Of `size`, what is kept of trees that were evaluated."""
        return 0 if self.trees is None else self.trees.kept.size


_new_closed: Final = constructor(ClosedTrace)


def closed(trace_id: bytes, trace: HeldTrace, reason: Completeness) -> ClosedTrace:
    """The trace as whoever judges it gets it: what it holds is not changed any more, see `reopen`."""
    changed = None if trace.changed is None else frozenset(trace.changed)
    released = None if trace.trees is None else trace.trees.kept.released()
    evidence = trace.trees.evidence(trace) if trace.trees is not None and released is not None else None
    logs = listed(trace.logs, trace.logs)
    return _new_closed(trace_id, trace.frames, reason, logs, trace.cut, changed, trace.verdicts, None, released, evidence)


def reopen(trace: HeldTrace) -> None:
    """Let spans that come late into a trace that was handed over: into copies, because it may be judged at this moment."""
    trace.frames, trace.changed = dict(trace.frames), set()
