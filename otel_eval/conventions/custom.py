"""A user's own convention, from the mapping that a configuration holds.

Each property of a built-in table can be given here too. Every problem is reported, each with its path, as a `ConfigError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from otel_eval.conventions.message_formats import WRAPPERS, Wrapper
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
from otel_eval.conventions.values import TEXT_WRAPPERS
from otel_eval.errors import ConfigError, collect_errors
from otel_eval.model import Kind
from otel_eval.redaction import redacted_repr
from otel_eval.suggestions import did_you_mean, nearest

__all__ = ["convention_from_mapping"]


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
    return dict(zip(keys, collect_errors([*refused, *(partial(value, key) for key in keys)]), strict=True))


def _refuse(problem: str) -> None:
    raise ConfigError(problem)


def wrong(at: str, value: Any, what: str, remedy: str) -> ConfigError:
    """What is wrong with the value at a path, and what to do about it."""
    return ConfigError(f"{at}: {redacted_repr(value)} {what}; {remedy}")


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
    return tuple(collect_errors(partial(read, each, f"{at}[{place}]") for place, each in enumerate(given)))


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
    return dict(collect_errors(partial(_field, key, keys, f"{at}.{key}") for key, keys in value.items()))


def _field(key: Any, keys: Any, at: str) -> tuple[Field, tuple[str, ...]]:
    readings: list[Callable[[], Any]] = [partial(one_of, Field, key, at), partial(texts, keys, at)]
    field, attributes = collect_errors(readings)
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
    return tuple(collect_errors(partial(_need, key, wanted, f"{at}.{key}") for key, wanted in value.items()))


def _need(key: Any, wanted: Any, at: str) -> tuple[str, str | type]:
    """A type is a mapping, so that it cannot be taken for a text that the value must be."""
    if isinstance(wanted, Mapping):
        return text(key, at), _TYPES[values(wanted, at, _TYPE)["type"]]
    return text(key, at), scalar(wanted, at)


def _known(word: str, at: str, known: Mapping[str, Any], what: str) -> str:
    if word not in known:
        raise ConfigError(f"{at}: {redacted_repr(word)} {what}; {did_you_mean(word, [*known])}")
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
