"""Rules about which tool is called before which. Parallel calls are neither before nor after each other."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, Final

from otel_eval.errors import ConfigError
from otel_eval.model import Outcome, Skipped, ToolCall, Trajectory
from otel_eval.scorers.alignment.parallel_calls import is_timed, parallel_groups
from otel_eval.scorers.spec.base_scorer import BaseScorer, Finding
from otel_eval.scorers.spec.parameters import (
    STRINGS,
    Names,
    collect_errors,
    invalid_value,
    one_of,
    reads,
    redacted_repr,
    with_schema,
)
from otel_eval.scorers.spec.registry import scorer
from otel_eval.scorers.text import listed, seen
from otel_eval.scorers.tool_names import ToolNames

__all__ = ["OrderRule", "Precedence", "read_rules"]

_WITHIN: Final = r"(?:\s+within\s+(?P<number>\d{1,9}(?:\.\d{1,9})?)\s*(?P<unit>ms|s|m|h))?"
_SHAPES: Final = (
    ("never", re.compile(r"never\s+(?P<b>\S.*?)\s+after\s+(?P<a>\S.*)")),
    ("only after", re.compile(r"(?P<b>\S.*?)\s+only\s+after\s+(?P<a>\S.*)")),
    ("then", re.compile(r"(?P<a>\S.*?)\s+then\s+(?P<b>\S.*?)" + _WITHIN)),
    ("before", re.compile(r"(?P<a>\S.*?)\s+before\s+(?P<b>\S.*)")),
)
_WORD: Final = re.compile(r"(?<!\S)(?:never|before|then|within|after)(?!\S)")
_NS: Final = {"ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_FORMS: Final = "a before b, b only after a, a then b within 5s, never b after a"


@dataclass(frozen=True, slots=True)
class OrderRule:
    """A rule between calls of two tools, whose names match `a` and `b`; `within_ns` limits a `then`."""

    written: str
    kind: str
    tools: tuple[str, str]
    a: Callable[[str], object]
    b: Callable[[str], object]
    within_ns: int | None = None


@with_schema(STRINGS)
def read_rules(key: str, value: Any) -> tuple[OrderRule, ...]:
    """A list of rules, each of the four forms; names may be glob patterns."""
    if not isinstance(value, list | tuple) or not value:
        raise invalid_value(key, value, "a list of rules", f'write e.g. {key}: ["search before answer"]')
    return tuple(collect_errors(partial(_rule, f"{key}[{index}]", written) for index, written in enumerate(value)))


def _rule(key: str, written: Any) -> OrderRule:
    for kind, shape in _SHAPES:
        found = shape.fullmatch(written.strip()) if isinstance(written, str) else None
        if found is not None:
            parts = found.groupdict()
            _refuse_words(key, written, (parts["a"], parts["b"]))
            within = round(float(parts["number"]) * _NS[parts["unit"]]) if parts.get("number") else None
            return OrderRule(
                written.strip(),
                kind,
                (parts["a"], parts["b"]),
                Names((parts["a"],)).matcher(),
                Names((parts["b"],)).matcher(),
                within,
            )
    raise ConfigError(f"{key}: {redacted_repr(written)} is no rule; write one of: {_FORMS}")


def _refuse_words(key: str, written: str, names: tuple[str, str]) -> None:
    """A name that holds a word of rules is a slip, `a then b within 5` for one, and would silently match no call."""
    for name in names:
        found = _WORD.search(name)
        if found is not None:
            remedy = f"write one of: {_FORMS}; in the name of a tool write {found[0]!r} as a pattern, {found[0][:-1]}?"
            raise ConfigError(f"{key}: {redacted_repr(written)} is no rule, {name!r} has the word {found[0]!r} in it; {remedy}")


@scorer("precedence")
@dataclass(frozen=True, slots=True, kw_only=True)
class Precedence(BaseScorer):
    """Share of rules about order that hold. 1 is best, range 0-1.

    Rules that hold / rules; a rule whose trigger never happens holds. A call is *later* than another if it belongs to a later
    group of parallel calls. Details: `broken` [{rule, calls}] with the positions of the calls that break it. Skipped: a rule
    asks for a time that was not recorded.

    * `a before b` (trigger: both are called): no `b` is earlier than the first `a`.
    * `b only after a` (trigger: `b`): every `b` is later than some `a`; one issued together with it is not.
    * `a then b within 5s` (trigger: `a`): every `a` is followed by a later `b` that starts within that time of the end of `a`;
      units `ms`, `s`, `m`, `h`; without `within`, at any time.
    * `never b after a` (trigger: both): no `b` is later than an `a`.

    Attributes:
        rules: a list of rules; names may be glob patterns; a name that has `never`, `before`, `then`, `within` or `after` as a
            word is written as a pattern, `look the? go`.
        concurrency: `respect` lets parallel calls come in any order; `ignore` takes them in order of start.

    Example:
        {type: precedence, rules: ["refund only after verify_*"]}

    >>> from otel_eval.testing import call, trajectory
    >>> rules = Precedence(rules=read_rules("rules", ["verify before refund", "never search after refund"]))
    >>> rules(trajectory(call("refund"), call("verify"))).explanation
    '1 of 2 rules hold; broken: verify before refund: refund (0)'
    """

    type: ClassVar[str] = "precedence"

    rules: tuple[OrderRule, ...] = field(metadata=reads(read_rules))
    concurrency: str = field(default="respect", metadata=reads(one_of("respect", "ignore")))

    @property
    def named_tools(self) -> ToolNames:
        """Both tools of each rule."""
        return ToolNames(optional=tuple(name for rule in self.rules for name in rule.tools))

    @property
    def suggestions(self) -> tuple[str, ...]:
        """`before` holds where its first tool is never called; a policy that guards a tool needs `only after`."""
        rules = [(rule.written, *rule.tools) for rule in self.rules if rule.kind == "before"]
        return tuple(
            f"{written!r} also holds where {a} is never called; write '{b} only after {a}' if {b} must not be called without it"
            for written, a, b in rules
        )

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Try each rule."""
        calls = trajectory.calls
        if self.concurrency == "respect":
            place = [index for index, batch in enumerate(parallel_groups(calls)) for _ in batch]
        else:
            place = list(range(len(calls)))
        broken, said = [], []
        for rule in self.rules:
            breaking = _breaking(rule, calls, place)
            if isinstance(breaking, Skipped):
                return breaking
            if breaking:
                broken.append({"rule": rule.written, "calls": breaking})
                said.append(f"{rule.written}: {listed([(calls[position].name, position) for position in breaking])}")
        held = len(self.rules) - len(broken)
        text = f"{held} of {len(self.rules)} rules hold" + (f"; broken: {'; '.join(said)}" if said else "")
        return Finding(held / len(self.rules), text, {"broken": broken, "seen": seen(calls)})


