"""Read expected calls from a specification and prepare them for comparison.

A nested list holds calls that may be made in any order. JSON values are compared by hashing, as
part of a call's `Word`; if equal words decide, calls are not compared pair by pair.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError, collect_errors, unknown_keys
from otel_eval.model import UNRECORDED, Skipped, Unnamed
from otel_eval.scorers.alignment.lcs import prepare
from otel_eval.scorers.alignment.partial_order import TimedCall
from otel_eval.scorers.base_scorer import NoScore
from otel_eval.scorers.parameters import (
    STRING,
    Schema,
    check_literal,
    invalid_value,
    with_schema,
)
from otel_eval.scorers.tool_names import numbered
from otel_eval.scorers.values import as_object, decode_json, hashable, is_bare_value, value_at


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected call. `arguments` and `result` are `UNRECORDED` where the expectation does not
    name them.
    """

    name: str
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected calls in order. `groups` cuts their positions into ranges; calls within one range
    may be made in any order.
    """

    calls: tuple[Expected, ...]
    groups: tuple[range, ...]


Mode = str | tuple[str, ...] | None
"""How arguments are compared: in one of `MODES`, by dotted keys, or not at all."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared in addition to the names: arguments by `Mode`, and results by equality."""

    arguments: Mode = None
    results: bool = False


_SPELLINGS: Final[Mapping[str, str]] = {
    "arguments": "arguments",
    "args": "arguments",  # ADK, LangChain, UiPath
    "input_parameters": "arguments",  # deepeval
    "result": "result",
    "output": "result",  # deepeval, UiPath
}
# keys that the formats of these libraries add to a call
_IGNORED: Final = frozenset({"id", "type", "description", "reasoning"})


def _list_of(call: Schema) -> Schema:
    """Return the schema of a list of calls and groups of calls."""
    return {
        "type": "array",
        "items": {"anyOf": [call, {"type": "array", "items": call, "minItems": 1}]},
    }


@with_schema(_list_of(STRING))
def names(key: str, value: Any) -> Expectation:
    """Read a list of tool names; a nested list holds names that may be called in any order.

    >>> names("expected", ["search", ["open", "read"]]).groups
    (range(0, 1), range(1, 3))
    """
    return _expectation(key, value, _tool_name, "a list of tool names", "[search, [open, read]]")


@with_schema(_list_of(STRING))
def span_names(key: str, value: Any) -> Expectation:
    """Read a list of names as `names` does; those of spans may have any characters."""
    return _expectation(key, value, _name, "a list of names", "[search, [open, read]]")


def calls(*fields: str) -> Callable[[str, Any], Expectation]:
    """Return a reader of lists of tool names, or of mappings of `name` and optionally `fields`
    (arguments, result).
    """

    def read_call(key: str, value: Any) -> Expected:
        return _call(key, value, fields)

    spelt: dict[str, Schema] = {word: {} for word, field in _SPELLINGS.items() if field in fields}
    as_object = {"type": "object", "properties": {"name": STRING, **spelt}, "required": ["name"]}
    function = {
        "type": "object",
        "properties": {"function": {"type": "object", "required": ["name"]}},
        "required": ["function"],
    }
    example = ", ".join(f"{field}: …" for field in fields)

    @with_schema(
        {"anyOf": [as_object, function, _list_of({"anyOf": [STRING, as_object, function]})]}
    )
    def read(key: str, value: Any) -> Expectation:
        return _expectation(
            key, value, read_call, "a list of expected calls", f"[{{name: search, {example}}}]"
        )

    return read


def _expectation(
    key: str, value: Any, read: Callable[[str, Any], Expected], wanted: str, example: str
) -> Expectation:
    if isinstance(value, Mapping) and "dataset" in value:
        raise ConfigError(
            f"{key}: names a dataset; write it as reference: {{dataset: cases.jsonl, key:"
            " test.case.id}"
        )
    if isinstance(value, Mapping):
        value = [value]  # a single call
    if not _is_list(value):
        raise invalid_value(key, value, wanted, f"write e.g. {key}: {example}")
    found: list[Expected] = []
    groups: list[range] = []
    for members in collect_errors(
        partial(_group, f"{key}[{index}]", entry, read) for index, entry in enumerate(value)
    ):
        groups.append(range(len(found), len(found) + len(members)))
        found += members
    return Expectation(tuple(found), tuple(groups))


