"""The sequence of calls: rules about which tool is called before which, repeated calls, and loops.

Parallel calls are neither before nor after each other.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from otel_eval.model import UNRECORDED, Outcome, Skipped, ToolCall, Trajectory, Unnamed
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import BaseScorer, Finding, Requirements
from otel_eval.scorers.outcomes import NoScore, too_large
from otel_eval.scorers.partial_order import Concurrency, groups_of, is_timed
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames, listed, name_matcher, numbered, seen, tool
from otel_eval.scorers.values import hashable
from otel_eval.validation import Count, Flag, ReadAs, Some, Words, own_words

_WITHIN: Final = r"(?:\s+within\s+(?P<number>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>ms|s|m|h))?"
_SHAPES: Final = (
    ("never", re.compile(r"never\s+(?P<b>\S.*?)\s+after\s+(?P<a>\S.*)")),
    ("only after", re.compile(r"(?P<b>\S.*?)\s+only\s+after\s+(?P<a>\S.*)")),
    ("then", re.compile(r"(?P<a>\S.*?)\s+then\s+(?P<b>\S.*?)" + _WITHIN)),
    ("before", re.compile(r"(?P<a>\S.*?)\s+before\s+(?P<b>\S.*)")),
)
_KEYWORD: Final = re.compile(r"(?<!\S)(?:never|before|then|within|after)(?!\S)")
_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_MOST_COMPARED: Final = 20_000_000  # calls, once for each length of a cycle
_FORMS: Final = "a before b, b only after a, a then b within 5s, never b after a"


@dataclass(frozen=True, slots=True)
class OrderRule:
    """A rule between calls of two tools, whose names match `a` and `b`; `within_ns` limits a
    `then`.
    """

    written: str
    kind: str
    tools: tuple[str, str]
    a: Callable[[str], object]
    b: Callable[[str], object]
    within_ns: int | None = None

    @property
    def as_given(self) -> str:
        """The rule as it was written, with single blanks; it stands for the rule in a policy."""
        return " ".join(self.written.split())


_NO_RULE: Final = f"is no rule; write one of: {_FORMS}"


def parse_rule(text: str) -> OrderRule:
    """Parse a rule in one of the four forms; names may be glob patterns.

    Raises:
        ValueError: it is none.
    """
    for kind, shape in _SHAPES:
        match = shape.fullmatch(text.strip())
        if match is not None:
            parts = match.groupdict()
            a, b = parts["a"], parts["b"]
            for name in (a, b):
                # a mistake, such as `a then b within 5`
                if keyword := _KEYWORD.search(name):
                    raise own_words(
                        f"is no rule, {name!r} has the word {keyword[0]!r} in it; write one of:"
                        f" {_FORMS}; in the name of a tool write {keyword[0]!r} as a pattern,"
                        f" {keyword[0][:-1]}?"
                    )
            within = (
                round(float(parts["number"]) * _NS[parts["unit"]]) if parts.get("number") else None
            )
            return OrderRule(text.strip(), kind, (a, b), name_matcher(a), name_matcher(b), within)
    raise own_words(_NO_RULE)


_Rules = Annotated[
    Some[
        Annotated[
            OrderRule,
            ReadAs(Annotated[str, Field(strict=True)], parse_rule),
            Words(_NO_RULE),
        ]
    ],
    Words('is not a list of rules; write e.g. ["search before answer"]'),
]


@scorer("precedence")
@frozen_record
class Precedence(BaseScorer):
    """Share of rules about order that hold. 1 is best, range 0-1.

    Rules that hold / rules; a rule whose trigger never happens holds. A call is *later* than
    another if it belongs to a later group of parallel calls. Details: `broken` [{rule, calls}] with
    the positions of the calls that break it. Skipped: a rule needs a time that was not recorded, or
    hangs on a call of which it is unknown whether it failed.

    * `a before b` (trigger: both are called): no `b` is earlier than the first `a`.
    * `b only after a` (trigger: `b`): every `b` is later than some `a` that did not fail; one
      issued together with it is not.
    * `a then b within 5s` (trigger: `a`): every `a` is followed by a later `b` that starts within
      that time of the end of `a`; units `ms`, `s`, `m`, `h`; without `within`, at any time.
    * `never b after a` (trigger: both): no `b` is later than an `a`.

    Attributes:
        rules: a list of rules; names may be glob patterns; a name that has `never`, `before`,
            `then`, `within` or `after` as a word is written as a pattern, `look the? go`.
        concurrency: `respect` lets parallel calls come in any order; `ignore` takes them in order
            of start.

    Example:
        {type: precedence, rules: ["refund only after verify_*"]}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> written = ["verify before refund", "never search after refund"]
    >>> rules = create_scorer({"type": "precedence", "rules": written})
    >>> rules(trajectory(call("refund"), call("verify"))).explanation
    '1 of 2 rules hold; broken: verify before refund: call 1 (refund)'
    """

    rules: _Rules
    concurrency: Concurrency = "respect"

    def requires(self) -> Requirements:
        """Calls; the rules name optional tools."""
        return Requirements(
            tools=ToolNames(optional=tuple(name for rule in self.rules for name in rule.tools))
        )

    @property
    def suggestions(self) -> tuple[str, ...]:
        """Hints at `before` rules, which hold if the first tool is never called: to guard a tool, a
        policy needs `only after`.
        """
        rules = [(rule.written, *rule.tools) for rule in self.rules if rule.kind == "before"]
        return tuple(
            f"{text!r} also holds where {a} is never called; write '{b} only after {a}' if {b}"
            " must not be called without it"
            for text, a, b in rules
        )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Test each rule."""
        calls = trajectory.calls
        groups = groups_of(calls, self.concurrency)
        group_of = [index for index, members in enumerate(groups) for _ in members]
        broken, explained = [], []
        for rule in self.rules:
            if breaking := breaking_calls(rule, calls, group_of):
                broken.append({"rule": rule.written, "calls": breaking})
                explained.append(
                    f"{rule.written}:"
                    f" {listed([(calls[position].name, position) for position in breaking])}"
                )
        holding, total = len(self.rules) - len(broken), len(self.rules)
        text = f"{holding} of {total} rules hold"
        if broken:
            text += f"; broken: {'; '.join(explained)}"
        return Finding(holding / total, text, {"broken": broken, "seen": seen(calls)})


