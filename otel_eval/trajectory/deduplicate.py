"""Merges tool spans that describe the same call.

Three rules, and nothing else ever merges spans, so every attempt that left a span of its own stays
a call:

* Within: a span below one of the same tool, no agent between them, describes the same call
  (framework, MCP client, MCP server); so does one that names no tool, below one of the same call
  id. Not if both have ids and these differ; nor, unless the ids are equal, if both recorded
  arguments and these differ: that is recursion. And if the outer one holds two or more that do not
  overlap in time, these are attempts: each is a call, the outer span only wraps them.
* Again: spans of one agent with the same id and name, none of which failed, are one call, which was
  replayed. Not if the id was used for several requests: it stands in the outputs of two model
  calls, or a model call lies between the spans.
* Beside: spans of two instrumentations, one interval within the other, with equal call ids, or,
  unless both have ids, with arguments that are equal or that one of them did not record.

A tool has one name, or that name and the one by which an MCP server knows it. Where the second is
read from an MCP span, the first may be the same behind any prefix that a framework gives the tools
of a server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from copy import copy
from typing import Final

from otel_eval.model import UNRECORDED
from otel_eval.records import record
from otel_eval.span_trees import grouped, holds
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.limits import RunLimits, limit_overlaps
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.tool_calls import (
    MOMENT,
    ToolCallBuilder,
    arguments_key,
    call_id_of,
    mcp_name,
    named,
    read_contents,
)

_HostKey = tuple[int, str, str]
"""The agent's index, what is the same, and its text."""


def merge_spans(
    spans: ClassifiedTrace,
    calls: dict[int, ToolCallBuilder],
    messages: TraceMessages,
    limits: RunLimits,
) -> tuple[list[ToolCallBuilder], list[int]]:
    """Read the content of the calls of tool spans, and merge spans within spans and those of
    replayed calls.

    Returns:
        the calls in order of index, and the indexes of those of which it is unknown whether they
        are attempts.
    """
    read_contents(calls.values())
    return _merge_again(spans, _merge_within(spans, calls, limits), messages)


def _merge_within(
    spans: ClassifiedTrace, calls: dict[int, ToolCallBuilder], limits: RunLimits
) -> list[ToolCallBuilder]:
    """The calls, in order of index, after spans within spans were merged."""
    hosts = _hosts(spans, calls)
    if not hosts:
        return list(calls.values())
    inner_indexes = grouped(hosts, hosts.__getitem__)
    # Inner spans have higher indexes than outer ones, so going down meets the inner ones first.
    resolved: dict[int, list[ToolCallBuilder]] = {}
    separate: list[ToolCallBuilder] = []
    for index in sorted(calls, reverse=True):
        resolved[index] = _resolve(
            spans,
            calls[index],
            [resolved.pop(inner) for inner in inner_indexes.get(index, ())],
            separate,
            limits,
        )
    separate.extend(call for same in resolved.values() for call in same)
    return sorted(separate, key=lambda call: call.index)


def _hosts(spans: ClassifiedTrace, calls: dict[int, ToolCallBuilder]) -> dict[int, int]:
    """Tool span → the nearest ancestor with the same name, no agent between them (without a name:
    of the same id).
    """
    if not spans.has_spans_below_calls:
        return {}
    hosts: dict[int, int] = {}
    open_spans: list[tuple[int, list[_HostKey]]] = []
    nearest: dict[_HostKey, list[int]] = {}
    for index in sorted(calls):
        while open_spans and open_spans[-1][0] <= index:
            for key in open_spans.pop()[1]:
                nearest[key].pop()
        call, agent = calls[index], spans.enclosing_agent[index]
        keys = [(agent, "name", mcp_name(call)), (agent, "id", call.call_id)][
            : 2 if call.call_id else 1
        ]
        # Without an agent that encloses them, two trees share a key; the stack is empty again
        # between them.
        outer = nearest.get(keys[-1] if call.unnamed else keys[0])
        if outer and _other_id(spans, call, calls[outer[-1]]):
            outer = nearest.get(keys[-1]) if call.call_id else None
        elif not outer and open_spans and _is_prefixed(open_spans[-1][1][0], agent, call):
            outer = nearest[open_spans[-1][1][0]]
        if outer:
            hosts[index] = outer[-1]
        for key in keys:
            nearest.setdefault(key, []).append(index)
        open_spans.append((spans.end(index), keys))
    return hosts


