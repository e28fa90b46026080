"""The built-in tables know the spans of their instrumentations and are not fooled by their
neighbours'.
"""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.conventions import TABLES, Convention, Rule
from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.message_formats import WRAPPERS
from otel_eval.conventions.reader import DROPPED, Reader
from otel_eval.conventions.values import TEXT_WRAPPERS
from otel_eval.model import Kind
from tests.support.made_spans import span

READER = Reader(TABLES)
OP = "gen_ai.operation.name"
OI = "openinference.span.kind"
TL = "traceloop.span.kind"
LANGCHAIN = "opentelemetry.instrumentation.langchain"
DSPY = "openinference.instrumentation.dspy"
BEEAI = "openinference.instrumentation.beeai"
BEEAI_TS = "@arizeai/openinference-instrumentation-beeai"
LOGFIRE = "logfire.openai_agents"
TL_BEDROCK = "opentelemetry.instrumentation.bedrock"
OTEL_DSPY = "opentelemetry.instrumentation.genai.dspy"
TRULENS = "ai.observability."
TOOL_NODE = {
    TRULENS + "span_type": "tool",
    TRULENS + "call.function": "langgraph.prebuilt.tool_node.ToolNode.invoke",
}
CALL = '{"name": "search", "args": {"q": "a"}, "id": "1", "type": "tool_call"}'
HANDLER = "opentelemetry.util.genai.handler"
CREATED = {
    OI: "CHAIN",
    "metadata": '{"ls_integration": "langchain_create_agent", "lc_agent_name": "travel"}',
}
STEP = CREATED | {"metadata": CREATED["metadata"].replace("}", ', "langgraph_node": "tools"}')}

INTEGRATION = {"langsmith.metadata.ls_integration": "langchain_create_agent"}


def read(scope: str, name: str, attributes: dict[str, Any]) -> tuple[str, str]:
    reading = READER.of_scope(scope).read(span("s", "", name, attributes=attributes))
    return reading.kind.value, reading.table.name if reading.table else ""


