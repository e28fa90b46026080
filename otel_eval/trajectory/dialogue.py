"""Who asked for which call, what came back, and which of it belongs to which tool span.

Knows calls and answers as messages tell them; knows no span's attributes and decodes nothing.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_eval.conventions import Side, ToolRequest, ToolResult
from otel_eval.model import UNRECORDED
from otel_eval.steps import Steps
from otel_eval.trajectory.calls import Draft, named
from otel_eval.trajectory.requests import Requests, Window, pair

__all__ = ["Dialogue", "Told", "fill", "ids_of", "join"]


@dataclass(slots=True)
class Told:
    """What the messages of one span say.

    Attributes:
        asked: calls asked for in the span; earlier: calls known from before it; answers: what came back.
        recorded: whether the span's own output was recorded in a form that would show a call, and every call in it.
        broken: a call was asked for whose name was not recorded.
    """

    asked: list[ToolRequest] = field(default_factory=list)
    earlier: list[ToolRequest] = field(default_factory=list)
    answers: list[ToolResult] = field(default_factory=list)
    recorded: bool = False
    broken: bool = False

    def add(self, side: Side, mentions: Iterable[ToolRequest | ToolResult], *, conclusive: bool) -> None:
        """Sort in what one attribute or event holds."""
        for mention in mentions:
            if isinstance(mention, ToolResult):
                self.answers.append(mention)
            elif side is not Side.OUTPUT:
                self.earlier.extend([mention] if mention.name or mention.call_id else [])
            elif mention.name:
                self.asked.append(mention)
            else:
                self.broken = True
        self.recorded = not self.broken and (self.recorded or (side is Side.OUTPUT and conclusive))


_ANY_TIME: Final[Window] = (0, None)
_NEVER: Final[Window] = (0, -1)


@dataclass(slots=True)
class Dialogue:
    """The messages of one agent: requests in order, each once, and answers.

    Attributes:
        windows: identity of a request → when the calls it asks for can have started.
        by_name: see `of_tool`, before which all requests must be there.
    """

    requests: list[ToolRequest] = field(default_factory=list)
    by_id: dict[str, ToolRequest] = field(default_factory=dict)
    answers: dict[str, ToolResult] = field(default_factory=dict)
    nameless: dict[str, list[ToolResult]] = field(default_factory=dict)
    windows: dict[int, Window] = field(default_factory=dict)
    by_name: dict[str, Requests] | None = None

    def request(self, asked: Iterable[ToolRequest], window: Window = _ANY_TIME) -> None:
        """Add requests of a model call; of those with the same id the first one counts."""
        for each in asked:
            self.windows.setdefault(id(each), window)
            if each.call_id in self.by_id:
                continue
            if each.call_id:
                self.by_id[each.call_id] = each
            self.requests.append(each)

    def of_tool(self, name: str) -> Requests:
        """The requests of a tool; those that only a call's id made known are no further ones."""
        if self.by_name is None:
            self.by_name = {}
            for asked in self.requests:
                self.by_name.setdefault(asked.name, Requests()).add(asked, self.windows.get(id(asked), _ANY_TIME))
        return self.by_name.get(name) or Requests()

    def __bool__(self) -> bool:
        return bool(self.requests or self.by_id or self.answers or self.nameless)


def join(models: list[Told], agents: list[Told], windows: Sequence[Window] = ()) -> Dialogue:
    """One dialogue of what an agent's model spans and its own span hold.

    Args:
        models: the messages of the model spans, in order of time.
        agents: those of the agent's span.
        windows: for each model span, when the calls it asks for can have started.
    """
    dialogue = Dialogue()
    witnesses = (*models, *agents)
    for told, window in zip(models, windows or [_ANY_TIME] * len(models), strict=True):
        # Of requests that are not all known, the order tells nothing.
        dialogue.request(told.asked, _NEVER if told.broken else window)
    # A request without an id cannot be told from its repetition, so one kind of witness must do for them.
    nameless_too = not dialogue.requests
    for told in agents:
        dialogue.request(told.asked if nameless_too else [asked for asked in told.asked if asked.call_id])
    for told in witnesses:
        for asked in told.earlier:
            if asked.call_id:
                dialogue.by_id.setdefault(asked.call_id, asked)
        for answer in told.answers:
            if answer.call_id:
                dialogue.answers.setdefault(answer.call_id, answer)
    # Each request repeats the whole history, so the longest one holds every answer once.
    longest = max((told.answers for told in witnesses), key=len, default=[])
    for answer in longest:
        if not answer.call_id and answer.name:
            dialogue.nameless.setdefault(answer.name, []).append(answer)
    return dialogue


