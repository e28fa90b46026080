"""Roughly how much memory a run takes while it is waited for.

Knows the parts of a trajectory that can be large; measures texts and counts the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from otel_eval.model import Trajectory

__all__ = ["weight"]

_VALUE: Final = 64  # bytes of a value beside its text
_CALL: Final = 400


def weight(run: Trajectory) -> int:
    """Bytes, within a factor of two or so.

    >>> weight(Trajectory(output="x" * 10_000)) // 1000
    10
    """
    values: list[Any] = [run.input, run.output, run.attributes]
    for call in run.calls:
        values += (call.arguments, call.result, call.error.message if call.error else None)
    size = _CALL * len(run.calls)
    while values:
        value = values.pop()
        size += _VALUE
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, Mapping):
            values += value.keys()
            values += value.values()
        elif isinstance(value, list | tuple):
            values += value
    return size
