"""Whether calls, or the steps that a run recorded, have the required fields. Their values are not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED, Outcome, Skipped, ToolCall, Trajectory
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import STRING, did_you_mean, invalid_value, optional, reads, text, with_schema
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.text import tool
from otel_eval.scorers.values import decode_json, recorded_field

__all__ = ["TrajectoryStructure"]

_OF_A_CALL: Final = ("name", "arguments", "result", "error", "call_id", "span_id", "start_ns", "end_ns", "agent_path")
_MOST_SAID: Final = 5


@with_schema({"type": "array", "items": STRING})
def _keys(key: str, value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(isinstance(each, str) and each for each in value):
        raise invalid_value(key, value, "a list of keys", f"write e.g. {key}: [arguments, result]")
    return tuple(value)


@scorer("trajectory_structure")
@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryStructure(BaseScorer):
    """Share of calls, or of recorded steps, that have every required field. 1 is best, range 0-1.

    Valid / total. Of calls: a field counts if it was recorded, even as null; a failed call needs no result. Of steps: each
    needs `step` or `id` and every required key; entries that are no objects are invalid; an empty list, or anything that is no
    list, scores 0. Details: `valid`, `total`, `errors` with positions. Skipped: no calls; a key that no call recorded; no steps
    recorded.

    Attributes:
        required_keys: fields that must be there; by default `arguments`, `result` of calls and `action` of steps.
        steps: an attribute, or a field of the run's output, that holds a list of steps, or an object with one under `trajectory`;
            left out, calls are checked.

    Example:
        {type: trajectory_structure, required_keys: [arguments]}

    >>> from otel_eval.testing import call, trajectory
    >>> TrajectoryStructure()(trajectory(call("a", arguments={}, result=None), call("b", arguments={}))).explanation
    '1 of 2 valid; b (1): missing result'
    """

    type: ClassVar[str] = "trajectory_structure"

    required_keys: tuple[str, ...] | None = field(default=None, metadata=reads(optional(_keys)))
    steps: str | None = field(default=None, metadata=reads(optional(text)))
    required: tuple[str, ...] = field(init=False, repr=False, compare=False)

    @property
    def reads_calls(self) -> bool:
        """Unless it is about steps."""
        return self.steps is None

    @property
    def needs(self) -> frozenset[str]:
        """What is required of calls; the run's output for steps."""
        if self.steps is not None:
            return frozenset({"content"})
        needs = {"results"} & {f"{key}s" for key in self.required}
        return frozenset(needs | ({"arguments"} if {"arguments", "call_id"} & {*self.required} else set()))

    @property
    def attribute_keys(self) -> frozenset[str]:
        """The attribute that may hold the steps."""
        return frozenset({self.steps} if self.steps else ())

    def prepare(self) -> None:
        """Default the keys, and refuse those that no call can have."""
        default = ("arguments", "result") if self.steps is None else ("action",)
        self._set("required", default if self.required_keys is None else self.required_keys)
        if self.steps is not None:
            return
        unknown = [key for key in self.required if key not in _OF_A_CALL]
        if unknown:
            raise ConfigError(*(f"required_keys: no call can have {key!r}; {did_you_mean(key, _OF_A_CALL)}" for key in unknown))
        if not self.required:
            raise ConfigError("required_keys: an empty list asks for nothing; name a field such as result or leave it out")

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Check calls or steps."""
        if self.steps is not None:
            return self._of_steps(recorded_field(trajectory, self.steps))
        if not trajectory.calls:
            return Skipped("no tool call")
        silent = next((key for key in self.required if not any(_has(call, key) for call in trajectory.calls)), None)
        if silent is not None:
            return Skipped(f"{silent} not recorded of any call", reason="not_recorded")
        errors: list[dict[str, Any]] = []
        for position, call in enumerate(trajectory.calls):
            missing = [key for key in self.required if not _has(call, key)]
            if missing:
                errors.append({"tool": call.name, "actual": position, "missing": missing})
        said = [f"{tool(each['tool'])} ({each['actual']}): missing {', '.join(each['missing'])}" for each in errors[:_MOST_SAID]]
        return _finding(len(trajectory.calls), errors, said)

    def _of_steps(self, steps: Any) -> Finding | Outcome:
        if steps is UNRECORDED:
            return Skipped(f"{self.steps} not recorded", reason="not_recorded")
        steps = decode_json(steps)
        if isinstance(steps, Mapping) and "trajectory" in steps:
            steps = decode_json(steps["trajectory"])
        if not isinstance(steps, list | tuple):
            return Finding(0.0, f"{self.steps} holds no list of steps", {"valid": 0, "total": 0, "errors": ["no list"]})
        if not steps:
            return Finding(0.0, "no steps", {"valid": 0, "total": 0, "errors": ["no steps"]})
        checked = [(position, self._lacks(step)) for position, step in enumerate(steps)]
        errors: list[dict[str, Any]] = [{"step": position, "missing": missing} for position, missing in checked if missing]
        said = [f"step {each['step']}: missing {', '.join(each['missing'])}" for each in errors[:_MOST_SAID]]
        return _finding(len(steps), errors, said)

    def _lacks(self, step: Any) -> list[str]:
        if not isinstance(step, Mapping):
            return ["an object"]
        unnumbered = [] if "step" in step or "id" in step else ["step or id"]
        return unnumbered + [key for key in self.required if key not in step]


def _has(call: ToolCall, key: str) -> bool:
    value = getattr(call, key)
    if key == "result" and call.error:  # a failed call need not have any
        return True
    if key in ("arguments", "result"):
        return value is not UNRECORDED
    return value is not None and value not in ("", ())


def _finding(total: int, errors: list[dict[str, Any]], said: list[str]) -> Finding:
    valid = total - len(errors)
    more = [f"and {len(errors) - len(said)} more"] if len(errors) > len(said) else []
    details = {"valid": valid, "total": total, "errors": errors}
    return Finding(valid / total, "; ".join([f"{valid} of {total} valid", *said, *more]), details)
