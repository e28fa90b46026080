"""One-to-one assignments of rows to columns: the heaviest, and the largest where every pair weighs the same.

Both are found row by row. A row costs one search for an augmenting path: over reduced costs where pairs have weights (Kuhn
1955; Edmonds and Karp 1972 for the potentials), and over integers with one bit for each column where they have none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final

from otel_eval.interfaces import Steps

_FEW: Final = 8  # bits that are added up one by one
_SPARSE: Final = 20  # where fewer bits than one in so many are set, they are looked for one by one


def bits_of(columns: Iterable[int]) -> int:
    """An integer with these bits set, in time linear in the highest one."""
    found = list(columns)
    if len(found) < _FEW:
        return sum([1 << column for column in found])
    whole = bytearray((max(found) >> 3) + 1)
    for column in found:
        whole[column >> 3] |= 1 << (column & 7)
    return int.from_bytes(whole, "little")


def positions(bits: int) -> list[int]:
    """The positions of the bits that are set, in order.

    >>> positions(9)
    [0, 3]
    """
    if bits.bit_count() * _SPARSE > bits.bit_length():
        return [at for at, bit in enumerate(bin(bits)[:1:-1]) if bit == "1"]
    found = []
    while bits:
        found.append(lowest(bits))
        bits &= bits - 1
    return found


def lowest(bits: int) -> int:
    """The position of the lowest bit that is set.

    >>> lowest(0b10100)
    2
    """
    return (bits & -bits).bit_length() - 1


_NOTHING: Final = -1
_ROW: Final = 6  # steps that a row costs beside its columns
_VISIT: Final = 5  # steps for one row on the way to a column, where all weigh the same


class _ShortestPath:
    """How far a search for the shortest path has come: from a new row, over kinds of rows and columns in turn."""

    def __init__(self, start: int, quits_at: float) -> None:
        self.reached = {start: 0.0}  # kind → distance
        self.through: dict[int, int] = {}  # kind → the column that it was reached through, and owns
        self.parent: dict[int, int] = {}  # column → the kind it was reached from
        self.best: dict[int, float] = {}
        self.done: dict[int, float] = {}
        self.queue: list[tuple[float, int]] = []
        self.nearest, self.quitter = quits_at, start  # the nearest row to do without a column
        self.here = 0.0

    def next_column(self) -> int:
        """The nearest column that was not looked at yet, or -1 if a row that does without one is nearer."""
        queue = self.queue
        while queue and queue[0][1] in self.done:
            heappop(queue)
        if not queue or queue[0][0] >= self.nearest:
            return _NOTHING
        self.here, column = heappop(queue)
        self.done[column] = self.here
        return column

    def reach(self, kind: int, column: int, rent: float) -> None:
        """Rows of a kind, through a column that they own."""
        self.reached[kind], self.through[kind] = self.here, column
        if self.here - rent < self.nearest:
            self.nearest, self.quitter = self.here - rent, kind


class WeightedAssignment:
    """Rows are added one after another; `total` is the greatest weight of all so far.

    Rows that are the very same object are alike, and columns may have room for several rows: what is searched is a
    graph of kinds, however many rows and columns there are of each.

    >>> best = WeightedAssignment()
    >>> best.add({0: 1.0, 1: 0.9}); best.total
    1.0
    >>> best.add({0: 0.8}); round(best.total, 9)
    1.7
    >>> sorted(best.pairs())
    [(0, 1), (1, 0)]
    """

    def __init__(self, work: Steps | None = None, room: Mapping[int, int] | None = None) -> None:
        self.total = 0.0
        self.work = work or Steps()
        self._room = dict(room or {})  # how many more rows a column takes; one, if it is not there
        self._rows: list[int] = []  # the kind of each
        self._numbers: dict[int, int] = {}  # id of a row's weights → its kind
        self._kinds: list[Mapping[int, float]] = []
        self._rent: list[float] = []  # potential of a kind of rows
        self._price: dict[int, float] = {}  # potential of a column
        self._owners: dict[int, dict[int, int]] = {}  # column → kind of rows → how many of them
        self._without: set[int] = set()  # kinds of which some row has no column

    def _is_full(self, column: int) -> bool:
        return self._room.get(column, 1) == 0

    def add(self, weights: Mapping[int, float]) -> None:
        """One more row: column → weight, in (0, 1]. Columns that it has no edge to are left out."""
        kind = self._numbers.setdefault(id(weights), len(self._kinds))
        self._rows.append(kind)
        self.work.take(_ROW)
        if kind == len(self._kinds):
            self._kinds.append(weights)
            self._rent.append(0.0)
        elif kind in self._without:
            return  # what one more row of a kind is worth only falls
        self.work.take(len(weights))
        price, rent, nearest = self._price, 0.0, _NOTHING
        for column, weight in weights.items():
            cost = -weight - price.get(column, 0.0)
            if cost < rent or (cost == rent and nearest != _NOTHING and self._is_full(nearest) and not self._is_full(column)):
                rent, nearest = cost, column
        self._rent[kind] = rent
        if nearest == _NOTHING:
            self._without.add(kind)
        elif self._is_full(nearest):
            self._augment(kind)
        else:  # the shortest path is one edge, and no potential moves
            self._own(nearest, kind)
            self._take(nearest)
            self.total -= rent

    def _augment(self, start: int) -> None:
        """Dijkstra over alternating paths from the new row to a column with room, or to a row that does without one."""
        search = _ShortestPath(start, -self._rent[start])
        fresh = [start]
        while True:
            for kind in fresh:
                self._look_from(kind, search)
            column = search.next_column()
            if column == _NOTHING:
                end = search.nearest
                break
            if not self._is_full(column):
                end = search.here
                break
            fresh = [kind for kind in self._owners[column] if kind not in search.reached]
            for kind in fresh:
                search.reach(kind, column, self._rent[kind])
        self.total -= end + self._rent[start]
        for kind, distance in search.reached.items():
            self._rent[kind] += end - distance
        for each, distance in search.done.items():
            self._price[each] = self._price.get(each, 0.0) - (end - distance)
        self._shift(start, column, search)

    def _look_from(self, kind: int, search: _ShortestPath) -> None:
        weights, price, best, done = self._kinds[kind], self._price, search.best, search.done
        self.work.take(len(weights))
        base = search.here - self._rent[kind]
        for column, weight in weights.items():
            far = base - weight - price.get(column, 0.0)
            if far < best.get(column, search.nearest) and column not in done:
                best[column], search.parent[column] = far, kind
                heappush(search.queue, (far, column))

    def _shift(self, start: int, free: int, search: _ShortestPath) -> None:
        """Hand the columns along the path found on, from its end back to its start."""
        if free == _NOTHING:
            self._without.add(search.quitter)
            if search.quitter == start:
                return
            free = search.through[search.quitter]
            self._disown(free, search.quitter)
        else:
            self._take(free)
        while True:
            kind = search.parent[free]
            self._own(free, kind)
            if kind == start:
                return
            free = search.through[kind]
            self._disown(free, kind)

    def _take(self, column: int) -> None:
        self._room[column] = self._room.get(column, 1) - 1

    def _own(self, column: int, kind: int) -> None:
        owners = self._owners.setdefault(column, {})
        owners[kind] = owners.get(kind, 0) + 1

    def _disown(self, column: int, kind: int) -> None:
        owners = self._owners[column]
        owners[kind] -= 1
        if not owners[kind]:
            del owners[kind]

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs (row, column) of the assignment, by row: of rows that are alike the first ones are paired, in order."""
        columns: dict[int, list[int]] = {}
        for column in sorted(self._owners, reverse=True):
            for kind, count in self._owners[column].items():
                columns.setdefault(kind, []).extend([column] * count)
        return [(row, columns[kind].pop()) for row, kind in enumerate(self._rows) if columns.get(kind)]