def _group(key: str, entry: Any, read: Callable[[str, Any], Expected]) -> list[Expected]:
    """Read one entry: a single call, or a list of the calls of a group."""
    if not _is_list(entry):
        return [read(key, entry)]
    if not entry:
        raise invalid_value(
            key, entry, "a group of calls", "name at least one call or leave the group out"
        )
    return collect_errors(partial(read, f"{key}[{at}]", member) for at, member in enumerate(entry))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _name(key: str, value: Any) -> Expected:
    if not isinstance(value, str) or not value:
        raise invalid_value(
            key,
            value,
            "the name of a tool",
            f"write e.g. {key}: search (names like 3 or true need quotes in YAML)",
        )
    return Expected(value)


def _tool_name(key: str, value: Any) -> Expected:
    expected = _name(key, value)
    check_literal(key, expected.name)
    return expected


def _call(key: str, value: Any, fields: tuple[str, ...]) -> Expected:
    if not isinstance(value, Mapping):
        return _tool_name(key, value)
    if "function" in value:
        value, key = _function(key, value), f"{key}.function"
    spelt = {word: field for word, field in _SPELLINGS.items() if field in fields}
    problems = unknown_keys(
        [word for word in value if word not in _IGNORED], ["name", *spelt], f"{key}."
    )
    problems += _twice(key, value, spelt)
    if "name" not in value:
        problems.append(f"{key}.name: missing; write e.g. {{name: search}}")
    if problems:
        raise ConfigError(*problems)
    given = {spelt[word]: decode_json(value[word]) for word in value if word in spelt}
    return Expected(_tool_name(f"{key}.name", value["name"]).name, **given)


def _twice(key: str, value: Mapping[str, Any], spelt: Mapping[str, str]) -> list[str]:
    """Return a problem for each field that is given in more than one spelling."""
    words: dict[str, list[str]] = {}
    for word in value:
        if word in spelt:
            words.setdefault(spelt[word], []).append(word)
    return [
        f"{key}: {' and '.join(each)} are the same in two spellings; keep {field}"
        for field, each in words.items()
        if len(each) > 1
    ]


