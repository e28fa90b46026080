"""How much an alignment will weigh, before it is known which calls it pairs.

Knows what names, or names with all of the arguments, tell of the weight; where they do not decide it says so, and somebody
has to align. An alignment is only wanted when somebody asks why.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from otel_eval.model import UNRECORDED, Scored, Trajectory, Unnamed
from otel_eval.native import extension
from otel_eval.scorers.agreement import MODES
from otel_eval.scorers.aligned import Alignment, Pairs
from otel_eval.scorers.batches import Visit, follow_one_another
from otel_eval.scorers.expected import Comparison, Expectation
from otel_eval.scorers.subsequence import Prepared, common, common_length, prepare
from otel_eval.scorers.weights import kind_of, limits

__all__ = [
    "alignment_of_equals",
    "alignment_of_kinds",
    "prepared_calls",
    "prepared_kinds",
    "prepared_scoring",
    "weight_in_python",
    "weight_of_kinds",
    "weight_of_names",
]

_matching: Final = extension("_matching")


def weight_of_names(expectation: Expectation, visits: Sequence[Visit], match: str, *, concurrency: bool) -> int | None:
    """What the heaviest alignment weighs where names decide; None where only the alignment can tell.

    For `exact`: the number of calls if all fit, else 0. `concurrency` lets calls that could not have known of one another
    come in any order.
    """
    if expectation.names is not None:
        weight: int | None = expectation.names.weight(visits, match, expectation.nested, concurrency)
        if weight is not NotImplemented:
            return weight
    return weight_in_python(expectation, visits, match, concurrency=concurrency)


def weight_in_python(expectation: Expectation, visits: Sequence[Visit], match: str, *, concurrency: bool) -> int | None:
    """As `weight_of_names`, of any calls; the shortcut in C answers for plain ones."""
    prepared, names = expectation.prepared, [visit.name for visit in visits]
    if prepared.names == tuple(names):
        return len(names)
    if match == "any_order":
        return _in_common(prepared, names)
    if expectation.nested:
        return None
    if match == "exact":
        weight, certain = 0, len(prepared.names) != len(names)
    else:
        weight = common_length(prepared, names)
        certain = weight == min(len(prepared.names), len(names))  # concurrency could only add to it
    return weight if certain or not concurrency or follow_one_another(visits) else None


def weight_of_kinds(
    kinds: Prepared, expectation: Expectation, visits: Sequence[Any], match: str, compared: Comparison, *, concurrency: bool
) -> int | None:
    """As `weight_of_names` where arguments are compared, from those that are equal.

    Calls whose arguments differ may agree as well, unless `exact` arguments are asked for: then the weight is known only if
    equal ones already make up all that there can be.
    """
    if match != "any_order" and (expectation.nested or (concurrency and not follow_one_another(visits))):
        return None
    if _equal(expectation, visits):
        return len(visits)
    if UNRECORDED in [visit.arguments for visit in visits] or any(type(visit.arguments) is Unnamed for visit in visits):
        return None
    wanted, made, decides = len(kinds.names), len(visits), compared.arguments is MODES["exact"]
    if match == "exact":
        return 0 if decides or wanted != made else None
    words = _words(visits)
    weight = _in_common(kinds, words) if match == "any_order" else common_length(kinds, words)
    return weight if decides or weight == min(wanted, made) else None


def alignment_of_equals(expectation: Expectation, visits: Sequence[Visit]) -> Alignment | None:
    """The alignment where each call is the expected one with its arguments, as `align` makes it; None if some is not."""
    return _alignment([(at, at) for at in range(len(visits))]) if _equal(expectation, visits) else None


def alignment_of_kinds(kinds: Prepared, visits: Sequence[Visit], match: str) -> Alignment:
    """Pairs of equal calls, as many as `weight_of_kinds` tells: for where weighing all others would be too much work."""
    words = _words(visits)
    if match != "any_order":
        return _alignment(common(kinds, words))
    waiting = {word: list(reversed(places)) for word, places in prepare(words).places.items()}
    return _alignment([(row, waiting[word].pop()) for row, word in enumerate(kinds.names) if waiting.get(word)])


def _alignment(pairs: Pairs) -> Alignment:
    return Alignment(pairs, [1.0] * len(pairs), float(len(pairs)), [])


def _equal(expectation: Expectation, visits: Sequence[Any]) -> bool:
    """Whether the calls and their arguments are the expected ones, one by one."""
    calls = expectation.calls
    return (
        len(calls) == len(visits)
        and expectation.prepared.names == tuple([visit.name for visit in visits])
        and [call.arguments for call in calls] == [visit.arguments for visit in visits]
    )


def _in_common(prepared: Prepared, words: Sequence[Hashable]) -> int:
    """How many words both sides have, each as often as the side that has it less often."""
    found, left = 0, prepared.counts.copy()
    for word in words:
        if left.get(word):
            left[word] -= 1
            found += 1
    return found


def prepared_kinds(expectation: Expectation) -> Prepared | None:
    """The expected calls as names with arguments; None where one names no arguments, or a result."""
    calls = expectation.calls
    if any(call.arguments is UNRECORDED or call.result is not UNRECORDED for call in calls):
        return None
    return prepare([_word(call.name, call.arguments) for call in calls])


def prepared_calls(expectation: Expectation, compared: Comparison) -> Any:
    """The expected calls for the shortcut in C, which weighs calls with arguments that agree in part as well.

    None where there is no shortcut, or it does not know what is compared: results, single keys, arguments that are no
    plain JSON.
    """
    mode = next((number for number, mode in enumerate(MODES.values()) if mode is compared.arguments), None)
    calls = expectation.calls
    if _matching is None or mode is None or any(call.result is not UNRECORDED for call in calls):
        return None
    arguments = tuple(call.arguments for call in calls)
    return _matching.calls(expectation.prepared.names, arguments, UNRECORDED, mode, expectation.nested, limits())


def prepared_scoring(
    prepared: Any,
    expectation: Expectation,
    manner: tuple[str, str, bool, bool],
    *,
    strict: bool,
    threshold: float | None,
) -> Any:
    """From a run to its outcome in C, where its calls alone decide; None where there is no shortcut.

    Args:
        prepared: what names or calls were prepared to; None where there is no shortcut for these.
        manner: which orders count, the measure, whether calls that ran at once may come in any order, and whether names decide.
    """
    if _matching is None or prepared is None:
        return None
    match, measure, concurrency, _ = manner
    frame = (match, measure, expectation.nested, concurrency, strict, threshold)
    return _matching.scoring(prepared, expectation, Trajectory, Scored, *frame)


def _words(visits: Sequence[Any]) -> list[Hashable]:
    """The actual calls in the same way."""
    return [_word(visit.name, visit.arguments) for visit in visits]


def _word(name: str, arguments: Any) -> Hashable:
    """Equal for calls of one name whose arguments are equal, and for no others."""
    try:
        return name, frozenset(arguments.items())
    except (TypeError, AttributeError):  # something in them cannot be hashed, or they are no mapping
        return name, kind_of(arguments)
