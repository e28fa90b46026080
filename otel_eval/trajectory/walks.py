"""The two walks over every span that a survey begins with: what each is, and what is above it.

Knows frames, kinds and parents; knows no call and no run. Each walk is written down here in Python, and that is what
counts; where the extension in C is there, it walks in a fifth of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from otel_eval.conventions import DROPPED, Classification, ScopeReader
from otel_eval.model import Kind
from otel_eval.native import extension
from otel_eval.ports import Envelope, Frame, View

_Key = TypeVar("_Key", bytes, int)

__all__ = ["Lines", "Recognised", "link", "link_slowly", "recognise", "recognise_slowly"]

Recognised = tuple[list[View], list[Envelope], list[Classification], list[Kind], set[_Key]]
"""By place: view, envelope, reading and kind; and the ids of spans that are to be left out."""

Lines = tuple[list[int], dict[int, int], list[int], list[int], list[int]]
"""The nearest agent, model or tool span above each place; above each of these the nearest agent; agents, models, tools."""

_forest: Final = extension("_forest")


def recognise(frames: Mapping[_Key, Frame], ids: list[_Key], of_scope: Callable[[str], ScopeReader]) -> Recognised[_Key]:
    """Ask every span what it is; `ids` are the keys of the frames in the order that is wanted."""
    if _forest is None or type(frames) is not dict:
        return recognise_slowly(frames, ids, of_scope)
    found: Recognised[_Key] = _forest.recognise(frames, ids, of_scope, DROPPED)
    return found


def recognise_slowly(frames: Mapping[_Key, Frame], ids: list[_Key], of_scope: Callable[[str], ScopeReader]) -> Recognised[_Key]:
    """The same in Python."""
    views: list[View] = []
    envelopes: list[Envelope] = []
    readings: list[Classification] = []
    dropped: set[_Key] = set()
    last: Envelope | None = None
    for span_id in ids:
        _, payload, envelope = frames[span_id]
        if envelope is not last:
            last, scope = envelope, of_scope(envelope.scope_name)
        view = envelope.view(payload)
        reading = DROPPED if scope.dropped else scope.read(view)
        if reading is DROPPED:
            dropped.add(span_id)
        views.append(view)
        envelopes.append(envelope)
        readings.append(reading)
    return views, envelopes, readings, [each.kind for each in readings], dropped


def link(kinds: list[Kind], parents: list[int]) -> Lines:
    """Follow the parents of spans in preorder."""
    if _forest is None:
        return link_slowly(kinds, parents)
    found: Lines = _forest.link(kinds, parents, Kind.OTHER, Kind.AGENT, Kind.MODEL)  # what else there is are tools
    return found


def link_slowly(kinds: list[Kind], parents: list[int]) -> Lines:
    """The same in Python."""
    above: list[int] = []
    agent_above: dict[int, int] = {}
    agents: list[int] = []
    models: list[int] = []
    tools: list[int] = []
    lists = {Kind.AGENT: agents, Kind.MODEL: models, Kind.TOOL: tools}
    for place, kind in enumerate(kinds):
        up = parents[place]
        if up >= 0 and kinds[up] is Kind.OTHER:
            up = above[up]
        above.append(up)
        if kind is Kind.OTHER:
            continue
        agent_above[place] = up if up < 0 or kinds[up] is Kind.AGENT else agent_above[up]
        lists[kind].append(place)
    return above, agent_above, agents, models, tools
