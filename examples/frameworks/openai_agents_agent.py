"""An agent of the OpenAI Agents SDK, traced by OpenInference, and its scores; the model is
scripted: no key, no network.

python -m pip install . openai-agents openinference-instrumentation-openai-agents
python examples/frameworks/openai_agents_agent.py
"""

from __future__ import annotations

import json
from typing import Any

from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalSpanProcessor, trajectories

evaluation = {
    "evaluations": [
        {
            "name": "travel",
            "scorers": [
                {"type": "tool_call_order", "expected": ["get_weather", "book_flight"]},
                {
                    "type": "tool_call_args",
                    "expected": [{"name": "book_flight", "arguments": {"date": "2026-12-01"}}],
                },
                {"type": "tool_errors"},
                {"type": "error_recovery"},
            ],
        }
    ],
    "exporters": {"jsonl": {"path": "-"}},
}


def asks(name: str, **arguments: str) -> ResponseFunctionToolCall:
    """A model's wish to call a tool."""
    text = json.dumps(arguments)
    return ResponseFunctionToolCall(
        type="function_call", name=name, arguments=text, call_id=f"{name} {text}"
    )


def says(text: str) -> ResponseOutputMessage:
    """A model's answer."""
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(
        type="message", id="answer", role="assistant", status="completed", content=[content]
    )


script = iter(
    [
        [asks("get_weather", city="Paris"), asks("get_weather", city="Oslo")],
        [asks("book_flight", city="Oslo", date="2026-13-40")],
        [asks("book_flight", city="Oslo", date="2026-12-01")],
        [says("Oslo it is.")],
    ]
)


class Scripted(Model):
    """Answers what is written."""

    async def get_response(self, *_: Any, **__: Any) -> ModelResponse:
        return ModelResponse(output=next(script), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


@function_tool
def get_weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    return {"city": city, "sky": "clear"}


@function_tool
def book_flight(city: str, date: str) -> str:
    """Book a flight."""
    if int(date[5:7]) > 12:
        raise ValueError(f"no such date: {date}")
    return "booking 4711"


spans, recorded = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
spans.add_span_processor(EvalSpanProcessor(evaluation))
spans.add_span_processor(SimpleSpanProcessor(recorded))
OpenAIAgentsInstrumentor().instrument(tracer_provider=spans)  # in place of the SDK's own export

Runner.run_sync(
    Agent("travel", model=Scripted(), tools=[get_weather, book_flight]),
    "Where does the sun shine? Fly me there.",
)
spans.shutdown()
for call in trajectories(recorded.get_finished_spans())[0].calls:
    print("call", call.name, call.arguments, "->", call.result, call.error or "")
