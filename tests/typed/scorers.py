"""What a type checker sees of functions that are registered as scorers: the last is an error."""

from __future__ import annotations

from otel_eval.model import Trajectory
from otel_eval.scorers import scorer


@scorer("good")
def good(run: Trajectory, limit: int = 3) -> float:
    return 1.0


@scorer("late")
async def late(run: Trajectory) -> bool:
    return True


@scorer("class")
class Kind:
    def __call__(self, run: Trajectory) -> float:
        return 1.0


@scorer("bad")  # type: ignore[type-var]
def bad(run: Trajectory) -> str:
    return ""