def breaking_calls(
    rule: OrderRule, calls: Sequence[ToolCall], group_of: Sequence[int]
) -> list[int]:
    """The positions of the calls that break a rule."""
    first = [position for position, call in enumerate(calls) if rule.a(call.name)]
    second = [position for position, call in enumerate(calls) if rule.b(call.name)]
    if rule.kind == "then":
        return _not_followed(rule, calls, group_of, first, second)
    if rule.kind == "only after":
        return _unguarded(rule, calls, group_of, first, second)
    if not first:
        return []
    # Both forms depend on the first `a` alone.
    earliest = group_of[first[0]]
    if rule.kind == "before":
        return [position for position in second if group_of[position] < earliest]
    return [position for position in second if group_of[position] > earliest]


def _unguarded(
    rule: OrderRule,
    calls: Sequence[ToolCall],
    group_of: Sequence[int],
    first: Sequence[int],
    second: Sequence[int],
) -> list[int]:
    """The positions in `second` that are not later than a call of `first` that did not fail; raises
    `NoScore` if it depends on an unknown failure whether there are any.
    """

    def not_later_than_first(guards: Iterable[int]) -> list[int]:
        guard = next(iter(guards), None)
        if guard is None:
            return [*second]
        return [position for position in second if group_of[position] <= group_of[guard]]

    possible = [position for position in first if not calls[position].error]
    certain = [position for position in possible if not calls[position].failure_unknown]
    breaking, may_break = not_later_than_first(possible), not_later_than_first(certain)
    if may_break and not breaking:
        guard = numbered(calls[possible[0]].name, possible[0])
        raise NoScore(
            Skipped(
                f"{rule.written!r} depends on whether {guard} failed, which was not recorded",
                reason="not_recorded",
            )
        )
    return breaking


def _not_followed(
    rule: OrderRule,
    calls: Sequence[ToolCall],
    group_of: Sequence[int],
    first: Sequence[int],
    second: Sequence[int],
) -> list[int]:
    """The positions in `first` that no call of `second` follows in time; raises `NoScore` if a
    needed time is unknown.
    """
    # Positions are in order of start, so the numbers of their groups ascend, and bisection finds
    # the first later call.
    groups = [group_of[position] for position in second]
    after = {position: bisect_right(groups, group_of[position]) for position in first}
    unfollowed = [position for position in first if after[position] == len(second)]
    if rule.within_ns is None or len(unfollowed) == len(first):
        return unfollowed
    followed = [position for position in first if after[position] < len(second)]
    if not all(
        is_timed(calls[position]) for position in (*followed, *second[after[followed[0]] :])
    ):
        raise NoScore(
            Skipped(
                f"no time recorded for a call that {rule.written!r} asks about",
                reason="not_recorded",
            )
        )
    starts = [calls[position].start_ns or 0 for position in second]
    earliest = list(accumulate(reversed(starts), min))[::-1]  # the least start from each index on
    too_late = [
        position
        for position in followed
        if earliest[after[position]] > (calls[position].end_ns or 0) + rule.within_ns
    ]
    return sorted(unfollowed + too_late)


@frozen_record
class IdenticalCalls(BaseScorer):
    """Base of the scorers that look for identical calls.

    Attributes:
        ignore_arguments: `true`: calls of one tool are identical whatever their arguments.
    """

    ignore_arguments: Flag = False

    def requires(self) -> Requirements:
        """Arguments, unless they are ignored."""
        return Requirements(needs=frozenset(() if self.ignore_arguments else {"arguments"}))

    def keys_of(self, calls: Sequence[ToolCall]) -> list[Hashable]:
        """A key for each call; identical calls have equal keys.

        Raises:
            NoScore: arguments are needed and were not recorded.
        """
        if self.ignore_arguments:
            return [call.name for call in calls]
        unnamed = {call.name for call in calls if type(call.arguments) is Unnamed}
        if any(
            call.arguments is UNRECORDED
            or (call.name in unnamed and type(call.arguments) is not Unnamed)
            for call in calls
        ):
            raise NoScore(Skipped("arguments not recorded", reason="not_recorded"))
        return [(call.name, hashable(call.arguments)) for call in calls]