def ids_of(heard: Dialogue, requests: Sequence[tuple[Told, ToolRequest]]) -> list[str]:
    """The call id of each request, in order of time: its own, else the one that the history of a later model call gives it.

    A request without an id is the first of its name and arguments in the history that was not there when it was made. "" where
    no later history holds it.
    """
    own = {asked.call_id for _, asked in requests}
    if "" not in own:
        return [asked.call_id for _, asked in requests]
    repeated: dict[tuple[str, str], deque[str]] = {}
    for call_id, earlier in heard.by_id.items():
        if call_id not in own:
            repeated.setdefault(_content(earlier), deque()).append(call_id)
    known: dict[int, set[str]] = {id(told): {each.call_id for each in told.earlier} for told, _ in requests}
    return [asked.call_id or _first_new(repeated.get(_content(asked), deque()), known[id(told)]) for told, asked in requests]


def _first_new(ids: deque[str], known: set[str]) -> str:
    """Take the first id that is not known yet; those before it belong to earlier requests, and to no later one."""
    while ids:
        call_id = ids.popleft()
        if call_id not in known:
            return call_id
    return ""


def _content(asked: ToolRequest) -> tuple[str, str]:
    return asked.name, json.dumps(asked.arguments, sort_keys=True, default=str)


def fill(dialogue: Dialogue, drafts: list[Draft], needs: frozenset[str], steps: Steps) -> None:
    """Give the calls of one agent what its dialogue knows: by call id, else by arguments, else by order in the name."""
    claimed = _claim_by_id(dialogue, drafts, needs)
    # Each instrumentation describes the same calls, so its spans take from the requests for themselves.
    groups: dict[tuple[str, str], list[Draft]] = {}
    for draft in sorted(drafts, key=lambda each: (each.start, each.end, each.span_id)):
        groups.setdefault((draft.name, draft.scope), []).append(draft)
    for (name, _), group in groups.items():
        taken = {claimed[draft.place] for draft in group if draft.place in claimed}
        waiting = [draft for draft in group if draft.place not in claimed]
        for draft, asked in pair(dialogue.of_tool(name), waiting, taken, steps) if waiting else ():
            _take(draft, asked, needs)
        answers = dialogue.nameless.get(name, [])
        if len(answers) == len(group):
            for draft, answer in zip(group, answers, strict=True):
                _take_answer(draft, answer, needs)
    for draft in drafts:
        answered = dialogue.answers.get(draft.call_id) if draft.call_id else None
        if answered is not None:
            _take_answer(draft, answered, needs)


def _claim_by_id(dialogue: Dialogue, drafts: list[Draft], needs: frozenset[str]) -> dict[int, int]:
    """Place of a call → the request with its id."""
    claimed: dict[int, int] = {}
    for draft in drafts:
        asked = dialogue.by_id.get(draft.call_id) if draft.call_id else None
        if asked is not None and asked.name in ("", draft.name):
            claimed[draft.place] = id(asked)
            _take(draft, asked, needs)
    return claimed


def _take(draft: Draft, asked: ToolRequest, needs: frozenset[str]) -> None:
    if "arguments" in needs and not named(draft.arguments) and asked.arguments is not UNRECORDED:
        draft.arguments = asked.arguments
    draft.call_id = draft.call_id or asked.call_id


def _take_answer(draft: Draft, answer: ToolResult, needs: frozenset[str]) -> None:
    if "results" in needs and draft.result is UNRECORDED:
        draft.result = answer.result
