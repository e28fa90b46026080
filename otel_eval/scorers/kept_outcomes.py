"""Outcomes of scorers that read no more of a run than its outline: which tools were called in which
order, and which calls failed. Runs with the same outline share them.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from otel_eval.model import Failed, Outcome, Scored, Trajectory
from otel_eval.scorers.partial_order import is_sequential, parallel_groups

Outline = tuple[tuple[Hashable, ...], tuple[range, ...]]
"""The name of each call, with its error and what is unknown of it if it has any of both, and the
groups of parallel calls; no groups if no calls are parallel.
"""

_MOST_CALLS: Final = 100  # longer runs are seldom alike
_MOST_BYTES: Final = 2**20  # of the outcomes of one scorer
# what an outcome and its JSON take, and the two for each character of the outline, or less
_BYTES_OF_OUTCOME: Final = 2000
_BYTES_OF_CHARACTER: Final = 40


def outline_of(run: Trajectory) -> Outline | None:
    """The outline of a run; None if outcomes depend on more than that, or the run is long."""
    calls = run.calls
    if (
        run.incomplete
        or run.waiting
        or run.too_large
        or run.calls_unknown
        or run.unseen_tools
        or len(calls) > _MOST_CALLS
    ):
        return None
    names = [
        call.name
        if call.error is None and call.refusal is False and not call.failure_unknown
        else (call.name, call.error and call.error.type, call.refusal, call.failure_unknown)
        for call in calls
    ]
    return tuple(names), () if is_sequential(calls) else tuple(parallel_groups(calls))


class KeptOutcomes:
    """The outcomes of one scorer by outline. When they are full it begins anew."""

    def __init__(self) -> None:
        self._outcomes: Final[dict[Outline, Outcome]] = {}
        self._bytes = 0

    def get(self, outline: Outline) -> Outcome | None:
        """Return the outcome of runs with this outline, if it is kept."""
        return self._outcomes.get(outline)

    def add(self, outline: Outline, outcome: Outcome) -> None:
        """Keep an outcome, unless it is a failure, which may be one of the moment."""
        size = _BYTES_OF_OUTCOME + _BYTES_OF_CHARACTER * len(str(outline))
        if isinstance(outcome, Failed) or size > _MOST_BYTES:
            return
        self._bytes += size
        if self._bytes > _MOST_BYTES:
            self._outcomes.clear()
            self._bytes = size
        self._outcomes[outline] = outcome
        if isinstance(outcome, Scored):
            object.__setattr__(outcome, "encoded", "")
