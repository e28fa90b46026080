"""What building a trace's runs gives. Knows nothing but the shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from otel_eval.model import Trajectory

__all__ = ["Run"]


@dataclass(frozen=True, slots=True)
class Run:
    """A trajectory, and which spans it was read from.

    Attributes:
        members: ids of the spans of the run's subtree, or of all its fragments, each once, in any order.
            The first is the run's own span, or the top of a fragment, unless the run is the only one of its trace.
        span_id: the id of the run's own span (8 bytes), also where only fragments of it arrived.
        enclosing: the same of the outermost run around it, b"" if there is none.
    """

    trajectory: Trajectory
    members: Sequence[bytes] = field(compare=False)
    span_id: bytes
    enclosing: bytes = b""
