"""A user's own convention, from the mapping that a configuration holds.

Knows the keys of a table and what is wrong with one; knows no YAML. Raises `ConfigError` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.conventions.wrappers import WRAPPERS
from otel_eval.errors import ConfigError
from otel_eval.model import Kind
from otel_eval.telling import did_you_mean, gathered, nearest, shown

__all__ = ["convention_from_mapping"]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)
_Reader = Callable[[Any, str], Any]
_NEEDED: Final = object()


def convention_from_mapping(mapping: Mapping[str, Any]) -> Convention:
    """The table that a mapping describes; keys are the fields of `Convention`, rows are mappings of their fields.

    >>> table = convention_from_mapping({
    ...     "name": "mine", "rules": [{"kind": "tool", "key": "my.tool"}], "fields": {"tool_name": "my.tool"}})
    >>> table.rules[0].kind
    <Kind.TOOL: 'tool'>

    Raises:
        ConfigError: keys are missing, unknown, or hold what they cannot: all of them, each with its path in the mapping.
    """
    if not isinstance(mapping, Mapping):
        raise _wrong("convention", mapping, "is not a mapping", "write name, rules and fields")
    return Convention(**_values(mapping, "", _READ))


def _values(given: Mapping[str, Any], at: str, reading: Mapping[str, tuple[_Reader, Any]]) -> dict[str, Any]:
    """Key → what its reader makes of the value, or the default of a key that is left out."""
    path = f"{at}." if at else ""
    unknown = [key for key in given if key not in reading]
    told = {nearest(key, reading) for key in unknown}

    def value(key: str) -> Any:
        read, default = reading[key]
        if key in given:
            return read(given[key], path + key)
        if default is _NEEDED and key not in told:
            raise ConfigError(f"{path}{key}: missing; add it")
        return default

    refused = [partial(_refuse, f"{path}{key}: unknown key; {did_you_mean(key, [*reading])}") for key in unknown]
    return dict(zip(reading, gathered([*refused, *(partial(value, key) for key in reading)]), strict=True))


def _refuse(problem: str) -> None:
    raise ConfigError(problem)


def _wrong(at: str, value: Any, what: str, remedy: str) -> ConfigError:
    return ConfigError(f"{at}: {shown(value)} {what}; {remedy}")


def _text(value: Any, at: str) -> str:
    if not isinstance(value, str) or not value:
        raise _wrong(at, value, "is not text", "write a name or pattern")
    return value


def _flag(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(at, value, "is neither true nor false", "write true or false")
    return value


def _texts(value: Any, at: str) -> tuple[str, ...]:
    if isinstance(value, str):
        return (_text(value, at),)
    if not isinstance(value, Iterable) or isinstance(value, Mapping):
        raise _wrong(at, value, "is not a list of texts", "write e.g. [my.attribute]")
    return tuple(gathered(partial(_text, each, f"{at}[{place}]") for place, each in enumerate(value)))


def _rows(build: Callable[[Mapping[str, Any], str], _T], rows: Any, at: str) -> tuple[_T, ...]:
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
        raise _wrong(at, rows, "is not a list", "write one mapping per row")
    return tuple(gathered(partial(_built, build, row, f"{at}[{place}]") for place, row in enumerate(rows)))


def _built(build: Callable[[Mapping[str, Any], str], _T], row: Any, at: str) -> _T:
    if not isinstance(row, Mapping):
        raise _wrong(at, row, "is not a mapping", "write its keys and values")
    return build(row, at)


def _rules(rows: Any, at: str) -> tuple[Rule, ...]:
    rules = _rows(_rule, rows, at)
    if not rules:
        raise _wrong(at, rows, "holds no rule", "say which spans are agents, models and tools")
    return rules


def _one_of(kinds: type[_E], value: Any, at: str) -> _E:
    try:
        return kinds(value)
    except ValueError:
        raise _wrong(at, value, "is not known", did_you_mean(value, [each.value for each in kinds])) from None


def _scalar(value: Any, at: str) -> str:
    """YAML reads an unquoted `true` or `1` as something else than the text that an attribute is compared as."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _text(value, at)


def _rule(row: Mapping[str, Any], at: str) -> Rule:
    found = _values(row, at, _RULE)
    if "key" not in row and "name" not in row:
        raise _wrong(at, dict(row), "holds for every span", "name an attribute (key) or a span name (name)")
    return Rule(**found)


def _mark(row: Mapping[str, Any], at: str) -> Mark:
    return Mark(**_values(row, at, {"key": (_text, _NEEDED), "value": (_scalar, _NEEDED)}))


def _event(row: Mapping[str, Any], at: str) -> EventRow:
    reading: dict[str, tuple[_Reader, Any]] = {
        "event": (_text, _NEEDED),
        "field": (partial(_one_of, Field), _NEEDED),
        "key": (_text, _NEEDED),
    }
    return EventRow(**_values(row, at, reading))


def _message(row: Mapping[str, Any], at: str) -> MessageRow:
    reading: dict[str, tuple[_Reader, Any]] = {
        "key": (_text, _NEEDED),
        "side": (partial(_one_of, Side), Side.OUTPUT),
        "conclusive": (_flag, True),
    }
    return MessageRow(**_values(row, at, reading))


def _fields(value: Any, at: str) -> dict[Field, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise _wrong(at, value, "is not a mapping", "write e.g. {tool_name: my.tool}")
    return dict(gathered(partial(_field, key, keys, f"{at}.{key}") for key, keys in value.items()))


def _field(key: Any, keys: Any, at: str) -> tuple[Field, tuple[str, ...]]:
    readings: list[Callable[[], Any]] = [partial(_one_of, Field, key, at), partial(_texts, keys, at)]
    field, texts = gathered(readings)
    return field, texts


def _wrappers(value: Any, at: str) -> tuple[str, ...]:
    unknown = [name for name in _texts(value, at) if name not in WRAPPERS]
    if unknown:
        raise ConfigError(*(f"{at}: {shown(name)} is no wrapper; {did_you_mean(name, [*WRAPPERS])}" for name in unknown))
    return _texts(value, at)


def _names(value: Any, at: str) -> frozenset[str]:
    return frozenset(_texts(value, at))


def _placeholders(value: Any, at: str) -> dict[str, frozenset[str]]:
    if not isinstance(value, Mapping):
        raise _wrong(at, value, "is not a mapping", 'write e.g. {"*": [redacted]}')
    return {_text(key, at): _names(texts, f"{at}.{key}") for key, texts in value.items()}


_RULE: Final[Mapping[str, tuple[_Reader, Any]]] = {
    "kind": (partial(_one_of, Kind), _NEEDED),
    "key": (_scalar, ""),
    "value": (_scalar, "*"),
    "name": (_scalar, ""),
}
_READ: Final[Mapping[str, tuple[_Reader, Any]]] = {
    # key of a table: what reads it, and what it holds if it is left out
    "name": (_text, _NEEDED),
    "source": (_text, "configuration"),
    "rules": (_rules, _NEEDED),
    "scopes": (_texts, ()),
    "fields": (_fields, {}),
    "span_name": (_texts, ()),
    "agent_span_name": (_texts, ()),
    "errors": (partial(_rows, _mark), ()),
    "events": (partial(_rows, _event), ()),
    "messages": (partial(_rows, _message), ()),
    "wrappers": (_wrappers, ()),
    "not_calls": (_names, frozenset()),
    "not_requests": (_texts, ()),
    "not_call_marks": (partial(_rows, _mark), ()),
    "placeholders": (_placeholders, {}),
    "json_encoded": (_flag, False),
    "tool_spans": (_flag, True),
}
