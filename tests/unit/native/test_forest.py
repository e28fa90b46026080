"""The walks in C against those in Python: over any trace both give the same forest, kinds, lines and runs."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, fields
from typing import Any

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.model import Completeness, Kind, ToolCall, Trajectory
from otel_eval.native import extension, maker
from otel_eval.ports import ClosedTrace, Frame
from otel_eval.sources.otlp.views import span_envelope
from otel_eval.trajectory import Plan
from otel_eval.trajectory.build import build, build_slowly
from otel_eval.trajectory.forest import plant, plant_slowly
from otel_eval.trajectory.plain import plain_run
from otel_eval.trajectory.walks import link, link_slowly, recognise, recognise_slowly

if extension("_forest") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

PLAN = Plan()
LABELLED = Plan(asked=frozenset({"deployment", "gen_ai.agent.name"}))
IDS = [bytes([number]) * 8 for number in range(1, 9)]
NOWHERE = b"\xee" * 8
RESOURCE = Resource(attributes=[{"key": "service.name", "value": {"string_value": "shop"}}]).SerializeToString()
SCOPES = ["", "opentelemetry.instrumentation.openai", "openinference.instrumentation.langchain", "otel_eval"]

TOOL: dict[str, Any] = {"gen_ai.operation.name": "execute_tool"}
KINDS: list[dict[str, Any]] = [
    {},
    {"gen_ai.operation.name": "chat"},
    {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "support"},
    TOOL,
    TOOL,
    {"openinference.span.kind": "TOOL", "tool.name": "lookup"},
    {"gen_ai.evaluation.name": "x"},
]
DETAILS: list[dict[str, Any]] = [
    {},
    {},
    {"gen_ai.tool.name": "search"},
    {"gen_ai.tool.name": "(merged tools)"},
    {"gen_ai.tool.name": 7},
    {"error.type": "Timeout"},
    {"gen_ai.tool.call.id": "c1"},
    {"gen_ai.tool.call.id": "unknown"},
    {"gen_ai.tool.call.id": "None"},
    {"gen_ai.tool.call.result": "fine"},
    {"gen_ai.tool.call.result": "Error: no such city"},
    {"gen_ai.tool.call.result": '{"error": "boom"}'},
    {"gen_ai.conversation.id": "talk"},
    {"deployment": "prod"},
]


def span(kind: dict[str, Any], details: list[dict[str, Any]], name: str, times: tuple[int, int], status: int) -> bytes:
    made = Span(name=name, kind=1, start_time_unix_nano=times[0], end_time_unix_nano=times[1])
    made.status.code = status
    for key, value in {each: value for part in (kind, *details) for each, value in part.items()}.items():
        item = made.attributes.add(key=key)
        if isinstance(value, int):
            item.value.int_value = value
        else:
            item.value.string_value = value
    return made.SerializeToString()


SPANS = st.builds(
    span,
    st.sampled_from(KINDS),
    st.lists(st.sampled_from(DETAILS), max_size=3),
    st.sampled_from(["", "execute_tool fetch", "invoke_agent helper", "chat"]),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.sampled_from([0, 0, 0, 1, 2]),
)
PLAIN = st.builds(
    span,
    st.sampled_from([TOOL, KINDS[1]]),
    st.lists(st.sampled_from([DETAILS[2], DETAILS[6], DETAILS[9]]), max_size=2),
    st.just("execute_tool fetch"),
    st.tuples(st.integers(0, 4), st.integers(0, 4)),
    st.just(0),
)
ENVELOPES = [span_envelope(RESOURCE, InstrumentationScope(name=each).SerializeToString()) for each in SCOPES]
PARENTS = st.sampled_from([*IDS, *IDS, b"", bytes(8), NOWHERE])


@st.composite
def anything(draw: st.DrawFn) -> dict[bytes, Frame]:
    """Spans with any links at all, circles and missing parents among them."""
    ids = draw(st.permutations(IDS))[: draw(st.integers(0, len(IDS)))]
    return {each: (draw(PARENTS), draw(SPANS), draw(st.sampled_from(ENVELOPES))) for each in ids}


@st.composite
def usual(draw: st.DrawFn) -> dict[bytes, Frame]:
    """A root or an agent with spans below, in any order: what the shortcut is for, and what only looks like it."""
    envelope = draw(st.sampled_from(ENVELOPES[:2]))
    root = span(draw(st.sampled_from(KINDS[:3])), [], "root", (0, 9), 0)
    agent = span(KINDS[2], draw(st.lists(st.sampled_from(DETAILS), max_size=2)), "agent", (0, 8), 0)
    frames: dict[bytes, Frame] = {IDS[0]: (b"", root, envelope), IDS[1]: (IDS[0], agent, envelope)}
    child = draw(st.sampled_from([PLAIN, PLAIN, SPANS]))
    for each in IDS[2 : draw(st.integers(3, len(IDS)))]:
        parent = draw(st.sampled_from([IDS[1]] * 20 + list(frames)))
        frames[each] = (parent, draw(child), envelope)
    return {each: frames[each] for each in draw(st.permutations(list(frames)))}


FRAMES = st.one_of(anything(), usual(), usual())


@given(FRAMES)
def test_the_same_forest_grows(frames: dict[bytes, Frame]) -> None:
    """Ids, parents, sizes, tops and what they would hang from."""
    assert plant(frames) == plant_slowly(frames)


@given(FRAMES)
def test_every_span_is_taken_for_the_same(frames: dict[bytes, Frame]) -> None:
    """Readings, kinds and what is left out; and the lines between them."""
    forest = plant_slowly(frames)
    views, *found = recognise(frames, forest.ids, PLAN.reader.of_scope)
    expected_views, *expected = recognise_slowly(frames, forest.ids, PLAN.reader.of_scope)
    assert found == expected
    assert [view.name for view in views] == [view.name for view in expected_views]
    kinds: list[Kind] = expected[2]
    assert link(kinds, forest.parent) == link_slowly(kinds, forest.parent)


@given(FRAMES, st.sampled_from([PLAN, LABELLED]), st.sampled_from(list(Completeness)), st.sampled_from(["", "", "", "a limit"]))
def test_the_same_runs_are_built(frames: dict[bytes, Frame], plan: Plan, reason: Completeness, cut: str) -> None:
    """The shortcut for plain traces gives the run that the long way gives, or leaves the trace to it."""
    trace = ClosedTrace(b"t" * 16, frames, reason, cut=cut)
    shortcut = plain_run(trace, plan)
    event("plain" if shortcut else "not plain")
    assert build(trace, plan) == build_slowly(trace, plan)
    assert shortcut is None or (shortcut,) == build_slowly(trace, plan)


def test_a_plain_trace_takes_the_shortcut() -> None:
    """Or the law above would say nothing."""
    agent = span(KINDS[2], [], "agent", (0, 9), 0)
    calls = {each: (IDS[0], span(TOOL, [DETAILS[2]], "", (9 - each[0], 9), 0), ENVELOPES[1]) for each in IDS[1:]}
    trace = ClosedTrace(b"t" * 16, {IDS[0]: (b"", agent, ENVELOPES[1]), **calls}, Completeness.COMPLETE)
    plan = Plan()
    assert plain_run(trace, plan) is None  # nothing is remembered of these spans yet
    assert build(trace, plan) == build_slowly(trace, plan)
    run = plain_run(trace, plan)
    assert run is not None
    assert [call.start_ns for call in run.trajectory.calls] == sorted(call.start_ns or 0 for call in run.trajectory.calls)
    assert len(run.trajectory.calls) == 7


@pytest.mark.parametrize("link_of", [b"short", b"x" * 9, None, 7])
def test_odd_ids_are_left_to_python(link_of: Any) -> None:
    """The extension takes ids of eight bytes; whatever else somebody hands in, it does not touch."""
    forest = extension("_forest")
    assert forest is not None
    assert forest.plant({IDS[0]: (link_of, b"", ENVELOPES[0])}) is None
    assert forest.plant({link_of: (b"", b"", ENVELOPES[0])}) is None
    assert forest.plant({IDS[0]: None}) is None


def test_a_circle_is_left_to_python_and_ends() -> None:
    """No top leads into a circle."""
    frames: dict[bytes, Frame] = {one: (other, b"", ENVELOPES[0]) for one, other in zip(IDS, [*IDS[1:], IDS[0]], strict=True)}
    forest = extension("_forest")
    assert forest is not None
    assert forest.plant(frames) is None
    assert len(plant(frames).ids) == len(IDS)


def test_what_a_maker_makes_is_what_the_class_makes() -> None:
    """Equal, of the same class, and as frozen."""
    call = ToolCall(name="a", arguments={"q": 1}, start_ns=1, end_ns=2)
    made = maker(ToolCall)(*(getattr(call, each.name) for each in fields(ToolCall)))
    assert made == call
    assert type(made) is ToolCall
    with pytest.raises(FrozenInstanceError):
        made.name = "b"
    with pytest.raises(TypeError):
        maker(Trajectory)("too", "few")


def test_a_maker_refuses_a_class_without_slots() -> None:
    """Where a value would go is known of slots only."""

    @dataclass
    class Open:
        a: int

    with pytest.raises((TypeError, AttributeError)):
        maker(Open)
