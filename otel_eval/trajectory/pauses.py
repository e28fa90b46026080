"""Whether a run waits for a person, or for the program that runs it, to answer.

A tool that waits made no call; the run that goes on makes it. What shows a pause: a tool span or an
agent span with the mark of its framework, a last call without a result where that is all that a
pause leaves, and requests without an answer where a run ends so for no other reason. The texts name
tools and scopes and hold no content.

A pause is over for a run in which its agent, or an agent that started later, called a model again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Final

from otel_eval.caching import cached_property
from otel_eval.conventions.model_calls import Finish
from otel_eval.model import Kind
from otel_eval.span_trees import within
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.messages import TraceMessages
from otel_eval.trajectory.recovery import UnspannedCalls, of_range
from otel_eval.trajectory.runs import Candidate
from otel_eval.trajectory.tool_calls import ToolCallBuilder, has_result

_MOST_NAMES: Final = 5
_LONGEST_NAME: Final = 80


class Pauses:
    """The pauses of a trace.

    Args:
        spans: the trace.
        messages: its messages.
        recovery: its requests without spans.
    """

    def __init__(
        self, spans: ClassifiedTrace, messages: TraceMessages, recovery: UnspannedCalls
    ) -> None:
        self._spans = spans
        self._messages = messages
        self._recovery = recovery
        self._indexes = list(spans.pauses)  # in order, as the spans were read
        conventions = [table.convention for table in spans.used_tables]
        self._marks_pauses = any(convention.pause_marks for convention in conventions)
        self._hides_pauses = any(convention.pauses_unrecorded for convention in conventions)

    def of_run(
        self,
        run: Candidate,
        agents: Sequence[int],
        models: Sequence[int],
        calls: Sequence[ToolCallBuilder],
    ) -> str:
        """What the run waits for, "" if it is not known to wait.

        Args:
            run: the run.
            agents, models: indexes of its agent spans, and of its model calls in order of time.
            calls: its calls that have spans.
        """
        spans = self._spans
        tools = within(self._indexes, run.first, run.last)
        paused = tools
        if self._marks_pauses:
            paused = [*tools, *(index for index in agents if index in self._paused_agents)]
        if paused:
            latest = max(paused, key=lambda index: (spans.readers[index].end_ns, index))
            if not self._is_over(latest, models, calls):
                since = max((spans.starts[index] for index in models), default=0)
                names = [
                    spans.pauses[index]
                    for index in tools
                    if index == latest or spans.starts[index] >= since
                ]
                return _waits_for(names or self._unanswered(run, models))
        if run.fragment or spans.readers[run.first].status_code == 2:
            return ""
        silent = self.silent_call(models, calls)
        if silent is not None:
            return (
                f"the run ended in a call of {_quoted(silent.name)} without a result: it may wait"
                " for an approval"
            )
        if not models or not spans.tables[models[-1]].convention.pauses_unanswered:
            return ""
        names = self._unanswered(run, models)
        return (
            f"the run ended in a request for {_listed(names)} without an answer: it may wait for"
            " an approval"
            if names
            else ""
        )

    def silent_call(
        self, models: Sequence[int], calls: Sequence[ToolCallBuilder]
    ) -> ToolCallBuilder | None:
        """A last call without a result, if its instrumentation leaves the same span of one that
        waits for an approval or was cancelled; else None.
        """
        if not self._hides_pauses:
            return None  # as in nearly every trace
        latest = (
            [call for call in calls if call.start >= self._spans.starts[models[-1]]]
            if models
            else _not_followed(calls)
        )
        silent = next((call for call in latest if self._may_wait(call)), None)
        if silent is None or models:
            return silent
        # Without model spans, nothing but the results of other calls shows that this one should
        # have a result.
        return silent if any(has_result(self._spans, call) for call in calls) else None

    def _may_wait(self, call: ToolCallBuilder) -> bool:
        return (
            not call.error
            and call.table.convention.pauses_unrecorded
            and not has_result(self._spans, call)
        )

    @cached_property
    def _paused_agents(self) -> frozenset[int]:
        """The agent spans with the mark of a pause."""
        spans, paused = self._spans, set[int]()
        for index in spans.agents:
            table = spans.tables[index]
            if table.convention.pause_marks:
                attributes = spans.readers[index].attributes(table.pause_wanted)
                if table.is_paused(attributes):
                    paused.add(index)
        return frozenset(paused)

    def _is_over(self, pause: int, models: Sequence[int], calls: Sequence[ToolCallBuilder]) -> bool:
        """Whether the agent went on after the pause, or another one started then: it called a
        model, or the same tool.
        """
        spans, end = self._spans, self._spans.readers[pause].end_ns
        name = spans.pauses.get(pause)
        if any(call.start >= end and call.name == name for call in calls):
            return True
        for index in models:
            if spans.starts[index] < end:
                continue
            agent = spans.enclosing_agent[index]
            if agent < 0 or agent <= pause < spans.end(agent) or spans.starts[agent] >= end:
                return True
        return False

    def _unanswered(self, run: Candidate, models: Sequence[int]) -> list[str]:
        """The names of tools that the last model call of the run requested and that nothing
        answered; [] also where messages were not recorded.
        """
        if not models or self._messages.finish(models[-1]) is Finish.OTHER:
            return []
        names = [
            request.asked.name
            for request in of_range(self._recovery.open, run.first, run.last)
            if request.index == models[-1]
        ]
        start = self._spans.starts[models[-1]]
        return names if len(names) > self.others_since(run, start) else []

    def others_since(self, run: Candidate, start: int) -> int:
        """How many agents and handoffs within the run started at this time or later: requests may
        have been for them.
        """
        spans = self._spans
        return sum(
            spans.starts[index] >= start
            and (spans.kinds[index] is Kind.AGENT or spans.classifications[index].handoff)
            for index in range(run.first + 1, run.last)
        )


def _not_followed(calls: Sequence[ToolCallBuilder]) -> list[ToolCallBuilder]:
    """The calls after whose end no other one started."""
    latest = max((call.start for call in calls), default=0)
    return [call for call in calls if call.end >= latest]


def _waits_for(names: Sequence[str]) -> str:
    """The text of a run that waits, with the names of the tools as far as they are known."""
    return f"the run waits for a person{f' to answer about {_listed(names)}' if names else ''}"


def _listed(names: Iterable[str]) -> str:
    """The first of the different names, and how many more there are."""
    different = list(dict.fromkeys(names))
    further = f" and {len(different) - _MOST_NAMES} more" if len(different) > _MOST_NAMES else ""
    return ", ".join(map(_quoted, different[:_MOST_NAMES])) + further


def _quoted(name: str) -> str:
    return json.dumps(name[:_LONGEST_NAME], ensure_ascii=False)
