"""The heaviest one-to-one assignment, found row by row.

Knows numbers only. Each row may be given one column or none; the total weight is the greatest there is, after every
row. A row costs one search for the shortest augmenting path over reduced costs (Kuhn 1955; Edmonds and Karp 1972 for
the potentials), so n rows over m columns with e edges cost at most O(n e log m).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from heapq import heappop, heappush

__all__ = ["Assignment", "TooMuch", "Work", "assign"]

_NOTHING = -1
_ROW = 16  # what a row costs beside its columns


class TooMuch(Exception):
    """An exact answer would take more work than is allowed."""


class Work:
    """Steps that may still be taken, each a look at one pair; None: as many as it takes.

    Steps and not seconds, so that equal inputs give equal outcomes on every machine.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most

    def spend(self, steps: int) -> None:
        """Take steps.

        Raises:
            TooMuch: there are not so many left.
        """
        if self.most is None:
            return
        self.most -= steps
        if self.most < 0:
            raise TooMuch


class Assignment:
    """Rows are added one after another; `total` is the greatest weight of all so far.

    >>> best = Assignment()
    >>> best.add({0: 1.0, 1: 0.9}); best.total
    1.0
    >>> best.add({0: 0.8}); round(best.total, 9)
    1.7
    >>> sorted(best.pairs())
    [(0, 1), (1, 0)]
    """

    def __init__(self, work: Work | None = None) -> None:
        self.total = 0.0
        self.work = work or Work(None)
        self._rows: list[Mapping[int, float]] = []
        self._rent: list[float] = []  # potential of a row
        self._price: dict[int, float] = {}  # potential of a column
        self._owner: dict[int, int] = {}
        self._column: list[int] = []

    def add(self, weights: Mapping[int, float]) -> None:
        """One more row: column → weight, in (0, 1]. Columns that it has no edge to are left out."""
        row = len(self._rows)
        price = self._price
        self.work.spend(len(weights) + _ROW)
        self._rows.append(weights)
        self._column.append(_NOTHING)
        rent, nearest = 0.0, _NOTHING
        for column, weight in weights.items():
            cost = -weight - price.get(column, 0.0)
            if cost < rent or (cost == rent and nearest in self._owner and column not in self._owner):
                rent, nearest = cost, column
        self._rent.append(rent)
        if nearest == _NOTHING:
            return
        if nearest in self._owner:
            self._augment(row)
            return
        # The best column is free, so the shortest path is that one edge and no potential moves.
        self._column[row], self._owner[nearest] = nearest, row
        self.total -= rent

    def _augment(self, start: int) -> None:
        """Dijkstra over alternating paths from the new row to a free column, or to a row that does without one."""
        reached, parent = {start: 0.0}, {}  # row → distance; column → the row it was reached from
        done: dict[int, float] = {}
        queue: list[tuple[float, int, int]] = []
        best: dict[int, float] = {}
        row, here = start, 0.0
        nearest, quitter = -self._rent[start], start
        follow, seen = True, {id(self._rows[start])}
        while True:
            weights = self._rows[row] if follow else {}
            self.work.spend(len(weights))
            for column, weight in weights.items():
                far = here - weight - self._rent[row] - self._price.get(column, 0.0)
                if column not in done and far < best.get(column, nearest):
                    best[column], parent[column] = far, row
                    heappush(queue, (far, column, row))
            while queue and queue[0][1] in done:
                heappop(queue)
            if not queue or queue[0][0] >= nearest:
                end, free = nearest, _NOTHING
                break
            here, column, _ = heappop(queue)
            done[column] = here
            if column not in self._owner:
                end, free = here, column
                break
            row = self._owner[column]
            reached[row] = here
            if here - self._rent[row] < nearest:
                nearest, quitter = here - self._rent[row], row
            # Rows with the very same weights pay the same rent, so the one reached first leads on as near as any.
            follow = id(self._rows[row]) not in seen
            seen.add(id(self._rows[row]))
        self.total -= end + self._rent[start]
        for each, distance in reached.items():
            self._rent[each] += end - distance
        for column, distance in done.items():
            self._price[column] = self._price.get(column, 0.0) - (end - distance)
        self._shift(start, free, quitter, parent)

    def _shift(self, start: int, free: int, quitter: int, parent: Mapping[int, int]) -> None:
        """Hand the columns along the path found on, from its end back to its start."""
        column = free
        if column == _NOTHING:
            column, self._column[quitter] = self._column[quitter], _NOTHING
            if quitter == start:
                return
        while True:
            row = parent[column]
            left, self._column[row] = self._column[row], column
            self._owner[column] = row
            if row == start:
                return
            column = left

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs (row, column) of the assignment, by row."""
        return [(row, column) for row, column in enumerate(self._column) if column != _NOTHING]


def assign(rows: Iterable[Mapping[int, float]], work: Work | None = None) -> list[tuple[int, int]]:
    """The pairs (row, column) of a heaviest assignment of all rows.

    Raises:
        TooMuch: it would take more work than is left.
    """
    best = Assignment(work)
    for row in rows:
        best.add(row)
    return best.pairs()