def _function(key: str, value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return name and arguments of a call in OpenAI's format: `{type: function, function: {name,
    arguments: JSON text}}`.
    """
    inner = value["function"]
    others = [word for word in value if word != "function" and word not in _IGNORED]
    if others:
        raise ConfigError(
            f"{key}: function and {', '.join(map(str, others))} are two spellings of a call; keep"
            " one of them"
        )
    if not isinstance(inner, Mapping):
        raise invalid_value(
            f"{key}.function",
            inner,
            "a mapping of name and arguments",
            "write {name: search, arguments: '{}'}",
        )
    if not isinstance(text := inner.get("arguments"), str):
        return inner
    arguments = decode_json(text or "{}")
    if not isinstance(arguments, Mapping):
        raise invalid_value(
            f"{key}.function.arguments",
            text,
            "the JSON text of an object",
            'write e.g. \'{"q": "rates"}\'',
        )
    return {**inner, "arguments": arguments}


PARTIAL: Final = ("subset", "superset", "overlap")  # modes in which different arguments may agree


Word = tuple[str, Hashable, Hashable]
"""Name, arguments and result of a call in hashable form; words are equal if the calls are, in the
fields that are compared.
"""
ANY: Final = object()
"""Placeholder in a `Word` for arguments or a result that are not compared."""


@dataclass(frozen=True, slots=True)
class Fields:
    """Which fields of an expected call are given and compared."""

    arguments: bool = False
    result: bool = False
    names: bool = False  # whether the arguments are an object with names, not a bare value


_NO_FIELDS: Final = Fields()


class TooManyPairs(Exception):
    """More pairs of an expected and an actual call would be compared than are allowed."""


def limit_pairs(pairs: int, most: int) -> None:
    """Refuse more than `most` pairs.

    Raises:
        TooManyPairs: there are more.
    """
    if pairs > most:
        raise TooManyPairs


class Criterion:
    """An expectation, prepared for comparison with any number of runs.

    Attributes:
        names: the tool names of the expected calls.
        nested: whether some group has more than one call.
        each: the compared fields of each expected call.
        required: the distinct pairs of a tool's name and the compared fields of one of its expected
            calls, in order.
        fields: tool name → the compared fields of its expected calls; the last ones, if these
            differ.
        keys: the words of the expected calls; None if some value cannot be hashed.
        words: the prepared `keys`, or names if only names are compared; None also if fields of
            calls of one tool differ.
        decisive: whether calls agree only if their words are equal.
        plain: whether only names are compared.
        weighed: whether details list the weight of each pair: arguments or results are compared,
            and some call gives either.
        whole: whether every expected call gives arguments that are compared, and none gives a
            result that is compared.
    """

    def __init__(self, expectation: Expectation, comparison: Comparison) -> None:
        self.expectation, self.comparison = expectation, comparison
        calls, mode = expectation.calls, comparison.arguments
        self.names = [call.name for call in calls]
        self.nested = len(expectation.groups) < len(calls)
        self.each = [_fields(call, comparison) for call in calls]
        self.required = [*dict.fromkeys(zip(self.names, self.each, strict=True))]
        self.fields = fields = dict(self.required)
        self.plain = not any(own.arguments or own.result for _, own in self.required)
        self.whole = all(own.arguments and not own.result for _, own in self.required)
        uniform = all(
            (own.arguments, own.result) == (fields[name].arguments, fields[name].result)
            for name, own in self.required
        )
        self.keys = _words(calls, self.each, mode)
        self.words = (
            None
            if self.keys is None or not uniform
            else prepare(self.names if self.plain else self.keys)
        )
        partial = mode in PARTIAL and any(own.arguments for _, own in self.required)
        self.decisive = self.words is not None and not partial
        bare = all(call.arguments is UNRECORDED and call.result is UNRECORDED for call in calls)
        self.weighed = (mode is not None or comparison.results) and not bare


def _fields(call: Expected, comparison: Comparison) -> Fields:
    arguments = comparison.arguments is not None and call.arguments is not UNRECORDED
    result = comparison.results and call.result is not UNRECORDED
    return Fields(arguments, result, arguments and not is_bare_value(call.arguments))


def words_of(criterion: Criterion, calls: Sequence[TimedCall]) -> list[Word] | None:
    """Return the words of actual calls, comparable with those of the criterion; None if some value
    cannot be hashed.
    """
    fields = [criterion.fields.get(call.name, _NO_FIELDS) for call in calls]
    return _words(calls, fields, criterion.comparison.arguments)


def _words(calls: Sequence[Any], fields: Sequence[Fields], mode: Mode) -> list[Word] | None:
    try:
        return [_comparable(call, own, mode) for call, own in zip(calls, fields, strict=True)]
    except (TypeError, RecursionError):
        return None


def _comparable(call: Any, fields: Fields, mode: Mode) -> Word:
    """Return the word of a call.

    Raises:
        TypeError: a value cannot be hashed.
    """
    arguments = arguments_word(call.arguments, mode) if fields.arguments else ANY
    return call.name, arguments, hashable(decode_json(call.result)) if fields.result else ANY


def arguments_word(arguments: Any, mode: Mode) -> Hashable:
    """Return a hashable value that is equal for arguments that are equal in this mode."""
    arguments = as_object(arguments)
    if isinstance(mode, tuple):
        return tuple([hashable(value_at(arguments, key)) for key in mode])
    return hashable(arguments)


def check_recorded(criterion: Criterion, calls: Sequence[Any]) -> None:
    """Check that calls of the expected tools recorded the fields that are compared.

    Raises:
        NoScore: one did not; the text names the field, the tool and the position of the call.
    """
    by_name: dict[str, list[tuple[int, Any]]] = {}
    for at, call in enumerate(calls):
        if call.name in criterion.fields:
            by_name.setdefault(call.name, []).append((at, call))
    for name, fields in criterion.required:
        for at, call in by_name.get(name, ()):
            if fields.arguments and call.arguments is UNRECORDED:
                raise _not_recorded(f"arguments of {numbered(name, at)}")
            if fields.names and type(call.arguments) is Unnamed:
                raise _not_recorded(f"names of the arguments of {numbered(name, at)}")
            if fields.result and call.result is UNRECORDED:
                raise _not_recorded(f"result of {numbered(name, at)}")


def _not_recorded(what: str) -> NoScore:
    return NoScore(Skipped(f"{what} not recorded", reason="not_recorded"))