def _other_id(spans: ClassifiedTrace, one: ToolCallBuilder, other: ToolCallBuilder) -> bool:
    """Whether both have call ids, and other ones."""
    ids = {call_id_of(spans, one), call_id_of(spans, other)} - {""}
    return len(ids) > 1


def _is_prefixed(outer: _HostKey, agent: int, inner: ToolCallBuilder) -> bool:
    """Whether the outer span names the inner one's tool of an MCP server behind a prefix
    (`trip_search`, `search`).
    """
    of_agent, _, name = outer
    prefix = name.removesuffix(inner.name)
    is_part = prefix != name and not prefix[-1:].isalnum()
    return is_part and of_agent == agent and inner.table.is_mcp_tool(inner.name)


def _resolve(
    spans: ClassifiedTrace,
    outer: ToolCallBuilder,
    inner: Sequence[list[ToolCallBuilder]],
    separate: list[ToolCallBuilder],
    limits: RunLimits,
) -> list[ToolCallBuilder]:
    """What the outer span with all that it holds stands for: one call, or attempts at it.

    Args:
        spans: the trace's.
        outer: the outer span.
        inner: the same of each span that it holds.
        separate: takes the calls of their own among these.
        limits: those of the trace's runs.
    """
    same: list[ToolCallBuilder] = []
    for group in inner:
        (
            separate if _other_tool(outer, group[0]) or _differ(spans, outer, group[0]) else same
        ).extend(group)
    # Each level that encloses attempts looks at all of them.
    if not limits.allow_pairs(outer.index, len(same)):
        return [outer]
    attempts = _attempts(same)
    if len(attempts) > 1:
        without_outcome = copy(outer)
        without_outcome.error, without_outcome.result = None, UNRECORDED
        for attempt in attempts:
            attempt.name = outer.name
            # how the last attempt ended does not show how the others did
            certainty = attempt.certain, attempt.unsure
            attempt.inherit(without_outcome)
            attempt.certain, attempt.unsure = certainty
        return attempts
    for attempt_of_outer in attempts:
        outer.inherit(attempt_of_outer)
    return [outer]


def _other_tool(one: ToolCallBuilder, other: ToolCallBuilder) -> bool:
    """Whether both are named as tools of MCP servers, and of different ones."""
    return one.name != other.name and mcp_name(one) != one.name and mcp_name(other) != other.name


def _differ(spans: ClassifiedTrace, outer: ToolCallBuilder, inner: ToolCallBuilder) -> bool:
    """Whether both recorded arguments by name, and other ones, and no id shows that they are the
    same.
    """
    if call_id_of(spans, inner) and call_id_of(spans, inner) == call_id_of(spans, outer):
        return False
    if "arguments" in spans.plan.needs:
        return (
            named(inner.arguments) and named(outer.arguments) and inner.arguments != outer.arguments
        )
    theirs = arguments_key(spans, inner)
    return theirs is not None and arguments_key(spans, outer) not in (None, theirs)


def _attempts(same: Iterable[ToolCallBuilder]) -> list[ToolCallBuilder]:
    """One call per stretch of time: those that overlap (a client's span and the server's) are one
    attempt.
    """
    attempts: list[ToolCallBuilder] = []
    until = 0
    for call in sorted(same, key=MOMENT):
        if attempts and call.start < until:
            attempts[-1].inherit(call)
        else:
            attempts.append(call)
        until = max(until, call.end)
    return attempts


