"""Expected calls: what they are, and how they are read from names or mappings of name, arguments and result.

A nested list holds calls that may come in any order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError
from otel_eval.model import UNRECORDED
from otel_eval.scorers.agreement import decoded
from otel_eval.scorers.parameters import STRING, Schema, collect_errors, described, did_you_mean, wrong

__all__ = ["Comparison", "Expectation", "Expected", "calls", "names"]


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected call. `arguments` and `result` are `UNRECORDED` where the expectation does not name them."""

    name: str
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED


@dataclass(frozen=True, slots=True)
class Expectation:
    """Expected calls in order. `groups` are the positions that may come in any order."""

    calls: tuple[Expected, ...]
    groups: tuple[range, ...]

    @property
    def nested(self) -> bool:
        """Whether some group has more than one member."""
        return len(self.groups) < len(self.calls)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What is compared beside the names: arguments in one of the modes or by dotted keys, and results by equality."""

    arguments: str | tuple[str, ...] | None = None
    results: bool = False


_SPELLINGS: Final[Mapping[str, str]] = {
    "arguments": "arguments",
    "args": "arguments",  # ADK, LangChain, UiPath
    "input_parameters": "arguments",  # deepeval
    "result": "result",
    "output": "result",  # deepeval, UiPath
}
_IGNORED: Final = frozenset({"id", "type", "description", "reasoning"})  # beside a call in these libraries' own forms


def _list_of(call: Schema) -> Schema:
    """Calls and groups of calls."""
    return {"type": "array", "items": {"anyOf": [call, {"type": "array", "items": call, "minItems": 1}]}}


@described(_list_of(STRING))
def names(key: str, value: Any) -> Expectation:
    """A list of tool names; a nested list holds names that may come in any order.

    >>> names("expected", ["search", ["open", "read"]]).groups
    (range(0, 1), range(1, 3))
    """
    return _expectation(key, value, _name, "a list of tool names", "[search, [open, read]]")


def calls(*fields: str) -> Callable[[str, Any], Expectation]:
    """A reader of lists of names or mappings of `name` and, where wanted, some of `fields` (arguments, result)."""

    def read_call(key: str, value: Any) -> Expected:
        return _call(key, value, fields)

    spelt: dict[str, Schema] = {word: {} for word, field in _SPELLINGS.items() if field in fields}
    named = {"type": "object", "properties": {"name": STRING, **spelt}, "required": ["name"]}
    function = {"type": "object", "properties": {"function": {"type": "object", "required": ["name"]}}, "required": ["function"]}
    example = ", ".join(f"{field}: …" for field in fields)

    @described({"anyOf": [named, function, _list_of({"anyOf": [STRING, named, function]})]})
    def read(key: str, value: Any) -> Expectation:
        return _expectation(key, value, read_call, "a list of expected calls", f"[{{name: search, {example}}}]")

    return read


def _expectation(key: str, value: Any, read: Callable[[str, Any], Expected], wanted: str, example: str) -> Expectation:
    if isinstance(value, Mapping):
        value = [value]  # a single call
    if not _is_list(value):
        raise wrong(key, value, wanted, f"write e.g. {key}: {example}")
    found: list[Expected] = []
    groups: list[range] = []
    for members in collect_errors(partial(_batch, f"{key}[{index}]", entry, read) for index, entry in enumerate(value)):
        groups.append(range(len(found), len(found) + len(members)))
        found += members
    return Expectation(tuple(found), tuple(groups))


def _batch(key: str, entry: Any, read: Callable[[str, Any], Expected]) -> list[Expected]:
    """The calls of one entry: itself, or those that it lists."""
    if not _is_list(entry):
        return [read(key, entry)]
    if not entry:
        raise wrong(key, entry, "a batch of calls", "name at least one call or leave the batch out")
    return collect_errors(partial(read, f"{key}[{at}]", member) for at, member in enumerate(entry))


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _name(key: str, value: Any) -> Expected:
    if not isinstance(value, str) or not value:
        raise wrong(key, value, "the name of a tool", f"write e.g. {key}: search (names like 3 or true need quotes in YAML)")
    return Expected(value)


def _call(key: str, value: Any, fields: tuple[str, ...]) -> Expected:
    if not isinstance(value, Mapping):
        return _name(key, value)
    if "function" in value:
        value, key = _function(key, value), f"{key}.function"
    spelt = {word: field for word, field in _SPELLINGS.items() if field in fields}
    problems = [
        f"{key}.{word}: unknown key; {did_you_mean(word, ['name', *spelt])}"
        for word in value
        if word != "name" and word not in spelt and word not in _IGNORED
    ]
    problems += _twice(key, value, spelt)
    if "name" not in value:
        problems.append(f"{key}.name: missing; write e.g. {{name: search}}")
    if problems:
        raise ConfigError(*problems)
    given = {spelt[word]: value[word] for word in value if word in spelt}
    if "result" in given:
        given["result"] = decoded(given["result"])
    return Expected(_name(f"{key}.name", value["name"]).name, **given)


def _twice(key: str, value: Mapping[str, Any], spelt: Mapping[str, str]) -> list[str]:
    """Fields that are given in two spellings."""
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
    """A call as OpenAI writes it: `{type: function, function: {name, arguments: JSON text}}`."""
    inner = value["function"]
    others = [word for word in value if word != "function" and word not in _IGNORED]
    if others:
        raise ConfigError(f"{key}: function and {', '.join(map(str, others))} are two spellings of a call; keep one of them")
    if not isinstance(inner, Mapping):
        raise wrong(f"{key}.function", inner, "a mapping of name and arguments", "write {name: search, arguments: '{}'}")
    if not isinstance(text := inner.get("arguments"), str):
        return inner
    arguments = decoded(text or "{}")
    if not isinstance(arguments, Mapping):
        raise wrong(f"{key}.function.arguments", text, "the JSON text of an object", 'write e.g. \'{"q": "rates"}\'')
    return {**inner, "arguments": arguments}
