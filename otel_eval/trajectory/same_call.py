"""Which tool spans describe one and the same call.

Knows nesting, names, times and arguments of drafts. Two rules, and nothing else ever merges spans, so every attempt
that left a span of its own stays a call:

* Within: a span below one of the same tool, no agent between them, describes the same call (framework, MCP client,
  MCP server); so does one that names no tool, below one of the same call id. Not if both recorded arguments and these
  differ: that is recursion. And if the outer one holds two or more that do not overlap in time, these are attempts:
  each is a call, the outer span only wraps them.
* Beside: spans of two instrumentations, one interval within the other, with equal call ids, or, unless both have
  ids, with arguments that are equal or that one of them did not record.

A tool has one name, or that name and the one by which an MCP server knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from otel_eval.model import UNRECORDED
from otel_eval.trajectory.calls import Draft, named, recorded_arguments
from otel_eval.trajectory.survey import Survey

__all__ = ["merge_beside", "merge_within"]

_Entry = tuple[Draft, set[str]]
"""A call, and the scopes of the spans that describe it."""
_Key = tuple[int, str, str]
"""The agent's place, what is the same, and its text."""


def merge_within(read: Survey, drafts: dict[int, Draft]) -> list[Draft]:
    """The calls, in order of place, after spans within spans were merged."""
    hosts = _hosts(read, drafts)
    if not hosts:
        return list(drafts.values())
    held: dict[int, list[int]] = {}
    for place, host in hosts.items():
        held.setdefault(host, []).append(place)
    # Inner spans have higher places than outer ones, so going down meets the inner ones first.
    calls: dict[int, _Group] = {}
    for place in sorted(drafts, reverse=True):
        calls[place] = _resolve(read, drafts[place], [calls.pop(inner) for inner in held.get(place, ())])
    merged = [draft for group in calls.values() for draft in (*group.same, *group.others)]
    return sorted(merged, key=lambda draft: draft.place)


def _hosts(read: Survey, drafts: dict[int, Draft]) -> dict[int, int]:
    """Tool span → the nearest one above it, no agent between them, of the same name (without a name: of the same id)."""
    size = read.forest.size
    if all(size[place] == 1 for place in drafts):  # nothing lies below any of them, as in nearly every trace
        return {}
    hosts: dict[int, int] = {}
    open_spans: list[tuple[int, list[_Key]]] = []
    nearest: dict[_Key, list[int]] = {}
    for place in sorted(drafts):
        while open_spans and open_spans[-1][0] <= place:
            for key in open_spans.pop()[1]:
                nearest[key].pop()
        draft, agent = drafts[place], read.agent_above[place]
        keys = [(agent, "name", _tool(draft)), (agent, "id", draft.call_id)][: 2 if draft.call_id else 1]
        # Without any agent above, two trees share a key; the stack is empty again between them.
        above = nearest.get(keys[-1] if draft.unnamed else keys[0])
        if above:
            hosts[place] = above[-1]
        for key in keys:
            nearest.setdefault(key, []).append(place)
        open_spans.append((read.end(place), keys))
    return hosts


@dataclass(slots=True)
class _Group:
    """What a span with all that it holds stands for: one call, or attempts at it, and calls of their own below."""

    same: list[Draft]
    others: list[Draft] = field(default_factory=list)


def _resolve(read: Survey, outer: Draft, inner: Sequence[_Group]) -> _Group:
    """The calls that the outer span and what it holds stand for."""
    others = [draft for group in inner for draft in group.others]
    same: list[Draft] = []
    for group in inner:
        (others if _other_tool(outer, group.same[0]) or _differ(read, outer, group.same[0]) else same).extend(group.same)
    attempts = _attempts(same)
    if len(attempts) > 1:
        for attempt in attempts:
            attempt.name = outer.name
            known = attempt.certain, attempt.unsure  # how the last attempt ended says nothing of the others
            attempt.inherit(replace(outer, error=None, result=UNRECORDED))
            attempt.certain, attempt.unsure = known
        return _Group(attempts, others)
    for each in attempts:
        outer.inherit(each)
    return _Group([outer], others)


def _tool(draft: Draft) -> str:
    return draft.table.name_in_mcp(draft.name)


def _other_tool(one: Draft, other: Draft) -> bool:
    """Whether both are named as tools of MCP servers, and of different ones."""
    return one.name != other.name and _tool(one) != one.name and _tool(other) != other.name


def _differ(read: Survey, outer: Draft, inner: Draft) -> bool:
    theirs = recorded_arguments(read, inner)
    if not named(theirs):
        return False
    ours = recorded_arguments(read, outer)
    return named(ours) and ours != theirs


def _attempts(same: Iterable[Draft]) -> list[Draft]:
    """One draft per stretch of time: those that overlap (a client's span and the server's) are one attempt."""
    attempts: list[Draft] = []
    until = 0
    for draft in sorted(same, key=lambda d: (d.start, d.end, d.span_id)):
        if attempts and draft.start < until:
            attempts[-1].inherit(draft)
        else:
            attempts.append(draft)
        until = max(until, draft.end)
    return attempts


def merge_beside(read: Survey, calls: list[Draft]) -> list[Draft]:
    """The calls of one run after two instrumentations' spans of one call were merged; drafts given are left alone."""
    if len({draft.scope for draft in calls}) < 2:
        return calls
    by_name: dict[str, list[Draft]] = {}
    for draft in calls:
        by_name.setdefault(_tool(draft), []).append(draft)
    kept = [draft for group in by_name.values() for draft in _merge_group(read, group)]
    return sorted(kept, key=lambda draft: draft.place)


def _merge_group(read: Survey, group: list[Draft]) -> list[Draft]:
    if len(group) < 2 or len({draft.scope for draft in group}) < 2:
        return group
    # An interval comes before all that lie within it.
    ordered = sorted(group, key=lambda d: (d.start, -d.end, d.scope, d.span_id))
    entries = [(draft, {draft.scope}) for draft in ordered]
    # What says nothing of its arguments must not take the place of the span that surely describes the call.
    for agree in (_surely_one_call, _one_call):
        entries = _merged(read, entries, agree)
    return [draft for draft, _ in entries]


def _merged(read: Survey, entries: list[_Entry], agree: Callable[[Survey, Draft, Draft], bool]) -> list[_Entry]:
    kept: list[_Entry] = []
    for draft, scopes in entries:
        for place, (outer, known) in enumerate(kept):
            if known.isdisjoint(scopes) and outer.end >= draft.end and agree(read, outer, draft):
                merged = replace(outer)
                merged.inherit(draft)
                kept[place] = (merged, known | scopes)
                break
        else:
            kept.append((draft, scopes))
    return kept


def _surely_one_call(read: Survey, outer: Draft, inner: Draft) -> bool:
    if outer.call_id and inner.call_id:
        return outer.call_id == inner.call_id
    ours = recorded_arguments(read, outer)
    return named(ours) and ours == recorded_arguments(read, inner)


def _one_call(read: Survey, outer: Draft, inner: Draft) -> bool:
    if _other_tool(outer, inner):
        return False
    if outer.call_id and inner.call_id:
        return outer.call_id == inner.call_id
    return not _differ(read, outer, inner)
