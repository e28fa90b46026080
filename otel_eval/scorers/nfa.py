"""Regular patterns over names as nondeterministic automata (NFA), and the fewest edits that make a
trajectory fit one.

The edits are insertions and deletions of single calls; the search is dynamic programming over
(calls consumed, state), with Dijkstra for insertions, so the answer is exact. If several words are
equally near, the longest counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count, product
from math import prod
from typing import Any, Final, NamedTuple

from otel_eval.model import Skipped
from otel_eval.scorers.outcomes import NoScore, too_large

_MOST_STATES: Final = 10_000
_MOST_VECTORS: Final = 4096
# Calls times states: checked before it is tried whether the automaton accepts the calls as they
# are, and before a search for edits, for which a group of parallel calls counts once for each
# number of calls of each name that may match.
_MOST_STEPS: Final = 20_000_000
_MOST_REACHED: Final = 800_000
# cost = edits * _EDIT - length of the word: fewer edits first, then longer words
_EDIT: Final = 1 << 40


class PatternTooLarge(Exception):
    """A pattern needs more states than are allowed."""


class Edit(NamedTuple):
    """`insert` a call of `tool` before the call at `position`, or `delete` the call at
    `position`.
    """

    kind: str
    tool: str
    position: int


class Fit(NamedTuple):
    """The edits, in order, and the length of the word that the trajectory becomes."""

    edits: tuple[Edit, ...]
    length: int


@dataclass(slots=True)
class NFA:
    """States with transitions by a name (`named`) and empty transitions (`free`). State 0 is the
    start, `end` accepts. `as_given` is the pattern from which it was made.
    """

    free: list[list[int]] = field(default_factory=lambda: [[]])
    named: list[list[tuple[str, int]]] = field(default_factory=lambda: [[]])
    end: int = 0
    as_given: Any = None

    def add_state(self) -> int:
        """Add a state and return its number.

        Raises:
            PatternTooLarge: there are 10,000 states already.
        """
        if len(self.free) >= _MOST_STATES:
            raise PatternTooLarge
        self.free.append([])
        self.named.append([])
        return len(self.free) - 1

    @property
    def names(self) -> frozenset[str]:
        """The names of all transitions."""
        return frozenset(name for moves in self.named for name, _ in moves)


# Plain tuples, of which there may be a million: the garbage collector does not visit those that
# hold only texts and numbers.
_Edits = tuple[Any, "_Edits"] | None
_Costs = dict[int, tuple[int, _Edits]]  # state → cost and the edits so far, last first


def accepts(automaton: NFA, names: Sequence[str]) -> bool:
    """Whether the automaton accepts the names in this order without edits; faster than
    `fewest_edits`.
    """
    states = _free_closure(automaton, {0})
    for name in names:
        states = _free_closure(
            automaton,
            {target for state in states for by, target in automaton.named[state] if by == name},
        )
    return automaton.end in states


def _free_closure(automaton: NFA, states: set[int]) -> set[int]:
    """Add the states that empty transitions lead to, and return the set."""
    stack = list(states)
    while stack:
        for target in automaton.free[stack.pop()]:
            if target not in states:
                states.add(target)
                stack.append(target)
    return states


def fewest_edits(automaton: NFA, names: Sequence[str], groups: Sequence[range]) -> Fit:
    """Find the fewest edits that make the names fit, in any order that the groups of parallel calls
    allow.

    Raises:
        NoScore: a group contains too many different calls to try every order, or there are too many
            calls for the size of the pattern.
    """
    cost, chain = _cheapest(automaton, names, groups)
    edits = []
    while chain is not None:
        edit, chain = chain
        edits.append(Edit(*edit))
    # A cost is edits * _EDIT - length: the difference to the next multiple of _EDIT is the length
    # of the word.
    return Fit(tuple(reversed(edits)), -(-cost // _EDIT) * _EDIT - cost)


def _cheapest(automaton: NFA, names: Sequence[str], groups: Sequence[range]) -> tuple[int, _Edits]:
    """The least cost at which the automaton accepts, and the edits, last first."""
    states = len(automaton.free)
    _limit(len(names) * states, _MOST_STEPS)
    if accepts(automaton, names):
        return -len(names), None
    costs: _Costs = {0: (0, None)}
    pattern_names = automaton.names
    by_name = [_positions_by_name(names, group) for group in groups]
    vectors = sum(_number_of_vectors(positions, pattern_names) for positions in by_name)
    _limit(vectors * states, _MOST_REACHED)
    for group, positions in zip(groups, by_name, strict=True):
        costs = _consume(automaton, costs, group, positions, pattern_names)
    return _with_insertions(automaton, costs, len(names))[automaton.end]


def _limit(number: int, limit: int) -> None:
    """Raise `NoScore` for more steps than are allowed."""
    if number > limit:
        raise NoScore(too_large("too many calls for the size of the pattern"))


def _positions_by_name(names: Sequence[str], group: range) -> dict[str, list[int]]:
    """The positions of each name in a group."""
    by_name: dict[str, list[int]] = {}
    for position in group:
        by_name.setdefault(names[position], []).append(position)
    return by_name


def _number_of_vectors(by_name: Mapping[str, Sequence[int]], pattern_names: frozenset[str]) -> int:
    """How many numbers of matched calls by name there are.

    Raises:
        NoScore: there are too many.
    """
    number = prod(
        len(positions) + 1 for name, positions in by_name.items() if name in pattern_names
    )
    if number > _MOST_VECTORS:
        raise NoScore(Skipped("too many calls ran together to try every order", reason="too_large"))
    return number


def _consume(
    automaton: NFA,
    costs: _Costs,
    group: range,
    by_name: Mapping[str, list[int]],
    pattern_names: frozenset[str],
) -> _Costs:
    """Match or delete every call of a group: match some of them in any order, then delete the
    others.
    """
    useful = [name for name in by_name if name in pattern_names]
    after: _Costs = {}
    layers: dict[tuple[int, ...], _Costs] = {(0,) * len(useful): costs}
    for vector in _vectors([len(by_name[name]) for name in useful]):
        reached = layers.pop(vector, None)
        if reached is None:
            continue
        matched_counts = dict(zip(useful, vector, strict=True))
        deleted = sorted(
            (position, name)
            for name, at in by_name.items()
            for position in at[matched_counts.get(name, 0) :]
        )
        for state, (cost, chain) in reached.items():
            for position, name in deleted:
                chain = (("delete", name, position), chain)
            _improve(after, state, cost + _EDIT * len(deleted), chain)
        unused = {name: at for at, name in enumerate(useful) if vector[at] < len(by_name[name])}
        if unused:
            closed = _with_insertions(automaton, reached, group.start)
            for at, target, cost, chain in _matches(automaton, closed, unused):
                successor = (*vector[:at], vector[at] + 1, *vector[at + 1 :])
                _improve(layers.setdefault(successor, {}), target, cost, chain)
    return after


def _matches(
    automaton: NFA, closed: _Costs, unused: dict[str, int]
) -> Iterator[tuple[int, int, int, _Edits]]:
    """Match one more call of each name in `unused`: yield the index of the name, the next state,
    its cost and the edits.
    """
    for state, (cost, chain) in closed.items():
        for name, target in automaton.named[state]:
            if name in unused:
                yield unused[name], target, cost - 1, chain


def _vectors(limits: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The possible numbers of matched calls by name, from none to all; each vector follows those
    that have fewer of a name.
    """
    # The first number varies fastest: the order decides which of several equally good words is
    # chosen.
    return (vector[::-1] for vector in product(*(range(number + 1) for number in reversed(limits))))


def _improve(costs: _Costs, state: int, cost: int, chain: _Edits) -> None:
    """Keep the cheaper one of the cost of a state so far and this cost."""
    if state not in costs or cost < costs[state][0]:
        costs[state] = (cost, chain)


def _with_insertions(automaton: NFA, costs: _Costs, position: int) -> _Costs:
    """The lowest costs of all states that empty transitions and insertions before `position` lead
    to, by Dijkstra.
    """
    order = count()
    queue = [(cost, next(order), state, chain) for state, (cost, chain) in sorted(costs.items())]
    queue.sort()
    done: _Costs = {}
    while queue:
        cost, _, state, chain = heappop(queue)
        if state in done:
            continue
        done[state] = (cost, chain)
        for target in automaton.free[state]:
            if target not in done:
                heappush(queue, (cost, next(order), target, chain))
        for name, target in automaton.named[state]:
            if target not in done:
                # An insertion is one edit, and makes the word one longer.
                heappush(
                    queue,
                    (cost + _EDIT - 1, next(order), target, (("insert", name, position), chain)),
                )
    return done
