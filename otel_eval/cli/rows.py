"""What was understood of a run, as the fields of one JSON object.

Knows the model and JSON; prints nothing.
"""

from __future__ import annotations

import json
import math
from typing import Any

from otel_eval.model import UNRECORDED, ToolCall, ToolError, Trajectory

__all__ = ["json_line", "overlaps", "trajectory_fields"]


def trajectory_fields(trajectory: Trajectory) -> dict[str, Any]:
    """The run with its calls; whatever was not recorded is null, and what is unknown is there only where it is."""
    return {
        "trace_id": trajectory.trace_id,
        "span_id": trajectory.span_id,
        "agent": trajectory.agent,
        "name": trajectory.name,
        "completeness": str(trajectory.completeness),
        **({"calls_unknown": trajectory.calls_unknown} if trajectory.calls_unknown else {}),
        "calls": [_call_fields(call, others) for call, others in zip(trajectory.calls, overlaps(trajectory.calls), strict=True)],
    }


def _call_fields(call: ToolCall, others: list[int]) -> dict[str, Any]:
    return {
        "name": call.name,
        "arguments": _recorded(call.arguments),
        "arguments_recorded": call.arguments is not UNRECORDED,
        "result": _recorded(call.result),
        "error": _error_fields(call.error),
        **({"failure_unknown": True} if call.failure_unknown else {}),
        "call_id": call.call_id or None,
        "span_id": call.span_id or None,
        "start_ns": call.start_ns,
        "end_ns": call.end_ns,
        "overlaps": others,
    }


def _recorded(value: Any) -> Any:
    return None if value is UNRECORDED else value


def _error_fields(error: ToolError | None) -> dict[str, str] | None:
    return None if error is None else {"type": error.type, "message": error.message}


def overlaps(calls: tuple[ToolCall, ...]) -> list[list[int]]:
    """For each call the indices of those it overlapped in time.

    Two calls overlap if neither was made within the other and each starts strictly before the other ends; a call
    without both times overlaps none. Calls are looked at in order of start, so that the cost follows the overlaps found.

    >>> from otel_eval.testing import call
    >>> overlaps((call("a", start_ns=0, end_ns=5), call("b", start_ns=4, end_ns=9), call("c", start_ns=9, end_ns=10)))
    [[1], [0], []]
    """
    found: list[list[int]] = [[] for _ in calls]
    by_start = sorted((i for i, call in enumerate(calls) if call.timed), key=lambda i: calls[i].start_ns or 0)
    running: list[int] = []
    for i in by_start:
        running = [j for j in running if _before(calls[i].start_ns, calls[j].end_ns)]
        for j in running:
            if _before(calls[j].start_ns, calls[i].end_ns) and not _related(calls[i], calls[j]):
                found[i].append(j)
                found[j].append(i)
        running.append(i)
    return [sorted(others) for others in found]


def _before(start: int | None, end: int | None) -> bool:
    return start is not None and end is not None and start < end


def _related(one: ToolCall, other: ToolCall) -> bool:
    return bool(one.span_id and one.span_id in other.enclosing) or bool(other.span_id and other.span_id in one.enclosing)


def json_line(fields: dict[str, Any]) -> str:
    """The object as one line of ASCII JSON; what JSON has no word for, such as NaN and the infinities, becomes text."""
    try:
        return json.dumps(fields, allow_nan=False, default=str)
    except ValueError:
        return json.dumps(_finite(fields), allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