def _merge_again(
    spans: ClassifiedTrace, calls: list[ToolCallBuilder], messages: TraceMessages
) -> tuple[list[ToolCallBuilder], list[int]]:
    """The calls after spans of replayed ones were merged, and the indexes of those of which it is
    unknown whether they are attempts.
    """
    if len({call.call_id for call in calls} - {""}) == len(calls):
        return calls, []  # as in nearly every trace: each has an id of its own
    groups = _of_one_id(spans, calls)
    if not groups:
        return calls, []
    replayed: set[int] = set()
    doubtful: list[int] = []
    requests: dict[int, Counter[str]] = {}  # owner → in how many outputs each id stands
    for (owner, _, call_id), group in groups.items():
        if owner not in requests:
            outputs = map(messages.__getitem__, spans.model_calls_of.get(owner, ()))
            requests[owner] = Counter(
                call_id
                for output in outputs
                for call_id in {request.call_id for request in output.requests}
            )
        if requests[owner][call_id] > 1:
            continue
        group.sort(key=MOMENT)
        first = group[0]
        for call in group[1:]:
            if holds(spans.model_starts_of.get(owner, []), first.end, call.start + 1):
                first = call
            elif first.scope == call.scope and call.start >= first.end:
                if first.unsure or call.unsure:
                    doubtful.append(call.index)
                first.inherit(call)
                replayed.add(call.index)
    return [call for call in calls if call.index not in replayed], sorted(doubtful)


def _of_one_id(
    spans: ClassifiedTrace, calls: list[ToolCallBuilder]
) -> dict[tuple[int, str, str], list[ToolCallBuilder]]:
    """The groups of two or more calls that have the same owner, name and id. A group with a failed
    call is left out.
    """
    by_name: dict[tuple[int, str], list[ToolCallBuilder]] = {}
    for call in calls:
        by_name.setdefault((spans.owners[call.index], call.name), []).append(call)
    groups: dict[tuple[int, str, str], list[ToolCallBuilder]] = {}
    for (owner, name), calls_of_name in by_name.items():
        if len(calls_of_name) > 1:  # else ids are not needed, which may stand in the content alone
            for call in calls_of_name:
                if call_id := call_id_of(spans, call):
                    groups.setdefault((owner, name, call_id), []).append(call)
    return {
        key: group
        for key, group in groups.items()
        if len(group) > 1 and not any(call.error for call in group)
    }


_Key = tuple[str, Hashable]
"""What two spans of one call have in common: an aspect of a span, and its value."""


@record
class _Entry:
    """A call.

    Attributes:
        scopes: of the spans that describe it, a bit for each.
        arguments: equal for equal arguments by name; None: without any.
        tool: its name, if that is one of a tool of an MCP server, else "".
    """

    call: ToolCallBuilder
    scopes: int
    arguments: Hashable
    tool: str

    def may_share(self) -> Iterable[_Key]:
        """All aspects that another span may have in common with it."""
        call = self.call
        yield from (
            [("call id", call.call_id)]
            if call.call_id
            else [("arguments, no id", self.arguments), ("no id", None)]
        )
        yield from [("arguments", self.arguments), ("any", None)]

    def surely_common(self) -> list[_Key]:
        """Aspects of which one in common shows the same call: the call id, or, if one of the spans
        has none, equal arguments.
        """
        if not self.call.call_id:
            return [] if self.arguments is None else [("arguments", self.arguments)]
        by_id: _Key = ("call id", self.call.call_id)
        return [by_id] if self.arguments is None else [by_id, ("arguments, no id", self.arguments)]

    def common(self) -> list[_Key]:
        """Aspects of which one in common allows the same call: arguments that were not recorded may
        be equal.
        """
        if not self.call.call_id:
            return (
                [("any", None)]
                if self.arguments is None
                else [("arguments", self.arguments), ("arguments", None)]
            )
        by_id: _Key = ("call id", self.call.call_id)
        if self.arguments is None:
            return [by_id, ("no id", None)]
        return [by_id, ("arguments, no id", self.arguments), ("arguments, no id", None)]


def merge_beside(spans: ClassifiedTrace, calls: list[ToolCallBuilder]) -> list[ToolCallBuilder]:
    """The calls of one run after two instrumentations' spans of one call were merged; the builders
    given are left alone.

    Raises:
        TooLarge: too many of them overlap in time.
    """
    if len({call.scope for call in calls}) < 2:
        return calls
    groups = grouped(calls, mcp_name).values()
    separate = [call for group in groups for call in _merge_group(spans, group)]
    return sorted(separate, key=lambda call: call.index)


