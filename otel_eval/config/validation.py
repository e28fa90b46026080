"""The base class of all parts of the configuration: unknown keys are errors, and each problem is one line."""

from __future__ import annotations

import logging
import re
import typing
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Final, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from otel_eval.errors import ConfigError, nearest, redacted_repr

__all__ = ["LIST", "MAPPING", "Shape", "did_you_mean", "joined", "lines_of", "present_keys", "twice"]

_log = logging.getLogger("otel_eval")

# Tags of a key that takes a list or a mapping; pydantic puts them into paths, where messages leave them out.
LIST: Final = "[]"
MAPPING: Final = "{}"
_SECRET: Final = frozenset({"headers", "sasl"})  # their values are never shown
_BEGINS_WITH_A_KEY: Final = re.compile(r"[^\W\d][\w-]*(?::|\[\d|\.\S)")


class Shape(BaseModel):
    """A frozen part of the configuration that refuses unknown keys.

    Raises:
        ConfigError: one line for each invalid value, joined by `; `.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True, arbitrary_types_allowed=True)

    # Deprecated keys -> the keys that replace them. They are accepted for one minor version, with a warning.
    deprecated_keys: ClassVar[Mapping[str, str]] = {}

    def __init__(self, **values: Any) -> None:
        current = present_keys(type(self), values)
        try:
            super().__init__(**current.values)
        except ValidationError as error:
            raise ConfigError(*current.problems, *lines_of(error, type(self))) from None
        if current.problems:
            raise ConfigError(*current.problems)

    # pydantic then builds nested parts without this constructor, so that their errors keep their full path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def contradictions(self) -> Iterable[str]:
        """Problems between values that are valid by themselves, each beginning with a key. Called if all values are valid."""
        return ()

    @model_validator(mode="wrap")
    @classmethod
    def _without_contradictions(cls, given: Any, handler: Any) -> Any:
        made = handler(given)
        if made is not given and (found := dict.fromkeys(made.contradictions())):  # else it was validated when it was built
            raise ConfigError(*found)
        return made


class Renamed(NamedTuple):
    """Values under their present keys, and one problem for each key that is given under both of its names."""

    values: Any
    problems: list[str]


def present_keys(shape: type[BaseModel], given: Any, *, where: str = "") -> Renamed:
    """Replace the deprecated keys of a shape and of the shapes within it; each is logged as a warning.

    Args:
        shape: the shape that the values are for.
        given: values before validation; returned as they are unless they are a mapping.
        where: prefix of the warnings, usually the name of the file.
    """
    problems: list[str] = []
    return Renamed(_present(shape, given, where, ("", ""), problems), problems)


def _present(shape: type[BaseModel], given: Any, where: str, paths: tuple[str, str], problems: list[str]) -> Any:
    if not isinstance(given, Mapping):
        return given
    deprecated: Mapping[str, str] = getattr(shape, "deprecated_keys", {})
    values = {}
    for key, value in given.items():
        new = deprecated.get(key, key)
        old_path, new_path = (f"{path}.{name}".lstrip(".") for path, name in zip(paths, (key, new), strict=True))
        if new != key and new in given:
            problems.append(f"{old_path}: is the deprecated name of {new_path}, which is given as well; leave {key} out")
            continue
        if new != key:
            _log.warning("%s%s is deprecated and will be removed in the next minor version; write %s", where, old_path, new_path)
        field = shape.model_fields.get(new)
        part = field.annotation if field else None
        if isinstance(part, type) and issubclass(part, BaseModel):
            value = _present(part, value, where, (old_path, new_path), problems)
        values[new] = value
    return values


def lines_of(error: ValidationError, shape: type[BaseModel]) -> list[str]:
    """One line per problem: `path: value and what would be right; remedy`."""
    problems = error.errors(include_url=False)
    misspelt = {_suggested(each["loc"], shape) for each in problems if each["type"] == "extra_forbidden"}
    kept = [each for each in problems if each["type"] != "missing" or each["loc"] not in misspelt]
    return [line for each in kept for line in _lines(each, shape)]


def _suggested(location: tuple[Any, ...], shape: type[BaseModel]) -> tuple[Any, ...]:
    """The path of the known key that an unknown one is most like."""
    owner = _shape_at(shape, location[:-1])
    return (*location[:-1], nearest(location[-1], owner.model_fields if owner else ()))


def did_you_mean(word: Any, known: Iterable[str]) -> str:
    """The end of a message: `did you mean 'x'? known: x, y`, or only the known keys."""
    options = sorted(known)
    near = nearest(word, options)
    return (f"did you mean {near!r}? " if near else "") + "known: " + ", ".join(options)


def _lines(problem: Any, shape: type[BaseModel]) -> list[str]:
    cause = problem["ctx"]["error"] if problem["type"] == "value_error" else None
    if isinstance(cause, ConfigError):
        return [joined(_path(problem["loc"]), each) for each in cause.problems]
    return [_line(problem, shape)]


def _line(problem: Any, shape: type[BaseModel]) -> str:
    location, kind = problem["loc"], problem["type"]
    if kind in ("extra_forbidden", "invalid_key"):
        owner = _shape_at(shape, location[:-1])
        known = owner.model_fields if owner else ()
        return f"{_path(location)}: unknown key; {did_you_mean(location[-1], known)}"
    if kind == "missing":
        return f"{_path(location)}: is missing; add it"
    if kind == "value_error":
        return joined(_path(location), str(problem["ctx"]["error"]))
    value = "the value" if _SECRET.intersection(location) else redacted_repr(problem["input"])
    return f"{_path(location) or 'configuration'}: {value} {_complaint(problem)}"


def _complaint(problem: Any) -> str:
    kind, more = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        near = nearest(problem["input"], re.findall(r"'([^']*)'", more["expected"]))
        return f"is not one of {more['expected']}" + (f"; did you mean {near!r}?" if near else "; write one of them")
    if kind == "greater_than":
        return f"is not more than {more['gt']:g}; raise it"
    return _COMPLAINTS.get(kind) or f"is invalid: {problem['msg']}"


_NO_MAPPING: Final = "is not a mapping; write key: value pairs"
_NO_LIST: Final = "is not a list; write [ ... ] or one - item a line"
_NO_FLAG: Final = "is neither true nor false; write one of them"
_COMPLAINTS: Final = {
    "string_type": "is not text; quote it",
    "string_unicode": "is not text; write letters of Unicode",
    "string_too_short": "is empty; write something or leave it out",
    "model_type": _NO_MAPPING,
    "model_attributes_type": _NO_MAPPING,
    "dict_type": _NO_MAPPING,
    "mapping_type": _NO_MAPPING,
    "tuple_type": _NO_LIST,
    "list_type": _NO_LIST,
    "bool_type": _NO_FLAG,
    "bool_parsing": _NO_FLAG,
}


def joined(path: str, message: str) -> str:
    """The path before the message; a message that begins with a key of its own continues the path."""
    if not path:
        return message
    return f"{path}.{message}" if _BEGINS_WITH_A_KEY.match(message) else f"{path}: {message}"


def _parts(location: tuple[Any, ...]) -> list[Any]:
    return [part for part in location if part not in (LIST, MAPPING)]


def _path(location: tuple[Any, ...]) -> str:
    text = ""
    for part in _parts(location):
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shape_at(shape: type[BaseModel], location: tuple[Any, ...]) -> type[BaseModel] | None:
    found: type[BaseModel] | None = shape
    is_key = False  # of a mapping from names to shapes
    for part in _parts(location):
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


def twice(key: str, names: Iterable[Any], remedy: str) -> Iterator[str]:
    """A problem for each name that stands twice."""
    for name, count in Counter(each for each in names if isinstance(each, str)).items():
        if count > 1:
            yield f"{key}: the name {redacted_repr(name)} is used twice; {remedy}"
