"""A pydantic-ai agent and its scores; the model is scripted, so that neither a key nor a network is
needed.

    python -m pip install . pydantic-ai-slim
    python examples/frameworks/pydantic_ai_agent.py

pydantic-ai records its own spans once it is instrumented; nothing else has to be installed.
"""

from __future__ import annotations

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.capabilities import Instrumentation
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

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
script = iter(
    [
        [
            ToolCallPart("get_weather", {"city": "Paris"}),
            ToolCallPart("get_weather", {"city": "Oslo"}),
        ],
        [ToolCallPart("book_flight", {"city": "Oslo", "date": "2026-13-40"})],
        [ToolCallPart("book_flight", {"city": "Oslo", "date": "2026-12-01"})],
        [TextPart("Oslo it is.")],
    ]
)


def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """What a model would answer."""
    return ModelResponse(parts=next(script))


spans, recorded = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
spans.add_span_processor(EvalSpanProcessor(evaluation))
spans.add_span_processor(SimpleSpanProcessor(recorded))

settings = InstrumentationSettings(tracer_provider=spans)
agent = Agent(
    FunctionModel(model), name="travel", retries=2, capabilities=[Instrumentation(settings)]
)


@agent.tool_plain
def get_weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    return {"city": city, "sky": "clear"}


@agent.tool_plain
def book_flight(city: str, date: str) -> str:
    """Book a flight."""
    if int(date[5:7]) > 12:
        raise ModelRetry(f"no such date: {date}")
    return "booking 4711"


agent.run_sync("Where does the sun shine? Book a flight there.")
spans.shutdown()
for call in trajectories(recorded.get_finished_spans())[0].calls:
    print("call", call.name, call.arguments, "->", call.result, call.error or "")
