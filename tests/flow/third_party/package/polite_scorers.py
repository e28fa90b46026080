"""Scorers of a third-party package, which does not know that it is tested."""

from __future__ import annotations

from otel_eval.model import Trajectory
from otel_eval.scorers import scorer


@scorer("few_tools", version="1.2.0", needs=())
def few_tools(trajectory: Trajectory, *, most: int = 3) -> bool:
    """Whether no more than `most` different tools were called."""
    return len({call.name for call in trajectory.calls}) <= most
