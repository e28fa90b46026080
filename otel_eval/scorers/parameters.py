"""Readers of the parameters of a scorer's specification.

A reader takes the key (for the message) and the value and returns what the scorer keeps; it raises
`ConfigError` naming the key, the value received, what would be right and the remedy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from sys import float_info
from typing import Any, Final, TypeVar

from otel_eval.errors import ConfigError, collect_errors, did_you_mean, redacted_repr, unknown_keys
from otel_eval.scorers.tool_names import name_matcher

Reader = Callable[[str, Any], Any]
_R = TypeVar("_R", bound=Callable[..., Any])
_T = TypeVar("_T")


Schema = Mapping[str, Any]
"""A JSON Schema (draft 2020-12)."""

STRING: Final[Schema] = {"type": "string", "minLength": 1}
STRINGS: Final[Schema] = {"type": "array", "items": STRING, "minItems": 1}


def with_schema(schema: Schema) -> Callable[[_R], _R]:
    """Attach to a reader the JSON Schema of accepted values, for editors. It may accept more than
    the reader, never less.
    """

    def attach(reader: _R) -> _R:
        reader.schema = schema  # type: ignore[attr-defined]
        return reader

    return attach


def schema_of(reader: Reader) -> Schema:
    """The JSON Schema of the values that a reader accepts; `{}`, which accepts any value, if none
    is attached.
    """
    found: Schema = getattr(reader, "schema", {})
    return found


def invalid_value(key: str, value: Any, expected: str, remedy: str) -> ConfigError:
    """The error for a value that is invalid for its key."""
    return ConfigError(f"{key}: {redacted_repr(value)} is not {expected}; {remedy}")


def check_keys(given: Iterable[Any], known: Sequence[str], within: str) -> None:
    """Raise `ConfigError` with the lines of `unknown_keys`, if there are any."""
    problems = unknown_keys(given, known, within)
    if problems:
        raise ConfigError(*problems)


def each_of(key: str, value: Iterable[Any], reader: Callable[[str, Any], _T]) -> tuple[_T, ...]:
    """The items of a list, each read with its index in the key; their errors are raised
    together.
    """
    return tuple(
        collect_errors(partial(reader, f"{key}[{at}]", each) for at, each in enumerate(value))
    )


def reads(reader: Reader) -> dict[str, Reader]:
    """The metadata of a scorer's field: the reader of its value in a specification."""
    return {"read": reader}


@with_schema({"type": "string", "pattern": r"\S"})
def text(key: str, value: Any) -> str:
    """Read a text that is not blank."""
    if not isinstance(value, str) or not value.strip():
        raise invalid_value(key, value, "a non-empty text", f"write {key}: some-name")
    return value


@with_schema({"type": "boolean"})
def flag(key: str, value: Any) -> bool:
    """Read a bool."""
    if not isinstance(value, bool):
        raise invalid_value(key, value, "true or false", f"write {key}: true or leave it out")
    return value


def is_share(value: Any) -> bool:
    """Whether a value is a number in [0, 1]."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


@with_schema({"type": "number", "minimum": 0, "maximum": 1})
def share(key: str, value: Any) -> float:
    """Read a number in [0, 1]."""
    if not is_share(value):
        raise invalid_value(key, value, "a number from 0 to 1", f"write e.g. {key}: 0.5")
    return float(value)


def positive(unit: str, example: Any) -> Reader:
    """A reader of finite numbers above 0; `unit` and `example` are for its errors."""

    @with_schema({"type": "number", "exclusiveMinimum": 0})
    def read(key: str, value: Any) -> float:
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not 0 < value <= float_info.max
        ):
            raise invalid_value(
                key, value, f"a positive number of {unit}", f"write e.g. {key}: {example}"
            )
        return value

    return read


def count(unit: str, example: int, *, least: int = 1) -> Reader:
    """A reader of whole numbers from `least` on; `unit` and `example` are for its errors."""

    @with_schema({"type": "integer", "minimum": least})
    def read(key: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise invalid_value(
                key,
                value,
                f"a whole number of {unit}, {least} or more",
                f"write e.g. {key}: {example}",
            )
        return value

    return read


def one_of(*allowed: str) -> Reader:
    """A reader of one of these words."""

    @with_schema({"enum": list(allowed)})
    def read(key: str, value: Any) -> str:
        if not isinstance(value, str) or value not in allowed:
            raise invalid_value(
                key, value, f"one of {', '.join(allowed)}", did_you_mean(value, allowed)
            )
        return value

    return read


def optional(reader: Reader) -> Reader:
    """A reader that also accepts null, as None."""

    @with_schema({"anyOf": [schema_of(reader), {"type": "null"}]})
    def read(key: str, value: Any) -> Any:
        return None if value is None else reader(key, value)

    return read


_WILDCARDS: Final = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Whether a name is a pattern: it has a wildcard."""
    return not _WILDCARDS.isdisjoint(name)


def check_literal(key: str, name: str) -> None:
    """Refuse a pattern where names are compared literally: it would match no tool.

    Raises:
        ConfigError: the name has a wildcard.
    """
    if is_pattern(name):
        raise invalid_value(
            key,
            name,
            "the name of a tool: patterns have no effect here",
            "write the whole name, or use required_tools, forbidden_tools, tool_call_count or"
            " precedence, which take patterns",
        )


@with_schema(STRINGS)
def patterns(key: str, value: Any) -> tuple[str, ...]:
    """Read a list of at least one glob pattern over names."""
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not value
        or not all(map(_is_text, value))
    ):
        raise invalid_value(
            key, value, "a list of names or patterns", f'write e.g. {key}: [search, "delete_*"]'
        )
    return tuple(value)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


@dataclass(frozen=True, slots=True)
class Selection:
    """A selection of names: those that `include` matches (all, if it has no pattern) and `exclude`
    does not.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def matcher(self) -> Callable[[str], bool] | None:
        """A function that is true for selected names; None if all names are selected."""
        if not self.include and not self.exclude:
            return None
        include, exclude = name_matcher(*self.include or ("*",)), name_matcher(*self.exclude)
        return lambda name: include(name) and not exclude(name)


@with_schema(
    {
        "type": "object",
        "properties": {"include": STRINGS, "exclude": STRINGS},
        "additionalProperties": False,
    }
)
def selection(key: str, value: Any) -> Selection:
    """Read `{include: [patterns], exclude: [patterns]}`; both are optional."""
    if not isinstance(value, Mapping):
        raise invalid_value(
            key,
            value,
            "a mapping of include and exclude",
            f'write e.g. {key}: {{include: ["search_*"]}}',
        )
    chosen = [partial(_chosen, key, word, given) for word, given in value.items()]
    return Selection(**dict(zip(value, collect_errors(chosen), strict=True)))


def _chosen(key: str, word: Any, given: Any) -> tuple[str, ...]:
    check_keys([word], ("include", "exclude"), f"{key}.")
    return patterns(f"{key}.{word}", given)