def _breaking(rule: OrderRule, calls: Sequence[ToolCall], place: Sequence[int]) -> list[int] | Skipped:
    """The positions of the calls that break a rule."""
    first = [position for position, call in enumerate(calls) if rule.a(call.name)]
    second = [position for position, call in enumerate(calls) if rule.b(call.name)]
    if rule.kind == "then":
        return _unanswered(rule, calls, place, first, second)
    if not first:
        return second if rule.kind == "only after" else []
    earliest = place[first[0]]
    if rule.kind == "before":
        return [position for position in second if place[position] < earliest]
    if rule.kind == "only after":
        return [position for position in second if place[position] <= earliest]
    return [position for position in second if place[position] > earliest]


def _unanswered(
    rule: OrderRule, calls: Sequence[ToolCall], place: Sequence[int], first: Sequence[int], second: Sequence[int]
) -> list[int] | Skipped:
    """The calls of `first` that no later one of `second` answers in time."""
    places = [place[position] for position in second]
    after = {position: bisect_right(places, place[position]) for position in first}
    lost = [position for position in first if after[position] == len(second)]
    if rule.within_ns is None or len(lost) == len(first):
        return lost
    asked = [position for position in first if after[position] < len(second)]
    if not all(is_timed(calls[position]) for position in (*asked, *second[after[asked[0]] :])):
        return Skipped(f"no time recorded for a call that {rule.written!r} asks about", reason="not_recorded")
    starts = [calls[position].start_ns or 0 for position in second]
    earliest = list(accumulate(reversed(starts), min))[::-1]  # of each and those after it
    late = [position for position in asked if earliest[after[position]] > (calls[position].end_ns or 0) + rule.within_ns]
    return sorted(lost + late)