@pytest.mark.parametrize(
    ("scope", "name", "attributes", "kind", "table"),
    [
        (
            "my.agent",
            "execute_tool x",
            {OP: "execute_tool", "gen_ai.tool.name": "x"},
            "tool",
            "gen_ai",
        ),
        ("my.agent", "invoke_agent a", {OP: "invoke_agent"}, "agent", "gen_ai"),
        ("my.agent", "invoke_workflow a", {OP: "invoke_workflow"}, "agent", "gen_ai"),
        ("my.agent", "chat m", {OP: "chat", "gen_ai.tool.name": "x"}, "model", "gen_ai"),
        (
            "my.agent",
            "create_agent a",
            {OP: "create_agent", "gen_ai.agent.name": "a"},
            "other",
            "gen_ai",
        ),
        ("my.agent", "unknown", {OP: "unknown"}, "other", "gen_ai"),
        ("my.agent", "x", {"gen_ai.tool.name": "x"}, "tool", "gen_ai_bare"),
        ("any", "x", {"tool.name": "x", "input.value": "{}"}, "tool", "plain"),
        ("any", "POST /", {"http.request.method": "POST"}, "other", ""),
        ("pydantic-ai", "running tool", {"gen_ai.tool.name": "x"}, "tool", "pydantic_ai_early"),
        ("pydantic-ai", "agent run", {"agent_name": "a"}, "agent", "pydantic_ai"),
        ("strands.telemetry.tracer", "chat", {OP: "chat"}, "model", "strands"),
        ("strands.telemetry.tracer", "cycle", {OP: "execute_event_loop_cycle"}, "other", "strands"),
        ("gcp.vertex.agent", "invocation", {}, "agent", "google_adk"),
        ("autogen-core", "execute_tool x", {OP: "execute_tool"}, "tool", "autogen"),
        ("agent_framework", "invoke_agent a", {OP: "invoke_agent"}, "agent", "agent_framework"),
        (
            "semantic_kernel.functions.kernel_function",
            "execute_tool p-f",
            {OP: "execute_tool"},
            "tool",
            "semantic_kernel",
        ),
        (
            "opentelemetry.instrumentation.openai_v2",
            "chat m",
            {OP: "chat"},
            "model",
            "gen_ai_clients",
        ),
        (
            "opentelemetry.instrumentation.openai_agents",
            "chat m",
            {OP: "chat"},
            "model",
            "openai_agents",
        ),
        (LANGCHAIN, "x.tool", {TL: "tool", OP: "execute_tool"}, "tool", "traceloop_langchain"),
        (LANGCHAIN, "t", {TL: "task", OP: "execute_task"}, "other", "traceloop_langchain"),
        (
            "opentelemetry.instrumentation.crewai",
            "crewai.workflow",
            {TL: "workflow"},
            "agent",
            "traceloop_crewai",
        ),
        ("traceloop.tracer", "x.tool", {TL: "tool"}, "tool", "traceloop"),
        (
            "opentelemetry.instrumentation.openai.v1",
            "openai.chat",
            {"llm.request.type": "chat"},
            "model",
            "traceloop_clients",
        ),
        (
            "openinference.instrumentation.langchain",
            "x",
            {OI: "TOOL"},
            "tool",
            "openinference_langchain",
        ),
        (
            "openinference.instrumentation.langchain",
            "travel",
            CREATED,
            "agent",
            "openinference_langchain",
        ),
        (
            "openinference.instrumentation.langchain",
            "tools",
            STEP,
            "other",
            "openinference_langchain",
        ),
        (
            "openinference.instrumentation.langchain",
            "search",
            STEP | {OI: "TOOL"},
            "tool",
            "openinference_langchain",
        ),
        (
            "openinference.instrumentation.llama_index",
            "x",
            {OI: "TOOL"},
            "tool",
            "openinference_llama_index",
        ),
        (
            "openinference.instrumentation.openai",
            "x",
            {OI: "LLM"},
            "model",
            "openinference_clients",
        ),
        (
            "openinference.instrumentation.haystack",
            "Agent.run",
            {OI: "CHAIN"},
            "agent",
            "openinference_haystack",
        ),
        (
            "openinference.instrumentation.haystack",
            "Retriever.run",
            {OI: "CHAIN"},
            "other",
            "openinference_haystack",
        ),
        (
            "openinference.instrumentation.crewai",
            "c.kickoff",
            {OI: "CHAIN"},
            "agent",
            "openinference_crewai",
        ),
        (
            "langsmith",
            "x",
            {"langsmith.span.kind": "tool", OP: "execute_tool"},
            "tool",
            "langsmith",
        ),
        ("langsmith", "x", {"langsmith.span.kind": "chain", OP: "chain"}, "other", "langsmith"),
        ("mlflow.tracing.provider", "x", {"mlflow.spanType": '"TOOL"'}, "tool", "mlflow_langchain"),
        ("any", "x", {"mlflow.spanType": '"CHAIN"'}, "other", "mlflow"),
        (
            "langsmith",
            "travel",
            {"langsmith.span.kind": "chain"} | INTEGRATION,
            "agent",
            "langsmith",
        ),
        (
            "langsmith",
            "LangGraph",
            {"langsmith.span.kind": "chain", "langsmith.trace.name": "LangGraph"},
            "agent",
            "langsmith",
        ),
        (
            "langsmith",
            "model",
            {"langsmith.span.kind": "chain", "langsmith.metadata.langgraph_node": "model"}
            | INTEGRATION,
            "other",
            "langsmith",
        ),
        (
            "mlflow.langchain",
            "a",
            {"mlflow.spanType": '"CHAIN"', "metadata": CREATED["metadata"]},
            "agent",
            "mlflow_langchain",
        ),
        (
            "mlflow.langchain",
            "model",
            {"mlflow.spanType": '"CHAIN"', "metadata": STEP["metadata"]},
            "other",
            "mlflow_langchain",
        ),
        (
            "mlflow.langchain",
            "LangGraph",
            {"mlflow.spanType": '"CHAIN"'},
            "agent",
            "mlflow_langchain",
        ),
        (
            "openinference.instrumentation.langchain",
            "LangGraph",
            {OI: "CHAIN"},
            "agent",
            "openinference_langchain",
        ),
        ("langfuse-sdk", "x", {"langfuse.observation.type": "tool"}, "tool", "langfuse"),
        ("langfuse-sdk", "x", {"langfuse.observation.type": "span"}, "other", ""),
        ("ai", "ai.generateText", {"ai.operationId": "ai.generateText"}, "agent", "vercel_ai_sdk"),
        (
            "ai",
            "ai.streamText.doStream",
            {"ai.operationId": "ai.streamText.doStream"},
            "model",
            "vercel_ai_sdk",
        ),
        ("ai", "ai.toolCall", {"operation.name": "ai.toolCall my-agent"}, "tool", "vercel_ai_sdk"),
        ("gen_ai", "execute_tool x", {OP: "execute_tool"}, "tool", "ai_sdk"),
        (
            "org.springframework.ai",
            "tool_call x",
            {"spring.ai.kind": "tool_call", OP: "framework"},
            "tool",
            "spring_ai",
        ),
        (
            "mcp-python-sdk",
            "tools/call x",
            {"mcp.method.name": "tools/call", OP: "execute_tool"},
            "tool",
            "mcp",
        ),
        ("mcp-python-sdk", "tools/list", {"mcp.method.name": "tools/list"}, "other", "mcp"),
        (
            "fastmcp",
            "tools/call x",
            {"mcp.method.name": "tools/call", "fastmcp.provider.type": "FastMCPProvider"},
            "tool",
            "mcp",
        ),
        (
            "fastmcp",
            "delegate x",
            {"mcp.method.name": "tools/call", "fastmcp.provider.type": "FastMCPProvider"},
            "other",
            "mcp",
        ),
        ("trulens", "my.search", {TRULENS + "span_type": "tool"}, "tool", "trulens"),
        ("trulens", "my.app", {TRULENS + "span_type": "record_root"}, "agent", "trulens"),
        ("trulens", "feedback", {TRULENS + "span_type": "eval_root"}, "other", "trulens"),
        (
            "trulens",
            "x",
            {TRULENS + "call.kwargs.input": f"[{CALL}]", **TOOL_NODE},
            "tool",
            "trulens_langgraph",
        ),
        (
            "trulens",
            "x",
            {TRULENS + "call.kwargs.input": f"[{CALL}, {CALL}]", **TOOL_NODE},
            "other",
            "trulens_langgraph",
        ),
        (
            "trulens",
            "x",
            {TRULENS + "call.kwargs.input": "{'messages': []}", **TOOL_NODE},
            "other",
            "trulens_langgraph",
        ),
        (
            "lmnr.tracer",
            "open",
            {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"action":"open","params":{}}'},
            "tool",
            "laminar_browser_use",
        ),
        (
            "lmnr.tracer",
            "open",
            {"lmnr.span.type": "TOOL", "lmnr.span.input": '{"action":"open"}'},
            "tool",
            "laminar",
        ),
        ("upsonic", "tool.execute", {"upsonic.tool.name": "x"}, "tool", "upsonic"),
        ("upsonic", "agent.run", {"upsonic.agent.name": "a"}, "agent", "upsonic"),
        ("upsonic", "chat m", {OP: "chat"}, "model", "upsonic"),
        (
            OTEL_DSPY,
            "invoke_agent",
            {OP: "invoke_agent", "gen_ai.agent.name": "dspy.ReAct"},
            "agent",
            "otel_dspy_react",
        ),
        ("mirascope.llm", "chat m", {OP: "chat"}, "model", "mirascope"),
        (OTEL_DSPY, "chat m", {OP: "chat"}, "model", "otel_dspy"),
        (
            TL_BEDROCK,
            "chat m",
            {OP: "chat", "gen_ai.response.id": "1"},
            "model",
            "traceloop_bedrock",
        ),
        (TL_BEDROCK, "chat m", {OP: "chat"}, "model", "traceloop_clients"),
        ("", "ToolExecution[x]", {OI: "TOOL"}, "tool", "openinference_agentspec"),
        ("genkit-tracer", "x", {"genkit:metadata:subtype": "tool.v2"}, "tool", "genkit_v2"),
        ("genkit-tracer", "x", {"genkit:metadata:subtype": "tool"}, "tool", "genkit"),
        ("flue", "x", {"flue.tool.name": "x"}, "tool", "flue"),
        ("livekit-agents", "function_tool", {}, "tool", "livekit"),
        (
            "pydantic-ai",
            "running output function",
            {"gen_ai.tool.name": "final_result"},
            "other",
            "pydantic_ai",
        ),
        (
            "pydantic-ai",
            "running output function: answer",
            {"gen_ai.tool.name": "answer"},
            "other",
            "pydantic_ai",
        ),
        ("litellm", "litellm_request", {OP: "chat"}, "model", "litellm"),
        ("litellm", "raw_gen_ai_request", {}, "model", "litellm"),
        ("litellm", "Received Proxy Server Request", {OP: "chat"}, "other", "litellm"),
        (
            "my.app",
            "handle",
            {OP: "chat", "llm.request.type": "completion", "litellm.call_id": "1"},
            "other",
            "litellm_caller",
        ),
        (
            "my.app",
            "handle",
            {OP: "chat", "hidden_params": '{"litellm_model_name": "m"}'},
            "other",
            "litellm_caller",
        ),
        ("my.app", "handle", {OP: "chat", "hidden_params": "{}"}, "model", "gen_ai"),
        (
            "traceloop.tracer",
            "x.workflow",
            {TL: "workflow", "litellm.call_id": "1"},
            "agent",
            "traceloop",
        ),
        ("pydantic-ai", "chat m", {OP: "chat", "litellm.call_id": "1"}, "model", "pydantic_ai"),
        ("my.app", "openai.chat", {"llm.request.type": "chat"}, "model", "traceloop_models"),
        ("traceroot.tracer", "camel.agents.chat_agent.ChatAgent.step", {}, "agent", "camel"),
        ("traceroot.tracer", "camel.models.base_model.BaseModelBackend.run", {}, "model", "camel"),
        ("traceroot.tracer", "camel.agents.chat_agent.ChatAgent._execute_tool", {}, "other", ""),
        (DSPY, "search.__call__", {OI: "TOOL"}, "tool", "openinference_dspy"),
        (DSPY, "LM.acall", {OI: "LLM"}, "model", "openinference_dspy"),
        (DSPY, "Travel.forward", {OI: "CHAIN"}, "agent", "openinference_dspy"),
        (DSPY, "CodeAct.forward", {OI: "CHAIN"}, "agent", "openinference_dspy"),
        (DSPY, "ReAct.aforward", {OI: "CHAIN"}, "agent", "openinference_dspy_react"),
        (DSPY, "Predict(StringSignature).forward", {OI: "CHAIN"}, "other", "openinference_dspy"),
        (DSPY, "ChainOfThought.forward", {OI: "CHAIN"}, "other", "openinference_dspy"),
        (DSPY, "ChatAdapter.__call__", {OI: "CHAIN"}, "other", "openinference_dspy"),
        (
            BEEAI,
            "search",
            {OI: "TOOL", "metadata.class_name": "SearchTool"},
            "tool",
            "openinference_beeai",
        ),
        (
            BEEAI,
            "error",
            {OI: "TOOL", "metadata.path": "tool.search.error"},
            "other",
            "openinference_beeai",
        ),
        (
            BEEAI,
            "final_answer",
            {OI: "AGENT", "metadata.path": "agent.requirement.final_answer"},
            "other",
            "openinference_beeai",
        ),
        (
            BEEAI,
            "tool.search.wikipedia.start-12",
            {OI: "TOOL", "target": "tool.search.wikipedia.start"},
            "other",
            "openinference_beeai_events",
        ),
        (
            BEEAI_TS,
            "tool.search.wikipedia.error-1",
            {OI: "TOOL", "target": "tool.search.wikipedia.error"},
            "other",
            "openinference_beeai_events",
        ),
        (
            BEEAI_TS,
            "agent.react.start-1",
            {OI: "AGENT", "target": "agent.react.start"},
            "other",
            "openinference_beeai_events",
        ),
        (
            BEEAI_TS,
            "backend.openai.chat.success-1",
            {OI: "LLM", "target": "backend.openai.chat.success"},
            "model",
            "openinference_beeai_events",
        ),
        (BEEAI_TS, "beeai-framework-main", {OI: "AGENT"}, "agent", "openinference_beeai_events"),
        (LOGFIRE, "Function: {name}", {"name": "search"}, "tool", "logfire_openai_agents"),
        (LOGFIRE, "Agent run: {name!r}", {"name": "travel"}, "agent", "logfire_openai_agents"),
        (
            LOGFIRE,
            "OpenAI Agents trace: {name}",
            {"name": "Agent workflow"},
            "agent",
            "logfire_openai_agents_trace",
        ),
        (
            LOGFIRE,
            "Responses API with {gen_ai.request.model!r}",
            {OP: "chat"},
            "model",
            "logfire_openai_agents",
        ),
        (
            LOGFIRE,
            "Handoff: {from_agent} → {to_agent}",
            {"logfire.span_type": "span"},
            "other",
            "logfire_openai_agents",
        ),
        (
            LOGFIRE,
            "Function: {name}",
            {"logfire.span_type": "pending_span"},
            "other",
            "logfire_openai_agents_trace",
        ),
        (
            HANDLER,
            "execute_tool search",
            {OP: "execute_tool", "langgraph_node": "tools"},
            "tool",
            "splunk_langchain",
        ),
        (HANDLER, "execute_tool search", {OP: "execute_tool"}, "tool", "splunk"),
        (
            HANDLER,
            "workflow trip",
            {OP: "invoke_workflow", "gen_ai.workflow.name": "trip"},
            "agent",
            "splunk",
        ),
        (
            HANDLER,
            "execute_tool search",
            {OP: "execute_tool", "gen_ai.span.kind": "TOOL"},
            "tool",
            "loongsuite_tools",
        ),
        (HANDLER, "chat gpt", {OP: "chat"}, "model", "gen_ai_clients"),
        (
            "AzureAIOpenTelemetryTracer",
            "execute_tool search",
            {OP: "execute_tool"},
            "tool",
            "azure_langchain",
        ),
        (
            "AzureAIOpenTelemetryTracer",
            "invoke_agent Prompt",
            {OP: "invoke_agent", "metadata.langgraph_node": "agent"},
            "other",
            "azure_langchain",
        ),
        (
            "microsoft_agents_a365.observability.core.config",
            "execute_tool search",
            {OP: "execute_tool", "gen_ai.tool.type": "extension"},
            "tool",
            "a365_langchain",
        ),
        (
            "microsoft_agents_a365.observability.core.config",
            "execute_tool search",
            {OP: "execute_tool", "gen_ai.tool.type": "function"},
            "tool",
            "gen_ai",
        ),
        ("traceai_openai", "ChatCompletion", {"gen_ai.span.kind": "LLM"}, "model", "traceai"),
        ("langwatch", "search", {"langwatch.span.type": "tool"}, "tool", "langwatch"),
        ("search", "search", {"netra.span.type": "TOOL"}, "tool", "netra"),
        (
            "netra.instrumentation.openai",
            "openai.chat",
            {"netra.instrumentation.name": "openai"},
            "model",
            "netra",
        ),
        ("monocle_apptrace", "search", {"span.type": "agentic.tool.invocation"}, "tool", "monocle"),
        (
            "monocle_apptrace",
            "Completions.create",
            {"span.type": "inference.modelapi"},
            "other",
            "monocle",
        ),
        (
            "llamaindex.opentelemetry.tracer",
            "BaseWorkflowAgent.call_tool",
            {"llamaindex.step.input_summary": "ToolCall(tool_name='search', tool_kwargs={})"},
            "tool",
            "llama_index_own",
        ),
        ("llamaindex.opentelemetry.tracer", "FunctionAgent.run", {}, "agent", "llama_index_own"),
        ("judgeval", "search", {"judgment.span_kind": "tool"}, "tool", "judgment"),
        ("gemini-cli", "llm_call", {OP: "llm_call"}, "model", "gemini_cli_model"),
        (
            "codex_exec",
            "exec_command",
            {"codex.tool.phase": "dispatch", "tool_name": "exec_command"},
            "tool",
            "codex",
        ),
        ("codex_exec", "session_task.turn", {"turn.id": "1"}, "agent", "codex"),
        (
            "opentelemetry.instrumentation.genai.agno",
            "execute_tool search",
            {OP: "execute_tool"},
            "tool",
            "otel_frameworks",
        ),
        (
            "mlflow.tracing",
            "ToolManager.handle_call",
            {"mlflow.spanType": '"TOOL"'},
            "tool",
            "mlflow_pydantic_ai",
        ),
        (
            "opentelemetry.instrumentation.langchain",
            "execute_task helper",
            {
                "traceloop.span.kind": "task",
                "traceloop.association.properties.lc_agent_name": "helper",
            },
            "agent",
            "traceloop_langchain",
        ),
        (
            "opentelemetry.instrumentation.langchain",
            "execute_task tools",
            {
                "traceloop.span.kind": "task",
                "traceloop.association.properties.lc_agent_name": "helper",
            },
            "other",
            "traceloop_langchain",
        ),
    ],
)
def test_spans_of_each_instrumentation_are_read_by_its_table(
    scope: str, name: str, attributes: dict[str, Any], kind: str, table: str
):
    """By its own table, as what it is."""
    assert read(scope, name, attributes) == (kind, table)


