"""Assign rows to columns one to one: with the greatest weight, or with the most pairs if all pairs
weigh the same.

Rows are added one after another. Each takes one search for an augmenting path: over reduced costs
if pairs have weights (Kuhn 1955; Edmonds and Karp 1972 for the potentials), and over integers with
one bit for each column if they have none.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

_FEW: Final = 8  # below this number of bits, they are added up one by one
_SPARSE: Final = 20  # if fewer than one bit in 20 is set, the set bits are found one by one


def bits_of(columns: Iterable[int]) -> int:
    """Return an integer with the bits at these positions set, in time linear in the highest
    position.
    """
    positions_set = list(columns)
    if len(positions_set) < _FEW:
        return sum([1 << column for column in positions_set])
    whole = bytearray((max(positions_set) >> 3) + 1)
    for column in positions_set:
        whole[column >> 3] |= 1 << (column & 7)
    return int.from_bytes(whole, "little")


def positions(bits: int) -> list[int]:
    """The positions of the bits that are set, in order.

    >>> positions(9)
    [0, 3]
    """
    if bits.bit_count() * _SPARSE > bits.bit_length():
        return [at for at, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]
    positions_set = []
    while bits:
        positions_set.append(lowest(bits))
        bits &= bits - 1
    return positions_set


def lowest(bits: int) -> int:
    """The position of the lowest bit that is set.

    >>> lowest(0b10100)
    2
    """
    return (bits & -bits).bit_length() - 1


_NOTHING: Final = -1


class _ShortestPath:
    """The state of a search for the shortest path from a new row, through kinds of rows and columns
    in turn.
    """

    def __init__(self, start: int, unassigned_at: float) -> None:
        self.reached = {start: 0.0}  # kind → distance
        # kind → the column through which it was reached, and which it owns
        self.through: dict[int, int] = {}
        self.parent: dict[int, int] = {}  # column → the kind from which it was reached
        self.best: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self.queue: list[tuple[float, int]] = []
        # the nearest row that could give up its column
        self.nearest, self.row_to_unassign = unassigned_at, start
        self.here = 0.0

    def next_column(self) -> int:
        """Return the nearest column that was not expanded yet, or -1 if a row that can stay without
        a column is nearer.
        """
        queue = self.queue
        while queue and queue[0][1] in self.done:
            heappop(queue)
        if not queue or queue[0][0] >= self.nearest:
            return _NOTHING
        self.here, column = heappop(queue)
        self.done[column] = self.here
        return column

    def reach(self, kind: int, column: int, potential: float) -> None:
        """Record that the search has reached the rows of a kind through a column that they own."""
        self.reached[kind], self.through[kind] = self.here, column
        if self.here - potential < self.nearest:
            self.nearest, self.row_to_unassign = self.here - potential, kind


class WeightedAssignment:
    """The heaviest assignment of the rows that were added so far; `total` is its weight.

    Rows that are the same object form one kind, and a column may have capacity for several rows.
    The search runs over kinds, so its cost does not depend on the number of rows and columns of
    each kind.

    >>> best = WeightedAssignment()
    >>> best.add({0: 1.0, 1: 0.9})
    >>> best.total
    1.0
    >>> best.add({0: 0.8})
    >>> round(best.total, 9)
    1.7
    >>> sorted(best.pairs())
    [(0, 1), (1, 0)]
    """

    def __init__(self, capacity: Mapping[int, int] | None = None) -> None:
        self.total = 0.0
        self._capacity = defaultdict(lambda: 1, capacity or {})  # free capacity of each column
        self._rows: list[int] = []  # the kind of each row
        self._numbers: dict[int, int] = {}  # id of a row's weights → its kind
        self._kinds: list[Mapping[int, float]] = []
        self._row_potential: list[float] = []  # of each kind of rows
        self._price: dict[int, float] = {}  # potential of a column
        # column → kind of rows → how many of them
        self._owners: defaultdict[int, Counter[int]] = defaultdict(Counter)
        self._without: set[int] = set()  # kinds that have a row without a column

    def add(self, weights: Mapping[int, float]) -> None:
        """Add a row: column → weight in (0, 1], without the columns that it cannot be assigned
        to.
        """
        kind = self._numbers.setdefault(id(weights), len(self._kinds))
        self._rows.append(kind)
        if kind == len(self._kinds):
            self._kinds.append(weights)
            self._row_potential.append(0.0)
        elif kind in self._without:
            return  # a further row of this kind adds no weight either: gains never increase
        price, potential, nearest = self._price, 0.0, _NOTHING
        for column, weight in weights.items():
            cost = -weight - price.get(column, 0.0)
            if cost < potential or (
                cost == potential
                and nearest != _NOTHING
                and not self._capacity[nearest]
                and self._capacity[column]
            ):
                potential, nearest = cost, column
        self._row_potential[kind] = potential
        if nearest == _NOTHING:
            self._without.add(kind)
        elif not self._capacity[nearest]:
            self._augment(kind)
        else:  # the shortest path is one edge, and no potential moves
            self._owners[nearest][kind] += 1
            self._capacity[nearest] -= 1
            self.total -= potential

    def _augment(self, start: int) -> None:
        """Run Dijkstra over alternating paths from the new row to a free column, or to a row that
        gives up its column.
        """
        search = _ShortestPath(start, -self._row_potential[start])
        fresh = [start]
        while True:
            for kind in fresh:
                self._look_from(kind, search)
            column = search.next_column()
            if column == _NOTHING:
                end = search.nearest
                break
            if self._capacity[column]:
                end = search.here
                break
            fresh = [kind for kind in self._owners[column] if kind not in search.reached]
            for kind in fresh:
                search.reach(kind, column, self._row_potential[kind])
        self.total -= end + self._row_potential[start]
        for kind, distance in search.reached.items():
            self._row_potential[kind] += end - distance
        for reached, distance in search.done.items():
            self._price[reached] = self._price.get(reached, 0.0) - (end - distance)
        self._shift(start, column, search)

    def _look_from(self, kind: int, search: _ShortestPath) -> None:
        """Reach the columns of a kind of rows, where that is shorter than before."""
        weights, price, best, done = self._kinds[kind], self._price, search.best, search.done
        base = search.here - self._row_potential[kind]
        for column, weight in weights.items():
            far = base - weight - price.get(column, 0.0)
            if far < best.get(column, search.nearest) and column not in done:
                best[column], search.parent[column] = far, kind
                heappush(search.queue, (far, column))

    def _shift(self, start: int, free: int, search: _ShortestPath) -> None:
        """Reassign the columns along the path that was found, from its end back to its start."""
        if free == _NOTHING:
            self._without.add(search.row_to_unassign)
            if search.row_to_unassign == start:
                return
            free = search.through[search.row_to_unassign]
            self._disown(free, search.row_to_unassign)
        else:
            self._capacity[free] -= 1
        while True:
            kind = search.parent[free]
            self._owners[free][kind] += 1
            if kind == start:
                return
            free = search.through[kind]
            self._disown(free, kind)

    def _disown(self, column: int, kind: int) -> None:
        """Record that one row of a kind fewer has a column."""
        owners = self._owners[column]
        owners[kind] -= 1
        if not owners[kind]:
            del owners[kind]

    def pairs(self) -> list[tuple[int, int]]:
        """Return the pairs (row, column), sorted by row. Among rows of one kind the first ones are
        paired, in order.
        """
        columns: dict[int, list[int]] = {}
        for column in sorted(self._owners, reverse=True):
            for kind, count in self._owners[column].items():
                columns.setdefault(kind, []).extend([column] * count)
        return [
            (row, columns[kind].pop()) for row, kind in enumerate(self._rows) if columns.get(kind)
        ]


def assign(rows: Iterable[Mapping[int, float]]) -> list[tuple[int, int]]:
    """Return the pairs (row, column) of a heaviest assignment of all rows."""
    best = WeightedAssignment()
    for row in rows:
        best.add(row)
    return best.pairs()


def assign_kinds(
    rows: Sequence[Mapping[int, float]], alike: Sequence[int]
) -> list[tuple[int, int]]:
    """Return the pairs of a heaviest assignment, where each row has equal weights in all columns of
    a kind.

    `alike` maps each column to the first one of its kind.

    >>> assign_kinds([{0: 0.5, 1: 0.5, 2: 1.0}] * 2, [0, 0, 2])
    [(0, 0), (1, 2)]
    """
    columns: dict[int, list[int]] = {}
    for column in range(len(alike) - 1, -1, -1):
        columns.setdefault(alike[column], []).append(column)
    best = WeightedAssignment(
        {first: len(alike_columns) for first, alike_columns in columns.items()}
    )
    fewer: dict[int, dict[int, float]] = {}
    for row in rows:
        if id(row) not in fewer:
            fewer[id(row)] = {
                column: weight for column, weight in row.items() if alike[column] == column
            }
        best.add(fewer[id(row)])
    return [(row, columns[first].pop()) for row, first in best.pairs()]


def assign_masks(rows: Sequence[int], columns: int) -> list[tuple[int, int]]:
    """Return the pairs (row, column) of a largest assignment, sorted by row, where every pair
    weighs the same; rows are integers with one bit for each column.

    A row that has a column may change it for the sake of a later one, but keeps one.

    >>> assign_masks([0b11, 0b01, 0b11], 2)
    [(0, 1), (1, 0)]
    """
    free_columns = reachable = (1 << columns) - 1  # reachable: a free column may still follow
    owners: dict[int, int] = {}  # column → row
    for start in range(len(rows)):
        path, ways, seen = [start], list[int](), 0
        while path:
            ahead = rows[path[-1]] & reachable & ~seen
            if free := ahead & free_columns:
                column = lowest(free)
                free_columns ^= 1 << column
                # each row on the path takes over the next column
                owners.update(zip([*ways, column], path, strict=True))
                break
            if ahead:
                column = lowest(ahead)
                seen |= 1 << column
                ways.append(column)
                path.append(owners[column])
            else:
                path.pop()
                del ways[-1:]
        else:
            # No free column will ever be reached from these: the rows that own them reach only
            # one another's columns.
            reachable &= ~seen
    return sorted((row, column) for column, row in owners.items())
