"""Calls of tool spans that the extension reads without decoding them, against the reader in Python:
both find the same.
"""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.interfaces import ClosedTrace
from otel_eval.model import Completeness, ToolCall
from otel_eval.native import extension
from otel_eval.otlp.spans import OtlpResourceScope, OtlpSpanReader
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from otel_eval.wire import sized

if extension("_native") is None:
    pytest.skip("installed without a compiler, or to do without", allow_module_level=True)

RESULTS = (
    *(
        "done",
        "",
        "__REDACTED__",
        "none: __REDACTED__",
        "[Scrubbed due to 'secret']",
        "Error: no",
        "an ERROR",
    ),
    *(
        '{"content": [], "isError": true}',
        '{"type": "tool", "content": "x", "tool_call_id": "c", "status": "error"}',
        7,
        None,
    ),
)
# An instrumentation's scope, the name of its tool spans, the attribute that makes one, and the
# attribute of the result.
LANGCHAIN = (
    "openinference.instrumentation.langchain",
    "find",
    {"openinference.span.kind": "TOOL"},
    "output.value",
)
PYDANTIC_AI = ("pydantic-ai", "running tool", {"gen_ai.tool.name": "find"}, "tool_response")
CLAUDE_CODE = (
    "com.anthropic.claude_code.tracing",
    "claude_code.tool",
    {"tool_name": "find"},
    "gen_ai.tool.call.result",
)


class PureScope(OtlpResourceScope):
    """A scope whose spans Python reads."""

    reader = staticmethod(OtlpSpanReader)


def payload(name: str, attributes: dict[str, Any], output: str = "") -> bytes:
    """A span, with an event if there is an output."""
    made = Span(name=name, start_time_unix_nano=1, end_time_unix_nano=2)
    for key, value in attributes.items():
        held = AnyValue(int_value=value) if isinstance(value, int) else AnyValue(string_value=value)
        made.attributes.add(key=key).value.CopyFrom(held)
    if output:
        made.events.add(name="tool.output").attributes.add(key="output").value.string_value = output
    return made.SerializeToString()


def calls(
    made: type[OtlpResourceScope], scope: str, spans: list[bytes], plan: Plan
) -> tuple[ToolCall, ...]:
    """The calls of a run with these tool spans."""
    around, own = made(b"", sized(1, b"strands")), made(b"", sized(1, scope.encode()))
    run = payload("invoke_agent a", {"gen_ai.operation.name": "invoke_agent"})
    frames: dict[bytes, Any] = {b"run": (b"", run, around)}
    frames |= {b"call%03d" % number: (b"run", each, own) for number, each in enumerate(spans)}
    (found,) = build(ClosedTrace(bytes(16), frames, Completeness.COMPLETE), plan)
    return found.trajectory.calls


@pytest.mark.parametrize(
    ("scope", "name", "attributes", "key"), [LANGCHAIN, PYDANTIC_AI, CLAUDE_CODE]
)
def test_python_and_the_extension_find_the_same_failures(
    scope: str, name: str, attributes: dict[str, Any], key: str
) -> None:
    """Whatever a result says, and where it is a placeholder, masked, of another type, missing, or
    in an event.
    """
    held = [attributes | ({} if each is None else {key: each}) for each in RESULTS]
    spans = [
        payload(name, each, output)
        for each in held
        for output in ("", '{"isError": true, "content": []}')
    ]
    native = Plan()
    expected = calls(PureScope, scope, spans, Plan())
    assert len(expected) == len(spans)
    for _ in range(2):  # the second time the fields of the spans are known
        assert calls(OtlpResourceScope, scope, spans, native) == expected