def assign(rows: Iterable[Mapping[int, float]], work: Steps | None = None) -> list[tuple[int, int]]:
    """The pairs (row, column) of a heaviest assignment of all rows.

    Raises:
        TooLarge: it would take more work than is left.
    """
    best = WeightedAssignment(work)
    for row in rows:
        best.add(row)
    return best.pairs()


def assign_kinds(rows: Sequence[Mapping[int, float]], alike: Sequence[int], work: Steps | None = None) -> list[tuple[int, int]]:
    """As `assign`, where each row has equal weights in columns of one kind; `alike` has for each column the first of its kind.

    >>> assign_kinds([{0: 0.5, 1: 0.5, 2: 1.0}] * 2, [0, 0, 2])
    [(0, 0), (1, 2)]
    """
    columns: dict[int, list[int]] = {}
    for column in range(len(alike) - 1, -1, -1):
        columns.setdefault(alike[column], []).append(column)
    best = WeightedAssignment(work, {first: len(found) for first, found in columns.items()})
    fewer: dict[int, dict[int, float]] = {}
    for row in rows:
        if id(row) not in fewer:
            fewer[id(row)] = {column: weight for column, weight in row.items() if alike[column] == column}
        best.add(fewer[id(row)])
    return [(row, columns[first].pop()) for row, first in best.pairs()]


class UnweightedAssignment:
    """As `WeightedAssignment`, where every pair weighs the same: rows are integers with one bit for each column.

    >>> best = UnweightedAssignment(2)
    >>> best.add(0b11), best.add(0b01), best.add(0b11)
    (True, True, False)
    >>> best.pairs()
    [(0, 1), (1, 0)]
    """

    def __init__(self, columns: int, work: Steps | None = None) -> None:
        self.work = work or Steps()
        self._free = (1 << columns) - 1
        self._open = self._free  # columns that may still be on the way to a free one
        self._rows: list[int] = []
        self._column: list[int] = []
        self._owner: dict[int, int] = {}

    def add(self, row: int) -> bool:
        """One more row; whether one more column is assigned. A row that has one keeps one."""
        self.work.take(_VISIT)
        self._rows.append(row)
        self._column.append(_NOTHING)
        path, ways, seen = [len(self._rows) - 1], list[int](), 0
        while path:
            ahead = self._rows[path[-1]] & self._open & ~seen
            free = ahead & self._free
            if free:
                column = lowest(free)
                self._free ^= 1 << column
                for owner, owned in zip(path, [*ways, column], strict=True):  # each row hands its column on
                    self._column[owner], self._owner[owned] = owned, owner
                return True
            if ahead:
                self.work.take(_VISIT)
                column = lowest(ahead)
                seen |= 1 << column
                ways.append(column)
                path.append(self._owner[column])
            else:
                path.pop()
                if ways:
                    ways.pop()
        # No free column can be reached from these, and never will be: the rows that own them reach only each other's.
        self._open &= ~seen
        return False

    def pairs(self) -> list[tuple[int, int]]:
        """The pairs (row, column), by row."""
        return [(row, column) for row, column in enumerate(self._column) if column != _NOTHING]


def assign_masks(rows: Iterable[int], columns: int, work: Steps | None = None) -> list[tuple[int, int]]:
    """The pairs (row, column) of a largest assignment, by row.

    Raises:
        TooLarge: it would take more work than is allowed.
    """
    best = UnweightedAssignment(columns, work)
    for row in rows:
        best.add(row)
    return best.pairs()
