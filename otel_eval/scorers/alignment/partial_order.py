"""Parallel calls are a partial order: cut calls into groups of them, and align two sides that both have groups.

An alignment is a path down and right through the grid of groups. The groups that are paired form a monotone path: after group g
met batch b, either g meets the next batch, or the next group meets b. What is already taken of the group (or batch) that goes on
is the state. No polynomial algorithm is known where names repeat across groups, so dominated states are dropped, and beyond
`limit` the heaviest are kept: exact for every alignment that is written by hand, and for larger ones a value that is reached
by some order but might not be the greatest.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final

from otel_eval.interfaces import Steps
from otel_eval.model import SpanRef, ToolCall

TimedCall = ToolCall | SpanRef
"""What is cut into groups: name, times, span id and the calls it was made within decide."""


def is_timed(visit: TimedCall) -> bool:
    """Whether both ends were recorded. 0 and 0 together mean that no time was recorded; 0 and later is a time."""
    return visit.start_ns is not None and visit.end_ns is not None and (visit.start_ns, visit.end_ns) != (0, 0)


def parallel_groups(visits: Sequence[TimedCall]) -> list[range]:
    """The positions of each batch, in order; every position is in exactly one.

    A call joins the batch before it if none of that batch had ended when it started and none of it encloses the call.
    To start at the very instant of an end is to start after it; equal starts are together. Calls without times follow
    one another.

    >>> from otel_eval.testing import call
    >>> parallel_groups([call("a", start_ns=1, end_ns=4), call("b", start_ns=2, end_ns=3), call("c", start_ns=3, end_ns=9)])
    [range(0, 2), range(2, 3)]
    """
    found: list[range] = []
    first = 0
    latest: int | None = None  # the latest start in the batch; None: nothing can join it
    ended_before = ended_at = 0  # the earliest end of members that started before, and at, that start
    for position, visit in enumerate(visits):
        start, end = visit.start_ns, visit.end_ns
        if start is None or end is None or not (start or end):
            joins, start, end = False, None, 0
        elif latest is None or start < latest:
            joins = False
        else:
            open_until = ended_before if start == latest else min(ended_before, ended_at)
            joins = (start == latest or start < open_until) and not (visit.enclosing and _within(visit, visits[first:position]))
        if not joins:
            if position:
                found.append(range(first, position))
            first, ended_before, ended_at = position, _NEVER, end
        elif start == latest:
            ended_at = min(ended_at, end)
        else:
            ended_before, ended_at = open_until, end
        latest = start
    if visits:
        found.append(range(first, len(visits)))
    return found


def is_sequential(visits: Sequence[TimedCall]) -> bool:
    """Whether every batch certainly holds one visit; quicker than `parallel_groups` for the usual run.

    >>> from otel_eval.testing import call
    >>> is_sequential([call("a", start_ns=1, end_ns=4), call("b", start_ns=4, end_ns=5)])
    True
    """
    free = 1  # the first start that follows
    for visit in visits:
        start, end = visit.start_ns, visit.end_ns
        if start is None or end is None:
            continue
        if start < free:
            return False
        free = end if end > start else start + 1
    return True


_NEVER = 1 << 80


def _within(visit: TimedCall, members: Sequence[TimedCall]) -> bool:
    enclosing = visit.enclosing
    return any(member.span_id in enclosing for member in members if member.span_id)


Rows = Sequence[Mapping[int, float]]
Chain = tuple[int, int, "Chain"] | None
States = dict[int, tuple[float, Chain]]  # bits taken → (weight, pairs)

_WORK: Final = 50_000  # states in all, spread over the grid
_FEWEST, _MOST = 8, 128
_PAST: Final = 20  # steps for a group and a batch, whatever they have in common
_LOOKS: Final = 2  # pairs that are looked at at the cost of a step
_STEP: Final = 8  # steps for a state where words decide
_STATE: Final = 15  # a state costs as much as looking at so many pairs


def walk(rows: Rows, groups: Sequence[range], batches: Sequence[range], *, work: Steps | None = None) -> list[tuple[int, int]]:
    """The pairs (row, column) of a heaviest alignment.

    >>> walk([{1: 1.0}, {0: 1.0}], [range(0, 2)], [range(0, 2)])
    [(0, 1), (1, 0)]
    """
    work = work or Steps()
    limit = _limit(groups, batches)
    from_above: list[States] = [{} for _ in batches]
    if from_above:
        from_above[0] = {0: (0.0, None)}
    end: States = {}
    for group in groups:
        from_left: States = {}
        work.take(sum([len(rows[row]) for row in group]) // _LOOKS)
        met = {column for row in group for column in rows[row]}
        for index, batch in enumerate(batches):
            work.take(_PAST)
            if met.isdisjoint(batch):
                right, down = _past(from_left, from_above[index])
            else:
                work.take(len(group) * len(batch))
                right, down = _cell(rows, group, batch, from_left, from_above[index], limit, work)
            from_left, from_above[index] = _best(right, limit), _best(down, limit)
        end = from_left
    chain = max(end.values(), key=lambda state: state[0])[1] if end else None
    pairs = []
    while chain is not None:
        row, column, chain = chain
        pairs.append((row, column))
    return sorted(pairs)


def _past(from_left: States, from_above: States) -> tuple[States, States]:
    """Past a group and a batch that have nothing in common; the states that go right, and down."""
    nothing = [max(states.values(), key=_weight) for states in (from_above, from_left) if states]
    right, down = dict(from_left), dict(from_above)
    _merge(right, {0: nothing[0]} if from_above else {})
    _merge(down, {0: nothing[-1]} if from_left else {})
    return right, down


def _cell(
    rows: Rows, group: range, batch: range, from_left: States, from_above: States, limit: int, work: Steps
) -> tuple[States, States]:
    """Pair what is free of the group with what is free of the batch; the states that go right, and down.

    On the way right the batch is done, so only what is taken of the group counts; on the way down the other way round.
    """
    by_row = [(row, {column: rows[row][column] for column in batch if column in rows[row]}) for row in group]
    by_column = [(column, {row: found[column] for row, found in by_row if column in found}) for column in batch]
    right = _pair(by_column, group.start, from_left, limit, work, rows_first=False)
    down = _pair(by_row, batch.start, from_above, limit, work, rows_first=True)
    for taken, state in from_above.items():
        free = [each for each in by_column if not taken >> (each[0] - batch.start) & 1]
        _merge(right, _pair(free, group.start, {0: state}, limit, work, rows_first=False))
    for taken, state in from_left.items():
        free = [each for each in by_row if not taken >> (each[0] - group.start) & 1]
        _merge(down, _pair(free, batch.start, {0: state}, limit, work, rows_first=True))
    return right, down


def _weight(state: tuple[float, Chain]) -> float:
    return state[0]


def _pair(
    members: Sequence[tuple[int, Mapping[int, float]]],
    first: int,
    states: States,
    limit: int,
    work: Steps,
    *,
    rows_first: bool,
) -> States:
    """Give each member one of its free partners or none; the states are what is then taken of the partners' side."""
    for member, partners in members:
        if not partners:
            continue
        after: States = {}
        work.take(_STATE * len(states) * (1 + len(partners)))
        for bits, (weight, chain) in states.items():
            free = [(partner, gain) for partner, gain in partners.items() if not bits >> (partner - first) & 1]
            _merge(after, {bits: (weight, chain)})
            for partner, gain in free:
                pair = (member, partner) if rows_first else (partner, member)
                _merge(after, {bits | 1 << partner - first: (weight + gain, (*pair, chain))})
        states = _best(after, limit)
    return dict(states)


