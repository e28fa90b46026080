"""A shortcut for the traces that most traces are: one tree, one agent in it, its calls side by side and none failed.

Knows how the extension in C is asked, and what it leaves to do; gives exactly the run that `build` would, or None for
every trace in which anything is out of the ordinary. Without the extension it always gives None.
"""

from __future__ import annotations

from typing import Any, Final

from otel_eval.conventions import DROPPED, Classification, Field
from otel_eval.model import UNRECORDED, Kind, ToolCall, Trajectory
from otel_eval.native import extension, maker
from otel_eval.ports import ClosedTrace, Envelope, View
from otel_eval.trajectory.plan import Plan
from otel_eval.trajectory.run import Run

__all__ = ["plain_run"]

_forest: Final = extension("_forest")
_make_call: Final = maker(ToolCall)
_new_trajectory: Final = maker(Trajectory)

_Facts = tuple[tuple[str, ...], str, str]
"""The agent path of the calls, the agent's name, the conversation."""


def plain_run(trace: ClosedTrace, plan: Plan) -> Run | None:
    """The only run of the trace, if nothing about it needs a closer look and nobody needs content, tokens or spans."""
    unusual = trace.logs or trace.cut or trace.part is not None or trace.released is not None
    if _forest is None or plan.needs or unusual or type(trace.frames) is not dict:
        return None

    def facts(view: View, reading: Classification) -> _Facts:
        return _facts(view, reading, plan)

    kinds = (Kind.OTHER, Kind.AGENT, Kind.MODEL)
    found = _forest.plain(trace.frames, plan.reader.of_scope, DROPPED, plan.plain, *kinds, facts, _new_call, UNRECORDED)
    if found is None:
        return None
    said, view, envelope, span_id, members, calls, models = found
    if models and _needs_a_look(trace, plan):
        return None
    return Run(_trajectory(trace, plan, said, view, envelope, span_id, calls, models), members, span_id)


def _new_call(*values: Any) -> ToolCall:
    """The tables in `Plan.plain` show in the span whether a call failed."""
    return _make_call(*values, False)


def _needs_a_look(trace: ClosedTrace, plan: Plan) -> bool:
    """Whether a model span may have asked for a tool that leaves no span."""
    scopes = {envelope.scope_name for _, _, envelope in trace.frames.values()}
    return any(plan.reader.of_scope(scope).unsure and not plan.declared(scope) for scope in scopes)


def _facts(view: View, reading: Classification, plan: Plan) -> _Facts:
    table = reading.table
    if table is None:  # a rule always belongs to a table
        return (), "", ""
    read = view.attributes(plan.agent_wanted(table))
    agent = table.agent_name(read, view.name)
    return ((agent,) if agent else ()), agent, table.text(read, Field.CONVERSATION)


def _trajectory(
    trace: ClosedTrace,
    plan: Plan,
    said: _Facts,
    view: View,
    envelope: Envelope,
    span_id: bytes,
    calls: tuple[ToolCall, ...],
    models: int,
) -> Trajectory:
    asked = plan.asked_wanted
    return _new_trajectory(
        calls,
        trace.trace_id.hex(),
        span_id.hex(),
        said[1],
        view.name,
        envelope.service,
        view.start_ns,
        view.end_ns,
        models,
        None,  # tokens
        None,
        UNRECORDED,  # content
        UNRECORDED,
        (),  # spans
        {**envelope.shared(asked), **view.attributes(asked)} if asked.keys else {},
        said[2],
        trace.reason,
        "",  # nothing is missing
        "",  # its calls are known
        True,  # it is the only run
        *envelope.deployment,
        "",  # it is not too large
    )
