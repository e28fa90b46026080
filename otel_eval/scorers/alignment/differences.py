"""How a call differs from an expected call of the same tool: by names of arguments, never by
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from otel_eval.model import UNRECORDED
from otel_eval.scorers.alignment.expected import Criterion, Expected, Mode
from otel_eval.scorers.tool_names import tool
from otel_eval.scorers.values import as_object, decode_json, value_at

_BARE: Final = "__value__"
_MOST_KEYS: Final = 8


class Difference(NamedTuple):
    """An actual call that is not as expected. Its text is `city differs, days missing; 2
    unexpected`.

    Attributes:
        expected, actual: positions of both calls.
        differs: expected arguments with another value.
        missing: expected arguments that the call does not have.
        unexpected: the number of arguments that are not expected; their names are content.
        result: whether the result is another one.
    """

    expected: int
    actual: int
    differs: list[str]
    missing: list[str]
    unexpected: int
    result: bool

    def __str__(self) -> str:
        keys = [f"{_shown(key)} differs" for key in self.differs]
        keys += [f"{_shown(key)} missing" for key in self.missing]
        if len(keys) > _MOST_KEYS:
            keys = [*keys[:_MOST_KEYS], f"{len(keys) - _MOST_KEYS} more"]
        if self.result:
            keys.append("result differs")
        unexpected = [f"{self.unexpected} unexpected"] if self.unexpected else []
        return "; ".join([*([", ".join(keys)] if keys else []), *unexpected])


def _shown(key: str) -> str:
    return "the value" if key == _BARE else tool(key)


def difference_of(
    row: int, column: int, expected: Expected, actual: Any, criterion: Criterion
) -> Difference:
    """Compare what the criterion compares of an expected call and an actual call of its tool."""
    fields = criterion.each[row]
    differs: list[str] = []
    missing: list[str] = []
    unexpected = 0
    if fields.arguments:
        arguments, actual_arguments = as_object(expected.arguments), as_object(actual.arguments)
        mode = criterion.comparison.arguments
        differs, missing = _different_keys(arguments, actual_arguments, mode)
        if not isinstance(mode, tuple):
            unexpected = len(actual_arguments.keys() - arguments.keys())
    result = fields.result and decode_json(expected.result) != decode_json(actual.result)
    return Difference(row, column, differs, missing, unexpected, result)


def _different_keys(
    expected: Mapping[str, Any], actual: Mapping[str, Any], mode: Mode
) -> tuple[list[str], list[str]]:
    """The expected keys whose values differ, and those that are missing."""
    if isinstance(mode, tuple):
        pairs = [(key, value_at(expected, key), value_at(actual, key)) for key in mode]
    else:
        pairs = [(key, value, actual.get(key, UNRECORDED)) for key, value in expected.items()]
    different = [(key, other) for key, value, other in pairs if value != other]
    missing = [key for key, other in different if other is UNRECORDED]
    differs = [key for key, other in different if other is not UNRECORDED]
    # With `superset` the call may lack what is expected.
    return differs, [] if mode == "superset" else missing
