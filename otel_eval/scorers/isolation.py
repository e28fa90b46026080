"""Keep scorers that are not built in from changing what other scorers read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from otel_eval.interfaces import Scorer
from otel_eval.model import ToolCall, Trajectory
from otel_eval.scorers.functions import FunctionScorer

__all__ = ["is_ours", "private_copy"]


def is_ours(scorer: Scorer) -> bool:
    """Whether the scorer's code is this package's: not a user's function, class or object."""
    return type(scorer).__module__.startswith("otel_eval.") and not isinstance(scorer, FunctionScorer)


def private_copy(trajectory: Trajectory) -> Trajectory:
    """The trajectory with copies of every JSON value that could be changed in place.

    Arguments, results, input, output and attributes are shared by all scorers of a run. The cost is proportional to
    what was recorded; a value nested deeper than Python recurses raises `RecursionError`, which fails the scorer's result.
    """
    return replace(
        trajectory,
        calls=tuple(map(_call, trajectory.calls)),
        input=_copied(trajectory.input),
        output=_copied(trajectory.output),
        attributes=_copied(dict(trajectory.attributes)),
    )


def _call(call: ToolCall) -> ToolCall:
    if not isinstance(call.arguments, dict | list) and not isinstance(call.result, dict | list):
        return call
    return replace(call, arguments=_copied(call.arguments), result=_copied(call.result))


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value
