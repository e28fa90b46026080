"""Read expected calls from a specification and prepare them for comparison.

A nested list holds calls that may be made in any order. JSON values are compared by hashing, as
part of a call's `Word`; if equal words decide, calls are not compared pair by pair.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import field, make_dataclass, replace
from functools import cache
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BeforeValidator, GetCoreSchemaHandler
from pydantic_core import CoreSchema

from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.model import UNRECORDED, Skipped, Unnamed
from otel_eval.records import record
from otel_eval.scorers.alignment.ordered import prepare
from otel_eval.scorers.outcomes import NoScore
from otel_eval.scorers.parameters import NO_TOOL, SpanName, ToolName
from otel_eval.scorers.partial_order import TimedCall
from otel_eval.scorers.tool_names import numbered
from otel_eval.scorers.values import as_object, decode_json, hashable, is_bare_value, value_at
from otel_eval.validation import (
    LIST,
    MAPPING,
    OTHER,
    TEXT,
    Items,
    ReadAs,
    Record,
    Some,
    Words,
    kind_of,
    one_of,
)


@record
class Expected:
    """One expected call. `arguments` and `result` are `UNRECORDED` where the expectation does not
    name them.
    """

    name: str
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED


@record
class Expectation:
    """Expected calls in order. `groups` cuts their positions into ranges; calls within one range
    may be made in any order.
    """

    calls: tuple[Expected, ...]
    groups: tuple[range, ...]


Mode = str | tuple[str, ...] | None
"""How arguments are compared: in one of `MODES`, by dotted keys, or not at all."""


class Comparison(NamedTuple):
    """What is compared in addition to the names: arguments by `Mode`, and results by equality."""

    arguments: Mode = None
    results: bool = False


_SPELLINGS: Final = {
    "arguments": ("arguments", "args", "input_parameters"),  # ADK, LangChain, UiPath; deepeval
    "result": ("result", "output"),  # deepeval, UiPath
}
# keys that the formats of these libraries add to a call
_IGNORED: Final = ("id", "type", "description", "reasoning")
_IN_FUNCTION: Final = dict.fromkeys(("name", *_SPELLINGS["arguments"]), "write it inside function")


def _unrecorded() -> object:
    return UNRECORDED


def _call_form(*compared: str) -> type:
    """A dataclass of what may be written of a call: its name, `compared` in each spelling, and keys
    that mean nothing here.
    """
    spellings = [spelling for field_name in compared for spelling in _SPELLINGS[field_name]]
    return make_dataclass(
        f"CallWith{''.join(map(str.title, compared))}",
        [
            ("name", ToolName),
            *((key, Any, None) for key in _IGNORED),
            *((key, Any, field(default_factory=_unrecorded)) for key in spellings),
        ],
    )


def _read_call(form: Any) -> Expected:
    """The call of a form; values that are JSON text are decoded.

    Raises:
        ValueError: a value is given in two spellings.
    """
    values: dict[str, Any] = {}
    for key, spellings in _SPELLINGS.items():
        named = [
            spelling
            for spelling in spellings
            if getattr(form, spelling, UNRECORDED) is not UNRECORDED
        ]
        if len(named) > 1:
            raise ValueError(f"{' and '.join(named)} are the same in two spellings; keep {key}")
        if named:
            values[key] = decode_json(getattr(form, named[0]))
    return Expected(form.name, **values)


def _read_function(form: Any) -> Expected:
    """The call of OpenAI's format, in which arguments are JSON text.

    Raises:
        ConfigError: they are not that of an object.
    """
    call = form.function
    text = getattr(call, "arguments", None)
    if isinstance(text, str):
        arguments = decode_json(text or "{}")
        if not isinstance(arguments, Mapping):
            raise ConfigError(
                f"function.arguments: {redacted_repr(text)} is not the JSON text of an object;"
                """ write e.g. '{"q": "rates"}'"""
            )
        call = replace(call, arguments=arguments)
    return _read_call(call)


def _call_with_name(name: str) -> Expected:
    return Expected(name)


def _kind_of_call(value: object) -> str | None:
    return OTHER if isinstance(value, Mapping) and "function" in value else kind_of(value)


def _expectation(entries: Sequence[Expected | Sequence[Expected]] | Expected) -> Expectation:
    """Number the calls of a list in which nested lists are groups."""
    expected_calls: list[Expected] = []
    groups: list[range] = []
    for entry in [entries] if isinstance(entries, Expected) else entries:
        members = [entry] if isinstance(entry, Expected) else entry
        groups.append(range(len(expected_calls), len(expected_calls) + len(members)))
        expected_calls += members
    return Expectation(tuple(expected_calls), tuple(groups))


def _refuse_dataset(value: object) -> object:
    """A validator that refuses a reference in the place of an expectation."""
    if isinstance(value, Mapping) and "dataset" in value:
        raise ValueError(
            "names a dataset; write it as reference: {dataset: cases.jsonl, key: test.case.id}"
        )
    return value


def _list_of(call: Any) -> Any:
    """The type of a list of calls and of groups of calls."""
    group = Annotated[
        Some[call],
        Words("is not a group of calls; name at least one call or leave the group out"),
    ]
    items: Any = Items  # type checkers refuse a variable as a type argument
    return items[one_of({OTHER: call, LIST: group})]


def _form_of_names(name: object, words: str) -> ReadAs:
    """How a list of names and of groups of names is read."""
    form = _list_of(Annotated[name, AfterValidator(_call_with_name)])
    return ReadAs(Annotated[form, BeforeValidator(_refuse_dataset), Words(words)], _expectation)


@cache
def _form_of_calls(compared: tuple[str, ...]) -> ReadAs:
    """How a list of names, or of mappings of `name` and what is compared, is read; one mapping
    alone stands for a list of it.
    """
    form: Any = Annotated[_call_form(*compared), Record()]
    function: Any = make_dataclass(
        f"Function{''.join(map(str.title, compared))}",
        [("function", form), *((key, Any, None) for key in _IGNORED)],
    )
    forms = {
        TEXT: Annotated[ToolName, AfterValidator(_call_with_name)],
        MAPPING: Annotated[form, AfterValidator(_read_call)],
        OTHER: Annotated[function, Record(remedies=_IN_FUNCTION), AfterValidator(_read_function)],
    }
    call: Any = Annotated[one_of(forms, _kind_of_call), Words(NO_TOOL)]
    example = ", ".join(f"{key}: …" for key in compared)
    expected: Any = Annotated[
        one_of({MAPPING: call, LIST: _list_of(call)}),
        BeforeValidator(_refuse_dataset),
        Words(f"is not a list of expected calls; write e.g. [{{name: search, {example}}}]"),
    ]
    return ReadAs(expected, _expectation)


class _Calls:
    """Annotation of an expectation that is written in `_form_of_calls`, which is made for the first
    scorer that has it.
    """

    def __init__(self, *compared: str) -> None:
        self._compared = compared

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return handler.generate_schema(Annotated[source, _form_of_calls(self._compared)])


_NO_NAMES: Final = "is not a list of tool names; write e.g. [search, [open, read]]"
ToolNameList = Annotated[Expectation, _form_of_names(ToolName, _NO_NAMES)]
"""Tool names; a nested list holds names that may be called in any order."""
SpanNameList = Annotated[Expectation, _form_of_names(SpanName, _NO_NAMES)]
"""As `ToolNameList`; names of spans may have any characters."""
CallList = Annotated[Expectation, _Calls("arguments", "result")]
"""Tool names, or mappings of `name` and optionally `arguments` and `result`."""
CallListWithArguments = Annotated[Expectation, _Calls("arguments")]
CallListWithResults = Annotated[Expectation, _Calls("result")]


PARTIAL: Final = ("subset", "superset", "overlap")  # modes in which different arguments may agree


Word = tuple[str, Hashable, Hashable]
"""Name, arguments and result of a call in hashable form; words are equal if the calls are, in the
fields that are compared.
"""
ANY: Final = object()
"""Placeholder in a `Word` for arguments or a result that are not compared."""


@record
class Fields:
    """Which fields of an expected call are given and compared."""

    arguments: bool = False
    result: bool = False
    names: bool = False  # whether the arguments are an object with names, not a bare value


_NO_FIELDS: Final = Fields()


class TooManyPairs(Exception):
    """More pairs of an expected and an actual call would be compared than are allowed."""


def limit_pairs(pairs: int, limit: int) -> None:
    """Refuse more than `limit` pairs.

    Raises:
        TooManyPairs: there are more.
    """
    if pairs > limit:
        raise TooManyPairs


class Criterion:
    """An expectation, prepared for comparison with any number of runs.

    Attributes:
        names: the tool names of the expected calls.
        nested: whether some group has more than one call.
        compared_fields: the compared fields of each expected call.
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
        self.compared_fields = [_fields_compared(call, comparison) for call in calls]
        self.required = [*dict.fromkeys(zip(self.names, self.compared_fields, strict=True))]
        self.fields = fields = dict(self.required)
        compared = {(name, of_call.arguments, of_call.result) for name, of_call in self.required}
        self.plain = not any(arguments or result for _, arguments, result in compared)
        self.whole = all(arguments and not result for _, arguments, result in compared)
        uniform = len(compared) == len(fields)
        self.keys = _words(calls, self.compared_fields, mode)
        self.words = (
            None
            if self.keys is None or not uniform
            else prepare(self.names if self.plain else self.keys)
        )
        partial = mode in PARTIAL and any(arguments for _, arguments, _ in compared)
        self.decisive = self.words is not None and not partial
        bare = all(call.arguments is UNRECORDED and call.result is UNRECORDED for call in calls)
        self.weighed = (mode is not None or comparison.results) and not bare


def _fields_compared(call: Expected, comparison: Comparison) -> Fields:
    """The fields that an expected call gives and a comparison compares."""
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
    """The words of calls, each by its compared fields; None if some value cannot be hashed."""
    try:
        return [
            _comparable(call, fields_of_call, mode)
            for call, fields_of_call in zip(calls, fields, strict=True)
        ]
    except (TypeError, RecursionError):
        return None


def _comparable(call: Any, fields: Fields, mode: Mode) -> Word:
    """Return the word of a call.

    Raises:
        TypeError: a value cannot be hashed.
    """
    arguments = arguments_word(call.arguments, mode) if fields.arguments else ANY
    return call.name, arguments, hashable(decode_json(call.result)) if fields.result else ANY


def arguments_word(arguments: object, mode: Mode) -> Hashable:
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


def _not_recorded(subject: str) -> NoScore:
    return NoScore(Skipped(f"{subject} not recorded", reason="not_recorded"))
