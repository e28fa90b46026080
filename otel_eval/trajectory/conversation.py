"""What recorded messages tell of calls: names for bare arguments, missing results and ids, or whole calls.

Knows messages as tables place them; decodes them only when somebody misses something. A span is the first witness of
a call: messages fill gaps, and only where a run has no tool span at all do they make calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from otel_eval.conventions import Answered, Asked, Field, MessageRow, ReadTable, Side, decode, nested, read_messages
from otel_eval.conventions.events import read_event
from otel_eval.model import UNRECORDED, Kind, ToolCall, ToolError
from otel_eval.trajectory.calls import Draft, named
from otel_eval.trajectory.survey import Survey

__all__ = ["Conversation", "Told"]


@dataclass(slots=True)
class Told:
    """What the messages of one span say.

    Attributes:
        asked: calls asked for in the span; earlier: calls known from before it; answers: what came back.
        recorded: whether the span's own output was recorded in a form that would show a call.
    """

    asked: list[Asked] = field(default_factory=list)
    earlier: list[Asked] = field(default_factory=list)
    answers: list[Answered] = field(default_factory=list)
    recorded: bool = False

    def add(self, side: Side, mentions: Iterable[Asked | Answered], *, conclusive: bool) -> None:
        """Sort in what one attribute or event holds."""
        for mention in mentions:
            if isinstance(mention, Answered):
                self.answers.append(mention)
            elif side is Side.OUTPUT:
                self.asked.append(mention)
            else:
                self.earlier.append(mention)
        self.recorded = self.recorded or (side is Side.OUTPUT and conclusive)


@dataclass(slots=True)
class _Dialogue:
    """The messages of one agent: requests in order, each once, and answers."""

    requests: list[Asked] = field(default_factory=list)
    by_id: dict[str, Asked] = field(default_factory=dict)
    answers: dict[str, Answered] = field(default_factory=dict)
    nameless: dict[str, list[Answered]] = field(default_factory=dict)

    def request(self, asked: Iterable[Asked]) -> None:
        """Add requests; of those with the same id the first one counts."""
        for each in asked:
            if each.call_id in self.by_id:
                continue
            if each.call_id:
                self.by_id[each.call_id] = each
            self.requests.append(each)

    def __bool__(self) -> bool:
        return bool(self.requests or self.by_id or self.answers or self.nameless)


class Conversation:
    """The messages of a trace, read when asked for and once."""

    def __init__(self, read: Survey) -> None:
        self._read = read
        self._told: dict[int, Told] = {}
        self._dialogues: dict[int, _Dialogue] = {}
        self._models: dict[int, list[int]] | None = None

    def told(self, place: int) -> Told:
        """What the messages of the span say."""
        known = self._told.get(place)
        if known is None:
            table = self._read.table(place)
            known = self._told[place] = Told() if table is None else _tell(self._read, place, table)
        return known

    def fill(self, drafts: list[Draft]) -> None:
        """Give the calls what only messages recorded: by call id, else by order among calls of the same name."""
        groups: dict[int, list[Draft]] = {}
        for draft in drafts:
            groups.setdefault(self._read.agent_above[draft.place], []).append(draft)
        for agent, group in groups.items():
            if any(self._misses(draft) for draft in group):
                dialogue = self._dialogue_for(agent)
                if dialogue:
                    _fill(dialogue, group, self._read.plan.needs)

    def _misses(self, draft: Draft) -> bool:
        needs = self._read.plan.needs
        if "arguments" in needs and not named(draft.arguments):
            return True
        if "results" in needs and draft.result is UNRECORDED and draft.error is None:
            return True
        return self._read.plan.wants_content_of_calls and not draft.call_id

    def _dialogue_for(self, agent: int) -> _Dialogue:
        """The messages of the agent, or of the nearest one around it that recorded any (one run, several spans)."""
        dialogue = self._dialogue(agent)
        while not dialogue and agent >= 0:
            agent = self._read.agent_above[agent]
            dialogue = self._dialogue(agent)
        return dialogue

    def _dialogue(self, agent: int) -> _Dialogue:
        known = self._dialogues.get(agent)
        if known is None:
            models = self._models_of(agent)
            known = self._dialogues[agent] = _join(
                [self.told(place) for place in models], [self.told(agent)] if agent >= 0 else []
            )
        return known

    def _models_of(self, agent: int) -> list[int]:
        if self._models is None:
            self._models = {}
            for place in sorted(self._read.models, key=self._read.moment):
                self._models.setdefault(self._read.agent_above[place], []).append(place)
        return self._models.get(agent, [])

    def recover(self, models: list[int], agents: list[int]) -> tuple[list[tuple[int, ToolCall]], bool]:
        """Calls of a run without tool spans, each with the place of the span that told of it; and whether none is proof.

        Args:
            models: places of the run's model spans in order of time.
            agents: places of the run's agent spans in order of time.
        """
        outer = [place for place in models if not self._repeats(place)]
        tellers = outer if any(self.told(place).asked for place in outer) else [*outer, *agents]
        heard = _join([self.told(place) for place in (*models, *agents)], [])
        calls: list[tuple[int, ToolCall]] = []
        seen: set[str] = set()
        for place in tellers:
            table = self._read.table(place)
            for asked in self.told(place).asked:
                if table is None or not table.is_request(asked.name) or asked.call_id in seen:
                    continue
                if asked.call_id:
                    seen.add(asked.call_id)
                calls.append((place, _recovered(asked, heard, self._read.plan.needs)))
        # What an agent's own span records may be its last words only, so model spans alone can prove that none was asked.
        return calls, bool(outer) and all(self.told(place).recorded for place in outer)

    def _repeats(self, place: int) -> bool:
        """Whether the model span describes the same model call as one around it (framework and client)."""
        above = self._read.above[place]
        return above >= 0 and self._read.kinds[above] is Kind.MODEL and self.told(above).recorded


def _tell(read: Survey, place: int, table: ReadTable) -> Told:
    told = Told()
    view = read.views[place]
    attributes = view.attributes(table.messages_wanted)
    logs = read.logs(place)
    for event in logs:
        attributes = {**{key: value for key, value in event.attributes.items() if key not in attributes}, **attributes}
    first_new = table.value(attributes, Field.FIRST_NEW_MESSAGE)
    for row in table.convention.messages:
        value = _row_value(row, attributes, table)
        if value is not None:
            value = _new_messages(value, first_new) if row.side is Side.OUTPUT else value
            told.add(row.side, read_messages(value), conclusive=row.conclusive)
    for event in (*view.events(), *logs):
        for side, mentions in read_event(event):
            told.add(side, mentions, conclusive=True)
    return told


def _row_value(row: MessageRow, attributes: dict[str, Any], table: ReadTable) -> Any:
    if row.key.endswith("."):
        return nested(attributes, row.key) or None
    value = attributes.get(row.key)
    if value is None or table.stands_for_nothing(row.key, value):
        return None
    return decode(value, literals=False)


def _new_messages(value: Any, first_new: Any) -> Any:
    """Without the messages of earlier runs that some record before their own."""
    if isinstance(value, list) and isinstance(first_new, int) and first_new > 0:
        return value[first_new:]
    return value


def _join(models: list[Told], agents: list[Told]) -> _Dialogue:
    """One dialogue of what an agent's model spans and its own span say."""
    dialogue = _Dialogue()
    witnesses = (*models, *agents)
    for told in models:
        dialogue.request(told.asked)
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


