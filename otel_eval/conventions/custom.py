"""A user's own convention, from the mapping that a configuration holds.

Each property of a built-in table can be given here too. Every problem is reported, each with its path, as a `ConfigError`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields
from enum import StrEnum
from functools import partial
from typing import Any, Final, TypeVar

from otel_eval.conventions.message_formats import WRAPPERS, Wrapper
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.conventions.values import TEXT_WRAPPERS
from otel_eval.errors import ConfigError, collect_errors, did_you_mean, nearest, redacted_repr
from otel_eval.model import Kind

_T = TypeVar("_T")
_E = TypeVar("_E", bound=StrEnum)
_Reader = Callable[[Any, str], Any]
"""Checks a value of the mapping and returns what the table holds for it. Arguments: the value, and its path for errors."""


def convention_from_mapping(mapping: Mapping[str, Any]) -> Convention:
    """The table that a mapping describes; keys are the fields of `Convention`, rows are mappings of their fields.

    >>> table = convention_from_mapping({
    ...     "name": "mine", "rules": [{"kind": "tool", "key": "my.tool"}], "fields": {"tool_name": "my.tool"}})
    >>> table.rules[0].kind
    <Kind.TOOL: 'tool'>

    Raises:
        ConfigError: keys are missing or unknown, or values cannot be used: all problems, each with its path in the mapping.
    """
    if not isinstance(mapping, Mapping):
        raise _wrong("convention", mapping, "is not a mapping", "write name, rules and fields")
    return Convention(**_values({"source": "configuration", **mapping}, "", _TABLE, _required(Convention)))


def _values(given: Mapping[str, Any], at: str, readers: Mapping[str, _Reader], required: Iterable[str]) -> dict[str, Any]:
    """Read the value of each key that is given; report unknown keys and required keys that are missing.

    Keys that are left out are not in the result, so that the defaults of the dataclass apply.
    """
    path = f"{at}." if at else ""
    unknown = [key for key in given if key not in readers]
    # A required key that is misspelt is reported once, as unknown, and not as missing too.
    missing = {*required} - {*given} - {nearest(key, readers) for key in unknown}
    problems = [f"{path}{key}: unknown key; {did_you_mean(key, [*readers])}" for key in unknown]
    problems += [f"{path}{key}: missing; add it" for key in readers if key in missing]
    known = [key for key in readers if key in given]
    read = collect_errors(
        [*(partial(_refuse, each) for each in problems), *(partial(readers[key], given[key], path + key) for key in known)]
    )
    return dict(zip(known, read, strict=True))


def _refuse(problem: str) -> None:
    raise ConfigError(problem)


def _required(cls: type) -> list[str]:
    """The fields of a dataclass that have no default."""
    return [each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING]


def _wrong(at: str, value: Any, problem: str, remedy: str) -> ConfigError:
    return ConfigError(f"{at}: {redacted_repr(value)} {problem}; {remedy}")


def _text(value: Any, at: str) -> str:
    """Text that is not empty."""
    if not isinstance(value, str) or not value:
        raise _wrong(at, value, "is not text", "write a name or pattern")
    return value


def _scalar(value: Any, at: str) -> str:
    """Text to compare an attribute with; YAML reads an unquoted `true` or `1` as something else than text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else _text(value, at)


def _flag(value: Any, at: str) -> bool:
    if not isinstance(value, bool):
        raise _wrong(at, value, "is neither true nor false", "write true or false")
    return value


def _flag_or_unknown(value: Any, at: str) -> bool | None:
    """True, false, or `unknown` (also null) as None."""
    if value is None or value == "unknown":
        return None
    if not isinstance(value, bool):
        raise _wrong(at, value, "is neither true, false nor unknown", "write true, false or unknown")
    return value


def _member(kinds: type[_E], value: Any, at: str) -> _E:
    """A member of the enumeration, by its value."""
    try:
        return kinds(value)
    except ValueError:
        raise _wrong(at, value, "is not known", did_you_mean(value, [each.value for each in kinds])) from None


def _known(word: str, at: str, known: Mapping[str, Any], problem: str) -> str:
    """The word, if it is one of the known ones."""
    if word not in known:
        raise _wrong(at, word, problem, did_you_mean(word, [*known]))
    return word


def _list(read: Callable[[Any, str], _T], given: Any, at: str, remedy: str) -> tuple[_T, ...]:
    """Every element of a list."""
    if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
        raise _wrong(at, given, "is not a list", remedy)
    return tuple(collect_errors(partial(read, each, f"{at}[{place}]") for place, each in enumerate(given)))


def _texts(value: Any, at: str) -> tuple[str, ...]:
    """A list of texts; one text stands for a list of one."""
    return (_text(value, at),) if isinstance(value, str) else _list(_text, value, at, "write e.g. [my.attribute]")


def _names(value: Any, at: str) -> frozenset[str]:
    """Texts whose order does not matter."""
    return frozenset(_texts(value, at))


def _placeholders(value: Any, at: str) -> frozenset[str]:
    """Texts that stand for "not recorded", which an empty text can be."""
    given = (value,) if isinstance(value, str) else value
    return frozenset(_list(lambda each, where: each if each == "" else _scalar(each, where), given, at, "write e.g. [redacted]"))


