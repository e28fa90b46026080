"""The scorer `trajectory_pattern`: how near the calls of a run are to a pattern, in edits.

Patterns are compiled here; the search is in `nfa`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError, collect_errors, redacted_repr
from otel_eval.model import Trajectory
from otel_eval.scorers.alignment.partial_order import parallel_groups
from otel_eval.scorers.base_scorer import BaseScorer, Finding, Requirements
from otel_eval.scorers.nfa import NFA, Edit, PatternTooLarge, fewest_edits
from otel_eval.scorers.parameters import (
    STRING,
    check_keys,
    check_literal,
    count,
    flag,
    invalid_value,
    one_of,
    optional,
    reads,
    with_schema,
)
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import ToolNames, numbered, plural, seen, tool

_KINDS: Final = ("sequence", "any_order", "choice", "optional", "repeat")
_FORMS: Final = "a tool's name, a list, or one of sequence, any_order, choice, optional, repeat"
_MOST_ANY_ORDER: Final = 10
_MOST_COPIES: Final = 1000
_DEEPEST: Final = 50
_INNER: Final = {"$ref": "#/$defs/pattern"}
_PATTERNS: Final = {"type": "array", "items": _INNER}
_LIMITS: Final = {
    "min": {"type": "integer", "minimum": 0},
    "max": {"type": ["integer", "null"], "minimum": 0},
}
_TIMES: Final = {
    "type": "object",
    "properties": {"of": _INNER, **_LIMITS},
    "required": ["of"],
    "additionalProperties": False,
}
_LISTS: Final = dict.fromkeys(("sequence", "any_order", "choice"), _PATTERNS)
_REPEATED: Final = {"optional": _INNER, "repeat": {"anyOf": [_INNER, _TIMES]}, **_LIMITS}
_OBJECT: Final = {
    "type": "object",
    "properties": {**_LISTS, **_REPEATED},
    "additionalProperties": False,
}
_PATTERN: Final = {**_INNER, "$defs": {"pattern": {"anyOf": [STRING, _PATTERNS, _OBJECT]}}}
_MOST_LISTED: Final = 8


@with_schema(_PATTERN)
def read_pattern(key: str, value: Any) -> NFA:
    """Compile a pattern to an automaton.

    Raises:
        ConfigError: the value is not a pattern, or needs more than 10,000 states.
    """
    automaton = NFA(as_given=value)
    try:
        automaton.end = _build(automaton, 0, key, value, 0)
    except PatternTooLarge:
        raise ConfigError(
            f"{key}: too large for an exact answer; use smaller any_order groups or a repeat"
            " without max"
        ) from None
    return automaton


def _build(automaton: NFA, start: int, key: str, value: Any, depth: int) -> int:
    """Add the states of a pattern after `start`, and return the state where it ends."""
    if depth > _DEEPEST:
        raise ConfigError(f"{key}: nested more than {_DEEPEST} deep; write a flatter pattern")
    if isinstance(value, str) and value:
        check_literal(key, value)
        end = automaton.add_state()
        automaton.named[start].append((value, end))
        return end
    if isinstance(value, list | tuple):
        return _sequence(automaton, start, key, value, depth)
    if not isinstance(value, Mapping):
        raise invalid_value(key, value, "a pattern", f"write {_FORMS}")
    return _compile_mapping(automaton, start, key, value, depth)


def _compile_mapping(
    automaton: NFA, start: int, key: str, value: Mapping[Any, Any], depth: int
) -> int:
    kinds = [word for word in value if word in _KINDS]
    known = (*_KINDS, "min", "max") if "repeat" in value else _KINDS
    check_keys(value, known, f"{key}.")
    if len(kinds) != 1:
        raise invalid_value(key, dict(value), "a pattern of one kind", f"write {_FORMS}")
    kind = kinds[0]
    below, where = value[kind], f"{key}.{kind}"
    if kind == "optional":
        return _repeat(automaton, start, where, below, 0, 1, depth)
    if kind == "repeat":
        return _build_repeat(automaton, start, key, value, depth)
    if not isinstance(below, list | tuple) or (kind == "choice" and not below):
        raise invalid_value(
            where, below, "a list of patterns", f"write e.g. {where}: [search, open]"
        )
    build = {"sequence": _sequence, "any_order": _any_order, "choice": _choice}[kind]
    return build(automaton, start, where, below, depth)


def _sequence(automaton: NFA, start: int, key: str, members: Any, depth: int) -> int:
    # After an invalid member the others are compiled nevertheless, so that all problems are
    # reported.
    problems: list[str] = []
    for index, member in enumerate(members):
        try:
            start = _build(automaton, start, f"{key}[{index}]", member, depth + 1)
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*problems)
    return start


def _choice(automaton: NFA, start: int, key: str, members: Any, depth: int) -> int:
    end = automaton.add_state()
    entries = [_entry(automaton, start, member) for member in members]
    for last in _build_members(automaton, entries, key, members, depth):
        automaton.free[last].append(end)
    return end


def _entry(automaton: NFA, start: int, member: Any) -> int:
    """The state where a member begins: a new one, since a repetition returns to it; for a name
    `start` itself.
    """
    if isinstance(member, str):
        return start
    entry = automaton.add_state()
    automaton.free[start].append(entry)
    return entry


def _build_members(
    automaton: NFA, entries: Sequence[int], key: str, members: Any, depth: int
) -> list[int]:
    """Add the states of each member after its entry, and return the states where they end."""
    return collect_errors(
        partial(_build, automaton, entry, f"{key}[{index}]", member, depth + 1)
        for index, (entry, member) in enumerate(zip(entries, members, strict=True))
    )


def _any_order(automaton: NFA, start: int, key: str, members: Any, depth: int) -> int:
    """Add a state for each set of members that were matched already."""
    if len(members) > _MOST_ANY_ORDER:
        raise ConfigError(
            f"{key}: {len(members)} members have too many orders; write at most {_MOST_ANY_ORDER}"
        )
    matched = [start, *(automaton.add_state() for _ in range((1 << len(members)) - 1))]
    entries = [_entry(automaton, start, member) for member in members]
    # Members in first place are compiled together, so that the problems of all of them are
    # reported.
    for index, end in enumerate(_build_members(automaton, entries, key, members, depth)):
        automaton.free[end].append(matched[1 << index])
    for mask, state in enumerate(matched[1:], start=1):
        for index, member in enumerate(members):
            if not mask >> index & 1:
                end = _build(
                    automaton,
                    _entry(automaton, state, member),
                    f"{key}[{index}]",
                    member,
                    depth + 1,
                )
                automaton.free[end].append(matched[mask | 1 << index])
    return matched[-1]


def _build_repeat(
    automaton: NFA, start: int, key: str, value: Mapping[Any, Any], depth: int
) -> int:
    """Compile `{repeat: pattern, min: 0, max: 3}` or `{repeat: {of: pattern, min: 0, max: 3}}`."""
    inner = value["repeat"]
    if isinstance(inner, Mapping) and "of" in inner:
        check_keys(inner, ("of", "min", "max"), f"{key}.repeat.")
        key, value, inner = f"{key}.repeat", inner, inner["of"]
    least, most = collect_errors(
        (
            partial(count("repetitions", 1, least=0), f"{key}.min", value.get("min", 0)),
            partial(optional(count("repetitions", 3, least=0)), f"{key}.max", value.get("max")),
        )
    )
    if least > _MOST_COPIES or (most is not None and not least <= most <= _MOST_COPIES):
        raise ConfigError(
            f"{key}.max: {redacted_repr(most)} with min {least} is no range up to {_MOST_COPIES};"
            " write e.g. min: 1, max: 3"
        )
    return _repeat(automaton, start, f"{key}.repeat", inner, least, most, depth)


def _repeat(
    automaton: NFA, start: int, key: str, member: Any, least: int, most: int | None, depth: int
) -> int:
    for _ in range(least):
        start = _build(automaton, start, key, member, depth + 1)
    end = automaton.add_state()
    automaton.free[start].append(end)
    if most is None:
        entry = _entry(automaton, start, member)
        automaton.free[_build(automaton, entry, key, member, depth + 1)].append(start)
        return end
    for _ in range(most - least):
        start = _build(automaton, _entry(automaton, start, member), key, member, depth + 1)
        automaton.free[start].append(end)
    return end


@scorer("trajectory_pattern")
@dataclass(frozen=True, slots=True, kw_only=True)
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
    >>> pattern = read_pattern(
    ...     "pattern", ["search", {"repeat": "open", "min": 1}, {"optional": "save"}]
    ... )
    >>> TrajectoryPattern(pattern=pattern)(trajectory(call("search"), call("save"))).explanation
    '1 edit: insert open before call 2'
    """

    pattern: NFA = field(metadata=reads(read_pattern))
    concurrency: str = field(default="respect", metadata=reads(one_of("respect", "ignore")))
    # as for every matching scorer: names have none
    include_content: bool = field(default=False, metadata=reads(flag))

    def requires(self) -> Requirements:
        """Calls; the pattern names optional tools."""
        return Requirements(tools=ToolNames(optional=tuple(sorted(self.pattern.names))))

    def find(self, trajectory: Trajectory) -> Finding:
        """Find the nearest sequence of names that fits the pattern."""
        calls = trajectory.calls
        ordered = (
            [range(at, at + 1) for at in range(len(calls))]
            if self.concurrency == "ignore"
            else parallel_groups(calls)
        )
        fit = fewest_edits(self.pattern, [call.name for call in calls], ordered)
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
    if not edits:
        return "fits the pattern"
    text = [_edit_text(edit, calls) for edit in edits[:_MOST_LISTED]]
    more = f" and {len(edits) - len(text)} more" if len(edits) > len(text) else ""
    return f"{plural(len(edits), 'edit')}: {', '.join(text)}{more}"