def _fill(dialogue: _Dialogue, drafts: list[Draft], needs: frozenset[str]) -> None:
    claimed = _claim_by_id(dialogue, drafts, needs)
    by_name: dict[str, list[Draft]] = {}
    for draft in sorted(drafts, key=lambda each: (each.start, each.end, each.span_id)):
        by_name.setdefault(draft.name, []).append(draft)
    for name, group in by_name.items():
        taken = set(claimed.values())
        free = [asked for asked in dialogue.requests if asked.name == name and id(asked) not in taken]
        waiting = [draft for draft in group if draft.place not in claimed]
        for draft, asked in _pair(waiting, free):
            _take(draft, asked, needs)
        answers = dialogue.nameless.get(name, [])
        if len(answers) == len(group):
            for draft, answer in zip(group, answers, strict=True):
                _take_answer(draft, answer, needs)
    for draft in drafts:
        answered = dialogue.answers.get(draft.call_id) if draft.call_id else None
        if answered is not None:
            _take_answer(draft, answered, needs)


def _claim_by_id(dialogue: _Dialogue, drafts: list[Draft], needs: frozenset[str]) -> dict[int, int]:
    """Place of a call → the request with its id."""
    claimed: dict[int, int] = {}
    for draft in drafts:
        asked = dialogue.by_id.get(draft.call_id) if draft.call_id else None
        if asked is not None and asked.name in ("", draft.name):
            claimed[draft.place] = id(asked)
            _take(draft, asked, needs)
    return claimed


def _pair(waiting: list[Draft], free: list[Asked]) -> Iterator[tuple[Draft, Asked]]:
    """Equal arguments first, then a bare value with the object that holds it, then what is left in order."""
    rest = list(free)
    unpaired: list[Draft] = []
    for agree in (_equal, _holds):
        unpaired = []
        for draft in waiting:
            match = next((asked for asked in rest if agree(draft.arguments, asked.arguments)), None)
            if match is None:
                unpaired.append(draft)
            else:
                rest.remove(match)
                yield draft, match
        waiting = unpaired
    if len(unpaired) != len(rest):
        unpaired = [draft for draft in unpaired if not named(draft.arguments)]
    yield from zip(unpaired, rest, strict=False)


def _equal(ours: Any, theirs: Any) -> bool:
    return named(ours) and ours == theirs


def _holds(ours: Any, theirs: Any) -> bool:
    return ours is not UNRECORDED and not named(ours) and isinstance(theirs, dict) and ours in theirs.values()


def _take(draft: Draft, asked: Asked, needs: frozenset[str]) -> None:
    if "arguments" in needs and not named(draft.arguments) and asked.arguments is not UNRECORDED:
        draft.arguments = asked.arguments
    draft.call_id = draft.call_id or asked.call_id


def _take_answer(draft: Draft, answer: Answered, needs: frozenset[str]) -> None:
    if "results" in needs and draft.result is UNRECORDED:
        draft.result = answer.result


def _recovered(asked: Asked, heard: _Dialogue, needs: frozenset[str]) -> ToolCall:
    answer = heard.answers.get(asked.call_id) if asked.call_id else None
    if answer is None and heard.nameless.get(asked.name):
        answer = heard.nameless[asked.name].pop(0)
    arguments = asked.arguments if "arguments" in needs else UNRECORDED
    if arguments is not UNRECORDED and not named(arguments):
        arguments = {} if arguments in (None, "") else {"__value__": arguments}
    return ToolCall(
        name=asked.name,
        arguments=arguments,
        result=answer.result if answer is not None and "results" in needs else UNRECORDED,
        error=ToolError("_OTHER") if answer is not None and answer.failed else None,
        call_id=asked.call_id,
    )