def _pairs(read_key: _Reader, read_value: _Reader, example: str, given: Any, at: str) -> dict[Any, Any]:
    """Every key and value of a mapping whose keys are the user's own."""
    if not isinstance(given, Mapping):
        raise _wrong(at, given, "is not a mapping", f"write e.g. {example}")
    paths = {key: f"{at}.{key}" for key in given}
    keys = (partial(read_key, key, path) for key, path in paths.items())
    values = (partial(read_value, given[key], path) for key, path in paths.items())
    # In one list, so that the problems of keys and of values are reported together.
    read = collect_errors([*keys, *values])
    return dict(zip(read[: len(given)], read[len(given) :], strict=True))


def _row(cls: type[_T], readers: Mapping[str, _Reader], given: Any, at: str) -> _T:
    """A record from the mapping of its fields."""
    if not isinstance(given, Mapping):
        raise _wrong(at, given, "is not a mapping", "write its keys and values")
    return cls(**_values(given, at, readers, _required(cls)))


def _rows(cls: type[_T], readers: Mapping[str, _Reader]) -> Callable[[Any, str], tuple[_T, ...]]:
    """A reader of lists of such mappings."""
    return partial(_list, partial(_row, cls, readers), remedy="write one mapping per row")


def _rules(given: Any, at: str) -> tuple[Rule, ...]:
    """The rules of a table, at least one."""
    read = _list(_rule, given, at, "write one mapping per row")
    if not read:
        raise _wrong(at, given, "holds no rule", "describe which spans are agents, models and tools")
    return read


def _rule(given: Any, at: str) -> Rule:
    """A rule that tests something."""
    read = _row(Rule, _RULE, given, at)
    if not read.key and not read.name:
        raise _wrong(at, dict(given), "holds for every span", "name an attribute (key) or a span name (name)")
    return read


def _wrappers(value: Any, at: str) -> tuple[str | Wrapper, ...]:
    """Wrappers by name or by description; one text stands for a list of one."""
    given = (value,) if isinstance(value, str) else value
    return _list(_wrapper, given, at, "write names of wrappers, or mappings that describe one")


def _wrapper(value: Any, at: str) -> str | Wrapper:
    if isinstance(value, Mapping):
        return _row(Wrapper, _WRAPPER, value, at)
    return _known(_text(value, at), at, {**WRAPPERS, **TEXT_WRAPPERS}, "is no wrapper")


def _needs(value: Any, at: str) -> tuple[tuple[str, str | type], ...]:
    """The keys that a wrapper must have, at least one."""
    example = '{input: "*"} or {input: {type: object}}'
    if not value:
        raise _wrong(at, value, "names no key", f"write e.g. {example}")
    return tuple(_pairs(_text, _need, example, value, at).items())


def _need(value: Any, at: str) -> str | type:
    """A type is written as a mapping, so that it cannot be taken for a text that the value must be."""
    return _TYPES[_values(value, at, _TYPE, _TYPE)["type"]] if isinstance(value, Mapping) else _scalar(value, at)


_TYPES: Final[Mapping[str, type]] = {"object": dict, "array": list, "string": str, "boolean": bool}
_TYPE: Final[Mapping[str, _Reader]] = {"type": lambda value, at: _known(_text(value, at), at, _TYPES, "is no type")}
_field: Final = partial(_member, Field)
_marks: Final = _rows(Mark, {"key": _text, "value": _scalar})
_RULE: Final[Mapping[str, _Reader]] = {
    "kind": partial(_member, Kind),
    "key": _scalar,
    "value": _scalar,
    "name": _scalar,
    "handoff": _flag,
}
_WRAPPER: Final[Mapping[str, _Reader]] = {
    "needs": _needs,
    "take": _texts,
    "only": _names,
    "call_id": _text,
    "error": _text,
    "failed": _scalar,
}
_TABLE: Final[Mapping[str, _Reader]] = {
    "name": _text,
    "source": _text,
    "rules": _rules,
    "scopes": _texts,
    "fields": partial(_pairs, _field, _texts, "{tool_name: my.tool}"),
    "span_name": _texts,
    "agent_span_name": _texts,
    "title": _text,
    "mcp_names": _texts,
    "errors": _marks,
    "events": _rows(EventRow, {"event": _text, "field": _field, "key": _text}),
    "messages": _rows(MessageRow, {"key": _text, "side": partial(_member, Side), "conclusive": _flag}),
    "wrappers": _wrappers,
    "not_calls": _names,
    "not_requests": _texts,
    "not_call_marks": _marks,
    "placeholders": partial(_pairs, _text, _placeholders, '{"*": [redacted]}'),
    "masks": _texts,
    "truncated": partial(_pairs, _text, _text, "{my.result: my.result.truncated}"),
    "json_encoded": _flag,
    "tool_spans": _flag_or_unknown,
    "tool_finish_reasons": _texts,
    "unreliable_finish_reasons": _marks,
    "own_content": partial(_list, _field, remedy="write e.g. [input, output]"),
    "failures_in_results": _flag,
}
