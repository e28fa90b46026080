"""A LangChain agent on LangGraph, traced by OpenInference, and its scores; the model is scripted:
no key, no network.

python -m pip install . langchain openinference-instrumentation-langchain
python examples/frameworks/langchain_agent.py
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import wrap_tool_call
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import tool
from openinference.instrumentation.langchain import LangChainInstrumentor
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


def asks(*calls: tuple[str, dict[str, str]]) -> AIMessage:
    """A model's message that asks for tools."""
    return AIMessage(
        "",
        tool_calls=[{"name": name, "args": args, "id": f"{name} {args}"} for name, args in calls],
    )


script = iter(
    [
        asks(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"})),
        asks(("book_flight", {"city": "Oslo", "date": "2026-13-40"})),
        asks(("book_flight", {"city": "Oslo", "date": "2026-12-01"})),
        AIMessage("Oslo it is."),
    ]
)


class Scripted(GenericFakeChatModel):
    """Answers what is written; knows what tools there are without heeding them."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@tool
def get_weather(city: str) -> dict[str, str]:
    """Tell the weather of a city."""
    return {"city": city, "sky": "clear"}


@tool
def book_flight(city: str, date: str) -> str:
    """Book a flight."""
    if int(date[5:7]) > 12:
        raise ValueError(f"no such date: {date}")
    return "booking 4711"


@wrap_tool_call
def tell_the_model(request: Any, handler: Any) -> Any:
    """A tool that fails is a message to the model, not the end of the run."""
    try:
        return handler(request)
    except ValueError as error:
        return ToolMessage(str(error), tool_call_id=request.tool_call["id"], status="error")


spans, recorded = TracerProvider(shutdown_on_exit=False), InMemorySpanExporter()
spans.add_span_processor(EvalSpanProcessor(evaluation))
spans.add_span_processor(SimpleSpanProcessor(recorded))
LangChainInstrumentor().instrument(tracer_provider=spans)

agent = create_agent(
    Scripted(messages=script),
    [get_weather, book_flight],
    name="travel",
    middleware=[tell_the_model],
)
agent.invoke({"messages": [("user", "Where does the sun shine? Book a flight there.")]})
spans.shutdown()
for call in trajectories(recorded.get_finished_spans())[0].calls:
    print("call", call.name, call.arguments, "->", call.result, call.error or "")