def _merge(states: States, more: States) -> None:
    for bits, state in more.items():
        if bits not in states or state[0] > states[bits][0]:
            states[bits] = state


def _best(states: States, limit: int) -> States:
    """The states that none beats: what is free is worth at most 1 a piece, so a lead of as much can never be lost."""
    kept: States = {}
    for bits, state in sorted(states.items(), key=lambda item: (-item[1][0], item[0].bit_count(), item[0])):
        if len(kept) == limit:
            break
        if not any(other[0] >= state[0] + (taken & ~bits).bit_count() for taken, other in kept.items()):
            kept[bits] = state
    return kept


def _limit(groups: Sequence[range], batches: Sequence[range]) -> int:
    return max(_FEWEST, min(_MOST, _WORK // (1 + sum(map(len, groups)) * sum(map(len, batches)))))


Words = tuple[int, ...]  # a multiset: numbers of words, sorted
Met = tuple[int, int, Words, "Met"] | None  # group, batch, the words that they share, and what was met before
Left = dict[Words, tuple[int, Met]]  # what is left of a group or batch → (pairs so far, where)


def walk_words(
    wanted: Sequence[Hashable],
    made: Sequence[Hashable],
    groups: Sequence[range],
    batches: Sequence[range],
    work: Steps,
    least: int = 0,
) -> list[tuple[int, int]]:
    """As `walk`, where equal words agree and no others.

    A member then always takes a free partner: whichever of group and batch is done after the cell cannot use it better
    later, nor another one. So a state is what is left of the other one, whatever its order. Cells through which fewer
    than `least` pairs can be had, a number that some alignment is known to have, are left out.

    >>> walk_words("ab", "ba", [range(0, 2)], [range(0, 2)], Steps())
    [(0, 1), (1, 0)]
    """
    numbers: dict[Hashable, int] = {}
    ours, theirs = (
        [tuple(sorted([numbers.setdefault(words[at], len(numbers)) for at in part])) for part in parts]
        for words, parts in ((wanted, groups), (made, batches))
    )
    meet, limit = _Meetings(work), _limit(groups, batches)
    from_above: list[Left] = [{} for _ in theirs]
    if theirs:
        from_above[0] = {theirs[0]: (0, None)}
    end: Left = {}
    for row, group in enumerate(ours):
        from_left: Left = {}
        first, last = groups[row].start, groups[row].stop
        for column, batch in enumerate(theirs):
            right, down = Left(), Left()
            before, after = min(last, batches[column].stop), min(len(wanted) - first, len(made) - batches[column].start)
            if before + after < least:
                from_left = from_above[column] = {}
                continue
            for left, state in from_left.items():
                meet.step(row, column, left, batch, state, right, down)
            for left, state in from_above[column].items():
                meet.step(row, column, group, left, state, right, down)
            from_left = meet.best(right, limit) if len(right) > 1 else right
            from_above[column] = meet.best(down, limit) if len(down) > 1 else down
        end = from_left
    met = max(end.values(), key=lambda state: state[0])[1] if end else None
    names = {number: word for word, number in numbers.items()}
    return _pairs_of(met, names, [_filed(wanted, part) for part in groups], [_filed(made, part) for part in batches])


class _Meetings:
    """Multisets of words against one another, each pair of them once."""

    def __init__(self, work: Steps) -> None:
        self._work = work
        self._known: dict[tuple[Words, Words], tuple[Words, Words, Words]] = {}

    def of(self, one: Words, other: Words) -> tuple[Words, Words, Words]:
        """What both have, what only the first has, and what only the second has."""
        found = self._known.get((one, other))
        if found is None:
            self._work.take(_STEP + len(one) + len(other))
            found = self._known[one, other] = _met(one, other)
        return found

    def step(self, row: int, column: int, group: Words, batch: Words, state: tuple[int, Met], right: Left, down: Left) -> None:
        """Pair what is left of both; the group may go on to the next batch, or the batch to the next group."""
        self._work.take(_STEP)
        both, of_group, of_batch = self.of(group, batch)
        if both:
            state = state[0] + len(both), (row, column, both, state[1])
        if of_group not in right or state[0] > right[of_group][0]:
            right[of_group] = state
        if of_batch not in down or state[0] > down[of_batch][0]:
            down[of_batch] = state

    def best(self, states: Left, limit: int) -> Left:
        """The states that none beats: a word that is left is worth at most 1, so a lead of as many can never be lost."""
        kept: Left = {}
        for left, state in sorted(states.items(), key=lambda item: (-item[1][0], -len(item[0]), item[0])):
            self._work.take(_STEP)
            if len(kept) == limit:
                break
            if not any(other[0] >= state[0] + len(self.of(left, words)[1]) for words, other in kept.items()):
                kept[left] = state
        return kept


def _met(one: Words, other: Words) -> tuple[Words, Words, Words]:
    rest = list(other)
    both, alone = [], []
    for word in one:
        if word in rest:
            rest.remove(word)
            both.append(word)
        else:
            alone.append(word)
    return tuple(both), tuple(alone), tuple(rest)


def _filed(words: Sequence[Hashable], part: range) -> dict[Hashable, list[int]]:
    """The positions of each word, the first one last."""
    found: dict[Hashable, list[int]] = {}
    for position in reversed(part):
        found.setdefault(words[position], []).append(position)
    return found


def _pairs_of(
    met: Met,
    names: Mapping[int, Hashable],
    rows: Sequence[Mapping[Hashable, list[int]]],
    columns: Sequence[Mapping[Hashable, list[int]]],
) -> list[tuple[int, int]]:
    pairs = []
    while met is not None:
        row, column, both, met = met
        pairs += [(rows[row][names[word]].pop(), columns[column][names[word]].pop()) for word in both]
    return sorted(pairs)