@pytest.mark.parametrize(
    "attributes", [{OI: "EVALUATOR"}, {OP: "evaluation"}, {OI: "evaluator", OP: "chat"}]
)
def test_evaluations_are_dropped(attributes: dict[str, Any]):
    """Other people's too."""
    assert READER.of_scope("any").read(span("s", attributes=attributes)) is DROPPED


@pytest.mark.parametrize("scope", ["otel_eval", "otel_eval.judge"])
def test_our_own_scope_is_dropped_unread(scope: str):
    """Whatever its spans say."""
    assert READER.of_scope(scope).dropped


OI_LANGCHAIN = "openinference.instrumentation.langchain"


@pytest.mark.parametrize(
    ("name", "marked", "kind"),
    [
        ("travel", "CHAIN", "agent"),  # an agent that runs within a step of another one
        ("tools", "CHAIN", "other"),
        ("LangGraph", "CHAIN", "agent"),
        ("agent", "AGENT", "other"),  # the step of `create_react_agent` that asks the model
        ("X.before_agent", "AGENT", "other"),
        ("planning_agent", "AGENT", "agent"),
    ],
)
def test_an_agent_within_a_step_of_langgraph_is_told_by_its_own_name(
    name: str, marked: str, kind: str
):
    """The steps around it and below it have the same metadata, and some have `agent` in their
    names.
    """
    assert read(OI_LANGCHAIN, name, STEP | {OI: marked})[0] == kind


