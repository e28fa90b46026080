"""Repeated calls: identical ones, and cycles that a run is caught in."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from otel_eval.model import UNRECORDED, Outcome, Skipped, ToolCall, Trajectory, Unnamed
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import count, flag, reads
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.text import listed, tool
from otel_eval.scorers.values import hashable

__all__ = ["LoopDetection", "RedundantCalls"]


def _keys(calls: Sequence[ToolCall], *, ignore_arguments: bool) -> list[Hashable] | None:
    """What makes calls identical: name and arguments; None where arguments are wanted and one was not recorded."""
    if ignore_arguments:
        return [call.name for call in calls]
    if any(call.arguments is UNRECORDED for call in calls):
        return None
    unnamed = {call.name for call in calls if type(call.arguments) is Unnamed}
    if any(call.name in unnamed and type(call.arguments) is not Unnamed for call in calls):
        return None
    return [(call.name, hashable(call.arguments)) for call in calls]


@scorer("redundant_calls")
@dataclass(frozen=True, slots=True, kw_only=True)
class RedundantCalls(BaseScorer):
    """How few calls repeat an identical earlier one. 1 (none does) is best, range 0-1.

    1 - repeated calls / calls; identical are calls of one tool with equal arguments. Details: `repeated` [[position, first
    position], …]. Skipped: no call; some arguments were not recorded.

    Attributes:
        ignore_arguments: `true`: calls of one tool are identical whatever their arguments.

    Example:
        {type: redundant_calls}

    >>> from otel_eval.testing import call, trajectory
    >>> RedundantCalls()(trajectory(call("get", arguments={"id": 1}), call("get", arguments={"id": 1}))).value
    0.5
    """

    type: ClassVar[str] = "redundant_calls"

    ignore_arguments: bool = field(default=False, metadata=reads(flag))

    @property
    def needs(self) -> frozenset[str]:
        """Arguments, unless they are ignored."""
        return frozenset() if self.ignore_arguments else frozenset({"arguments"})

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Count what was made before."""
        calls = trajectory.calls
        if not calls:
            return Skipped("no tool call")
        keys = _keys(calls, ignore_arguments=self.ignore_arguments)
        if keys is None:
            return Skipped("arguments not recorded", reason="not_recorded")
        first: dict[Hashable, int] = {}
        earlier = [first.setdefault(key, position) for position, key in enumerate(keys)]
        repeated = [[position, before] for position, before in enumerate(earlier) if before != position]
        said = f"{len(repeated)} of {len(calls)} calls repeat an earlier one"
        if repeated:
            said += f": {listed([(calls[position].name, position) for position, _ in repeated])}"
        return Finding(len(first) / len(calls), said, {"repeated": repeated})


class _Repetition(NamedTuple):
    """`times` repetitions in a row of the `length` calls from `first` on."""

    first: int
    length: int
    times: int


@scorer("loop_detection")
@dataclass(frozen=True, slots=True, kw_only=True)
class LoopDetection(BaseScorer):
    """Whether a run goes round in circles: 1 (good) if not, 0 if so.

    0 if some cycle of 1 to `max_cycle` identical calls is repeated more than `max_repeats` times in a row; identical as for
    `redundant_calls`. Details: `loops` [{first, length, times, tools}], the most repeated of each length. Skipped: the names
    repeat, only the arguments could tell, and some were not recorded.

    Attributes:
        max_repeats: how often in a row a cycle may be repeated.
        max_cycle: the longest cycle looked for, in calls.
        ignore_arguments: `true`: calls of one tool are identical whatever their arguments.

    Example:
        {type: loop_detection, max_repeats: 3}

    >>> from otel_eval.testing import call, trajectory
    >>> loop = LoopDetection(max_repeats=2, ignore_arguments=True)
    >>> loop(trajectory(*map(call, "abababc"))).explanation
    'a, b 3 times in a row from call 0'
    """

    type: ClassVar[str] = "loop_detection"

    max_repeats: int = field(default=3, metadata=reads(count("repetitions", 3)))
    max_cycle: int = field(default=4, metadata=reads(count("calls", 4)))
    ignore_arguments: bool = field(default=False, metadata=reads(flag))

    @property
    def needs(self) -> frozenset[str]:
        """Arguments, unless they are ignored."""
        return frozenset() if self.ignore_arguments else frozenset({"arguments"})

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Look for cycles of each length; without one among the names there is none among the calls."""
        calls = trajectory.calls
        loops = self._loops([call.name for call in calls])
        if loops and not self.ignore_arguments:
            keys = _keys(calls, ignore_arguments=False)
            if keys is None:
                return Skipped("arguments not recorded", reason="not_recorded")
            loops = self._loops(keys)
        loops_found = [{**loop._asdict(), "tools": [calls[loop.first + at].name for at in range(loop.length)]} for loop in loops]
        said = [
            f"{', '.join(tool(calls[loop.first + at].name) for at in range(loop.length))} {loop.times} times in a row "
            f"from call {loop.first}"
            for loop in loops
        ]
        return Finding(0.0 if loops else 1.0, "; ".join(said) or "no loop", {"loops": loops_found})

    def _loops(self, keys: Sequence[Hashable]) -> list[_Repetition]:
        lengths = range(1, min(self.max_cycle, len(keys) // (self.max_repeats + 1)) + 1)
        found = [_most_repeated(keys, length) for length in lengths]
        # A cycle that is itself a shorter cycle over and over is listed already.
        listed_cycles: list[_Repetition] = []
        for loop in found:
            if loop.times > self.max_repeats and not any(loop.length % each.length == 0 for each in listed_cycles):
                listed_cycles.append(loop)
        return listed_cycles


def _most_repeated(keys: Sequence[Hashable], length: int) -> _Repetition:
    """The cycle of that length that comes most often in a row: a stretch where each call equals that `length` before."""
    best, stretch = _Repetition(0, length, 1), 0
    for position in range(length, len(keys)):
        stretch = stretch + 1 if keys[position] == keys[position - length] else 0
        times = stretch // length + 1
        if times > best.times:
            best = _Repetition(position - times * length + 1, length, times)
    return best
