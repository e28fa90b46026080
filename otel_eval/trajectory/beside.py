"""Which tool spans of two instrumentations describe one call: rule "Beside" of `same_call`, in n log n steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from otel_eval.model import UNRECORDED
from otel_eval.trajectory.calls import Draft, arguments_key, mcp_name
from otel_eval.trajectory.classify import ClassifiedTrace

__all__ = ["merge_beside"]

_Key = tuple[str, Hashable]
"""What two spans of one call have in common: an aspect of a span, and its value."""

_ENTRY_STEPS: Final = 30  # of a span, for each rule
_KEY_STEPS: Final = 20


@dataclass(slots=True)
class _Entry:
    """A call.

    Attributes:
        scopes: of the spans that describe it, a bit for each.
        arguments: equal for equal arguments by name; None: without any.
        tool: its name, if that is one of a tool of an MCP server, else "".
    """

    draft: Draft
    scopes: int
    arguments: Hashable
    tool: str

    def may_share(self) -> Iterable[_Key]:
        """All that another span may have in common with it."""
        draft = self.draft
        yield from [("call id", draft.call_id)] if draft.call_id else [("arguments, no id", self.arguments), ("no id", None)]
        yield from [("arguments", self.arguments), ("any", None)]

    def surely_common(self) -> list[_Key]:
        """One of them, and the other span is surely of the same call: one id, or where one has none, equal arguments."""
        if not self.draft.call_id:
            return [] if self.arguments is None else [("arguments", self.arguments)]
        by_id: _Key = ("call id", self.draft.call_id)
        return [by_id] if self.arguments is None else [by_id, ("arguments, no id", self.arguments)]

    def common(self) -> list[_Key]:
        """The same for a span that may be of the same call: arguments that are not recorded may be equal."""
        if not self.draft.call_id:
            return [("any", None)] if self.arguments is None else [("arguments", self.arguments), ("arguments", None)]
        by_id: _Key = ("call id", self.draft.call_id)
        if self.arguments is None:
            return [by_id, ("no id", None)]
        return [by_id, ("arguments, no id", self.arguments), ("arguments, no id", None)]


def merge_beside(read: ClassifiedTrace, calls: list[Draft]) -> list[Draft]:
    """The calls of one run after two instrumentations' spans of one call were merged; drafts given are left alone."""
    if len({draft.scope for draft in calls}) < 2:
        return calls
    by_name: dict[str, list[Draft]] = {}
    for draft in calls:
        by_name.setdefault(mcp_name(draft), []).append(draft)
    kept = [draft for group in by_name.values() for draft in _merge_group(read, group)]
    return sorted(kept, key=lambda draft: draft.place)


def _merge_group(read: ClassifiedTrace, group: list[Draft]) -> list[Draft]:
    numbers = {scope: number for number, scope in enumerate(dict.fromkeys(draft.scope for draft in group))}
    if len(numbers) < 2:
        return group
    # An interval comes before all that lie within it.
    ordered = sorted(group, key=lambda d: (d.start, -d.end, d.scope, d.span_id))
    has_ids = all(draft.call_id for draft in group)
    entries = [_entry(draft, numbers[draft.scope], None if has_ids else arguments_key(read, draft)) for draft in ordered]
    # What says nothing of its arguments must not take the place of the span that surely describes the call.
    entries = _merged(read, entries, _Entry.surely_common, surely=True)
    return [entry.draft for entry in _merged(read, entries, _Entry.common, surely=False)]


def _entry(draft: Draft, scope: int, arguments: Hashable) -> _Entry:
    return _Entry(draft, 1 << scope, arguments, draft.name if mcp_name(draft) != draft.name else "")


