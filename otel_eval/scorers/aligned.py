"""What an alignment is, and what it leaves over.

Knows positions, and whether two calls agree because somebody says so; knows not how an alignment is found.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from otel_eval.native import maker

__all__ = ["Alignment", "Pairs", "left_over", "misplaced", "new_alignment"]

Pairs = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Alignment:
    """Expected and actual calls in pairs.

    Attributes:
        pairs: (expected, actual), in order of expectation.
        weights: what each pair weighs; None where names alone are compared: each weighs 1.
        weight: their sum.
        misplaced: pairs of an expected call that is missing and an extra one that agrees in all but its place.
    """

    pairs: Pairs
    weights: list[float] | None
    weight: float
    misplaced: Pairs


new_alignment = maker(Alignment)


def left_over(count: int, paired: Sequence[int]) -> list[int]:
    """The positions below `count` that are in no pair.

    >>> left_over(4, [2, 0])
    [1, 3]
    """
    if len(paired) == count:
        return []
    left = set(range(count))
    left.difference_update(paired)
    return sorted(left)


def misplaced(
    wanted: Sequence[Hashable], made: Sequence[Hashable], pairs: Pairs, agree: Callable[[int, int], bool] | None = None
) -> Pairs:
    """Of the calls left over by an alignment those that agree: each expected one with the first that is still there.

    Args:
        wanted, made: the names, expected and actual; calls of different names never agree.
        agree: whether an expected and an actual call of one name do; left out, all do.

    >>> misplaced(["a", "b"], ["b", "a"], [(0, 1)])
    [(1, 0)]
    """
    missing = left_over(len(wanted), [row for row, _ in pairs])
    extra = left_over(len(made), [column for _, column in pairs]) if missing else []
    waiting: dict[Hashable, list[int]] = {}
    for column in extra:
        waiting.setdefault(made[column], []).append(column)
    found = []
    for row in missing:
        columns = waiting.get(wanted[row], [])
        agreeing = next((column for column in columns if agree is None or agree(row, column)), None)
        if agreeing is not None:
            columns.remove(agreeing)
            found.append((row, agreeing))
    return found
