"""Whether the calls of a run are known: a model call that asked for tools must have left a span, a
request or an agent.

The rules are those of docs/explanation/completeness.md, section "When calls are unknown". The texts
name scopes and hold no content.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

from otel_eval.caching import cached_property
from otel_eval.conventions import Side
from otel_eval.conventions.fields import NO_TABLE
from otel_eval.conventions.model_calls import Finish
from otel_eval.interfaces import Wanted
from otel_eval.model import Kind
from otel_eval.span_trees import first_within, holds
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.pauses import Pauses
from otel_eval.trajectory.recovery import Recovered, UnspannedCalls, of_range
from otel_eval.trajectory.runs import Candidate
from otel_eval.trajectory.tool_calls import ToolCallBuilder

_PLAIN_SCOPE: Final = re.compile(r"[A-Za-z_][\w./-]*")


class UnknownCalls:
    """Which model spans asked for calls that left no tool span; computed when first needed.

    Args:
        spans, messages: the trace, and its messages.
        recovery: its requests without spans.
        doubtful: indexes of spans with the id of another call, of which it is unknown whether one
            of them failed, so that they may be attempts, or one call that was replayed.

    Attributes:
        pauses: which runs wait for a person.
    """

    def __init__(
        self,
        spans: ClassifiedTrace,
        messages: TraceMessages,
        recovery: UnspannedCalls,
        doubtful: list[int],
    ) -> None:
        self._spans = spans
        self._messages = messages
        self._recovery = recovery
        self._doubtful = doubtful
        self._unexecuted: Final = list(spans.unexecuted)  # in order, as the spans were read
        self.pauses: Final = Pauses(spans, messages, recovery)

    def of_spans(self, run: Candidate) -> str:
        """Why the calls of a run with tool spans are unknown, "" if they are known."""
        for first, last in run.ranges:
            gap = first_within(self._gaps, first, last)
            if gap is not None:
                return (
                    f"a model call of {self._scope(gap)} asked for tools, and no call followed it;"
                    f" {self._declare(gap)}"
                )
        return ""

    def of_dropped(self, run: Candidate) -> str:
        """Why the calls are unknown where a limit of the sender took attributes that showed calls,
        else "".
        """
        cut = first_within(self._cut, run.first, run.last)
        if cut is None:
            return ""
        return (
            f"a span of {self._scope(cut)} lost attributes at a limit of its sender, and they may"
            " have shown calls; raise OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT"
        )

    @cached_property
    def _cut(self) -> list[int]:
        return [
            index
            for index, span in enumerate(self._spans.readers)
            if span.dropped_attributes and self._is_cut(index)
        ]

    def _is_cut(self, index: int) -> bool:
        """Whether a span that lost attributes may have shown a call with them: a model's without
        its whole messages, a tool's without its name, and one that nothing shows to be neither.
        """
        spans, table = self._spans, self._spans.tables[index]
        if spans.kinds[index] is Kind.MODEL:
            outputs = [row.key for row in table.convention.messages if row.side is Side.OUTPUT]
            whole = frozenset(key for key in outputs if not key.endswith("."))
            return bool(outputs) and not spans.readers[index].attributes(Wanted(whole))
        if spans.kinds[index] is Kind.TOOL:
            return spans.plan.tool_reader(table).read_fields(spans.readers[index]).unnamed
        return table is NO_TABLE and spans.plan.reader.of_scope(self._scope_name(index)).known

    def of_nameless(self, calls: Iterable[ToolCallBuilder]) -> str:
        """Why the calls are unknown if an instrumentation names tools in events or in content only
        and that is missing, else "".
        """
        lost = next((call for call in calls if call.unnamed and call.table.may_lack_names), None)
        return (
            ""
            if lost is None
            else f"a tool span of {self._scope(lost.index)} lost what names the tool"
        )

    def of_doubtful(self, run: Candidate) -> str:
        """Why the number of calls is unknown where several spans have one id, else ""."""
        doubtful = first_within(self._doubtful, run.first, run.last)
        if doubtful is None:
            return ""
        return (
            f"several spans of {self._scope(doubtful)} have one call id, and whether one"
            " of them failed is unknown: they may be attempts, or one call that was replayed"
        )

    def of_open(self, run: Candidate) -> str:
        """Why the calls are unknown where a request was neither answered nor left a span, else
        "".
        """
        for request in of_range(self._recovery.open, run.first, run.last):
            return (
                f"a request for {json.dumps(request.asked.name, ensure_ascii=False)} in a model"
                f" call of {self._scope(request.index)} was not answered, and no span shows that"
                " it was made"
            )
        return ""

    def of_end(
        self, run: Candidate, models: Sequence[int], calls: Sequence[ToolCallBuilder]
    ) -> str:
        """Why it is unknown whether the last calls of a run were made, "" if it is known."""
        unexecuted = first_within(self._unexecuted, run.first, run.last)
        if unexecuted is not None:
            return f"a request that {self._scope(unexecuted)} records as a call has no result"
        if run.fragment or self._spans.readers[run.first].status_code != 2:
            return ""  # as in nearly every run
        unfinished = self.pauses.silent_call(models, calls)
        if unfinished is not None:
            return (
                f"the run failed in a call of {self._scope(unfinished.index)} without a result: it"
                " may have been cancelled before it was made"
            )
        if not models:
            return ""
        start = self._spans.starts[models[-1]]
        latest = [call for call in calls if call.start >= start]
        if self._requested(models[-1]) > len(latest) + self.pauses.others_since(run, start):
            return (
                f"the run failed after a model call of {self._scope(models[-1])} that asked for"
                " tools, and not each call left a trace"
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
            not self._messages[index].recorded and self._messages.finish(index) is not Finish.OTHER
            for index in models
        )
        if not is_hidden and sum(map(self._requested, models)) <= len(calls) + recovered:
            return ""
        return (
            f"a call that raised leaves no span of {self._scope(lossy.index)}, and not each call"
            " that was asked for left one"
        )

    def _requested(self, index: int) -> int:
        """How many calls the model call certainly asked for."""
        table = self._spans.tables[index]
        requests = self._messages[index].requests
        requests = [request for request in requests if table.is_request(request.name)]
        # A request may be recorded twice, in an attribute and in an event.
        different = {request.identity for request in requests}
        return len(different) or int(self._messages.finish(index) is Finish.TOOLS)

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
            models: indexes of its model calls in order of time.
            agents: indexes of its agent spans.
            calls: those that its messages hold.
        """
        reason = self.of_spans(run)
        if reason or not calls:
            return reason or self._of_empty(run, models) or self._of_none(run, models, agents)
        silent = next((index for index in models if not self._messages[index].recorded), None)
        if silent is not None:
            return (
                "calls are known from messages only, and the output of a model call of"
                f" {self._scope(silent)} was not recorded"
            )
        if len({bool(call.call_id) for call in calls}) > 1:
            return (
                "calls are known from messages only, and some of them have no call id to tell"
                " repetitions by"
            )
        return ""

    def _of_empty(self, run: Candidate, models: Sequence[int]) -> str:
        """Why the calls are unknown of a run inside another one that shows nothing, while spans of
        its time lie beside it, else "": some record what a called agent does below its caller.
        """
        if run.outermost or run.fragment or models:
            return ""
        run_span = self._spans.readers[run.first]
        starts = self._starts_of_all.get(self._spans.enclosing_agent[run.first], ())
        beside = bisect_right(starts, run_span.end_ns) - bisect_left(starts, run_span.start_ns)
        is_agent = self._spans.kinds[run.first] is Kind.AGENT  # then it is one of those counted
        return (
            f"the run has no model call of its own in {self._scope(run.first)}, and spans of its"
            " time lie beside it"
            if beside > is_agent
            else ""
        )

    @cached_property
    def _starts_of_all(self) -> dict[int, list[int]]:
        """Agent → when its model calls, its tool calls and the agents it called started,
        ascending.
        """
        spans = self._spans
        return self._starts([*spans.model_calls, *spans.tools, *spans.agents])

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
                index
                for index in range(run.first, run.last)
                if self._spans.classifications[index].unread
            ),
            None,
        )
        if unread is not None:
            return f"a call of a tool in {self._scope(unread)} cannot be read"
        if models and self._lacks_answering_tool(run):
            return (
                f"a run of {self._scope(run.first)} gives its answer by a tool, and no span of a"
                " tool is in its trace: they may be in traces of their own"
            )
        if run.first in agents and self._spans.records_tools(run.first):
            return ""
        if not models and any(self._spans.records_tools(index) for index in agents):
            return ""
        open_question = next((index for index in models if not self._asked_nothing(index)), None)
        if models and open_question is None:
            return ""
        index = run.first if open_question is None else open_question
        return (
            f"{self._scope(index)} is not known to record tool calls, and there are none;"
            f" {self._declare(index)}"
        )

    def _lacks_answering_tool(self, run: Candidate) -> bool:
        """Whether a run that did not fail has no span of any tool, where each answer is given by
        one.
        """
        return (
            self._spans.tables[run.first].convention.answers_by_tool
            and self._spans.readers[run.first].status_code != 2
            # `kinds` has the kinds after artefacts were left out, of which that tool is one.
            and all(
                classification.kind is not Kind.TOOL
                for classification in self._spans.classifications[run.first : run.last]
            )
        )

    def lacks_hosted(self, run: Candidate) -> bool:
        """Whether calls of tools that the model's provider ran may have left no trace."""
        return holds(self._lacking_hosted, run.first, run.last)

    @cached_property
    def _lacking_hosted(self) -> list[int]:
        if not any(table.convention.hosted_unrecorded for table in self._spans.used_tables):
            return []
        return sorted(
            index
            for index in (*self._spans.models, *self._spans.agents)
            if self._spans.tables[index].convention.hosted_unrecorded
        )

    def _asked_nothing(self, index: int) -> bool:
        """Whether the model call certainly asked for no tool, given that there is no tool span, no
        request and no gap.

        One that ended in order to call tools was answered by an agent or a handoff then.
        """
        agent = self._spans.enclosing_agent[index]
        if self._spans.records_tools(index) or (agent >= 0 and self._spans.records_tools(agent)):
            return True
        return self._messages[index].recorded or self._messages.finish(index) is not Finish.UNKNOWN

    @cached_property
    def _gaps(self) -> list[int]:
        """The model calls that asked for tools of which there is no trace."""
        messages = self._messages
        return [
            index
            for index in self._of_no_agent_below(self._unanswered())
            if (messages[index].broken or messages.finish(index) is Finish.TOOLS)
            and not self._is_answered_before(index)
        ]

    def _is_answered_before(self, index: int) -> bool:
        """Whether the model call is the one before a pause, whose span was written when the run
        went on, after those of the calls that it asked for.
        """
        table, agent = self._spans.tables[index], self._spans.enclosing_agent[index]
        if agent < 0 or not table.convention.resume_marks:
            return False
        span, answers = self._spans.readers[index], self._answers.get(agent)
        return (
            self._spans.model_starts_of[agent][0] == span.start_ns
            and answers is not None
            and answers[0] < span.start_ns
            and table.marked(span.attributes(table.resume_wanted), table.convention.resume_marks)
        )

    def _unanswered(self) -> list[int]:
        """The model calls that hold no request and after which no call, handoff or agent started
        before the next model call of the same agent, in order of index.

        Tools may start before the model call ends, since its output is streamed.
        """
        spans, messages, requesting = self._spans, self._messages, self._recovery.requesting
        unanswered: list[int] = []
        for owner, models in spans.model_calls_of.items():
            starts, answers = spans.model_starts_of[owner], self._answers.get(owner, [])
            for index, start in zip(models, starts, strict=True):
                if index in requesting or messages[index].requests:
                    continue
                answer, following = bisect_left(answers, start), bisect_left(starts, start) + 1
                if answer == len(answers) or (
                    following < len(starts)
                    and answers[answer] > starts[following]
                    and not self._is_beside(index, answers[answer], starts, following)
                ):
                    unanswered.append(index)
        unanswered.sort()
        return unanswered

    def _is_beside(self, index: int, answer: int, starts: list[int], following: int) -> bool:
        """Whether what started after the next model call of an agent may answer the one before
        that: model calls that start before this one ends were made beside it.

        Args:
            index: the model call.
            answer: when that started.
            starts: when the model calls of the agent started.
            following: the number of the next one among them.
        """
        after_end = bisect_left(starts, self._spans.readers[index].end_ns)
        return after_end > following and (after_end == len(starts) or answer <= starts[after_end])

    def _of_no_agent_below(self, indexes: list[int]) -> list[int]:
        """Those of the model calls that no agent called by theirs answered: while such an agent
        works, some record its model calls as the caller's.
        """
        if not indexes or len(self._spans.agents) < 2:
            return indexes
        readers, below = self._spans.readers, dict[int, list[tuple[int, int]]]()
        for agent in self._spans.agents:
            start = readers[agent].start_ns
            below.setdefault(self._spans.enclosing_agent[agent], []).append((start, agent))
        for agents in below.values():
            agents.sort()
        unanswered: list[int] = []
        for index in indexes:
            owner, span = self._spans.enclosing_agent[index], readers[index]
            agents = below.get(owner, []) if owner >= 0 else []
            at = bisect_left(agents, (span.start_ns, index)) - 1  # the last one that started before
            agent = agents[at][1] if at >= 0 else -1
            answers, models = (
                self._answers.get(agent, ()),
                self._spans.model_starts_of.get(owner, ()),
            )
            following = bisect_right(models, span.start_ns)
            until = models[following] if following < len(models) else None
            after = bisect_left(answers, span.start_ns)
            if (
                agent < 0
                or readers[agent].end_ns < span.end_ns
                or after == len(answers)
                or (until is not None and answers[after] > until)
            ):
                unanswered.append(index)
        return unanswered

    @cached_property
    def _answers(self) -> dict[int, list[int]]:
        """Agent → when its calls, the agents it called and its handoffs started, ascending."""
        spans, answers = self._spans, [*self._spans.tools, *self._spans.agents]
        if len(answers) + len(spans.models) < len(spans.kinds):  # handoffs are of no kind
            answers += [
                index
                for index, classification in enumerate(spans.classifications)
                if classification.handoff
            ]
        return self._starts(answers)

    def _starts(self, indexes: Iterable[int]) -> dict[int, list[int]]:
        """Agent → when these spans of it started, ascending."""
        by_agent: dict[int, list[int]] = {}
        owners, starts = self._spans.owners, self._spans.starts
        for index in indexes:
            by_agent.setdefault(owners[index], []).append(starts[index])
        for starts_of_agent in by_agent.values():
            starts_of_agent.sort()
        return by_agent

    def _scope_name(self, index: int) -> str:
        return self._spans.resource_scopes[index].scope_name

    def _scope(self, index: int) -> str:
        return f"scope {json.dumps(self._scope_name(index), ensure_ascii=False)}"

    def _declare(self, index: int) -> str:
        name = self._scope_name(index)
        scope = name if _PLAIN_SCOPE.fullmatch(name) else json.dumps(name, ensure_ascii=False)
        return (
            "if every call of its tools leaves a span, declare it: conventions:"
            f" {{records_tool_spans: [{scope}]}}"
        )
