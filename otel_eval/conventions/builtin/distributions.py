"""Distributions of OpenTelemetry by vendors, with instrumentations of their own; instrumentations
that lose calls or failures.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import (
    DEFAULT_WORKFLOW,
    DSPY_CLOSING_TOOLS,
    GEN_AI,
    INCONCLUSIVE_MESSAGES,
    OPERATION,
    RULES,
    with_fields,
)
from otel_eval.conventions.builtin.vendors import MODEL_CLIENTS as TRACELOOP_CLIENTS
from otel_eval.conventions.table import Mark, Rule
from otel_eval.model import Kind

_HANDLER: Final = ("opentelemetry.util.genai.handler",)

SPLUNK_LANGCHAIN: Final = replace(
    GEN_AI,
    name="splunk_langchain",
    source=(
        "splunk-otel-instrumentation-langchain 0.1.16, splunk-otel-util-genai 0.1.15: a result is"
        " the text of its message, which alone shows that a tool handled its own failure; output"
        " messages lack the calls; E"
    ),
    scopes=_HANDLER,
    rules=(Rule(Kind.TOOL, "langgraph_node", name="execute_tool *"),),
    wrappers=("langchain_text",),
    failures_in_results=True,
)

SPLUNK: Final = replace(
    GEN_AI,
    name="splunk",
    source=(
        "splunk-otel-instrumentation-openai-agents 0.1.5: the span of a call that failed looks like"
        " any other; E"
    ),
    scopes=_HANDLER,
    rules=(
        Rule(Kind.TOOL, OPERATION, "execute_tool"),
        Rule(Kind.AGENT, "gen_ai.workflow.name", name="workflow *"),
        Rule(Kind.AGENT, "gen_ai.framework", name="invoke_agent *"),
    ),
    placeholders=DEFAULT_WORKFLOW,
    agent_span_name=("invoke_agent *",),
    failures_unrecorded=True,
)

LOONGSUITE_TOOLS: Final = replace(
    GEN_AI,
    name="loongsuite_tools",
    source=(
        "loongsuite-instrumentation-langchain 0.9.0: a result is the text alone, so that a failure"
        " that the tool handled itself does not show; E"
    ),
    scopes=_HANDLER,
    rules=(Rule(Kind.TOOL, "gen_ai.span.kind", "TOOL"),),
    failures_unrecorded=True,
)

AZURE_LANGCHAIN: Final = replace(
    GEN_AI,
    name="azure_langchain",
    source=(
        "langchain-azure-ai 1.2.12 callbacks/tracers/inference_tracing.py (scope by default): steps"
        " of LangGraph are agents, a result holds its message without the status, and `[redacted]`"
        " stands for each text that is not captured; E"
    ),
    scopes=("AzureAIOpenTelemetryTracer",),
    rules=(
        Rule(
            Kind.OTHER,
            "metadata.langgraph_node",
            name="invoke_agent call_model|invoke_agent RunnableSequence|invoke_agent Prompt",
        ),
        *GEN_AI.rules,
    ),
    wrappers=("azure_message",),
    masks=("[redacted]",),
    tool_spans=True,
    failures_unrecorded=True,
)

A365_LANGCHAIN: Final = replace(
    GEN_AI,
    name="a365_langchain",
    source=(
        "microsoft-agents-a365-observability-extensions-langchain 2.0.0 (a call whose failure its"
        " tool handled looks like any other), -openai 2.0.0"
    ),
    scopes=("microsoft_agents_a365.observability.*|Agent365Sdk",),
    rules=(Rule(Kind.TOOL, "gen_ai.tool.type", "extension", name="execute_tool *"),),
    failures_unrecorded=True,
)

TRACELOOP_BEDROCK: Final = replace(
    TRACELOOP_CLIENTS,
    name="traceloop_bedrock",
    source=(
        "opentelemetry-instrumentation-bedrock 0.62.4 streaming_wrapper.py: the arguments of calls"
        " in streamed answers of InvokeModel are lost and written as `{}`, so that calls are"
        " unknown; E"
    ),
    scopes=("opentelemetry.instrumentation.bedrock",),
    rules=(Rule(Kind.MODEL, "gen_ai.response.id"),),  # Converse, which records none, loses nothing
    masks=('"arguments": {}',),
)

OTEL_DSPY: Final = replace(
    GEN_AI,
    name="otel_dspy",
    source=(
        "opentelemetry-instrumentation-genai-dspy 1.3b0: requests for tools are text, with `stop`"
        " as the finish reason, and tools that `ToolCalls.execute` or CodeAct call leave no span; E"
    ),
    scopes=("opentelemetry.instrumentation.genai.dspy*",),
    not_calls=DSPY_CLOSING_TOOLS,
    not_requests=tuple(sorted(DSPY_CLOSING_TOOLS)),
    messages=INCONCLUSIVE_MESSAGES,
    unreliable_finish_reasons=(Mark(OPERATION, "*"),),
)

OTEL_DSPY_REACT: Final = replace(
    OTEL_DSPY,
    name="otel_dspy_react",
    source="the same: ReAct calls its tools itself, so each call leaves a span; E",
    rules=(Rule(Kind.AGENT, "gen_ai.agent.name", "dspy.ReAct|dspy.ReActV2"),),
    tool_spans=True,
)

UPSONIC: Final = replace(
    GEN_AI,
    name="upsonic",
    source=(
        "upsonic 0.77.3 agent/otel_manager.py: a call that raised is marked as a success, too; E"
    ),
    scopes=("upsonic",),
    rules=(Rule(Kind.TOOL, "upsonic.tool.name"), Rule(Kind.AGENT, "upsonic.agent.name"), *RULES),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("upsonic.tool.name",),
        call_id=("upsonic.tool.call_id",),
        arguments=("langfuse.observation.input",),
        result=("langfuse.observation.output",),
        agent_name=("upsonic.agent.name",),
        input=("upsonic.input",),
        output=("upsonic.output",),
    ),
    tool_spans=True,
    failures_unrecorded=True,
)

MIRASCOPE: Final = replace(
    GEN_AI,
    name="mirascope",
    source=(
        "mirascope 2.8.2 ops/_internal/instrumentation/llm: an answer that asks for tools ends with"
        " `stop`, too; E"
    ),
    scopes=("mirascope.*",),
    tool_spans=False,
    unreliable_finish_reasons=(Mark(OPERATION, "*"),),
)

TRACELOOP_ANTHROPIC: Final = replace(
    TRACELOOP_CLIENTS,
    name="traceloop_anthropic",
    source=(
        "opentelemetry-instrumentation-anthropic 0.62.4, @traceloop/instrumentation-anthropic 0.27:"
        " a result in the history lacks the mark of Anthropic's API that the call failed; E"
    ),
    scopes=("opentelemetry.instrumentation.anthropic", "@traceloop/instrumentation-anthropic"),
    failures_unrecorded=True,
)

DATADOG: Final = replace(
    GEN_AI,
    name="datadog",
    source=(
        "dd-trace 6.21 for JavaScript, exported by OTLP: the span of a call of the Vercel AI SDK"
        " does not name the tool, so that calls are unknown; E"
    ),
    scopes=("dd-trace-*",),
    rules=(
        Rule(Kind.OTHER, "operation.name", "ai.toolCall*", unread=True),
        Rule(Kind.AGENT, "operation.name", "ai.generateText|ai.streamText"),
        Rule(Kind.MODEL, OPERATION, "llm"),
    ),
    agent_span_name=(),
    tool_spans=False,
)
