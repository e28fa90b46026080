"""A user's own convention, from the mapping that a configuration holds.

Knows the keys of a table and what is wrong with one; knows no YAML. Raises `ConfigError` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields as fields_of
from enum import StrEnum
from typing import Any, Final, TypeVar

from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.conventions.wrappers import WRAPPERS
from otel_eval.errors import ConfigError
from otel_eval.model import Kind

__all__ = ["convention_from_mapping"]

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)
_KEYS: Final = frozenset(each.name for each in fields_of(Convention))


def convention_from_mapping(mapping: Mapping[str, Any]) -> Convention:
    """The table that a mapping describes; keys are the fields of `Convention`, rows are mappings of their fields.

    >>> table = convention_from_mapping({
    ...     "name": "mine", "rules": [{"kind": "tool", "key": "my.tool"}], "fields": {"tool_name": "my.tool"}})
    >>> table.rules[0].kind
    <Kind.TOOL: 'tool'>

    Raises:
        ConfigError: a key is missing, unknown, or holds what it cannot.
    """
    if not isinstance(mapping, Mapping):
        raise _wrong("convention", mapping, "is not a mapping", "write name, rules and fields")
    name = _text(mapping.get("name"), "name")
    at = f"convention {name!r}"
    for key in mapping:
        if key not in _KEYS:
            raise _wrong(f"{at}.{key}", mapping[key], "is no key of a table", f"use one of {', '.join(sorted(_KEYS))}")
    rules = _rows(mapping, "rules", at, _rule)
    if not rules:
        raise _wrong(f"{at}.rules", mapping.get("rules"), "holds no rule", "say which spans are agents, models and tools")
    return Convention(
        name=name,
        source=_text(mapping.get("source", "configuration"), f"{at}.source"),
        rules=rules,
        scopes=_texts(mapping.get("scopes", ()), f"{at}.scopes"),
        fields=_fields(mapping.get("fields", {}), f"{at}.fields"),
        span_name=_texts(mapping.get("span_name", ()), f"{at}.span_name"),
        agent_span_name=_texts(mapping.get("agent_span_name", ()), f"{at}.agent_span_name"),
        errors=_rows(mapping, "errors", at, _mark),
        events=_rows(mapping, "events", at, _event),
        messages=_rows(mapping, "messages", at, _message),
        wrappers=_wrappers(mapping.get("wrappers", ()), f"{at}.wrappers"),
        not_calls=frozenset(_texts(mapping.get("not_calls", ()), f"{at}.not_calls")),
        not_requests=_texts(mapping.get("not_requests", ()), f"{at}.not_requests"),
        not_call_marks=_rows(mapping, "not_call_marks", at, _mark),
        placeholders=_placeholders(mapping.get("placeholders", {}), f"{at}.placeholders"),
        json_encoded=_flag(mapping.get("json_encoded", False), f"{at}.json_encoded"),
        tool_spans=_flag(mapping.get("tool_spans", True), f"{at}.tool_spans"),
    )


def _wrong(at: str, value: Any, what: str, remedy: str) -> ConfigError:
    shown = repr(value)
    return ConfigError(f"{at}: {shown if len(shown) <= 60 else shown[:57] + '...'} {what}; {remedy}")


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
    return tuple(_text(each, f"{at}[{place}]") for place, each in enumerate(value))


def _rows(mapping: Mapping[str, Any], key: str, at: str, build: Callable[[Mapping[str, Any], str], _T]) -> tuple[_T, ...]:
    rows = mapping.get(key, ())
    if isinstance(rows, (str, Mapping)) or not isinstance(rows, Iterable):
        raise _wrong(f"{at}.{key}", rows, "is not a list", "write one mapping per row")
    built = []
    for place, row in enumerate(rows):
        where = f"{at}.{key}[{place}]"
        if not isinstance(row, Mapping):
            raise _wrong(where, row, "is not a mapping", "write its keys and values")
        built.append(build(row, where))
    return tuple(built)


def _only(row: Mapping[str, Any], at: str, *keys: str) -> None:
    for key in row:
        if key not in keys:
            raise _wrong(f"{at}.{key}", row[key], "is no key here", f"use {', '.join(keys)}")


def _one_of(kinds: type[_E], value: Any, at: str) -> _E:
    try:
        return kinds(value)
    except ValueError:
        raise _wrong(at, value, "is not known", f"use one of {', '.join(kinds)}") from None


def _rule(row: Mapping[str, Any], at: str) -> Rule:
    _only(row, at, "kind", "key", "value", "name")
    kind = _one_of(Kind, row.get("kind"), f"{at}.kind")
    if "key" not in row and "name" not in row:
        raise _wrong(at, dict(row), "holds for every span", "name an attribute (key) or a span name (name)")
    optional = {key: _scalar(row[key], f"{at}.{key}") for key in ("key", "value", "name") if key in row}
    return Rule(kind, **optional)


def _scalar(value: Any, at: str) -> str:
    """YAML reads an unquoted `true` or `1` as something else than the text that an attribute is compared as."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _text(value, at)


def _mark(row: Mapping[str, Any], at: str) -> Mark:
    _only(row, at, "key", "value")
    return Mark(_text(row.get("key"), f"{at}.key"), _scalar(row.get("value"), f"{at}.value"))


def _event(row: Mapping[str, Any], at: str) -> EventRow:
    _only(row, at, "event", "field", "key")
    return EventRow(_text(row.get("event"), f"{at}.event"), _one_of(Field, row.get("field"), f"{at}.field"),
                    _text(row.get("key"), f"{at}.key"))  # fmt: skip


def _message(row: Mapping[str, Any], at: str) -> MessageRow:
    _only(row, at, "key", "side", "conclusive")
    return MessageRow(
        _text(row.get("key"), f"{at}.key"),
        _one_of(Side, row.get("side", Side.OUTPUT), f"{at}.side"),
        _flag(row.get("conclusive", True), f"{at}.conclusive"),
    )


def _fields(value: Any, at: str) -> dict[Field, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise _wrong(at, value, "is not a mapping", "write e.g. {tool_name: my.tool}")
    return {_one_of(Field, key, f"{at}.{key}"): _texts(keys, f"{at}.{key}") for key, keys in value.items()}


def _wrappers(value: Any, at: str) -> tuple[str, ...]:
    names = _texts(value, at)
    for name in names:
        if name not in WRAPPERS:
            raise _wrong(at, name, "is no wrapper", f"use {', '.join(WRAPPERS)}")
    return names


def _placeholders(value: Any, at: str) -> dict[str, frozenset[str]]:
    if not isinstance(value, Mapping):
        raise _wrong(at, value, "is not a mapping", 'write e.g. {"*": [redacted]}')
    return {_text(key, at): frozenset(_texts(texts, f"{at}.{key}")) for key, texts in value.items()}
