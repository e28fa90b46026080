"""The recorded traces in other circumstances: what surrounds a run, and what is left out, changes
no call it made.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from otel_eval.conventions import TABLES, Field
from otel_eval.interfaces import ClosedTrace, Frame, SpanEvent
from otel_eval.model import UNRECORDED, Completeness, ToolCall, Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from otel_eval.trajectory.runs import CUT, NEVER_ARRIVED
from tests.support.made_spans import FakeResourceScope, FakeSpan
from tests.support.recorded_traces import traces

PLAN = Plan(needs=ALL_NEEDS)
FILES = [
    "autogen",
    "google_adk_default",
    "langchain_langsmith_otel",
    "langchain_openinference",
    "langchain_openllmetry",
    "langchain_otel_genai",
    "mcp_python_sdk",
    "mlflow_langchain",
    "openai_agents_openinference",
    "openai_agents_otelv2",
    "pydantic_ai_v2",
    "pydantic_ai_v5",
    "smolagents_openinference",
    "strands_default",
    "vercel_ai_sdk_v6",
    "logfire_openai_agents",
    "dspy_openinference",
    "beeai_openinference",
    "pydantic_ai_0_4",
    "pydantic_ai_1_0",
]
Frames = dict[bytes, Frame]
CONTENT = frozenset(
    key
    for table in TABLES
    for held in (Field.ARGUMENTS, Field.RESULT, Field.INPUT, Field.OUTPUT)
    for key in table.fields.get(held, ())
)
FAMILIES = tuple({row.key for table in TABLES for row in table.messages})


def whole(file: str) -> tuple[ClosedTrace, Trajectory]:
    """The trace of the file that holds the run, and the run as it is read without any change."""
    found = [
        (trace, run) for trace in traces(f"{file}.json") for run in outermost(trace) if run.calls
    ]
    assert len(found) == 1
    return found[0]


def outermost(trace: ClosedTrace) -> list[Trajectory]:
    return [run.trajectory for run in build(trace, PLAN) if run.trajectory.outermost]


def closed(frames: Frames, **logs: Any) -> ClosedTrace:
    return ClosedTrace(b"t" * 16, frames, Completeness.COMPLETE, **logs)


def described(calls: Iterable[ToolCall]) -> list[Any]:
    return [
        (
            each.name,
            each.arguments,
            each.result,
            each.error,
            each.call_id,
            each.start_ns,
            each.end_ns,
        )
        for each in calls
    ]


def changed(frame: Frame, parent: bytes | None = None, later: int = 0, **fields: Any) -> Frame:
    """The frame below another parent, later, or with other fields."""
    own, payload, resource_scope = frame
    made = copy.copy(payload)
    made.start_ns += later
    made.end_ns += later
    for name, value in fields.items():
        setattr(made, name, value)
    return (own if parent is None else parent, made, resource_scope)


def tops(frames: Frames) -> list[bytes]:
    return [key for key, frame in frames.items() if frame[0] not in frames]


def hung(frames: Frames, parent: bytes, **fields: Any) -> Frames:
    """The same with its tops below that parent."""
    above = set(tops(frames))
    return {
        key: changed(frame, parent, **fields) if key in above else frame
        for key, frame in frames.items()
    }


def made(
    span_id: bytes, parent: bytes, run: Trajectory, service: str = "web", **fields: Any
) -> Frames:
    """A span around the run."""
    start, end = (run.start_ns or 0) - 5_000, (run.end_ns or 0) + 5_000
    span = FakeSpan(
        span_id.hex(),
        parent.hex(),
        fields.pop("name", "POST /"),
        start_ns=start,
        end_ns=end,
        **fields,
    )
    return {span_id: (parent, span, FakeResourceScope(service, fields.get("scope", "http")))}


def test_a_run_below_another_services_request_has_the_same_calls(subtests: pytest.Subtests) -> None:
    """The request is no agent."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            frames = made(b"webroot1", b"", run, kind=2) | hung(
                trace.frames, b"webroot1", remote=True
            )
            (found,) = outermost(closed(frames))
            assert (described(found.calls), found.incomplete) == (described(run.calls), "")


