"""Calls that failed, and what followed them. Error messages are content and never read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from otel_eval.model import Outcome, Skipped, Trajectory
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import count, optional, reads
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.text import listed

__all__ = ["ErrorRecovery", "ToolErrors"]


@scorer("tool_errors")
@dataclass(frozen=True, slots=True, kw_only=True)
class ToolErrors(BaseScorer):
    """Share of calls without error. 1 (none failed) is best, range 0-1.

    1 - failed calls / calls. Details: `failed`, `total`, `errors` [{tool, actual, type}], where `actual` is the call's
    position. Skipped: no call; a call that may have failed, because its instrumentation shows some failures in results only and
    its result was not recorded.

    Example:
        {type: tool_errors, threshold: 1.0}

    >>> from otel_eval.testing import call, trajectory
    >>> ToolErrors()(trajectory(call("search"), call("open", error="404"))).explanation
    '1 of 2 calls failed: open (1)'
    """

    type: ClassVar[str] = "tool_errors"

    @property
    def reads_failures(self) -> bool:
        """It does."""
        return True

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Count the errors."""
        calls = trajectory.calls
        if not calls:
            return Skipped("no tool call")
        failed = [(call, position) for position, call in enumerate(calls) if call.error]
        errors = [{"tool": call.name, "actual": at, "type": call.error.type} for call, at in failed if call.error]
        said = f"{len(failed)} of {len(calls)} calls failed"
        if failed:
            said += f": {listed([(call.name, position) for call, position in failed])}"
        details = {"failed": len(failed), "total": len(calls), "errors": errors}
        return Finding((len(calls) - len(failed)) / len(calls), said, details)


@scorer("error_recovery")
@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRecovery(BaseScorer):
    """Share of failed calls that were followed by a success of the same tool. 1 is best, range 0-1.

    Recovered / failed. Details: `recovered`, `lost` (positions of failed calls). Skipped: no call failed; a call that may have
    failed, as for `tool_errors`.

    Attributes:
        within: how many calls later the success may come; left out: any later call.

    Example:
        {type: error_recovery, within: 3}

    >>> from otel_eval.testing import call, trajectory
    >>> ErrorRecovery(within=1)(trajectory(call("open", error="404"), call("search"), call("open"))).value
    0.0
    """

    type: ClassVar[str] = "error_recovery"

    within: int | None = field(default=None, metadata=reads(optional(count("calls", 3))))

    @property
    def reads_failures(self) -> bool:
        """It does."""
        return True

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Look from each failure for the next success of its tool, from the last call backwards."""
        succeeded: dict[str, int] = {}  # tool → the nearest success after the position
        recovered: list[int] = []
        lost: list[int] = []
        for position in range(len(trajectory.calls) - 1, -1, -1):
            call = trajectory.calls[position]
            if call.error is None:
                succeeded[call.name] = position
                continue
            success = succeeded.get(call.name)
            near = success is not None and (self.within is None or success - position <= self.within)
            (recovered if near else lost).append(position)
        if not recovered and not lost:
            return Skipped("no call failed")
        said = f"{len(recovered)} of {len(recovered) + len(lost)} failed calls recovered"
        if lost:
            said += f"; not: {listed([(trajectory.calls[position].name, position) for position in reversed(lost)])}"
        details = {"recovered": recovered[::-1], "lost": lost[::-1]}
        return Finding(len(recovered) / (len(recovered) + len(lost)), said, details)