@scorer("redundant_calls")
@frozen_record
class RedundantCalls(IdenticalCalls):
    """Share of calls that do not repeat an identical earlier one. 1 (none repeats one) is best,
    range 0-1.

    1 - repeated calls / calls; identical are calls of one tool with equal arguments. Details:
    `repeated` [[position, first position], …]. Skipped: no call; some arguments were not recorded.

    Example:
        {type: redundant_calls}

    >>> from otel_eval.testing import call, trajectory
    >>> RedundantCalls()(
    ...     trajectory(call("get", arguments={"id": 1}), call("get", arguments={"id": 1}))
    ... ).value
    0.5
    """

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Count the calls that repeat an identical earlier one."""
        calls = trajectory.calls
        if not calls:
            return Skipped("no tool call")
        first: dict[Hashable, int] = {}
        earlier = [
            first.setdefault(key, position) for position, key in enumerate(self.keys_of(calls))
        ]
        repeated = [
            [position, before] for position, before in enumerate(earlier) if before != position
        ]
        explained = f"{len(repeated)} of {len(calls)} calls repeat an earlier one"
        if repeated:
            explained += (
                f": {listed([(calls[position].name, position) for position, _ in repeated])}"
            )
        return Finding(len(first) / len(calls), explained, {"repeated": repeated})


class _RepeatedStretch(NamedTuple):
    """`times` repetitions in a row of the `length` calls from `first` on."""

    first: int
    length: int
    times: int


@scorer("loop_detection")
@frozen_record
class LoopDetection(IdenticalCalls):
    """Whether a run is free of loops. 1 (no loop) is best, 0 if the same calls are repeated too
    often in a row.

    0 if some cycle of 1 to `max_cycle` identical calls is repeated more than `max_repeats` times in
    a row; identical as for `redundant_calls`. Details: `loops` [{first, length, times, tools}], the
    most repeated of each length. Skipped: the names repeat, only the arguments could decide, and
    some were not recorded; it takes more than 20 million comparisons.

    Attributes:
        max_repeats: how often in a row a cycle may be repeated.
        max_cycle: the longest cycle looked for, in calls.

    Example:
        {type: loop_detection, max_repeats: 3}

    >>> from otel_eval.testing import call, trajectory
    >>> loop = LoopDetection(max_repeats=2, ignore_arguments=True)
    >>> loop(trajectory(*map(call, "abababc"))).explanation
    'a, b 3 times in a row from call 1'
    """

    max_repeats: Count = 3
    max_cycle: Count = 4

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Look for cycles of each length, first among names: arguments are read only if the names
        have one.
        """
        calls = trajectory.calls
        loops = self._loops([call.name for call in calls])
        if loops and not self.ignore_arguments:
            loops = self._loops(self.keys_of(calls))
        details, explained = [], []
        for loop in loops:
            names = [call.name for call in calls[loop.first : loop.first + loop.length]]
            details.append({**loop._asdict(), "tools": names})
            explained.append(
                f"{', '.join(map(tool, names))} {loop.times} times in a row from call"
                f" {loop.first + 1}"
            )
        return Finding(0.0 if loops else 1.0, "; ".join(explained) or "no loop", {"loops": details})

    def _loops(self, keys: Sequence[Hashable]) -> list[_RepeatedStretch]:
        """The most repeated cycle of each length that occurs more than `max_repeats` times in a
        row, the shortest first.

        Raises:
            NoScore: there are too many lengths to look for.
        """
        lengths = range(1, min(self.max_cycle, len(keys) // (self.max_repeats + 1)) + 1)
        if len(lengths) * len(keys) > _MOST_COMPARED:
            raise NoScore(too_large("too many calls for cycles of so many lengths"))
        loops: list[_RepeatedStretch] = []
        for length in lengths:
            loop = _most_repeated(keys, length)
            # A cycle that consists of repetitions of a shorter one is listed already.
            if loop.times > self.max_repeats and all(length % shorter.length for shorter in loops):
                loops.append(loop)
        return loops


def _most_repeated(keys: Sequence[Hashable], length: int) -> _RepeatedStretch:
    """The cycle of a length with most repetitions in a row: a stretch where each call equals the
    one `length` before it.
    """
    best, stretch = _RepeatedStretch(0, length, 1), 0
    for position in range(length, len(keys)):
        stretch = stretch + 1 if keys[position] == keys[position - length] else 0
        times = stretch // length + 1
        if times > best.times:
            best = _RepeatedStretch(position - times * length + 1, length, times)
    return best
