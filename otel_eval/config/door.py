"""What every part of the configuration shares: strictness, and errors in one line.

Knows pydantic and how its complaints are told to a person; knows no key of the configuration.
"""

from __future__ import annotations

import difflib
import re
import typing
from collections.abc import Iterable, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError

from otel_eval.config.units import quoted
from otel_eval.errors import ConfigError

__all__ = ["Shape", "did_you_mean", "joined", "lines_of"]

_SECRET: Final = "headers"  # their values are never shown
_BEGINS_WITH_A_KEY: Final = re.compile(r"[^\W\d]\w*(?::|\[\d|\.\S)")


class Shape(BaseModel):
    """A frozen part of the configuration that refuses unknown keys.

    Raises:
        ConfigError: one line for each value that cannot be used, joined by `; `.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, arbitrary_types_allowed=True)

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("; ".join(lines_of(error, type(self)))) from None

    # Tells pydantic that nested parts are built without this constructor, so that their errors keep their full path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]


def lines_of(error: ValidationError, shape: type[BaseModel]) -> list[str]:
    """One line per problem: `path: value and what would be right; remedy`."""
    return [line for each in error.errors(include_url=False) for line in _told(each, shape)]


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """`did you mean 'x'? known: x, y`, or only what is known."""
    options = sorted(known)
    near = difflib.get_close_matches(str(word), options, n=1, cutoff=0.6)
    return (f"did you mean {near[0]!r}? " if near else "") + "known: " + ", ".join(options)


def _told(problem: Any, shape: type[BaseModel]) -> list[str]:
    cause = problem["ctx"]["error"] if problem["type"] == "value_error" else None
    if isinstance(cause, ConfigError):
        return [joined(_path(problem["loc"]), each) for each in cause.problems]
    return [_line(problem, shape)]


def _line(problem: Any, shape: type[BaseModel]) -> str:
    location, kind = problem["loc"], problem["type"]
    if kind == "extra_forbidden":
        owner = _shape_at(shape, location[:-1])
        known = owner.model_fields if owner else ()
        return f"{_path(location)}: unknown key; {did_you_mean(location[-1], known)}"
    if kind == "missing":
        return f"{_path(location)}: is missing; add it"
    if kind == "value_error":
        return joined(_path(location), str(problem["ctx"]["error"]))
    return f"{_path(location) or 'configuration'}: {_complaint(problem, location)}"


def _complaint(problem: Any, location: tuple[Any, ...]) -> str:
    kind, value = problem["type"], "the value" if _SECRET in location else quoted(problem["input"])
    if kind == "literal_error":
        return f"{value} is not one of {problem['ctx']['expected']}"
    if kind == "string_type":
        return f"{value} is not text; quote it"
    if kind in ("model_type", "model_attributes_type", "dict_type", "mapping_type"):
        return f"{value} is not a mapping; write key: value pairs"
    if kind in ("tuple_type", "list_type"):
        return f"{value} is not a list; write [ ... ] or one - item a line"
    return f"{value} cannot be used: {problem['msg']}"


def joined(path: str, message: str) -> str:
    """The path before the message; a message that begins with a key of its own continues the path."""
    if not path:
        return message
    return f"{path}.{message}" if _BEGINS_WITH_A_KEY.match(message) else f"{path}: {message}"


def _path(location: tuple[Any, ...]) -> str:
    text = ""
    for part in location:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shape_at(shape: type[BaseModel], location: tuple[Any, ...]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = shape
    is_key = False  # of a mapping from names to shapes
    for part in location:
        if found is None or isinstance(part, int) or is_key:
            is_key = False
            continue
        field = found.model_fields.get(str(part))
        annotation = field.annotation if field else None
        found, is_key = _shape_in(annotation), typing.get_origin(annotation) is Mapping
    return found


def _shape_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((found for part in typing.get_args(annotation) if (found := _shape_in(part))), None)