def _merge_group(spans: ClassifiedTrace, group: list[ToolCallBuilder]) -> list[ToolCallBuilder]:
    numbers = {
        scope: number for number, scope in enumerate(dict.fromkeys(call.scope for call in group))
    }
    if len(numbers) < 2:
        return group
    limit_overlaps([(call.start, call.end) for call in group])
    # An interval comes before all that lie within it.
    ordered = sorted(group, key=lambda d: (d.start, -d.end, d.scope, d.span_id))
    has_ids = all(call.call_id for call in group)
    entries = [
        _Entry(
            call,
            1 << numbers[call.scope],
            None if has_ids else arguments_key(spans, call),
            call.name if mcp_name(call) != call.name else "",
        )
        for call in ordered
    ]
    # A span without arguments must not take the place of the one that surely describes the call.
    entries = _merged(entries, _Entry.surely_common, surely=True)
    return [entry.call for entry in _merged(entries, _Entry.common, surely=False)]


def _merged(
    entries: list[_Entry],
    keys: Callable[[_Entry], list[_Key]],
    *,
    surely: bool,
) -> list[_Entry]:
    """The entries after each became part of the first before it that has one of its keys and that
    it lies within.
    """
    keys_of = [keys(entry) for entry in entries]
    merged = _Kept({aspect for entry_keys in keys_of for aspect, _ in entry_keys})
    for index, entry in enumerate(entries):
        outer = merged.first(entry, keys_of[index], surely=surely)
        if outer is None:
            merged.put(index, entry)
        else:
            merged.put(outer, _both(merged.take(outer), entry))
    return list(merged.entries.values())


def _both(outer: _Entry, inner: _Entry) -> _Entry:
    """The outer call with what only the inner one's span recorded."""
    merged = copy(outer.call)
    merged.inherit(inner.call)
    # What scorers do not need was not read, so it is not inherited, and the outer span's own still
    # count.
    inherits = outer.arguments is None and inner.call.arguments is not UNRECORDED
    return _Entry(
        merged,
        outer.scopes | inner.scopes,
        inner.arguments if inherits else outer.arguments,
        outer.tool,
    )


class _Kept:
    """The calls so far by index, and where each is found by what it may have in common with a later
    one.
    """

    def __init__(self, aspects: set[str]) -> None:
        self.entries: Final[dict[int, _Entry]] = {}
        self._aspects = aspects
        # by key, scopes and tool: index → end
        self._ends: Final[dict[_Key, dict[tuple[int, str], dict[int, int]]]] = {}

    def first(self, entry: _Entry, keys: list[_Key], *, surely: bool) -> int | None:
        """The index of the first call with one of the keys, of other scopes, that ends no
        earlier.
        """
        indexes: list[int] = []
        for key in keys:
            alike = self._ends.get(key, {})
            for (scopes, tool), ends in list(alike.items()):
                for over in [index for index, end in ends.items() if end < entry.call.start]:
                    del ends[over]  # what follows starts no earlier
                if not ends:
                    del alike[scopes, tool]
                    continue
                is_other_tool = not surely and tool and entry.tool and tool != entry.tool
                if not is_other_tool and not scopes & entry.scopes:
                    indexes += [index for index, end in ends.items() if end >= entry.call.end]
        return min(indexes, default=None)

    def put(self, index: int, entry: _Entry) -> None:
        """Keep a call."""
        self.entries[index] = entry
        for key in self._keys(entry):
            self._ends.setdefault(key, {}).setdefault((entry.scopes, entry.tool), {})[index] = (
                entry.call.end
            )

    def take(self, index: int) -> _Entry:
        """Remove and return a call; it is put back with what another span adds."""
        entry = self.entries[index]
        for key in self._keys(entry):
            self._ends.get(key, {}).get((entry.scopes, entry.tool), {}).pop(index, None)
        return entry

    def _keys(self, entry: _Entry) -> list[_Key]:
        return [key for key in entry.may_share() if key[0] in self._aspects]
