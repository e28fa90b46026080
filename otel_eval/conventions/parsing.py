"""Read the values of a user's mapping: every problem is reported, each with its path."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from otel_eval.errors import ConfigError
from otel_eval.telling import did_you_mean, gathered, nearest, shown

__all__ = [
    "NEEDED",
    "Keys",
    "each_of",
    "flag",
    "flag_or_unknown",
    "names",
    "one_of",
    "row",
    "rows",
    "scalar",
    "stand_ins",
    "text",
    "texts",
    "values",
    "wrong",
]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)
_Reader = Callable[[Any, str], Any]
Keys = Mapping[str, tuple[_Reader, Any]]
"""Key of a mapping → what reads its value, and what it holds if it is left out (`NEEDED`: it must be there)."""
NEEDED: Final = object()


def values(given: Mapping[str, Any], at: str, keys: Keys) -> dict[str, Any]:
    """Key → what its reader makes of the value, or the default of a key that is left out."""
    path = f"{at}." if at else ""
    unknown = [key for key in given if key not in keys]
    told = {nearest(key, keys) for key in unknown}

    def value(key: str) -> Any:
        read, default = keys[key]
        if key in given:
            return read(given[key], path + key)
        if default is NEEDED and key not in told:
            raise ConfigError(f"{path}{key}: missing; add it")
        return default

    refused = [partial(_refuse, f"{path}{key}: unknown key; {did_you_mean(key, [*keys])}") for key in unknown]
    return dict(zip(keys, gathered([*refused, *(partial(value, key) for key in keys)]), strict=True))


def _refuse(problem: str) -> None:
    raise ConfigError(problem)


def wrong(at: str, value: Any, what: str, remedy: str) -> ConfigError:
    """What is wrong with the value at a path, and what to do about it."""
    return ConfigError(f"{at}: {shown(value)} {what}; {remedy}")


def text(value: Any, at: str) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise wrong(at, value, "is not text", "write a name or pattern")
    return value


def scalar(value: Any, at: str) -> str:
    """YAML reads an unquoted `true` or `1` as something else than the text that an attribute is compared as."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else text(value, at)


def flag(value: Any, at: str) -> bool:
    """True or false."""
    if not isinstance(value, bool):
        raise wrong(at, value, "is neither true nor false", "write true or false")
    return value


def flag_or_unknown(value: Any, at: str) -> bool | None:
    """True, false, or `unknown` (also null) as None."""
    if value is None or value == "unknown":
        return None
    if not isinstance(value, bool):
        raise wrong(at, value, "is neither true, false nor unknown", "write true, false or unknown")
    return value


def one_of(kinds: type[_E], value: Any, at: str) -> _E:
    """A member of the enumeration, by its value."""
    try:
        return kinds(value)
    except ValueError:
        raise wrong(at, value, "is not known", did_you_mean(value, [each.value for each in kinds])) from None


def each_of(read: Callable[[Any, str], _T], given: Any, at: str, remedy: str) -> tuple[_T, ...]:
    """Every element of a list."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise wrong(at, given, "is not a list", remedy)
    return tuple(gathered(partial(read, each, f"{at}[{place}]") for place, each in enumerate(given)))


def texts(value: Any, at: str) -> tuple[str, ...]:
    """A list of texts; one text stands for a list of one."""
    return (text(value, at),) if isinstance(value, str) else each_of(text, value, at, "write e.g. [my.attribute]")


def names(value: Any, at: str) -> frozenset[str]:
    """Texts whose order does not matter."""
    return frozenset(texts(value, at))


def stand_ins(value: Any, at: str) -> frozenset[str]:
    """Words for "not recorded", which an empty text can be."""
    given = (value,) if isinstance(value, str) else value
    return frozenset(each_of(lambda each, where: each if each == "" else scalar(each, where), given, at, "write e.g. [redacted]"))


def row(keys: Keys, build: Callable[..., _T], given: Any, at: str) -> _T:
    """What is built of a mapping's values."""
    if not isinstance(given, Mapping):
        raise wrong(at, given, "is not a mapping", "write its keys and values")
    return build(**values(given, at, keys))


def rows(keys: Keys, build: Callable[..., _T], given: Any, at: str) -> tuple[_T, ...]:
    """The same of each mapping of a list."""
    return each_of(partial(row, keys, build), given, at, "write one mapping per row")
