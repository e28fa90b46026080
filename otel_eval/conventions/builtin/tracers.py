"""Tracing SDKs with integrations and decorators of their own: MLflow, Laminar, Langtrace, Weave, AgentOps and OpenLIT."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import DEFAULT_WORKFLOW, GEN_AI, MESSAGES, OPERATION, by_kind, with_fields
from otel_eval.conventions.table import Convention, Field, Mark, MessageRow, Rule, Side
from otel_eval.model import Kind

MLFLOW: Final = Convention(
    name="mlflow",
    source="mlflow 3.18 tracing/constant.py, entities/span.py (every attribute value is JSON text); E: langchain",
    rules=by_kind("mlflow.spanType", tool="TOOL", agent="AGENT", model="CHAT_MODEL|LLM", other="*"),
    fields={
        Field.TOOL_NAME: ("gen_ai.tool.name",),
        Field.ARGUMENTS: ("mlflow.spanInputs",),
        Field.RESULT: ("mlflow.spanOutputs",),
        Field.CALL_ID: ("tool_call_id",),
        Field.ERROR_TYPE: ("error.type",),
        Field.INPUT: ("mlflow.spanInputs",),
        Field.OUTPUT: ("mlflow.spanOutputs",),
        Field.CONVERSATION: ("mlflow.trace.session", "session.id"),
        Field.INPUT_TOKENS: ("mlflow.chat.tokenUsage",),
        Field.OUTPUT_TOKENS: ("mlflow.chat.tokenUsage",),
    },
    span_name=("*",),
    agent_span_name=("*",),
    messages=(MessageRow("mlflow.spanOutputs"), MessageRow("mlflow.spanInputs", Side.HISTORY)),
    wrappers=("python_call",),
    json_encoded=True,
    failures_in_results=True,
)

MLFLOW_LANGCHAIN: Final = replace(
    MLFLOW,
    name="mlflow_langchain",
    source="mlflow 3.18 langchain/langchain_tracer.py: an agent is a CHAIN, known only by its metadata or LangGraph's name; E",
    scopes=("mlflow*",),
    rules=(
        *(rule for rule in MLFLOW.rules if rule.kind is not Kind.OTHER),
        Rule(Kind.AGENT, "metadata", '*"lc_agent_name": "{name}"*'),
        Rule(Kind.OTHER, "metadata", '*"langgraph_node":*'),
        Rule(Kind.AGENT, "metadata", '*"ls_integration":*"langchain_create_agent"*|*"ls_integration":*"langgraph"*'),
        Rule(Kind.AGENT, "mlflow.spanType", "CHAIN", name="LangGraph"),
        *(rule for rule in MLFLOW.rules if rule.kind is Kind.OTHER),
    ),
)

MLFLOW_DSPY: Final = replace(
    MLFLOW,
    name="mlflow_dspy",
    source="mlflow 3.17 dspy/callback.py: names of classes and methods, and `Tool.` before a tool's name; E",
    rules=(
        Rule(Kind.TOOL, "mlflow.spanType", "TOOL", name="Tool.*"),
        Rule(Kind.AGENT, "mlflow.spanType", "AGENT", name="*.forward"),
    ),
    span_name=("Tool.*",),
    agent_span_name=("*.forward",),
    # ReAct reserves this name for the tool that ends its loop.
    not_calls=frozenset({"finish"}),
)

MLFLOW_STREAMED: Final = replace(
    MLFLOW,
    name="mlflow_streamed",
    source="mlflow 3.17.2 openai/utils/chat_schema.py: the answer that it joins from the parts of a streamed one has no calls "
    "and always the finish reason `stop`; E",
    scopes=("mlflow*",),
    rules=(Rule(Kind.MODEL, "stream", "true", name="Completions*|AsyncCompletions*"),),
    messages=tuple(replace(row, conclusive=False) for row in MLFLOW.messages),
    unreliable_finish_reasons=(Mark("stream", "true"),),
)

MLFLOW_SMOLAGENTS: Final = replace(
    MLFLOW,
    name="mlflow_smolagents",
    source="mlflow 3.17.2 smolagents/autolog.py: a tool's span has the name of the tool's class (`SimpleTool` for each "
    "function), and calls after one that raised may leave none, so calls cannot be read reliably; E",
    scopes=("mlflow*",),
    rules=(Rule(Kind.OTHER, "mlflow.spanType", "TOOL", name="*.__call__"),),
)

LAMINAR: Final = replace(
    GEN_AI,
    name="laminar",
    source="lmnr 0.8.2 opentelemetry_lib/tracing/attributes.py and instrumentation/ (decorators, OpenAI Agents, LangChain, model "
    "clients): all spans have one scope; E",
    scopes=("lmnr.tracer",),
    rules=(
        Rule(Kind.TOOL, "lmnr.span.type", "TOOL"),
        *GEN_AI.rules,
        Rule(Kind.MODEL, "lmnr.span.type", "LLM"),
        Rule(Kind.OTHER, "lmnr.span.type", "EVALUATION|EXECUTOR|EVALUATOR"),
    ),
    fields=with_fields(
        GEN_AI.fields,
        arguments=("gen_ai.tool.call.arguments", "lmnr.span.input"),
        result=("gen_ai.tool.call.result", "lmnr.span.output"),
        input=("gen_ai.input.messages", "lmnr.span.input"),
        output=("gen_ai.output.messages", "lmnr.span.output"),
        conversation=("gen_ai.conversation.id", "lmnr.association.properties.session_id"),
    ),
    span_name=("execute_tool *", "*"),
)

LAMINAR_RESPONSES: Final = replace(
    LAMINAR,
    name="laminar_responses",
    source="lmnr 0.8.2 instrumentation/openai/v1/responses_wrappers.py: gen_ai.completion.N repeats the calls of the messages "
    "with the ids of items instead of calls; E",
    rules=(Rule(Kind.MODEL, "lmnr.span.type", "LLM", name="openai.response"),),
    messages=MESSAGES[:2],
)

LANGTRACE: Final = replace(
    GEN_AI,
    name="langtrace",
    source="langtrace-python-sdk 3.8.21: content in events; spans of model clients, and of frameworks without kinds; E: openai, "
    "anthropic, langchain",
    scopes=("langtrace_python_sdk.*",),
    tool_spans=False,
)

LANGTRACE_TEXT: Final = replace(
    LANGTRACE,
    name="langtrace_text",
    source="the same: of a streamed answer the arguments of calls are written as its text, and of the Responses API nothing but "
    "text; E",
    rules=(
        Rule(Kind.MODEL, "gen_ai.request.stream", "true"),
        Rule(Kind.MODEL, OPERATION, "openai.responses.create"),
    ),
    conclusive_events=False,
)

WEAVE: Final = replace(
    GEN_AI,
    name="weave",
    source="wandb/weave, agents' attributes @2026: GenAI's names below `weave.`, which win over the same below `gen_ai.`",
    rules=tuple(replace(rule, key=rule.key.replace("gen_ai.", "weave.")) for rule in GEN_AI.rules),
    fields={field: (*(key.replace("gen_ai.", "weave.") for key in keys), *keys) for field, keys in GEN_AI.fields.items()},
    messages=(*(replace(row, key=row.key.replace("gen_ai.", "weave.")) for row in MESSAGES), *MESSAGES),
    agent_span_name=("invoke_agent *",),
)

AGENTOPS: Final = replace(
    GEN_AI,
    name="agentops",
    source="agentops-sdk 0.4 semconv/span_attributes.py and sdk/decorators (`agentops.span.kind`; content as a Python call)",
    rules=by_kind("agentops.span.kind", tool="tool", agent="agent|workflow", model="llm", other="*"),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("tool.name", "agentops.tool.name", "gen_ai.tool.name", "operation.name", "agentops.entity.name"),
        arguments=("gen_ai.tool.call.arguments", "agentops.tool.input", "agentops.entity.input", "tool.parameters"),
        result=("gen_ai.tool.call.result", "agentops.tool.output", "agentops.entity.output", "tool.result"),
        agent_name=("agent.name", "gen_ai.agent.name", "operation.name", "agentops.entity.name"),
    ),
    span_name=("*.tool", "*"),
    agent_span_name=("*.agent", "*.workflow", "*"),
    errors=(Mark("tool.status", "error"),),
    wrappers=("python_call",),
)

OPENLIT: Final = replace(
    GEN_AI,
    name="openlit",
    source="openlit 1.34 (no span of a tool with LangChain 1; names and ids of several calls in one text), 1.45 (spans of tools; "
    "a result of LangChain is the text of its message); E",
    scopes=("openlit*",),
    wrappers=("langchain_text",),
    placeholders=DEFAULT_WORKFLOW,
    agent_span_name=("invoke_agent *",),
    tool_spans=False,
)

OPENLIT_STREAMED: Final = replace(
    OPENLIT,
    name="openlit_streamed",
    source="openlit 1.45: streamed answers, also of the Responses API, hold all calls; E",
    rules=(
        *(rule for rule in GEN_AI.rules if rule.kind is not Kind.MODEL),
        Rule(Kind.MODEL, "gen_ai.request.stream", "true"),
    ),
)

OPENLIT_RESPONSES: Final = replace(
    OPENLIT,
    name="openlit_responses",
    source="openlit 1.45 instrumentation/openai/utils.py: of several calls in an answer of the Responses API only the last one "
    "is recorded; E",
    rules=(Rule(Kind.MODEL, "openai.api.type", "responses"),),
    messages=tuple(replace(row, conclusive=False) for row in MESSAGES),
)