def test_a_run_below_a_remote_parent_that_never_arrives_has_the_same_calls(
    subtests: pytest.Subtests,
) -> None:
    """The parent is in another process whose spans are not here."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            (found,) = outermost(closed(hung(trace.frames, b"faraway1", remote=True)))
            assert (described(found.calls), found.incomplete) == (described(run.calls), "")


def test_spans_of_other_libraries_below_calls_are_no_calls(subtests: pytest.Subtests) -> None:
    """Requests and queries that a tool makes, in other services too."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            frames = dict(trace.frames)
            for number, call in enumerate(run.calls):
                parent = bytes.fromhex(call.span_id)
                payload = frames[parent][1]
                below = FakeSpan(
                    f"{number:016x}",
                    call.span_id,
                    "SELECT",
                    start_ns=payload.start_ns,
                    end_ns=payload.end_ns,
                    kind=3,
                )
                frames[b"query00%d" % number] = (
                    parent,
                    below,
                    FakeResourceScope("db", "sqlalchemy"),
                )
            (found,) = outermost(closed(frames))
            assert described(found.calls) == described(run.calls)


def test_two_runs_of_one_request_keep_their_own_calls(subtests: pytest.Subtests) -> None:
    """Each keeps its own calls."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            again = {
                key[::-1]: changed(
                    frame, frame[0][::-1] if frame[0] in trace.frames else b"webroot1", 10**9
                )
                for key, frame in trace.frames.items()
            }
            frames = made(b"webroot1", b"", run, kind=2) | hung(trace.frames, b"webroot1") | again
            runs = outermost(closed(frames))
            if run.agent == "" and len(runs) == 1:
                # nothing but the request tells that they belong together
                assert len(runs[0].calls) == 2 * len(run.calls)
                return
            first, second = runs
            assert described(first.calls) == described(run.calls)
            assert [(call.name, call.arguments) for call in second.calls] == [
                (call.name, call.arguments) for call in run.calls
            ]


def test_the_calls_of_a_sub_agent_lie_within_the_call_of_its_tool(
    subtests: pytest.Subtests,
) -> None:
    """Another agent's tool is what calls it; the calls are the inner agent's and lie within that
    call.
    """
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            op = "gen_ai.operation.name"
            agent = made(
                b"outerag1",
                b"",
                run,
                "lead",
                name="invoke_agent lead",
                attributes={op: "invoke_agent", "gen_ai.agent.name": "lead"},
            )
            delegate = made(
                b"delegat1",
                b"outerag1",
                run,
                "lead",
                name="execute_tool ask",
                attributes={
                    op: "execute_tool",
                    "gen_ai.tool.name": "ask",
                    "gen_ai.tool.call.arguments": "{}",
                    "gen_ai.tool.call.result": "{}",
                    "gen_ai.tool.call.id": "0",
                },
            )
            (found,) = outermost(closed(agent | delegate | hung(trace.frames, b"delegat1")))
            assert (found.agent, found.calls[0].name) == ("lead", "ask")
            assert described(found.calls[1:]) == described(run.calls)
            assert {call.enclosing[0] for call in found.calls[1:]} == {b"delegat1".hex()}


def is_content(key: str) -> bool:
    return key in CONTENT or key.startswith(FAMILIES)


def without_content(frames: Frames) -> Frames:
    return {
        key: changed(
            frame,
            given={k: v for k, v in frame[1].given.items() if not is_content(k)},
            given_events=(),
        )
        for key, frame in frames.items()
    }


def test_names_order_and_failures_stay_without_content(subtests: pytest.Subtests) -> None:
    """Names, order and failures stay, and nothing is made up for what is missing."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            (found,) = outermost(closed(without_content(trace.frames)))
            assert [(call.name, call.error is not None) for call in found.calls] == [
                (call.name, call.error is not None) for call in run.calls
            ]
            assert {call.arguments for call in found.calls if call.arguments is UNRECORDED} == {
                UNRECORDED
            }
            assert {call.result for call in found.calls} == {UNRECORDED}


