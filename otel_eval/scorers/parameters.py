"""Readers of the parameters of a scorer's specification.

A reader takes the key (for the message) and the value and returns what the scorer keeps; it raises `ConfigError` naming the key,
the value received, what would be right and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import float_info
from typing import Any, Final, TypeVar

from otel_eval.errors import ConfigError, collect_errors, did_you_mean, redacted_repr, unknown_keys
from otel_eval.globs import glob_matcher

Reader = Callable[[str, Any], Any]
_R = TypeVar("_R", bound=Callable[..., Any])
_T = TypeVar("_T")


Schema = Mapping[str, Any]
"""A JSON Schema (draft 2020-12)."""

STRING: Final[Schema] = {"type": "string", "minLength": 1}
STRINGS: Final[Schema] = {"type": "array", "items": STRING, "minItems": 1}


def with_schema(schema: Schema) -> Callable[[_R], _R]:
    """Attach to a reader the JSON Schema of what it takes, for editors. It may allow more than the reader, never less."""

    def attach(reader: _R) -> _R:
        reader.schema = schema  # type: ignore[attr-defined]
        return reader

    return attach


def schema_of(reader: Reader) -> Schema:
    """The JSON Schema of what a reader takes; any value where none is attached."""
    found: Schema = getattr(reader, "schema", {})
    return found


def invalid_value(key: str, value: Any, expected: str, remedy: str) -> ConfigError:
    """The error for a value that a key cannot hold."""
    return ConfigError(f"{key}: {redacted_repr(value)} is not {expected}; {remedy}")


def check_keys(given: Iterable[Any], known: Sequence[str], within: str) -> None:
    """Raise `ConfigError` with the lines of `unknown_keys`, if there are any."""
    problems = unknown_keys(given, known, within)
    if problems:
        raise ConfigError(*problems)


def each_of(key: str, value: Iterable[Any], reader: Callable[[str, Any], _T]) -> tuple[_T, ...]:
    """The items of a list, each read with its index in the key; their errors are raised together."""
    return tuple(collect_errors(partial(reader, f"{key}[{at}]", each) for at, each in enumerate(value)))


def reads(reader: Reader) -> dict[str, Reader]:
    """The metadata of a scorer's field: what reads it from a specification."""
    return {"read": reader}


@with_schema({"type": "string", "pattern": r"\S"})
def text(key: str, value: Any) -> str:
    """A text with something in it."""
    if not isinstance(value, str) or not value.strip():
        raise invalid_value(key, value, "a non-empty text", f"write {key}: some-name")
    return value


@with_schema({"type": "boolean"})
def flag(key: str, value: Any) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise invalid_value(key, value, "true or false", f"write {key}: true or leave it out")
    return value


def is_share(value: Any) -> bool:
    """Whether it is a number in [0, 1]."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


@with_schema({"type": "number", "minimum": 0, "maximum": 1})
def share(key: str, value: Any) -> float:
    """A number in [0, 1]."""
    if not is_share(value):
        raise invalid_value(key, value, "a number from 0 to 1", f"write e.g. {key}: 0.5")
    return float(value)


def positive(unit: str, example: Any) -> Reader:
    """A finite number above 0 of some unit."""

    @with_schema({"type": "number", "exclusiveMinimum": 0})
    def read(key: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= float_info.max:
            raise invalid_value(key, value, f"a positive number of {unit}", f"write e.g. {key}: {example}")
        return value

    return read


def count(unit: str, example: int, *, least: int = 1) -> Reader:
    """A whole number, `least` or more."""

    @with_schema({"type": "integer", "minimum": least})
    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise invalid_value(key, value, f"a whole number of {unit}, {least} or more", f"write e.g. {key}: {example}")
        return value

    return read


def one_of(*allowed: str) -> Reader:
    """One of some words."""

    @with_schema({"enum": list(allowed)})
    def read(key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise invalid_value(key, value, f"one of {', '.join(allowed)}", did_you_mean(value, allowed))
        return value

    return read


def optional(reader: Reader) -> Reader:
    """What the reader takes, or null for none."""

    @with_schema({"anyOf": [schema_of(reader), {"type": "null"}]})
    def read(key: str, value: Any) -> Any:
        return None if value is None else reader(key, value)

    return read


@with_schema(STRINGS)
def patterns(key: str, value: Any) -> tuple[str, ...]:
    """A list of glob patterns over names, with at least one."""
    if isinstance(value, str) or not isinstance(value, Sequence) or not value or not all(map(_is_text, value)):
        raise invalid_value(key, value, "a list of names or patterns", f'write e.g. {key}: [search, "delete_*"]')
    return tuple(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


@dataclass(frozen=True, slots=True)
class Selection:
    """Names to look at: those that `include` matches (all, if it has no pattern) and `exclude` does not."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def matcher(self) -> Callable[[str], bool] | None:
        """A function that is true for the names to look at; None if these are all names."""
        if not self.include and not self.exclude:
            return None
        include, exclude = glob_matcher(*self.include or ("*",)), glob_matcher(*self.exclude)
        return lambda name: bool(include(name)) and not exclude(name)


@with_schema({"type": "object", "properties": {"include": STRINGS, "exclude": STRINGS}, "additionalProperties": False})
def selection(key: str, value: Any) -> Selection:
    """`{include: [patterns], exclude: [patterns]}`, either may be left out."""
    if not isinstance(value, Mapping):
        raise invalid_value(key, value, "a mapping of include and exclude", f'write e.g. {key}: {{include: ["search_*"]}}')
    chosen = [partial(_chosen, key, word, given) for word, given in value.items()]
    return Selection(**dict(zip(value, collect_errors(chosen), strict=True)))


def _chosen(key: str, word: Any, given: Any) -> tuple[str, ...]:
    check_keys([word], ("include", "exclude"), f"{key}.")
    return patterns(f"{key}.{word}", given)
