"""Find what a run recorded under a name: an attribute, or a field of its output or input.

Knows a trajectory's attributes, output and input; knows no convention.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from otel_eval.model import UNRECORDED, Trajectory
from otel_eval.scorers.agreement import decoded

__all__ = ["field_of"]


def field_of(trajectory: Trajectory, name: str, *, within: tuple[str, ...] = ("output",)) -> Any:
    """The value that the name leads to, or `UNRECORDED`.

    An attribute of that name comes first; then, in the parts listed, the part itself if it is called so (`output`),
    or the field of an object at that dotted path.

    >>> from otel_eval.testing import trajectory
    >>> field_of(trajectory(output={"plan": {"steps": [1]}}), "plan.steps")
    [1]
    """
    if name in trajectory.attributes:
        return trajectory.attributes[name]
    for part in within:
        value = getattr(trajectory, part)
        if value is UNRECORDED:
            continue
        if name == part:
            return value
        found = _below(decoded(value), name)
        if found is not UNRECORDED:
            return found
    return UNRECORDED


def _below(value: Any, path: str) -> Any:
    if isinstance(value, Mapping) and path in value:
        return value[path]
    for key in path.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return UNRECORDED
        value = value[key]
    return value