@pytest.mark.parametrize(("name", "kind"), [("a.*|b", "agent"), ("a.xb", "other"), ("b", "other")])
def test_a_rule_that_speaks_of_the_spans_name_takes_it_literally(name: str, kind: str):
    """Whatever a glob would make of it."""
    own = Convention(name="own", source="a test", rules=(Rule(Kind.AGENT, "who", "<{name}>"),))
    assert (
        Reader([own]).of_scope("x").read(span("s", "", name, attributes={"who": "<a.*|b>"})).kind
        == kind
    )


def test_a_mark_may_be_a_glob():
    """Some write how a call ended only at the beginning of a text."""
    table = ReadTable(next(table for table in TABLES if table.name == "traceloop_agno"))
    said = [
        {"traceloop.entity.output": text}
        for text in ("status='failure' result=None", "status='success' result='failure'")
    ]
    assert [table.marked(each, table.convention.errors) for each in said] == [True, False]


def test_an_attribute_of_an_odd_type_does_no_harm():
    """A list where text belongs matches no rule."""
    assert read("x", "x", {OP: ["execute_tool"]}) == ("other", "")


def test_the_memo_of_many_different_spans_is_bounded():
    """Free text in an attribute that rules test must not fill the memory."""
    reader = READER.of_scope("crowd")
    for number in range(5000):
        assert reader.read(span("s", attributes={"tool.name": f"t{number}"})).kind is Kind.TOOL
    assert len(reader._memo) <= 4096


def test_every_table_says_where_it_was_read_and_uses_known_wrappers():
    """A table without a source cannot be checked."""
    assert len({table.name for table in TABLES}) == len(TABLES)
    for table in TABLES:
        assert len(table.source) > 20, table.name
        named = {each for each in table.wrappers if isinstance(each, str)}
        assert named <= {*WRAPPERS, *TEXT_WRAPPERS}, table.name
