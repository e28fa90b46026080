"""An expectation prepared for one way of comparing, and calls as words that are equal where the calls agree entirely.

Values are compared by hashing where they are JSON; where equal words decide, no pair of calls is looked at.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.model import UNRECORDED, Unnamed
from otel_eval.scorers.agreement import at_key, decoded, frozen, is_unnamed, named
from otel_eval.scorers.alignment.expected import Comparison, Expectation, Expected
from otel_eval.scorers.alignment.lcs import Prepared, prepare
from otel_eval.scorers.alignment.parallel_calls import Visit

__all__ = ["PARTIAL", "Criterion", "Unrecorded", "arguments_word", "check_recorded", "criterion_of", "words_of"]

PARTIAL: Final = ("subset", "superset", "overlap")  # modes in which different arguments may agree


class Unrecorded(Exception):
    """A same-named call did not record what the expectation names; the message names it and its position."""


@dataclass(frozen=True, slots=True)
class Fields:
    """What an expected call names, as far as it is compared."""

    arguments: bool
    result: bool
    names: bool  # the arguments are named, not a bare value


@dataclass(frozen=True, slots=True)
class Criterion:
    """An expectation, prepared to be compared in one way.

    Attributes:
        each: what each expected call names.
        required: names of tools with what their expected calls name, each combination once, in order.
        fields: what all expected calls of a name name.
        words: the expected calls as words; None where some value cannot be hashed or calls of one name name different fields.
        decisive: whether calls agree only if their words are equal.
        plain: whether nothing is compared but names.
        weighed: whether the weight of each pair is told: something is to be compared, and some expected call names something.
        whole: whether every expected call names arguments that are compared, and none a result that is.
    """

    expectation: Expectation
    comparison: Comparison
    each: tuple[Fields, ...]
    required: tuple[tuple[str, Fields], ...]
    fields: Mapping[str, Fields]
    words: Prepared | None
    decisive: bool
    plain: bool
    weighed: bool
    whole: bool


def criterion_of(expectation: Expectation, comparison: Comparison) -> Criterion:
    """The expectation, prepared for any number of runs."""
    each = tuple([_fields(call, comparison) for call in expectation.calls])
    required = tuple(dict.fromkeys([(call.name, own) for call, own in zip(expectation.calls, each, strict=True)]))
    fields = dict(required)
    uniform = all((own.arguments, own.result) == (fields[name].arguments, fields[name].result) for name, own in required)
    words = _prepared(expectation, comparison, fields) if uniform else None
    compared = comparison.arguments is not None or comparison.results
    bare = all(call.arguments is UNRECORDED and call.result is UNRECORDED for call in expectation.calls)
    partial = comparison.arguments in PARTIAL and any(own.arguments for _, own in required)
    return Criterion(
        expectation,
        comparison,
        each,
        required,
        fields,
        words,
        decisive=words is not None and not partial,
        plain=not any(own.arguments or own.result for _, own in required),
        weighed=compared and not bare,
        whole=all(own.arguments and not own.result for _, own in required),
    )


def _fields(call: Expected, comparison: Comparison) -> Fields:
    arguments = comparison.arguments is not None and call.arguments is not UNRECORDED
    result = comparison.results and call.result is not UNRECORDED
    return Fields(arguments, result, arguments and not is_unnamed(call.arguments))


def _prepared(expectation: Expectation, comparison: Comparison, fields: Mapping[str, Fields]) -> Prepared | None:
    try:
        return prepare([_word(call, fields[call.name], comparison.arguments) for call in expectation.calls])
    except (TypeError, RecursionError):
        return None


def words_of(criterion: Criterion, calls: Sequence[Visit]) -> list[Hashable] | None:
    """The actual calls as words, comparable with those of the criterion; None where some value cannot be hashed."""
    if criterion.plain:
        return [call.name for call in calls]
    fields, mode = criterion.fields, criterion.comparison.arguments
    try:
        return [_word(call, fields[call.name], mode) if call.name in fields else call.name for call in calls]
    except (TypeError, RecursionError):
        return None


def _word(call: Any, fields: Fields, mode: str | tuple[str, ...] | None) -> Hashable:
    """Equal for calls of one name whose compared fields are equal, and for no others.

    Raises:
        TypeError: a value cannot be hashed.
    """
    if not fields.arguments and not fields.result:
        return str(call.name)
    arguments = arguments_word(call.arguments, mode) if fields.arguments else None
    return (call.name, arguments, frozen(decoded(call.result))) if fields.result else (call.name, arguments)


def arguments_word(arguments: Any, mode: str | tuple[str, ...] | None) -> Hashable:
    """Equal for arguments that are the same, as far as the mode compares them."""
    if mode == "exact":
        return frozen(arguments)
    if isinstance(mode, tuple):
        return tuple([frozen(at_key(arguments, key)) for key in mode])
    return frozen(named(arguments))


def check_recorded(criterion: Criterion, calls: Sequence[Any]) -> None:
    """See that calls of the expected names recorded what is compared of them.

    Raises:
        Unrecorded: one did not.
    """
    by_name: dict[str, list[tuple[int, Any]]] = {}
    for at, call in enumerate(calls):
        if call.name in criterion.fields:
            by_name.setdefault(call.name, []).append((at, call))
    for name, fields in criterion.required:
        for at, call in by_name.get(name, ()):
            if fields.arguments and call.arguments is UNRECORDED:
                raise Unrecorded(f"arguments of {name} (call {at}) not recorded")
            if fields.names and type(call.arguments) is Unnamed:
                raise Unrecorded(f"names of the arguments of {name} (call {at}) not recorded")
            if fields.result and call.result is UNRECORDED:
                raise Unrecorded(f"result of {name} (call {at}) not recorded")
