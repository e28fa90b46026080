"""The scorer `trajectory_pattern`: how near the calls of a run are to a pattern, in edits.

Patterns are compiled here; the search is in `nfa`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from pydantic import Discriminator, RootModel, Tag, WrapValidator

from otel_eval.errors import ConfigError
from otel_eval.model import Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import BaseScorer, Finding, Requirements
from otel_eval.scorers.nfa import NFA, Edit, PatternTooLarge, fewest_edits
from otel_eval.scorers.parameters import ToolName
from otel_eval.scorers.partial_order import Concurrency, groups_of
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames, numbered, plural, seen, some_of, tool
from otel_eval.validation import (
    LIST,
    MAPPING,
    TEXT,
    Flag,
    Items,
    ReadAs,
    Record,
    Some,
    Whole,
    Words,
    kind_of,
    own_words,
)

_MOST_LISTED: Final = 8
_NO_PATTERN: Final = (
    "is not a pattern; write a tool's name, a list, or one of sequence, any_order, choice,"
    " optional, repeat"
)


class _List(RootModel["tuple[Pattern, ...]"]):
    """A list is a sequence. It is a class, so that patterns in JSON Schema can refer to it."""


_NO_MEMBERS: Final = Words("is not a list of patterns; write e.g. [search, open]")


@dataclass
class _Combined:
    """A mapping with one kind of pattern."""

    sequence: Annotated[Items[Pattern], _NO_MEMBERS] | None = None
    any_order: Annotated[Items[Pattern], _NO_MEMBERS] | None = None
    choice: Annotated[Some[Pattern], _NO_MEMBERS] | None = None
    optional: Pattern | None = None
    repeat: Pattern | None = None
    min: Whole | None = None
    max: Whole | None = None

    def __post_init__(self) -> None:
        """Check that there is one kind, and that only a repeat has limits.

        Raises:
            PydanticCustomError: there is another number of kinds.
            ConfigError: limits stand elsewhere, or are no range.
        """
        kinds = [getattr(self, kind.name) for kind in fields(self)[:5]]
        if len(kinds) - kinds.count(None) != 1:
            raise own_words(_NO_PATTERN)
        if self.repeat is None:
            for key in ("min", "max"):
                if getattr(self, key) is not None:
                    raise ConfigError(f"{key}: has no repeat: pattern beside it; leave it out")
        if self.max is not None and (self.min or 0) > self.max:
            raise ConfigError(
                f"max: {self.max} is less than min {self.min}; write e.g. min: 1, max: 3"
            )


Pattern = Annotated[
    Annotated[ToolName, Tag(TEXT)]
    | Annotated[_List, Tag(LIST)]
    | Annotated[_Combined, Record(), Tag(MAPPING)],
    Discriminator(kind_of),
    Words(_NO_PATTERN),
]
Parsed = str | _List | _Combined
"""A pattern that was read."""


def _compiled(value: object, parse: Callable[[Any], Parsed]) -> NFA:
    """Compile a pattern to an automaton.

    Raises:
        ValueError: it needs more than 10,000 states, or is nested too deeply.
    """
    automaton = NFA(as_given=value)
    try:
        automaton.end = _add(automaton, 0, parse(value))
    except PatternTooLarge:
        raise ValueError(
            "too large for an exact answer; use smaller any_order groups or a repeat without max"
        ) from None
    except RecursionError:
        raise ValueError("nested too deeply; write a flatter pattern") from None
    return automaton


def _add(automaton: NFA, start: int, pattern: Parsed) -> int:
    """Add the states of a pattern after `start`, and return the state where it ends."""
    if isinstance(pattern, str):
        end = automaton.add_state()
        automaton.named[start].append((pattern, end))
        return end
    if isinstance(pattern, _List):
        return _add_sequence(automaton, start, pattern.root)
    if pattern.sequence is not None:
        return _add_sequence(automaton, start, pattern.sequence)
    if pattern.any_order is not None:
        return _add_any_order(automaton, start, pattern.any_order)
    if pattern.choice is not None:
        return _add_choice(automaton, start, pattern.choice)
    if pattern.optional is not None:
        return _add_repeat(automaton, start, pattern.optional, 0, 1)
    assert pattern.repeat is not None, "one kind is given"
    return _add_repeat(automaton, start, pattern.repeat, pattern.min or 0, pattern.max)


def _add_sequence(automaton: NFA, start: int, members: Sequence[Parsed]) -> int:
    for member in members:
        start = _add(automaton, start, member)
    return start


def _add_choice(automaton: NFA, start: int, members: Sequence[Parsed]) -> int:
    """Add states for each member, all with one end."""
    end = automaton.add_state()
    for member in members:
        automaton.free[_add_apart(automaton, start, member)].append(end)
    return end


def _add_apart(automaton: NFA, start: int, member: Parsed) -> int:
    """As `_add`, but in a state of its own, since a repetition returns to the state where it
    begins; for a name in `start` itself.
    """
    if not isinstance(member, str):
        entry = automaton.add_state()
        automaton.free[start].append(entry)
        start = entry
    return _add(automaton, start, member)


def _add_any_order(automaton: NFA, start: int, members: Sequence[Parsed]) -> int:
    """Add a state for each set of members that were matched already."""
    matched = [start, *(automaton.add_state() for _ in range((1 << len(members)) - 1))]
    for mask, state in enumerate(matched):
        for index, member in enumerate(members):
            if not mask >> index & 1:
                end = _add_apart(automaton, state, member)
                automaton.free[end].append(matched[mask | 1 << index])
    return matched[-1]


def _add_repeat(
    automaton: NFA, start: int, member: Parsed, min_times: int, max_times: int | None
) -> int:
    """Add states for the least number of repetitions, and for further ones that may be left out."""
    for _ in range(min_times):
        start = _add(automaton, start, member)
    end = automaton.add_state()
    automaton.free[start].append(end)
    if max_times is None:
        automaton.free[_add_apart(automaton, start, member)].append(start)
        return end
    for _ in range(max_times - min_times):
        start = _add_apart(automaton, start, member)
        automaton.free[start].append(end)
    return end


AutomatonOfPattern = Annotated[NFA, ReadAs(Pattern), WrapValidator(_compiled)]


@scorer("trajectory_pattern")
@frozen_record
class TrajectoryPattern(BaseScorer):
    """How close the calls are to a pattern. 1 (they match it) is best, range 0-1.

    1 - edits / (calls + length): the edits are the fewest insertions and deletions of calls that
    make them match the pattern, and the length is the number of calls after that; if several ways
    take equally few edits, the one with the greatest length counts. Parallel calls may come in any
    order. Details: `edits` [{edit, tool, position}], `length`. Skipped: so many different calls ran
    in parallel that not every order can be tried; both the pattern and the run are long.

    Attributes:
        pattern: a tool's name; a list or `sequence`, in order; `any_order` (up to 10, each once);
            `choice`, one of them; `optional`; `repeat` with `min` (0) and `max` (none).
        concurrency: `respect` lets parallel calls come in any order; `ignore` takes them in order
            of start.
        include_content: accepted as in every matching scorer, without effect, because names are not
            content.

    Example:
        {type: trajectory_pattern, pattern: [search, {repeat: open, min: 1}, {optional: save}]}

    >>> from otel_eval.testing import call, trajectory
    >>> from otel_eval.scorers import create_scorer
    >>> written = ["search", {"repeat": "open", "min": 1}, {"optional": "save"}]
    >>> pattern = create_scorer({"type": "trajectory_pattern", "pattern": written})
    >>> pattern(trajectory(call("search"), call("save"))).explanation
    '1 edit: insert open before call 2'
    """

    pattern: AutomatonOfPattern
    concurrency: Concurrency = "respect"
    include_content: Flag = False  # as for every matching scorer: names have none

    def requires(self) -> Requirements:
        """Calls; the pattern names optional tools."""
        return Requirements(tools=ToolNames(optional=tuple(sorted(self.pattern.names))))

    def find(self, trajectory: Trajectory) -> Finding:
        """Find the nearest sequence of names that fits the pattern."""
        calls = trajectory.calls
        groups = groups_of(calls, self.concurrency)
        fit = fewest_edits(self.pattern, [call.name for call in calls], groups)
        longest = len(calls) + fit.length
        edits = [
            {"edit": edit.kind, "tool": edit.tool, "position": edit.position} for edit in fit.edits
        ]
        value = (longest - len(edits)) / longest if longest else 1.0
        return Finding(
            value,
            _edits_text(fit.edits, len(calls)),
            {"edits": edits, "length": fit.length, "seen": seen(calls)},
        )


def _edit_text(edit: Edit, calls: int) -> str:
    if edit.kind != "insert":
        return f"delete {numbered(edit.tool, edit.position)}"
    where = f"before call {edit.position + 1}" if edit.position < calls else "at the end"
    return f"insert {tool(edit.tool)} {where}"


def _edits_text(edits: tuple[Edit, ...], calls: int) -> str:
    """The first edits, as an explanation lists them."""
    if not edits:
        return "fits the pattern"
    text = [_edit_text(edit, calls) for edit in edits[:_MOST_LISTED]]
    return f"{plural(len(edits), 'edit')}: {some_of(text, len(edits))}"
