"""What an agent that was called did may stand below its caller, or in messages of the caller's
client.
"""

from __future__ import annotations

from typing import Any

from otel_eval.conventions.messages import ToolRequest, read_messages
from otel_eval.model import Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from tests.support.made_spans import FakeSpan, closed, span

OP = "gen_ai.operation.name"


def agent(span_id: str, parent: str, start: int, end: int, name: str | None = None) -> FakeSpan:
    attributes = {OP: "invoke_agent", "gen_ai.agent.name": span_id if name is None else name}
    return span(span_id, parent, "invoke_agent", start_ns=start, end_ns=end, attributes=attributes)


def tool(span_id: str, parent: str, start: int, end: int) -> FakeSpan:
    attributes = {OP: "execute_tool", "gen_ai.tool.name": span_id}
    return span(span_id, parent, "execute_tool", start_ns=start, end_ns=end, attributes=attributes)


def chat(span_id: str, parent: str, start: int, finish: str = "tool_calls") -> FakeSpan:
    attributes: dict[str, Any] = {OP: "chat", "gen_ai.response.finish_reasons": [finish]}
    return span(span_id, parent, "chat", start_ns=start, end_ns=start + 3, attributes=attributes)


def runs(*spans: FakeSpan) -> list[Trajectory]:
    return [run.trajectory for run in build(closed(*spans), Plan())]


CALLED = [agent("root", "", 0, 99), tool("task", "root", 5, 80), agent("sub", "task", 6, 79)]


def test_a_model_call_of_a_called_agent_may_stand_below_its_caller():
    """The call that it asked for is that agent's; without one the calls are unknown."""
    asked = [chat("m", "root", 10), tool("bash", "sub", 15, 20), chat("n", "root", 30, "stop")]
    outer, inner = runs(*CALLED, *asked)
    assert (outer.calls_unknown, [call.name for call in outer.calls]) == ("", ["task", "bash"])
    assert [call.name for call in inner.calls] == ["bash"]
    lost = [chat("m", "root", 10), tool("bash", "sub", 35, 40), chat("n", "root", 30, "stop")]
    assert runs(*CALLED, *lost)[0].calls_unknown
    # The agent had ended when the model was called: it is the caller's own call that is missing.
    later = [tool("bash", "sub", 15, 20), chat("m", "root", 85)]
    assert runs(*CALLED, *later)[0].calls_unknown


def test_a_called_agent_that_shows_nothing_while_others_work_beside_it_may_have_called():
    """Its spans may be those beside it."""
    outer, inner = runs(
        *CALLED, chat("m", "root", 10), tool("rm", "root", 15, 20), chat("n", "root", 30, "stop")
    )
    assert (outer.calls_unknown, [call.name for call in outer.calls]) == ("", ["task", "rm"])
    assert "lie beside it" in inner.calls_unknown
    before = [chat("m", "root", 1), tool("rm", "root", 85, 90)]
    assert "lie beside it" not in runs(*CALLED, *before)[1].calls_unknown


def test_a_run_without_a_name_has_that_of_its_first_agent():
    """A graph, or agents that hand over to one another; not an agent that a tool called."""
    flow = agent("flow", "", 0, 99, name="")
    outer, *_ = runs(flow, agent("b", "flow", 9, 20), agent("a", "flow", 30, 40))
    assert outer.agent == "b"
    assert runs(flow, tool("t", "flow", 5, 50), agent("b", "t", 9, 20))[0].agent == ""


def test_the_random_id_of_a_crew_is_no_part_of_its_name():
    """Else each crew would be another time series."""
    name = "Crew_0f4b2a1c-93d7-4c5e-8a6b-1f2e3d4c5b6a"
    attributes = {"openinference.span.kind": "CHAIN"}
    crew = span(
        "c",
        "",
        f"{name}.kickoff",
        scope="openinference.instrumentation.crewai",
        attributes=attributes,
    )
    (run,) = runs(crew, chat("m", "c", 5, "stop"))
    assert run.agent == "Crew"


def test_requests_of_langchain_in_the_form_of_its_models_client_are_read_once():
    """Where LangChain made calls of them, these count."""
    raw = {
        "tool_calls": [{"id": "c1", "function": {"name": "look", "arguments": '{"k": 1}'}}],
        "refusal": None,
    }
    message = {"role": "assistant", "content": "", "additional_kwargs": raw}
    asked = [ToolRequest("look", "c1", {"k": 1})]
    assert read_messages(message) == asked
    made = [{"name": "look", "args": {"k": 1}, "id": "c1", "type": "tool_call"}]
    assert read_messages({**message, "tool_calls": made}) == asked
