"""A user's own convention, from the mapping that a configuration holds.

Whatever a built-in table says can be said here too. Raises `ConfigError` and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from otel_eval.conventions.parsing import (
    NEEDED,
    Keys,
    each_of,
    flag,
    flag_or_unknown,
    names,
    one_of,
    row,
    rows,
    scalar,
    stand_ins,
    text,
    texts,
    values,
    wrong,
)
from otel_eval.conventions.table import (
    TOOL_FINISH_REASONS,
    UNRELIABLE,
    Convention,
    EventRow,
    Field,
    Mark,
    MessageRow,
    Rule,
    Side,
)
from otel_eval.conventions.wrappers import TEXT_WRAPPERS, WRAPPERS, Wrapper
from otel_eval.errors import ConfigError
from otel_eval.model import Kind
from otel_eval.telling import did_you_mean, gathered, shown

__all__ = ["convention_from_mapping"]


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
        raise wrong("convention", mapping, "is not a mapping", "write name, rules and fields")
    return Convention(**values(mapping, "", _TABLE))


def _rules(given: Any, at: str) -> tuple[Rule, ...]:
    read = each_of(_rule, given, at, "write one mapping per row")
    if not read:
        raise wrong(at, given, "holds no rule", "say which spans are agents, models and tools")
    return read


def _rule(given: Any, at: str) -> Rule:
    read = row(_RULE, Rule, given, at)
    if not read.key and not read.name:
        raise wrong(at, dict(given), "holds for every span", "name an attribute (key) or a span name (name)")
    return read


def _fields(value: Any, at: str) -> dict[Field, tuple[str, ...]]:
    if not isinstance(value, Mapping):
        raise wrong(at, value, "is not a mapping", "write e.g. {tool_name: my.tool}")
    return dict(gathered(partial(_field, key, keys, f"{at}.{key}") for key, keys in value.items()))


def _field(key: Any, keys: Any, at: str) -> tuple[Field, tuple[str, ...]]:
    readings: list[Callable[[], Any]] = [partial(one_of, Field, key, at), partial(texts, keys, at)]
    field, attributes = gathered(readings)
    return field, attributes


def _truncated(value: Any, at: str) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise wrong(at, value, "is not a mapping", "write e.g. {my.result: my.result.truncated}")
    return {text(key, at): text(mark, f"{at}.{key}") for key, mark in value.items()}


def _placeholders(value: Any, at: str) -> dict[str, frozenset[str]]:
    if not isinstance(value, Mapping):
        raise wrong(at, value, "is not a mapping", 'write e.g. {"*": [redacted]}')
    return {text(key, at): stand_ins(words, f"{at}.{key}") for key, words in value.items()}


def _wrappers(value: Any, at: str) -> tuple[str | Wrapper, ...]:
    given = (value,) if isinstance(value, str) else value
    return each_of(_wrapper, given, at, "write names of wrappers, or mappings that describe one")


def _wrapper(value: Any, at: str) -> str | Wrapper:
    if isinstance(value, Mapping):
        return row(_WRAPPER, Wrapper, value, at)
    return _known(text(value, at), at, {**WRAPPERS, **TEXT_WRAPPERS}, "is no wrapper")


def _needs(value: Any, at: str) -> tuple[tuple[str, str | type], ...]:
    if not isinstance(value, Mapping) or not value:
        raise wrong(at, value, "names no key", 'write e.g. {input: "*"} or {input: {type: object}}')
    return tuple(gathered(partial(_need, key, wanted, f"{at}.{key}") for key, wanted in value.items()))


def _need(key: Any, wanted: Any, at: str) -> tuple[str, str | type]:
    """A type is a mapping, so that it cannot be taken for a text that the value must be."""
    if isinstance(wanted, Mapping):
        return text(key, at), _TYPES[values(wanted, at, _TYPE)["type"]]
    return text(key, at), scalar(wanted, at)


def _known(word: str, at: str, known: Mapping[str, Any], what: str) -> str:
    if word not in known:
        raise ConfigError(f"{at}: {shown(word)} {what}; {did_you_mean(word, [*known])}")
    return word


_RULE: Final[Keys] = {
    "kind": (partial(one_of, Kind), NEEDED),
    "key": (scalar, ""),
    "value": (scalar, "*"),
    "name": (scalar, ""),
    "handoff": (flag, False),
}
_MARK: Final[Keys] = {"key": (text, NEEDED), "value": (scalar, NEEDED)}
_EVENT: Final[Keys] = {"event": (text, NEEDED), "field": (partial(one_of, Field), NEEDED), "key": (text, NEEDED)}
_MESSAGE: Final[Keys] = {"key": (text, NEEDED), "side": (partial(one_of, Side), Side.OUTPUT), "conclusive": (flag, True)}
_TYPES: Final[Mapping[str, type]] = {"object": dict, "array": list, "string": str, "boolean": bool}
_TYPE: Final[Keys] = {"type": (lambda value, at: _known(text(value, at), at, _TYPES, "is no type"), NEEDED)}
_WRAPPER: Final[Keys] = {
    "needs": (_needs, NEEDED),
    "take": (texts, NEEDED),
    "only": (names, None),
    "call_id": (text, ""),
    "error": (text, ""),
    "failed": (scalar, "error"),
}
_TABLE: Final[Keys] = {
    "name": (text, NEEDED),
    "source": (text, "configuration"),
    "rules": (_rules, NEEDED),
    "scopes": (texts, ()),
    "fields": (_fields, {}),
    "span_name": (texts, ()),
    "agent_span_name": (texts, ()),
    "title": (text, ""),
    "mcp_names": (texts, ()),
    "errors": (partial(rows, _MARK, Mark), ()),
    "events": (partial(rows, _EVENT, EventRow), ()),
    "messages": (partial(rows, _MESSAGE, MessageRow), ()),
    "wrappers": (_wrappers, ()),
    "not_calls": (names, frozenset()),
    "not_requests": (texts, ()),
    "not_call_marks": (partial(rows, _MARK, Mark), ()),
    "placeholders": (_placeholders, {}),
    "masks": (texts, ()),
    "truncated": (_truncated, {}),
    "json_encoded": (flag, False),
    "tool_spans": (flag_or_unknown, None),
    "tool_finish_reasons": (texts, TOOL_FINISH_REASONS),
    "unreliable_finish_reasons": (partial(rows, _MARK, Mark), UNRELIABLE),
    "own_content": (partial(each_of, partial(one_of, Field), remedy="write e.g. [input, output]"), ()),
    "failures_in_results": (flag, False),
}