def _merged(read: ClassifiedTrace, entries: list[_Entry], keys: Callable[[_Entry], list[_Key]], *, surely: bool) -> list[_Entry]:
    """The entries after each became part of the first before it that has one of its keys and that it lies within."""
    wanted = [keys(entry) for entry in entries]
    kept = _Kept(read, len(entries), {aspect for each in wanted for aspect, _ in each})
    for place, entry in enumerate(entries):
        outer = kept.first(entry, wanted[place], surely=surely)
        if outer is None:
            kept.put(place, entry)
        else:
            kept.put(outer, _both(kept.take(outer), entry))
    return list(kept.entries.values())


def _both(outer: _Entry, inner: _Entry) -> _Entry:
    """The outer call with what only the inner one's span recorded."""
    merged = replace(outer.draft)
    merged.inherit(inner.draft)
    # What scorers do not need was not read, so it is not inherited, and the outer span's own still count.
    inherits = outer.arguments is None and inner.draft.arguments is not UNRECORDED
    return _Entry(merged, outer.scopes | inner.scopes, inner.arguments if inherits else outer.arguments, outer.tool)


class _Kept:
    """The calls so far by place, and where each is found by what it may have in common with a later one."""

    def __init__(self, read: ClassifiedTrace, size: int, aspects: set[str]) -> None:
        self.entries: Final[dict[int, _Entry]] = {}
        self._size, self._aspects, self._steps = size, aspects, read.steps
        self._found: Final[dict[_Key, dict[tuple[int, str], _Ends]]] = {}
        self._latest: Final[dict[_Key, int]] = {}  # end of what was ever found by the key

    def first(self, entry: _Entry, keys: list[_Key], *, surely: bool) -> int | None:
        """The place of the first call with one of the keys, of other scopes, that ends no earlier."""
        places = []
        for key in keys:
            alike = self._found.get(key, {}) if self._latest.get(key, 0) >= entry.draft.end else {}
            self._steps.take(_KEY_STEPS * (1 + len(alike)))
            for (scopes, tool), ends in alike.items():
                is_other_tool = not surely and tool and entry.tool and tool != entry.tool
                if not is_other_tool and not scopes & entry.scopes:
                    places.append(ends.first(entry.draft.end))
        return min((place for place in places if place is not None), default=None)

    def put(self, place: int, entry: _Entry) -> None:
        """Keep a call."""
        self.entries[place] = entry
        for key in self._keys(entry):
            alike = self._found.setdefault(key, {})
            self._latest[key] = max(self._latest.get(key, 0), entry.draft.end)
            alike.setdefault((entry.scopes, entry.tool), _Ends(self._size)).put(place, entry.draft.end)

    def take(self, place: int) -> _Entry:
        """A call that will be put back as another one."""
        entry = self.entries[place]
        for key in self._keys(entry):
            alike = self._found[key]
            alike[entry.scopes, entry.tool].put(place, _Ends.NEVER)
            if alike[entry.scopes, entry.tool].first(0) is None:
                del alike[entry.scopes, entry.tool]
        return entry

    def _keys(self, entry: _Entry) -> list[_Key]:
        keys = [key for key in entry.may_share() if key[0] in self._aspects]
        self._steps.take(_ENTRY_STEPS * (1 + len(keys)))
        return keys


class _Ends:
    """The ends of intervals by place: a tree of maxima, so that the first one late enough is found in log n steps."""

    NEVER: Final = -1

    def __init__(self, size: int) -> None:
        self._leaves: Final = 1 << (size - 1).bit_length()
        self._latest: Final[dict[int, int]] = {}  # 1 is the top, 2n and 2n + 1 are below n

    def put(self, place: int, end: int) -> None:
        """Set the end at a place."""
        latest, node = self._latest, self._leaves + place
        latest[node] = end
        while node > 1:
            node //= 2
            latest[node] = max(latest.get(2 * node, self.NEVER), latest.get(2 * node + 1, self.NEVER))

    def first(self, end: int) -> int | None:
        """The first place with an end that is no earlier."""
        latest, node = self._latest, 1
        if latest.get(node, self.NEVER) < end:
            return None
        while node < self._leaves:
            node *= 2
            node += latest.get(node, self.NEVER) < end
        return node - self._leaves
