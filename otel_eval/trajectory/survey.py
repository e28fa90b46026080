"""What each span of a trace is, and where it hangs.

Knows how to ask tables and how to walk a forest; knows nothing of calls and runs. Evaluations, ours and other
people's, are left out here with everything below them, so nothing behind this room ever sees them.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from otel_eval.conventions import Classification, ReadTable
from otel_eval.model import Kind, SpanVisit
from otel_eval.ports import ClosedTrace, Envelope, Frame, SpanEvent, View
from otel_eval.steps import Steps
from otel_eval.trajectory.forest import Forest, plant
from otel_eval.trajectory.plan import Plan
from otel_eval.trajectory.walks import link, recognise

__all__ = ["MAX_ENCLOSING", "Survey", "recognised", "survey"]

# Longer chains of ancestors are cut to the nearest ones: whole ones would cost the square of the trace.
MAX_ENCLOSING: Final = 64


@dataclass(slots=True)
class Survey:
    """A trace, read as far as every run needs it.

    Attributes (lists are by place in the forest):
        kinds: what each span is.
        above: the nearest agent, model or tool span above, -1 if there is none.
        agent_above: for agent, model and tool spans: the nearest agent span above, -1 if there is none.
        steps: those that are left for the evaluation of the trace.
        argument_keys: see `calls.arguments_key`.
        agents, models, tools: their places, ascending. These and the two above are there after `link`.
    """

    trace: ClosedTrace
    plan: Plan
    forest: Forest
    views: list[View]
    envelopes: list[Envelope]
    readings: list[Classification]
    kinds: list[Kind]
    steps: Steps
    above: list[int] = field(default_factory=list)
    agent_above: dict[int, int] = field(default_factory=dict)
    agents: list[int] = field(default_factory=list)
    models: list[int] = field(default_factory=list)
    tools: list[int] = field(default_factory=list)
    argument_keys: dict[int, Hashable] = field(default_factory=dict)
    _nested_models: dict[int, list[int]] | None = None
    _logs: dict[int, tuple[SpanEvent, ...]] = field(default_factory=dict)
    _visits: list[SpanVisit] = field(default_factory=list)

    def link(self) -> None:
        """Follow the parents, once it is known which of the tool spans are calls."""
        self.above, self.agent_above, self.agents, self.models, self.tools = link(self.kinds, self.forest.parent)

    def table(self, place: int) -> ReadTable | None:
        """The table that knew the span."""
        return self.readings[place].table

    def end(self, place: int) -> int:
        """Where the subtree of the span ends."""
        return place + self.forest.size[place]

    def moment(self, place: int) -> tuple[int, int, bytes]:
        """What spans are ordered by."""
        view = self.views[place]
        return view.start_ns, view.end_ns, self.forest.ids[place]

    def hex_id(self, place: int) -> str:
        """The span's id as text."""
        return self.forest.ids[place].hex()

    def logs(self, place: int) -> tuple[SpanEvent, ...]:
        """The log records joined to the span."""
        known = self._logs.get(place)
        if known is None:
            frames = self.trace.logs.get(self.forest.ids[place], ())
            known = self._logs[place] = tuple(envelope.event(payload) for payload, envelope in frames)
        return known

    def nested_models(self, place: int) -> Sequence[int]:
        """The model spans directly below a model span: a framework's and its client's describe one model call."""
        if self._nested_models is None:
            self._nested_models = {}
            for model in self.models:
                self._nested_models.setdefault(self.above[model], []).append(model)
        return self._nested_models.get(place, ())

    def visit(self, place: int) -> SpanVisit:
        """The span as scorers of spans see it; runs within runs share these."""
        if not self._visits:
            for each, view in enumerate(self.views):
                up = self.forest.parent[each]
                above = self._visits[up] if up >= 0 else None
                around = () if above is None else (*above.enclosing, above.span_id)[-MAX_ENCLOSING:]
                self._visits.append(SpanVisit(view.name, view.start_ns, view.end_ns, self.hex_id(each), around))
        return self._visits[place]


def survey(trace: ClosedTrace, plan: Plan, steps: Steps) -> Survey:
    """Plant the spans and ask what they are; then `calls.drafts` looks at tool spans, and `link` follows."""
    read, dropped = recognised(trace, trace.frames, plan, steps)
    if dropped:
        read, _ = recognised(trace, _without(trace.frames, dropped), plan, steps)
    return read


def recognised(trace: ClosedTrace, frames: Mapping[bytes, Frame], plan: Plan, steps: Steps) -> tuple[Survey, set[bytes]]:
    """The trees of these frames with what each span is, and the ids of the spans of evaluations among them."""
    forest = plant(frames)
    views, envelopes, readings, kinds, dropped = recognise(frames, forest.ids, plan.reader.of_scope)
    return Survey(trace, plan, forest, views, envelopes, readings, kinds, steps), dropped


def _without(frames: Mapping[bytes, Frame], dropped: set[bytes]) -> dict[bytes, Frame]:
    """The frames that neither are dropped nor hang below one that is."""
    children: dict[bytes, list[bytes]] = {}
    for span_id, frame in frames.items():
        children.setdefault(frame[0], []).append(span_id)
    gone: set[bytes] = set()
    stack = list(dropped)
    while stack:
        span_id = stack.pop()
        if span_id not in gone:
            gone.add(span_id)
            stack.extend(children.get(span_id, ()))
    return {span_id: frame for span_id, frame in frames.items() if span_id not in gone}
