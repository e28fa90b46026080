"""Build trajectories by hand, to test scorers.

This module is public API: users test their own scorers with it.

>>> from otel_eval.testing import call, trajectory
>>> trajectory(call("search", arguments={"q": "x"}), call("open")).calls[1].name
'open'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from otel_eval.model import UNRECORDED, ToolCall, ToolError, Trajectory


def call(
    name: str,
    *,
    arguments: object = UNRECORDED,
    result: object = UNRECORDED,
    error: object = None,
    start_ns: int | None = None,
    end_ns: int | None = None,
    call_id: str = "",
    span_id: str = "",
    enclosing: Sequence[str] = (),
) -> ToolCall:
    """Build a tool call; a value that is left out was not recorded.

    Args:
        name: the tool's name.
        arguments, result: JSON values.
        error: None or False, True, a message, an exception, a mapping with `type` and `message`, or
            a `ToolError`.
        start_ns, end_ns: Unix nanoseconds.
        call_id, span_id: ids, where a test needs them.
        enclosing: span ids of the calls inside which this one was made, outermost first.
    """
    return ToolCall(
        name=name,
        arguments=arguments,
        result=result,
        error=_error(error),
        call_id=call_id,
        span_id=span_id,
        start_ns=start_ns,
        end_ns=end_ns,
        enclosing=tuple(enclosing),
    )


def _error(error: object) -> ToolError | None:
    """What `call` accepts as an error."""
    if error is None or error is False:
        return None
    if isinstance(error, ToolError):
        return error
    if isinstance(error, BaseException):
        return ToolError(type(error).__name__, str(error))
    if isinstance(error, Mapping):
        return ToolError(str(error.get("type", "_OTHER")), str(error.get("message", "")))
    return ToolError("_OTHER", "" if error is True else str(error))


def trajectory(*calls: ToolCall, **fields: Any) -> Trajectory:
    """Build a trajectory of the calls, ordered by time if each has a start; `fields` are the other
    fields of `Trajectory`.
    """
    if calls and all(call_.start_ns is not None for call_ in calls):
        # The order that trajectories of real spans have: by start, end and span id.
        calls = tuple(
            sorted(
                calls,
                key=lambda c: (
                    c.start_ns,
                    c.end_ns if c.end_ns is not None else c.start_ns,
                    c.span_id,
                ),
            )
        )
    return Trajectory(calls=tuple(calls), **fields)