class Records:
    """Reads log records that are events already."""

    def event(self, payload: SpanEvent) -> SpanEvent:
        """The record itself."""
        return payload


def test_content_in_log_records_counts_like_attributes(subtests: pytest.Subtests) -> None:
    """Joined to their spans they count like attributes."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            logs: dict[bytes, Any] = {}
            for key, frame in trace.frames.items():
                held = {k: v for k, v in frame[1].given.items() if is_content(k)}
                records = (
                    [SpanEvent("gen_ai.client.inference.operation.details", held)] if held else []
                )
                logs[key] = tuple(
                    (record, Records()) for record in (*records, *frame[1].given_events)
                )
            (found,) = outermost(closed(without_content(trace.frames), logs=logs))
            assert [(call.name, call.arguments, call.result) for call in found.calls] == [
                (call.name, call.arguments, call.result) for call in run.calls
            ]


def test_a_run_whose_own_span_is_missing_is_incomplete(subtests: pytest.Subtests) -> None:
    """Unless an agent span within it arrived, which is a run of its own."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            frames = {key: frame for key, frame in trace.frames.items() if key.hex() != run.span_id}
            for found in outermost(closed(frames)):
                own = frames.get(bytes.fromhex(found.span_id))
                assert found.incomplete in (NEVER_ARRIVED, CUT) or (
                    own is not None and described(found.calls) == described(run.calls)
                )


def layer(
    attributes: Callable[[ToolCall], dict[str, Any]], scope: str, beside: bool
) -> Callable[[ClosedTrace, Trajectory], Frames]:
    """A second instrumentation's spans of the same calls, within the first one's or beside them."""

    def added(trace: ClosedTrace, run: Trajectory) -> Frames:
        frames = dict(trace.frames)
        for number, call in enumerate(run.calls):
            key = bytes.fromhex(call.span_id)
            parent = frames[key][0] if beside else key
            span = FakeSpan(
                "",
                "",
                "call",
                start_ns=call.start_ns,
                end_ns=call.end_ns,
                attributes=attributes(call),
                scope=scope,
            )
            frames[b"layer00%d" % number] = (parent, span, FakeResourceScope("x", scope))
        return frames

    return added


LAYERS = {
    "MCP client": layer(
        lambda call: {
            "mcp.method.name": "tools/call",
            "gen_ai.tool.name": call.name,
            "gen_ai.operation.name": "execute_tool",
        },
        "mcp-python-sdk",
        False,
    ),
    "a second framework's": layer(
        lambda call: {
            "traceloop.span.kind": "tool",
            "gen_ai.tool.name": call.name,
            "gen_ai.tool.call.id": call.call_id,
        },
        "opentelemetry.instrumentation.second",
        True,
    ),
}


def test_a_second_layer_of_spans_doubles_no_call(subtests: pytest.Subtests) -> None:
    """One call, one call."""
    for added in LAYERS:
        for file in FILES:
            with subtests.test(added=added, file=file):
                trace, run = whole(file)
                (found,) = outermost(closed(LAYERS[added](trace, run)))
                assert [(call.name, call.arguments, call.error) for call in found.calls] == [
                    (call.name, call.arguments, call.error) for call in run.calls
                ]


def test_a_retry_is_a_call_of_its_own(subtests: pytest.Subtests) -> None:
    """A span like the last call's, which failed this time, later, with the same id."""
    for file in FILES:
        with subtests.test(file=file):
            trace, run = whole(file)
            key = bytes.fromhex(run.calls[-1].span_id)
            length = (run.calls[-1].end_ns or 0) - (run.calls[-1].start_ns or 0)
            again = changed(trace.frames[key], later=length + 1, status_code=2)
            (found,) = outermost(
                dataclasses.replace(trace, frames=trace.frames | {b"again001": again})
            )
            assert described(found.calls[:-1]) == described(run.calls)
            assert (found.calls[-1].name, found.calls[-1].arguments) == (
                run.calls[-1].name,
                run.calls[-1].arguments,
            )
