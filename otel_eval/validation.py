"""The base class of all parts of the configuration: unknown keys are errors, and each problem is
one line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from otel_eval.errors import ConfigError, redacted_repr, wrong_keys

# Tags for keys that accept a list or a mapping; pydantic adds them to paths, and messages leave
# them out.
LIST: Final = "[]"
MAPPING: Final = "{}"
# their values are never shown
_SECRET: Final = frozenset({"headers", "sasl", "username", "password"})
# What is wrong with a value and what to write instead, by pydantic's type of error; names in braces
# are values of its context.
_LIST_WORDS: Final = "is not a list; write one, in brackets or with `- ` before each entry"
_MAPPING_WORDS: Final = "is not a mapping; write keys with values, e.g. {{key: value}}"
_CHOICE_WORDS: Final = "is invalid; write {expected}"
_BOOL_WORDS: Final = "is not true or false; write one of them, without quotes"
_WORDS: Final = {
    "list_type": _LIST_WORDS,
    "tuple_type": _LIST_WORDS,
    "part_type": "is not a mapping; its keys are {keys}",
    "dict_type": _MAPPING_WORDS,
    "mapping_type": _MAPPING_WORDS,
    "string_type": "is not text; write text, in quotes where it looks like a number",
    "string_too_short": "is empty; write at least one character",
    "string_too_long": "is longer than {max_length} characters; shorten it",
    "string_pattern_mismatch": "does not match {pattern}; write text that does",
    "int_type": "is not a whole number; write digits, without quotes",
    "float_type": "is not a number; write digits, without quotes",
    "bool_type": _BOOL_WORDS,
    "bool_parsing": _BOOL_WORDS,
    "literal_error": _CHOICE_WORDS,
    "enum": _CHOICE_WORDS,
    "greater_than": "is not greater than {gt:g}; raise it",
    "greater_than_equal": "is less than {ge:g}; raise it",
    "less_than_equal": "is more than {le:g}; lower it",
}
_BEGINS_WITH_A_KEY: Final = re.compile(r"[^\W\d][\w-]*(?::|\[\d|\.\S)")
_BEGINS_WITH_AN_INDEX: Final = re.compile(r"\[\d+\][:.]")


def form_of(given: Any) -> str:
    """The tag of a value whose key accepts a list or a mapping."""
    return MAPPING if isinstance(given, Mapping | BaseModel) else LIST


class Shape(BaseModel):
    """A frozen part of the configuration that refuses unknown keys.

    Raises:
        ConfigError: one line for each invalid value, joined by `; `.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, arbitrary_types_allowed=True
    )

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError(*lines_of(error)) from None

    # pydantic then builds nested parts without this constructor, so that their errors keep their
    # full path.
    __init__.__pydantic_base_init__ = True  # type: ignore[attr-defined]

    def contradictions(self) -> Iterable[str]:
        """Problems between values that are valid by themselves, each beginning with a key. Called
        if all values are valid.
        """
        return ()

    @classmethod
    def known_keys(cls) -> Collection[str]:
        """The keys that the part may have."""
        return cls.model_fields

    @model_validator(mode="wrap")
    @classmethod
    def _checked(cls, given: Any, handler: Any) -> Any:
        """All problems of the part in one error; pydantic alone would not report contradictions
        beside unknown keys.
        """
        if isinstance(given, cls):  # an object, which was validated when it was built
            return handler(given)
        if not isinstance(given, Mapping):
            raise PydanticCustomError(
                "part_type", "not a mapping", {"keys": ", ".join(sorted(cls.known_keys()))}
            )
        known = dict.fromkeys(cls.known_keys(), False) | {
            name: each.is_required() for name, each in cls.model_fields.items()
        }
        problems = wrong_keys(given, known)
        try:
            built = handler({key: value for key, value in given.items() if key in known})
            problems += () if problems else built.contradictions()
        except ValidationError as error:
            problems += lines_of(error)
        if problems:
            raise ConfigError(*dict.fromkeys(problems))
        return built


def lines_of(error: ValidationError) -> list[str]:
    """One line per problem: `path: value and what would be right`."""
    return [line for each in error.errors(include_url=False) for line in _lines(each)]


def _lines(problem: Any) -> list[str]:
    path, kind = _path(problem["loc"]), problem["type"]
    if kind == "value_error":
        cause = problem["ctx"]["error"]
        return [
            joined(path, each)
            for each in (cause.problems if isinstance(cause, ConfigError) else [str(cause)])
        ]
    if kind == "missing":  # found by `wrong_keys`
        return []
    value = "the value" if _SECRET.intersection(problem["loc"]) else _quoted(problem["input"])
    default = "is invalid; " + problem["msg"].replace("Input should", "it should")
    words = _WORDS[kind].format(**problem.get("ctx", {})) if kind in _WORDS else default
    return [f"{path}: {value} {words}"]


def _quoted(value: Any) -> str:
    """The value as a message begins with it; `null` is how YAML reads a key without a value."""
    return "null (no value)" if value is None else redacted_repr(value)


def joined(path: str, message: str) -> str:
    """The path before the message; a message that begins with a key or an index of its own
    continues the path.
    """
    if not path:
        return message
    if _BEGINS_WITH_AN_INDEX.match(message):
        return path + message
    return f"{path}.{message}" if _BEGINS_WITH_A_KEY.match(message) else f"{path}: {message}"


def _path(location: tuple[Any, ...]) -> str:
    text = ""
    for part in location:
        # "[key]": the key of a mapping is invalid, not its value
        if part not in (LIST, MAPPING, "[key]"):
            text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def duplicates(key: str, names: Iterable[Any], remedy: str) -> Iterator[str]:
    """A problem for each name that is used more than once."""
    for name, count in Counter(each for each in names if isinstance(each, str)).items():
        if count > 1:
            yield f"{key}: the name {redacted_repr(name)} is used twice; {remedy}"
