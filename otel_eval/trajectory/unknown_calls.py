"""Whether the calls of a run are known: a model call that asked for tools must have left a span, a
request or an agent.

The rules are those of docs/explanation/completeness.md, section "When calls are unknown". The texts
name scopes and hold no content.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from otel_eval.conventions import Field, Side
from otel_eval.conventions.fields import NO_TABLE
from otel_eval.conventions.model_calls import Finish, finish_of, finish_of_messages
from otel_eval.conventions.values import frozen
from otel_eval.interfaces import Wanted
from otel_eval.model import Kind
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.recovery import Recovered, UnspannedCalls
from otel_eval.trajectory.runs import Candidate
from otel_eval.trajectory.tool_calls import ToolCallBuilder, has_result

_PLAIN_SCOPE: Final = re.compile(r"[A-Za-z_][\w./-]*")


def _not_followed(calls: Sequence[ToolCallBuilder]) -> list[ToolCallBuilder]:
    """The calls after whose end no other one started."""
    latest = max((call.start for call in calls), default=0)
    return [call for call in calls if call.end >= latest]


class UnknownCalls:
    """Which model spans asked for calls that left no tool span; computed when first needed.

    Attributes:
        doubtful: places of spans with the id of another call, of which it is unknown whether one of
            them failed, so that they may be attempts, or one call that was replayed.
    """

    def __init__(
        self, spans: ClassifiedTrace, messages: TraceMessages, recovery: UnspannedCalls
    ) -> None:
        self._spans = spans
        self._messages = messages
        self._recovery = recovery
        self._finishes: dict[int, Finish] = {}
        self._gaps: list[int] | None = None
        self._lacking: list[int] | None = None
        self._cut: list[int] | None = None
        self.doubtful: list[int] = []

    def of_spans(self, run: Candidate) -> str:
        """Why the calls of a run with tool spans are unknown, "" if they are known."""
        gap = self._gap(run)
        return (
            ""
            if gap is None
            else (
                f"a model call of {self._scope(gap)} asked for tools, and no call followed it;"
                f" {self._declare(gap)}"
            )
        )

    def of_dropped(self, run: Candidate) -> str:
        """Why the calls are unknown where a limit of the sender took attributes that showed calls,
        else "".
        """
        if self._cut is None:
            self._cut = sorted(filter(self._is_cut, self._dropped()))
        at = bisect_left(self._cut, run.first)
        if at == len(self._cut) or self._cut[at] >= run.last:
            return ""
        return (
            f"a span of {self._scope(self._cut[at])} lost attributes at a limit of its sender, and"
            " they may have shown calls; raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
        )

    def _dropped(self) -> list[int]:
        return [place for place, span in enumerate(self._spans.readers) if span.dropped_attributes]

    def _is_cut(self, place: int) -> bool:
        """Whether a span that lost attributes may have shown a call with them: a model's without
        its whole messages, a tool's without its name, and one that nothing shows to be neither.
        """
        spans, table = self._spans, self._spans.table(place)
        if spans.kinds[place] is Kind.MODEL:
            outputs = [row.key for row in table.convention.messages if row.side is Side.OUTPUT]
            whole = frozenset(key for key in outputs if not key.endswith("."))
            return bool(outputs) and not spans.readers[place].attributes(Wanted(whole))
        if spans.kinds[place] is Kind.TOOL:
            fields = spans.plan.tool_readers[table.name].read_fields(spans.readers[place])
            return fields.unnamed
        scope = spans.plan.reader.of_scope(spans.resource_scopes[place].scope_name)
        return table is NO_TABLE and scope.known

    def of_nameless(self, calls: Iterable[ToolCallBuilder]) -> str:
        """Why the calls are unknown if an instrumentation names tools in events only and an event
        is missing, else "".
        """
        nameless = (call for call in calls if call.unnamed)
        lost = next(
            (call for call in nameless if Field.TOOL_NAME in call.table.fields_in_events), None
        )
        return (
            ""
            if lost is None
            else f"a tool span of {self._scope(lost.place)} lost the event that names the tool"
        )

    def of_doubtful(self, run: Candidate) -> str:
        """Why the number of calls is unknown where several spans have one id, else ""."""
        at = bisect_left(self.doubtful, run.first)
        if at == len(self.doubtful) or self.doubtful[at] >= run.last:
            return ""
        return (
            f"several spans of {self._scope(self.doubtful[at])} have one call id, and whether one"
            " of them failed is unknown: they may be attempts, or one call that was replayed"
        )

    def of_open(self, run: Candidate) -> str:
        """Why the calls are unknown where a request was neither answered nor left a span, else
        "".
        """
        for request in self._recovery.open_of(run.first, run.last):
            return (
                f"a request for {json.dumps(request.asked.name, ensure_ascii=False)} in a model"
                f" call of {self._scope(request.place)} was not answered, and no span shows that"
                " it was made"
            )
        return ""

    def of_end(
        self, run: Candidate, models: Sequence[int], calls: Sequence[ToolCallBuilder]
    ) -> str:
        """Why it is unknown whether the last calls of a run were made, "" if it is known."""
        has_failed = (
            bool(models) and not run.fragment and self._spans.readers[run.first].status_code == 2
        )
        if not has_failed and not any(call.table.convention.pauses_unrecorded for call in calls):
            return ""  # as in nearly every run
        last = max(models, key=self._spans.moment, default=None)
        start = 0 if last is None else self._spans.readers[last].start_ns
        latest = (
            [call for call in calls if call.start >= start]
            if last is not None
            else _not_followed(calls)
        )
        unfinished = next((call for call in latest if self._may_wait(call)), None)
        # Without model spans, nothing but the results of other calls shows that this one should
        # have a result.
        if unfinished is not None and (
            models or any(has_result(self._spans, call) for call in calls)
        ):
            return (
                f"the run ended in a call of {self._scope(unfinished.place)} without a result: it"
                " may wait for an approval"
            )
        if (
            last is not None
            and has_failed
            and self._requested(last) > len(latest) + self._others_since(run, start)
        ):
            return (
                f"the run failed after a model call of {self._scope(last)} that asked for tools,"
                " and not each call left a trace"
            )
        return ""

    def of_raised(
        self, models: Sequence[int], calls: Sequence[ToolCallBuilder], recovered: int
    ) -> str:
        """Why the calls are unknown where one that raised leaves no span, "" if each that was asked
        for left one, or was recovered from messages.
        """
        lossy = next((call for call in calls if call.table.convention.raised_unrecorded), None)
        if lossy is None:
            return ""
        is_hidden = any(
            not self._messages.of_span(place).recorded and self._finish(place) is not Finish.OTHER
            for place in models
        )
        if not is_hidden and sum(map(self._requested, models)) <= len(calls) + recovered:
            return ""
        return (
            f"a call that raised leaves no span of {self._scope(lossy.place)}, and not each call"
            " that was asked for left one"
        )

    def _may_wait(self, call: ToolCallBuilder) -> bool:
        """Whether the span of a call may be that of one that waits for an approval, or was
        cancelled.
        """
        return (
            not call.error
            and call.table.convention.pauses_unrecorded
            and not has_result(self._spans, call)
        )

    def _requested(self, place: int) -> int:
        """How many calls the model call certainly asked for."""
        table = self._spans.table(place)
        requests = (
            each for each in self._messages.of_span(place).requests if table.is_request(each.name)
        )
        # A request may be recorded twice, in an attribute and in an event.
        different = {each.call_id or (each.name, frozen(each.arguments)) for each in requests}
        return len(different) or int(self._finish(place) is Finish.TOOLS)

    def _others_since(self, run: Candidate, start: int) -> int:
        """How many agents and handoffs of the run started at this time or later."""
        spans = self._spans
        places = [
            place
            for place in range(run.first + 1, run.last)
            if spans.readers[place].start_ns >= start
        ]
        return sum(
            spans.kinds[place] is Kind.AGENT or spans.classifications[place].handoff
            for place in places
        )

    def of_messages(
        self,
        run: Candidate,
        models: Sequence[int],
        agents: Sequence[int],
        calls: Sequence[Recovered],
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
        silent = next(
            (place for place in models if not self._messages.of_span(place).recorded), None
        )
        if silent is not None:
            return (
                "calls are known from messages only, and the output of a model call of"
                f" {self._scope(silent)} was not recorded"
            )
        if len({bool(each.call.call_id) for each in calls}) > 1:
            return (
                "calls are known from messages only, and some of them have no call id to tell"
                " repetitions by"
            )
        return ""

    def _of_none(self, run: Candidate, models: Sequence[int], agents: Sequence[int]) -> str:
        """Why it is unknown whether a run without recorded calls made any; "" if it certainly made
        none.
        """
        if self.lacks_hosted(run):
            return (
                f"{self._scope(run.first)} does not record calls of tools that the model's provider"
                " runs, and there are no others"
            )
        unread = next(
            (
                place
                for place in range(run.first, run.last)
                if self._spans.classifications[place].unread
            ),
            None,
        )
        if unread is not None:
            return f"a call of a tool in {self._scope(unread)} cannot be read"
        if run.first in agents and self._spans.records_tools(run.first):
            return ""
        if not models and any(self._spans.records_tools(place) for place in agents):
            return ""
        open_question = next((place for place in models if not self._asked_nothing(place)), None)
        if models and open_question is None:
            return ""
        place = run.first if open_question is None else open_question
        return (
            f"{self._scope(place)} is not known to record tool calls, and there are none;"
            f" {self._declare(place)}"
        )

    def lacks_hosted(self, run: Candidate) -> bool:
        """Whether calls of tools that the model's provider ran may have left no trace."""
        if self._lacking is None:
            self._lacking = sorted(
                place
                for place in (*self._spans.models, *self._spans.agents)
                if self._spans.table(place).convention.hosted_unrecorded
            )
        at = bisect_left(self._lacking, run.first)
        return at < len(self._lacking) and self._lacking[at] < run.last

    def _asked_nothing(self, place: int) -> bool:
        """Whether the model call certainly asked for no tool, given that there is no tool span, no
        request and no gap.

        One that ended in order to call tools was answered by an agent or a handoff then.
        """
        agent = self._spans.enclosing_agent[place]
        if self._spans.records_tools(place) or (agent >= 0 and self._spans.records_tools(agent)):
            return True
        return self._messages.of_span(place).recorded or self._finish(place) is not Finish.UNKNOWN

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
        suspects = self._spans.model_calls
        if not suspects:
            return []
        answers, models = self._answers(), self._starts(self._spans.model_calls)
        unanswered = self._unanswered(suspects, answers, models)
        # Where messages were read already, those that hold a request need no finish reason.
        unknown = [place for place in unanswered if not self._messages.is_known_to_request(place)]
        return [
            place
            for place in unknown
            if not self._messages.of_span(place).requests
            and (self._messages.of_span(place).broken or self._finish(place) is Finish.TOOLS)
        ]

    def _unanswered(
        self, places: list[int], answers_of: dict[int, list[int]], models_of: dict[int, list[int]]
    ) -> list[int]:
        """The model calls after which no call, handoff or agent started before the next model call
        of the same agent.

        Tools may start before the model call ends, since its output is streamed.
        """
        readers, enclosing_agent = self._spans.readers, self._spans.enclosing_agent
        found: list[int] = []
        for place in places:
            agent = enclosing_agent[place]
            owner = agent if agent >= 0 else self._spans.owner(place)
            start, answers, models = (
                readers[place].start_ns,
                answers_of.get(owner, ()),
                models_of[owner],
            )
            at = bisect_left(answers, start)
            following = bisect_left(models, start) + 1
            if at == len(answers):
                found.append(place)
            elif following < len(models) and answers[at] > models[following]:
                # Model calls that start before this one ends were made beside it.
                after = bisect_left(models, readers[place].end_ns)
                if after <= following or (after < len(models) and answers[at] > models[after]):
                    found.append(place)
        return found

    def _answers(self) -> dict[int, list[int]]:
        """Agent → when its calls, the agents it called and its handoffs started, ascending."""
        spans, answers = self._spans, [*self._spans.tools, *self._spans.agents]
        if len(answers) + len(spans.models) < len(spans.kinds):  # handoffs are of no kind
            answers += [
                place
                for place, classification in enumerate(spans.classifications)
                if classification.handoff
            ]
        return self._starts(answers)

    def _starts(self, places: Iterable[int]) -> dict[int, list[int]]:
        """Agent → when these spans of it started, ascending."""
        readers, enclosing_agent = self._spans.readers, self._spans.enclosing_agent
        found: dict[int, list[int]] = {}
        for place in places:
            agent = enclosing_agent[place]
            owner = agent if agent >= 0 else self._spans.owner(place)
            if owner not in found:
                found[owner] = []
            found[owner].append(readers[place].start_ns)
        for starts in found.values():
            starts.sort()
        return found

    def _finish(self, place: int) -> Finish:
        known = self._finishes.get(place)
        if known is None:
            known = self._finish_of(place)
            for inner in self._spans.nested_models(place):
                known = self._finish_of(inner) if known is Finish.UNKNOWN else known
            self._finishes[place] = known
        return known

    def _finish_of(self, place: int) -> Finish:
        table, span = self._spans.table(place), self._spans.readers[place]
        attributes = span.attributes(table.finish_wanted)
        found = finish_of(table, attributes)
        if found is not Finish.UNKNOWN:
            return found
        outputs, events = (
            self._messages.outputs(place, table),
            [*span.events(), *self._spans.logs(place)],
        )
        return (
            finish_of_messages(table, attributes, outputs, events)
            if outputs or events
            else Finish.UNKNOWN
        )

    def _scope_name(self, place: int) -> str:
        return self._spans.resource_scopes[place].scope_name

    def _scope(self, place: int) -> str:
        return f"scope {json.dumps(self._scope_name(place), ensure_ascii=False)}"

    def _declare(self, place: int) -> str:
        name = self._scope_name(place)
        written = name if _PLAIN_SCOPE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        return (
            "if every call of its tools leaves a span, declare it: conventions:"
            f" {{records_tool_spans: [{written}]}}"
        )
