"""Whether the calls of a run are known: a model call that asked for tools must have left a span, a request or an agent.

The rules are those of docs/explanation/completeness.md, section "When calls are unknown". The texts name scopes and hold no
content.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Final

from otel_eval.conventions import Field
from otel_eval.conventions.model_calls import Finish, finish_of, finish_of_messages
from otel_eval.conventions.values import frozen
from otel_eval.model import UNRECORDED, Kind, ToolCall
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.runs import Candidate
from otel_eval.trajectory.tool_calls import ToolCallBuilder

_PLAIN_SCOPE: Final = re.compile(r"[A-Za-z_][\w./-]*")


def _not_followed(drafts: Sequence[ToolCallBuilder]) -> list[ToolCallBuilder]:
    """The calls after whose end no other one started."""
    latest = max((draft.start for draft in drafts), default=0)
    return [draft for draft in drafts if draft.end >= latest]


class UnknownCalls:
    """Which model spans asked for calls that left no tool span; computed when first needed."""

    def __init__(self, read: ClassifiedTrace, conversation: TraceMessages) -> None:
        self._read = read
        self._conversation = conversation
        self._finishes: dict[int, Finish] = {}
        self._gaps: list[int] | None = None

    def of_spans(self, run: Candidate) -> str:
        """Why the calls of a run with tool spans are unknown, "" if they are known."""
        gap = self._gap(run)
        return (
            ""
            if gap is None
            else f"a model call of {self._scope(gap)} asked for tools, and no call followed it; {self._declare(gap)}"
        )

    def of_nameless(self, drafts: Iterable[ToolCallBuilder]) -> str:
        """Why the calls are unknown if an instrumentation names tools in events only and an event is missing, else ""."""
        nameless = (draft for draft in drafts if draft.unnamed)
        lost = next((draft for draft in nameless if Field.TOOL_NAME in draft.table.fields_in_events), None)
        return "" if lost is None else f"a tool span of {self._scope(lost.place)} lost the event that names the tool"

    def of_end(self, run: Candidate, models: Sequence[int], drafts: Sequence[ToolCallBuilder]) -> str:
        """Why it is unknown whether the last calls of a run were made, "" if it is known."""
        has_failed = bool(models) and not run.fragment and self._read.views[run.first].status_code == 2
        if not has_failed and not any(draft.table.convention.pauses_unrecorded for draft in drafts):
            return ""  # as in nearly every run
        last = max(models, key=self._read.moment, default=None)
        start = 0 if last is None else self._read.views[last].start_ns
        latest = [draft for draft in drafts if draft.start >= start] if last is not None else _not_followed(drafts)
        unfinished = next((draft for draft in latest if self._may_wait(draft)), None)
        # Without model spans, nothing but the results of other calls shows that this one should have a result.
        if unfinished is not None and (models or any(map(self._has_result, drafts))):
            return f"the run ended in a call of {self._scope(unfinished.place)} without a result: it may wait for an approval"
        if last is not None and has_failed and self._requested(last) > len(latest) + self._others_since(run, start):
            return (
                f"the run failed after a model call of {self._scope(last)} that asked for tools, and not each call left a trace"
            )
        return ""

    def _may_wait(self, draft: ToolCallBuilder) -> bool:
        """Whether the span of a call may be that of one that waits for an approval, or was cancelled."""
        return not draft.error and draft.table.convention.pauses_unrecorded and not self._has_result(draft)

    def _has_result(self, draft: ToolCallBuilder) -> bool:
        """Whether the span of a call records a result, also where no scorer needs it."""
        if draft.result is not UNRECORDED:
            return True
        view, table = self._read.views[draft.place], draft.table
        if table.value(view.attributes(table.keys_wanted(Field.RESULT)), Field.RESULT) is not None:
            return True
        events = chain(view.events(), self._read.logs(draft.place))
        return any(each is Field.RESULT for event in events for each, _ in table.fields_of(event))

    def _requested(self, place: int) -> int:
        """How many calls the model call surely asked for."""
        table = self._read.table(place)
        requests = (each for each in self._conversation.of_span(place).requests if table.is_request(each.name))
        # A request may be recorded twice, in an attribute and in an event.
        different = {each.call_id or (each.name, frozen(each.arguments)) for each in requests}
        return len(different) or int(self._finish(place) is Finish.TOOLS)

    def _others_since(self, run: Candidate, start: int) -> int:
        """How many agents and handoffs of the run started at this time or later."""
        read = self._read
        places = [place for place in range(run.first + 1, run.last) if read.views[place].start_ns >= start]
        return sum(read.kinds[place] is Kind.AGENT or read.readings[place].handoff for place in places)

    def of_messages(
        self, run: Candidate, models: Sequence[int], agents: Sequence[int], calls: Sequence[tuple[int, ToolCall]]
    ) -> str:
        """Why the calls of a run without tool spans are unknown, "" if they are known.

        Args:
            run: the run.
            models: places of its model spans, without those directly below another one.
            agents: places of its agent spans.
            calls: those that its messages hold.
        """
        found = self.of_spans(run)
        if found or not calls:
            return found or self._of_none(run, models, agents)
        silent = next((place for place in models if not self._conversation.of_span(place).recorded), None)
        if silent is not None:
            return f"calls are known from messages only, and the output of a model call of {self._scope(silent)} was not recorded"
        if len({bool(call.call_id) for _, call in calls}) > 1:
            return "calls are known from messages only, and some of them have no call id to tell repetitions by"
        return ""

    def _of_none(self, run: Candidate, models: Sequence[int], agents: Sequence[int]) -> str:
        """Why it is unknown whether the run made calls, if nothing recorded any."""
        if run.first in agents and self._read.records_tools(run.first):
            return ""
        if not models and any(self._read.records_tools(place) for place in agents):
            return ""
        open_question = next((place for place in models if not self._asked_nothing(place)), None)
        if models and open_question is None:
            return ""
        place = run.first if open_question is None else open_question
        return f"{self._scope(place)} is not known to record tool calls, and there are none; {self._declare(place)}"

    def _asked_nothing(self, place: int) -> bool:
        """Whether the model call surely asked for no tool, given that no tool span, no request and no gap is there.

        One that ended in order to call tools was answered by an agent or a handoff then.
        """
        agent = self._read.agent_above[place]
        if self._read.records_tools(place) or (agent >= 0 and self._read.records_tools(agent)):
            return True
        return self._conversation.of_span(place).recorded or self._finish(place) is not Finish.UNKNOWN

    def _gap(self, run: Candidate) -> int | None:
        """The first model span of the run that asked for tools of which there is no trace."""
        if self._gaps is None:
            self._gaps = self._find_gaps()
        for first, last in ((run.first, run.last), *run.others):
            at = bisect_left(self._gaps, first)
            if at < len(self._gaps) and self._gaps[at] < last:
                return self._gaps[at]
        return None

    def _find_gaps(self) -> list[int]:
        readings = self._read.readings
        suspects = [place for place in self._read.model_calls if not readings[place].table.tool_spans]
        if self._read.plan.records_tool_spans:
            suspects = [place for place in suspects if not self._read.records_tools(place)]
        if not suspects:
            return []
        answers, models = self._answers(), self._starts(self._read.model_calls)
        unanswered = self._unanswered(suspects, answers, models)
        # Where messages were read already, those that hold a request need no finish reason.
        unknown = [place for place in unanswered if not self._conversation.is_known_to_request(place)]
        return [
            place for place in unknown if self._finish(place) is Finish.TOOLS and not self._conversation.of_span(place).requests
        ]

    def _unanswered(self, places: list[int], answers_of: dict[int, list[int]], models_of: dict[int, list[int]]) -> list[int]:
        """Those after which no call, handoff or agent started before the next model call of the same agent.

        Tools may start before the model call ends, since its output is streamed.
        """
        views, agent_above = self._read.views, self._read.agent_above
        found: list[int] = []
        for place in places:
            agent = agent_above[place]
            owner = agent if agent >= 0 else self._owner(place)
            start, answers, models = views[place].start_ns, answers_of.get(owner, ()), models_of[owner]
            at = bisect_left(answers, start)
            following = bisect_left(models, start) + 1
            if at == len(answers):
                found.append(place)
            elif following < len(models) and answers[at] > models[following]:
                # Model calls that start before this one ends were made beside it.
                after = bisect_left(models, views[place].end_ns)
                if after <= following or (after < len(models) and answers[at] > models[after]):
                    found.append(place)
        return found

    def _answers(self) -> dict[int, list[int]]:
        """Agent → when its calls, the agents it called and its handoffs started, ascending."""
        read, answers = self._read, [*self._read.tools, *self._read.agents]
        if len(answers) + len(read.models) < len(read.kinds):  # handoffs are of no kind
            answers += [place for place, reading in enumerate(read.readings) if reading.handoff]
        return self._starts(answers)

    def _starts(self, places: Iterable[int]) -> dict[int, list[int]]:
        """Agent → when these spans of it started, ascending."""
        views, agent_above = self._read.views, self._read.agent_above
        found: dict[int, list[int]] = {}
        for place in places:
            agent = agent_above[place]
            owner = agent if agent >= 0 else self._owner(place)
            if owner not in found:
                found[owner] = []
            found[owner].append(views[place].start_ns)
        for starts in found.values():
            starts.sort()
        return found

    def _owner(self, place: int) -> int:
        """The agent span above, or where there is none a number of the span's tree."""
        agent = self._read.agent_above[place]
        return agent if agent >= 0 else -1 - self._read.tree.top_of(place)

    def _finish(self, place: int) -> Finish:
        known = self._finishes.get(place)
        if known is None:
            known = self._finish_of(place)
            for inner in self._read.nested_models(place):
                known = self._finish_of(inner) if known is Finish.UNKNOWN else known
            self._finishes[place] = known
        return known

    def _finish_of(self, place: int) -> Finish:
        table, view = self._read.table(place), self._read.views[place]
        attributes = view.attributes(table.finish_wanted)
        found = finish_of(table, attributes)
        if found is not Finish.UNKNOWN:
            return found
        outputs, events = self._conversation.outputs(place, table), [*view.events(), *self._read.logs(place)]
        return finish_of_messages(table, attributes, outputs, events) if outputs or events else Finish.UNKNOWN

    def _scope_name(self, place: int) -> str:
        return self._read.resource_scopes[place].scope_name

    def _scope(self, place: int) -> str:
        return f"scope {json.dumps(self._scope_name(place), ensure_ascii=False)}"

    def _declare(self, place: int) -> str:
        name = self._scope_name(place)
        written = name if _PLAIN_SCOPE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        return f"if every call of its tools leaves a span, declare it: conventions: {{records_tool_spans: [{written}]}}"
