"""Bind what a run recorded to the variables of an expression, and convert values of the evaluator
to Python.

What was not recorded is left out, not replaced by a default: reading it is an error in CEL, which
`&&` and `||` ignore if the other operand decides. What a run may hand to an expression is limited,
whatever the expression does with it: the evaluator traverses values recursively, and `filter` and
`map` take time and memory in the square of a list's length.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from otel_eval.model import (
    UNRECORDED,
    Skipped,
    SkipReason,
    ToolCall,
    Trajectory,
    Unnamed,
    elapsed_ns,
)
from otel_eval.scorers.cel.vocabulary import MOST_ITEMS, FieldsRead
from otel_eval.scorers.outcomes import NoScore, too_large
from otel_eval.scorers.tool_names import numbered
from otel_eval.scorers.values import decode_json

MOST_VALUES: Final = 100_000
MOST_CHARACTERS: Final = 2**18
_DEEPEST: Final = 64  # the evaluator recurses into values; beyond its stack the process would crash
_NS_PER_MS: Final = 1_000_000


REASONS: Final[Mapping[str, SkipReason]] = {"calls": "calls_unknown", "reference": "no_reference"}
"""The skip reason if one of these variables is missing; for any other value it is
`not_recorded`.
"""


class Bindings:
    """The variables of one run that an expression reads.

    Args:
        reading: what the expression reads; nothing else is bound.
        trajectory: the run.
        reference: the run's own reference; `UNRECORDED`, or a `Skipped` outcome, if there is none.

    Attributes:
        values: the values by name; a variable without a value was not recorded.
        reading: the argument `reading`.

    Raises:
        NoScore: the values are too large.
    """

    def __init__(
        self, reading: FieldsRead, trajectory: Trajectory, reference: object = UNRECORDED
    ) -> None:
        self.reading, self._run = reading, trajectory
        values: dict[str, Any] = {}
        contents: list[Any] = []
        if reading.run:
            values["run"] = _run(trajectory, reading)
            contents += values["run"].values()
        if "calls" in reading.names and not trajectory.calls_unknown:
            columns = {name: _COLUMNS[name](trajectory) for name in reading.calls}
            values["calls"] = _rows([*columns], [*columns.values()], len(trajectory.calls))
            contents += chain.from_iterable([columns[name] for name in _ANYTHING & reading.calls])
            if "name" in columns:
                contents.append("".join(columns["name"]))
            _refuse_long(values["calls"])
        self._no_reference = (
            reference.explanation
            if isinstance(reference, Skipped)
            else "reference not recorded"
            if reference is UNRECORDED
            else ""
        )
        if "reference" in reading.names and not self._no_reference:
            values["reference"] = reference
            contents.append(reference)
        self.values = fitting(values, contents)

    def without(self, variable: str) -> str:
        """Return why `calls` or `reference` has no value, or "" for any other variable."""
        return {"calls": "calls not recorded", "reference": self._no_reference}.get(variable, "")

    def missing(self, key: str, reading: FieldsRead) -> str:
        """Return what was not recorded, given that reading the field `key` failed, or "" if all
        such fields were recorded.

        Args:
            key: the name of the field.
            reading: what the expression reads.
        """
        calls = self._run.calls
        if key in reading.run and key not in self.values.get("run", ()):
            return f"run.{key} not recorded"
        if key in reading.attributes and key not in self._run.attributes:
            return f"attribute {key} not recorded"
        if key == "message" and "error" in reading.calls:
            return "message of an error not recorded"
        if key in reading.calls:
            for at, call in enumerate(self.values.get("calls", ())):
                if key not in call:
                    return f"{key} of {numbered(calls[at].name, at)} not recorded"
        elif any(
            _is_silent(call, field)
            for field in ("arguments", "result")
            if field in reading.calls
            for call in calls
        ):
            return f"{key} of some call not recorded"
        return ""


def _run(run: Trajectory, reading: FieldsRead) -> dict[str, Any]:
    """The fields of the run that are read and were recorded."""
    facts = {name: _FACTS[name](run) for name in reading.run if name != "attributes"}
    if reading.attributes:
        facts["attributes"] = {
            name: run.attributes[name] for name in reading.attributes if name in run.attributes
        }
    return {name: value for name, value in facts.items() if value is not UNRECORDED}


def _rows(names: Sequence[str], columns: Sequence[list[Any]], number: int) -> list[dict[str, Any]]:
    """Return one mapping of names to values for each row; values that were not recorded are left
    out.
    """
    # strict=True takes twice the time
    rows: list[dict[str, Any]] = [{}] * number
    if columns:
        rows = [dict(zip(names, row)) for row in zip(*columns)]  # noqa: B905
    if type(UNRECORDED) not in map(type, chain.from_iterable(columns)):
        return rows
    return [{name: value for name, value in row.items() if value is not UNRECORDED} for row in rows]


def _is_silent(call: ToolCall, field: str) -> bool:
    """Whether a key that is missing in this field may just not have been recorded."""
    value = getattr(call, field)
    return value is UNRECORDED or type(value) is Unnamed


def _error(call: ToolCall) -> object:
    if call.error is None:
        return UNRECORDED if call.failure_unknown else None
    return {
        "type": call.error.type,
        **({"message": call.error.message} if call.error.message else {}),
    }


def _duration(timed: ToolCall | Trajectory) -> Any:
    elapsed = elapsed_ns(timed)
    return UNRECORDED if elapsed is None else elapsed / _NS_PER_MS


def _recorded_start_ns(timed: ToolCall | Trajectory) -> int | None:
    return timed.start_ns if timed.start_ns or timed.end_ns else None


def _starts(run: Trajectory) -> list[Any]:
    """The start of each call in milliseconds after that of the run."""
    run_start, starts = _recorded_start_ns(run), map(_recorded_start_ns, run.calls)
    return [
        UNRECORDED if run_start is None or start is None else (start - run_start) / _NS_PER_MS
        for start in starts
    ]


def _value_if_known(value: object) -> object:
    """Return the value, or `UNRECORDED` for "" and None, which stand for an unknown value."""
    return value if value not in ("", None) else UNRECORDED


def _decoded_container(value: object) -> object:
    """Decode a JSON text of an object or a list; return any other value as it is."""
    if type(value) is not str or value.lstrip()[:1] not in ("{", "["):
        return value
    decoded = decode_json(value)
    return decoded if isinstance(decoded, dict | list) else value


def _decoded(column: Iterable[Any]) -> list[Any]:
    return [_decoded_container(value) if type(value) is str else value for value in column]


_FACTS: Final[Mapping[str, Any]] = {
    "agent": lambda run: _value_if_known(run.agent),
    "name": lambda run: _value_if_known(run.name),
    "service": lambda run: _value_if_known(run.service),
    "conversation": lambda run: _value_if_known(run.conversation_id),
    "duration_ms": _duration,
    # 0: many instrumentations record none, and each agent makes some
    "model_calls": lambda run: run.model_calls or UNRECORDED,
    "input_tokens": lambda run: _value_if_known(run.input_tokens),
    "output_tokens": lambda run: _value_if_known(run.output_tokens),
    "input": lambda run: _decoded_container(run.input),
    "output": lambda run: _decoded_container(run.output),
}
# the other columns are times, and names
_ANYTHING: Final = frozenset({"arguments", "result", "error", "agent"})
_ARGUMENTS, _RESULT = attrgetter("arguments"), attrgetter("result")
# Values are extracted column by column, in list comprehensions, since this is done for all calls of
# every run.
_COLUMNS: Final[Mapping[str, Callable[[Trajectory], list[Any]]]] = {
    "name": lambda run: [call.name for call in run.calls],
    "arguments": lambda run: _decoded(map(_ARGUMENTS, run.calls)),
    "result": lambda run: _decoded(map(_RESULT, run.calls)),
    "error": lambda run: [_error(call) for call in run.calls],
    "duration_ms": lambda run: list(map(_duration, run.calls)),
    "start_ms": _starts,
    "agent": lambda run: [
        call.agent_path[-1] if call.agent_path else UNRECORDED for call in run.calls
    ],
}


def fitting(values: dict[str, Any], contents: list[Any]) -> dict[str, Any]:
    """Return the values in the types that CEL accepts: lists and dicts of Unicode texts without
    NUL, and numbers of 64 bits.

    Args:
        values: variables by name.
        contents: the recorded values among them, of any size and kind.

    Raises:
        NoScore: there are too many values, texts or a list are too long, or nesting is too deep.
    """
    level = contents
    room, characters, clean = MOST_VALUES - len(level), MOST_CHARACTERS, True
    for _ in range(_DEEPEST):
        texts, below, plain = _surveyed(level)
        room, characters, clean = room - len(below), characters - texts, clean and plain
        if room < 0 or characters < 0:
            limit = f"{MOST_VALUES} values" if room < 0 else f"{MOST_CHARACTERS} characters"
            raise NoScore(too_large(f"more than {limit}"))
        if not below:
            return values if clean else _accepted_value(values)
        level = below
    raise NoScore(too_large(f"nested deeper than {_DEEPEST} levels"))


def _surveyed(level: list[Any]) -> tuple[int, list[Any], bool]:
    """Return the characters on a level of nesting, the values below it, and whether CEL accepts all
    of it unchanged.
    """
    characters, below, clean = 0, list[Any](), True
    # the most frequent types first, since this is done for all values of every run
    for value in level:
        kind = type(value)
        if kind is str:
            characters += len(value)
            clean = clean and _is_accepted(value)
        elif kind is dict:
            below += value.values()
            keys = _joined_keys(value)
            characters += len(keys)
            clean = clean and _is_accepted(keys)
        elif kind is list or kind is tuple:
            _refuse_long(value)
            clean = clean and kind is list
            below += value
        elif kind is int:
            clean = clean and -_BEYOND <= value < _BEYOND
        elif (
            value is not None and kind is not bool and kind is not float and value is not UNRECORDED
        ):
            clean = False
            below += value.values() if isinstance(value, Mapping) else ()
    return characters, below, clean


def _is_accepted(text: str) -> bool:
    """Whether CEL has the same text: the library ends a text at NUL, which could hide what follows
    from a rule.
    """
    return "\0" not in text and (text.isascii() or is_unicode(text))


def _joined_keys(mapping: dict[Any, Any]) -> str:
    try:
        return "".join(mapping)
    except TypeError:  # not all are texts
        return "".join(map(str, mapping))


def _refuse_long(items: Sequence[Any]) -> None:
    """Raise `NoScore` for a list of more than `MOST_ITEMS`."""
    if len(items) > MOST_ITEMS:
        raise NoScore(too_large(f"a list of {len(items)} items"))


_BEYOND: Final = 2**63


def is_unicode(text: str) -> bool:
    """Whether the text has no unpaired surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _accepted_value(value: object) -> Any:
    """A value in the types that CEL accepts."""
    if isinstance(value, str):
        return value.replace("\0", "\ufffd").encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, Mapping):
        return {_accepted_value(key): _accepted_value(below) for key, below in value.items()}
    if isinstance(value, list | tuple):
        return [_accepted_value(below) for below in value]
    if isinstance(value, int) and not isinstance(value, bool) and not -_BEYOND <= value < _BEYOND:
        return _as_double(value)
    return value if value is None or isinstance(value, bool | int | float) else str(value)


def _as_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")
