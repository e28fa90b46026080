"""Loads the built-in tables from `tables.json`, the snapshot of the YAML files in `tables/`.

`make tables` writes the snapshot: every table with what it extends filled in, in the order in which
they are tried, and `{"same_as": NAME}` for a value that an earlier table has under the same key.
Reading YAML at every start would take a hundred times as long.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from otel_eval.conventions.message_formats import JSON_TYPES, Wrapper
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.model import Kind

SNAPSHOT: Final = Path(__file__).with_name("tables.json")


_KINDS: Final = {kind.value: kind for kind in Kind}
_FIELDS: Final = {field.value: field for field in Field}


def _rule(row: dict[str, Any]) -> Rule:
    row["kind"] = _KINDS[row["kind"]]
    return Rule(**row)


def _mark(row: dict[str, str]) -> Mark:
    return Mark(**row)


def _event_row(row: dict[str, str]) -> EventRow:
    return EventRow(row["event"], _FIELDS[row["field"]], row["key"])


def _message_row(row: dict[str, Any]) -> MessageRow:
    return MessageRow(**{**row, "side": Side(row.get("side", Side.OUTPUT))})


def _wrapper(row: str | dict[str, Any]) -> str | Wrapper:
    if isinstance(row, str):
        return row
    needs = tuple(
        (key, JSON_TYPES[need["type"]] if isinstance(need, dict) else need)
        for key, need in row["needs"].items()
    )
    only = frozenset(row["only"]) if "only" in row else None
    return Wrapper(**{**row, "needs": needs, "take": tuple(row["take"]), "only": only})


def _fields(value: dict[str, list[str]]) -> dict[Field, tuple[str, ...]]:
    return {_FIELDS[field]: tuple(keys) for field, keys in value.items()}


def _placeholders(value: dict[str, list[str]]) -> dict[str, frozenset[str]]:
    return {key: frozenset(texts) for key, texts in value.items()}


# How the values of a table's keys are read: rows of a list, and keys whose value is no list of
# texts.
_ROWS: Final[Mapping[str, Callable[[Any], object]]] = {
    "rules": _rule,
    "events": _event_row,
    "messages": _message_row,
    "wrappers": _wrapper,
    "own_content": Field,
    **dict.fromkeys(
        (
            "errors",
            "not_call_marks",
            "refusal_marks",
            "pause_marks",
            "resume_marks",
            "request_marks",
            "unreliable_finish_reasons",
        ),
        _mark,
    ),
}
_VALUES: Final[Mapping[str, Callable[[Any], object]]] = {
    "fields": _fields,
    "placeholders": _placeholders,
    "not_calls": frozenset,
}


def _value(key: str, value: Any) -> Any:
    """The value of a table's key as `Convention` holds it."""
    if key in _VALUES:
        return _VALUES[key](value)
    if isinstance(value, list):
        return tuple(map(_ROWS[key], value)) if key in _ROWS else tuple(value)
    return value


def _load() -> tuple[Convention, ...]:
    """The tables, in the order in which they are tried."""
    tables: dict[str, Convention] = {}
    for row in json.loads(SNAPSHOT.read_bytes()):
        values = {
            key: getattr(tables[value["same_as"]], key)
            if isinstance(value, dict) and "same_as" in value
            else _value(key, value)
            for key, value in row.items()
        }
        tables[row["name"]] = Convention(**values)
    return tuple(tables.values())


TABLES: Final = _load()
