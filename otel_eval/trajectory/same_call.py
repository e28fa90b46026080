"""Which tool spans describe one and the same call.

Knows nesting, names, times and arguments of drafts. Two rules, and nothing else ever merges spans, so every attempt
that left a span of its own stays a call:

* Within: a span below one of the same tool, no agent between them, describes the same call (framework, MCP client,
  MCP server); so does one that names no tool, below one of the same call id. Not if both recorded arguments and these
  differ: that is recursion. And if the outer one holds two or more that do not overlap in time, these are attempts:
  each is a call, the outer span only wraps them.
* Beside (`beside`): spans of two instrumentations, one interval within the other, with equal call ids, or, unless both have
  ids, with arguments that are equal or that one of them did not record.

A tool has one name, or that name and the one by which an MCP server knows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from otel_eval.model import UNRECORDED
from otel_eval.trajectory.calls import Draft, arguments_key, mcp_name, named
from otel_eval.trajectory.classify import ClassifiedTrace

__all__ = ["merge_within"]

_Key = tuple[int, str, str]
"""The agent's place, what is the same, and its text."""

_ATTEMPT_STEPS: Final = 20


def merge_within(read: ClassifiedTrace, drafts: dict[int, Draft]) -> list[Draft]:
    """The calls, in order of place, after spans within spans were merged."""
    hosts = _hosts(read, drafts)
    if not hosts:
        return list(drafts.values())
    held: dict[int, list[int]] = {}
    for place, host in hosts.items():
        held.setdefault(host, []).append(place)
    # Inner spans have higher places than outer ones, so going down meets the inner ones first.
    calls: dict[int, list[Draft]] = {}
    others: list[Draft] = []
    for place in sorted(drafts, reverse=True):
        calls[place] = _resolve(read, drafts[place], [calls.pop(inner) for inner in held.get(place, ())], others)
    others.extend(draft for same in calls.values() for draft in same)
    return sorted(others, key=lambda draft: draft.place)


def _hosts(read: ClassifiedTrace, drafts: dict[int, Draft]) -> dict[int, int]:
    """Tool span → the nearest one above it, no agent between them, of the same name (without a name: of the same id)."""
    size = read.tree.size
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
        keys = [(agent, "name", mcp_name(draft)), (agent, "id", draft.call_id)][: 2 if draft.call_id else 1]
        # Without any agent above, two trees share a key; the stack is empty again between them.
        above = nearest.get(keys[-1] if draft.unnamed else keys[0])
        if above:
            hosts[place] = above[-1]
        for key in keys:
            nearest.setdefault(key, []).append(place)
        open_spans.append((read.end(place), keys))
    return hosts


def _resolve(read: ClassifiedTrace, outer: Draft, inner: Sequence[list[Draft]], others: list[Draft]) -> list[Draft]:
    """What the outer span with all that it holds stands for: one call, or attempts at it.

    Args:
        read: the trace.
        outer: the outer span.
        inner: the same of each span that it holds.
        others: takes the calls of their own among these.
    """
    same: list[Draft] = []
    for group in inner:
        (others if _other_tool(outer, group[0]) or _differ(read, outer, group[0]) else same).extend(group)
    read.steps.take(_ATTEMPT_STEPS * len(same))  # each level around attempts looks at all of them
    attempts = _attempts(same)
    if len(attempts) > 1:
        for attempt in attempts:
            attempt.name = outer.name
            known = attempt.certain, attempt.unsure  # how the last attempt ended says nothing of the others
            attempt.inherit(replace(outer, error=None, result=UNRECORDED))
            attempt.certain, attempt.unsure = known
        return attempts
    for each in attempts:
        outer.inherit(each)
    return [outer]


def _other_tool(one: Draft, other: Draft) -> bool:
    """Whether both are named as tools of MCP servers, and of different ones."""
    return one.name != other.name and mcp_name(one) != one.name and mcp_name(other) != other.name


def _differ(read: ClassifiedTrace, outer: Draft, inner: Draft) -> bool:
    """Whether both recorded arguments by name, and other ones."""
    if "arguments" in read.plan.needs:
        return named(inner.arguments) and named(outer.arguments) and inner.arguments != outer.arguments
    theirs = arguments_key(read, inner)
    return theirs is not None and arguments_key(read, outer) not in (None, theirs)


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
