"""The Collector's GenAI normalizer with `remove_originals`: spans keep their scope and get the
standard attributes in place of their instrumentation's.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from otel_eval.interfaces import ClosedTrace, Frame
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.recorded_traces import FILES, traces

PLAN = Plan(needs=ALL_NEEDS)
OPERATION = "gen_ai.operation.name"
# opentelemetry-collector-contrib v0.159.0, processor/genainormalizerprocessor/internal: the tables
# for OpenInference and for OpenLLMetry, without those of model parameters.
SOURCES = (
    (
        {
            "llm.token_count.prompt": "gen_ai.usage.input_tokens",
            "llm.token_count.completion": "gen_ai.usage.output_tokens",
            "llm.model_name": "gen_ai.request.model",
            "llm.provider": "gen_ai.provider.name",
            "llm.input_messages": "gen_ai.input.messages",
            "llm.output_messages": "gen_ai.output.messages",
            "tool.name": "gen_ai.tool.name",
            "tool.description": "gen_ai.tool.description",
            "tool_call.function.arguments": "gen_ai.tool.call.arguments",
            "tool_call.id": "gen_ai.tool.call.id",
            "agent.name": "gen_ai.agent.name",
            "session.id": "gen_ai.conversation.id",
            "openinference.span.kind": OPERATION,
        },
        {
            "llm": "chat",
            "embedding": "embeddings",
            "chain": "invoke_agent",
            "retriever": "retrieval",
            "reranker": "retrieval",
            "tool": "execute_tool",
            "agent": "invoke_agent",
            "prompt": "text_completion",
        },
    ),
    (
        {
            "llm.request.type": OPERATION,
            "traceloop.span.kind": OPERATION,
            "traceloop.entity.name": "gen_ai.agent.name",
            "traceloop.entity.input": "gen_ai.input.messages",
            "traceloop.entity.output": "gen_ai.output.messages",
        },
        {
            "workflow": "invoke_workflow",
            "task": "invoke_agent",
            "agent": "invoke_agent",
            "tool": "execute_tool",
            "completion": "text_completion",
            "chat": "chat",
        },
    ),
)


def normalized(frame: Frame) -> Any:
    parent, span, resource_scope = frame
    changed = copy.copy(span)
    given: dict[str, Any] = dict(span.given)
    for keys, operations in SOURCES:
        for source, target in keys.items():
            if source in given:
                value = given.pop(source)
                if target == OPERATION:
                    value = operations.get(str(value).lower(), value)
                given.setdefault(target, value)
    changed.given = given
    return parent, changed, resource_scope


@pytest.mark.parametrize("file", FILES)
def test_no_tool_span_is_lost(file: str) -> None:
    """Each call with a span is still one, or the calls of the run are unknown."""
    for trace in traces(file):
        frames = {span_id: normalized(frame) for span_id, frame in trace.frames.items()}
        after = build(ClosedTrace(trace.trace_id, frames, trace.reason, trace.logs), PLAN)
        known = {
            call.span_id
            for run in after
            if run.trajectory.outermost
            for call in run.trajectory.calls
        }
        for run in build(trace, PLAN):
            spans = {call.span_id for call in run.trajectory.calls if call.span_id}
            is_unknown = any(each.trajectory.calls_unknown for each in after)
            assert is_unknown or spans <= known
