"""Products with attribute families of their own: tracing products, general frameworks, coding
agents, and OpenLLMetry.

OpenLLMetry is the SDK of Traceloop with the instrumentations that came from it. Its spans often
carry GenAI attributes too, filled with the envelopes of the framework, so its tables precede the
GenAI ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.frameworks import GENKIT
from otel_eval.conventions.builtin.genai import (
    AI_SDK_REFUSALS,
    GEN_AI,
    INCONCLUSIVE_MESSAGES,
    LANGGRAPH_REFUSALS,
    OPERATION,
    PLACEHOLDERS,
    by_kind,
    interrupts_in,
    with_fields,
)
from otel_eval.conventions.builtin.openinference import FIELDS as OPENINFERENCE_FIELDS
from otel_eval.conventions.table import (
    CLIENT_TOOL_TYPES,
    CLIENT_TOOLS,
    FINISH_REASONS,
    Convention,
    EventRow,
    Field,
    Mark,
    MessageRow,
    Rule,
    Side,
)
from otel_eval.model import Kind

KIND: Final = "traceloop.span.kind"
RULES: Final = (
    Rule(Kind.TOOL, KIND, "tool"),
    Rule(Kind.AGENT, KIND, "agent|workflow"),
    Rule(Kind.MODEL, "llm.request.type", "chat|completion"),
    Rule(Kind.OTHER, KIND, "task"),
)
FIELDS: Final[Mapping[Field, tuple[str, ...]]] = with_fields(
    GEN_AI.fields,
    tool_name=("gen_ai.tool.name", "traceloop.entity.name"),
    arguments=("gen_ai.tool.call.arguments", "traceloop.entity.input"),
    result=("gen_ai.tool.call.result", "traceloop.entity.output"),
    agent_name=("gen_ai.agent.name", "traceloop.entity.name"),
    input=("gen_ai.input.messages", "traceloop.entity.input"),
    output=("gen_ai.output.messages", "traceloop.entity.output"),
    conversation=(
        "gen_ai.conversation.id",
        "traceloop.association.properties.thread_id",
        "traceloop.association.properties.session_id",
    ),
)

TRACELOOP: Final = replace(
    GEN_AI,
    name="traceloop",
    source=(
        "traceloop/openllmetry 0.62.4, opentelemetry-semantic-conventions-ai 0.5.1; E: langchain"
    ),
    rules=tuple(rule for rule in RULES if rule.key == KIND),
    fields=FIELDS,
    span_name=("execute_tool *", "*.tool"),
    agent_span_name=("invoke_agent *", "*.workflow", "*.agent"),
    errors=(Mark("gen_ai.task.status", "failure"),),
    wrappers=("langchain_tool_start", "langchain_output", "python_call"),
)

TRACELOOP_MODELS: Final = replace(
    TRACELOOP,
    name="traceloop_models",
    source="the same: model calls in the spelling that other libraries copied",
    rules=tuple(rule for rule in RULES if rule.key != KIND),
    client_tools=CLIENT_TOOLS,
    client_tool_types=CLIENT_TOOL_TYPES,
    tool_spans=False,
)

LANGCHAIN: Final = replace(
    TRACELOOP,
    name="traceloop_langchain",
    source=(
        "opentelemetry-instrumentation-langchain 0.62.4 (some spans carry only GenAI attributes); E"
    ),
    scopes=("opentelemetry.instrumentation.langchain*",),
    rules=(
        # An agent that a tool called is a task beside an agent's span without anything below it.
        Rule(
            Kind.AGENT,
            "traceloop.association.properties.lc_agent_name",
            "{name}",
            name="execute_task *",
        ),
        *RULES,
        *GEN_AI.rules,
    ),
    pause_marks=(interrupts_in("traceloop.entity.output"),),
    refusals=LANGGRAPH_REFUSALS,
    tool_spans=True,
    pauses_unanswered=True,
    failures_in_results=True,
)

LANGCHAIN_JS: Final = replace(
    LANGCHAIN,
    name="traceloop_langchain_js",
    source=(
        "@traceloop/instrumentation-langchain 0.27: a tool's span has the name of its class, a step"
        " is marked as a workflow, spans of one run lie side by side, and output messages lack the"
        " calls; E"
    ),
    scopes=("@traceloop/instrumentation-langchain*",),
    rules=(
        Rule(Kind.OTHER, OPERATION, "execute_tool", unread=True),
        Rule(
            Kind.AGENT,
            KIND,
            "workflow",
            name="workflow CompiledStateGraph|workflow LangGraph|workflow AgentExecutor",
        ),
        Rule(Kind.OTHER, KIND, "workflow"),
        *LANGCHAIN.rules,
    ),
    agent_span_name=(),
    messages=INCONCLUSIVE_MESSAGES,
    tool_spans=False,
)

AGNO: Final = replace(
    TRACELOOP,
    name="traceloop_agno",
    source=(
        "opentelemetry-instrumentation-agno 0.62.4: agents and teams, no model spans; results are"
        " `repr` text, and only that text shows that a call failed; E"
    ),
    scopes=("opentelemetry.instrumentation.agno*",),
    rules=RULES,
    fields=with_fields(FIELDS, agent_name=("agno.team.name",)),
    agent_span_name=("*.team", "*.agent"),
    errors=(Mark("traceloop.entity.output", "status='failure' *"),),
    tool_spans=True,
    failures_in_results=True,
)

MCP_CLIENT: Final = replace(
    TRACELOOP,
    name="traceloop_mcp",
    source=(
        "opentelemetry-instrumentation-mcp 0.62.4: calls of an MCP client, with their request and"
        " response as objects; E"
    ),
    scopes=("opentelemetry.instrumentation.mcp*",),
    wrappers=("mcp_request", "mcp_response", *TRACELOOP.wrappers),
)

LLAMA_INDEX: Final = replace(
    TRACELOOP,
    name="traceloop_llama_index",
    source=(
        "opentelemetry-instrumentation-llamaindex 0.62.4 with llama-index-core 0.14: tools are"
        " tasks without names; E"
    ),
    scopes=("opentelemetry.instrumentation.llamaindex*",),
    rules=(*RULES, *GEN_AI.rules),
    tool_spans=False,
    failures_in_results=True,
)

CREWAI: Final = replace(
    TRACELOOP,
    name="traceloop_crewai",
    source=(
        "opentelemetry-instrumentation-crewai 0.62.4: crew, agent and task spans, no tool spans; E"
    ),
    scopes=("opentelemetry.instrumentation.crewai*",),
    rules=(*RULES, *GEN_AI.rules),
    messages=INCONCLUSIVE_MESSAGES,
    tool_spans=False,
)

MODEL_CLIENTS: Final = replace(
    TRACELOOP,
    name="traceloop_clients",
    source=(
        "opentelemetry-instrumentation-openai, -anthropic, -bedrock, -cohere, -groq, -mistralai,"
        " -ollama, -together, -vertexai, -google-generativeai 0.62.4: they wrap the model's client"
        " and see no tool run"
    ),
    scopes=tuple(
        f"{origin}{each}"
        for origin in ("opentelemetry.instrumentation.", "@traceloop/instrumentation-")
        for each in (
            "openai",
            "openai.*",
            "anthropic",
            "bedrock",
            "cohere",
            "groq",
            "mistralai",
            "ollama",
            "together",
            "vertexai",
            "google_generativeai",
            "watsonx",
            "replicate",
            "sagemaker",
            "writer",
        )
    ),
    rules=(*RULES, *GEN_AI.rules),
    tool_spans=False,
)

GOOGLE_GENAI: Final = replace(
    MODEL_CLIENTS,
    name="traceloop_google_genai",
    source=(
        "opentelemetry-instrumentation-google-generativeai 0.62.4: the SDK of Gemini can run tools"
        " itself within one model call, whose span then holds the last answer only; E"
    ),
    scopes=("opentelemetry.instrumentation.google_generativeai",),
    messages=INCONCLUSIVE_MESSAGES,
)

OPENLLMETRY: Final = (
    LANGCHAIN,
    LANGCHAIN_JS,
    AGNO,
    MCP_CLIENT,
    LLAMA_INDEX,
    CREWAI,
    GOOGLE_GENAI,
    MODEL_CLIENTS,
)

LANGFUSE: Final = Convention(
    name="langfuse",
    source="langfuse-python 5.0.4 _client/attributes.py; ObservationTypeMapper.ts @2026-08-22; E",
    rules=(
        Rule(Kind.TOOL, "langfuse.observation.type", "tool"),
        # Steps of LangGraph are agents because of their names; an agent within a step is a chain
        # with its own name.
        Rule(Kind.AGENT, "langfuse.observation.metadata.lc_agent_name", '{name}|"{name}"'),
        Rule(
            Kind.OTHER,
            "langfuse.observation.metadata.langgraph_node",
            name="agent|call_agent|*.before_agent|*.after_agent",
        ),
        Rule(Kind.AGENT, "langfuse.observation.type", "agent"),
        Rule(Kind.MODEL, "langfuse.observation.type", "generation"),
        # A graph whose name lacks the word `agent` is a chain like its steps.
        Rule(Kind.OTHER, "langfuse.observation.metadata.langgraph_node"),
        Rule(
            Kind.AGENT,
            "langfuse.observation.metadata.ls_integration",
            "*langgraph*|*langchain_create_agent*",
        ),
        Rule(
            Kind.OTHER, "langfuse.observation.type", "chain|retriever|evaluator|embedding|guardrail"
        ),
    ),
    fields={
        # Some mark GenAI's spans for Langfuse and leave the content where it was.
        Field.TOOL_NAME: ("gen_ai.tool.name", "tool.name"),
        Field.ARGUMENTS: ("langfuse.observation.input", "gen_ai.tool.call.arguments"),
        Field.RESULT: ("langfuse.observation.output", "gen_ai.tool.call.result"),
        Field.CALL_ID: ("langfuse.observation.metadata.tool_call_id", "gen_ai.tool.call.id"),
        Field.ERROR_TYPE: ("error.type",),
        Field.AGENT_NAME: ("gen_ai.agent.name",),
        Field.INPUT: ("langfuse.observation.input", "langfuse.trace.input"),
        Field.OUTPUT: ("langfuse.observation.output", "langfuse.trace.output"),
        Field.CONVERSATION: ("session.id", "langfuse.session.id"),
        Field.INPUT_TOKENS: ("gen_ai.usage.input_tokens", "langfuse.observation.usage_details"),
        Field.OUTPUT_TOKENS: ("gen_ai.usage.output_tokens", "langfuse.observation.usage_details"),
    },
    span_name=("*",),
    agent_span_name=("*",),
    errors=(Mark("langfuse.observation.level", "ERROR"),),
    # A tool that called LangGraph's `interrupt`.
    pause_marks=(
        Mark("langfuse.observation.status_message", "(Interrupt(value=*"),
        interrupts_in("langfuse.observation.output"),
    ),
    messages=(
        MessageRow("langfuse.observation.output"),
        MessageRow("langfuse.observation.input", Side.HISTORY),
    ),
    wrappers=("langchain_tool_start", "python_call"),
    refusals=LANGGRAPH_REFUSALS,
    failures_in_results=True,
)

LANGSMITH: Final = Convention(
    name="langsmith",
    source=(
        "langsmith-sdk 0.14.17 _internal/otel/_otel_exporter.py (spans are made after the run, the"
        " root first); E"
    ),
    rules=(
        Rule(Kind.TOOL, "langsmith.span.kind", "tool"),
        Rule(Kind.MODEL, "langsmith.span.kind", "llm"),
        Rule(Kind.AGENT, "langsmith.span.kind", "agent"),
        # An agent is a chain like its steps, which share its metadata and add their own; one within
        # a step has a name.
        Rule(Kind.AGENT, "langsmith.metadata.lc_agent_name", "{name}"),
        Rule(Kind.OTHER, "langsmith.metadata.langgraph_node"),
        Rule(Kind.AGENT, "langsmith.metadata.ls_integration", "langchain_create_agent|langgraph"),
        Rule(Kind.AGENT, "langsmith.trace.name", "LangGraph"),
        Rule(Kind.OTHER, "langsmith.span.kind"),
    ),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("gen_ai.tool.name", "langsmith.trace.name"),
        arguments=("gen_ai.prompt",),
        result=("gen_ai.completion",),
        agent_name=("langsmith.metadata.lc_agent_name",),
        input=("gen_ai.prompt",),
        output=("gen_ai.completion",),
        conversation=("langsmith.metadata.thread_id", "langsmith.metadata.session_id"),
    ),
    span_name=("*",),
    agent_span_name=("*",),
    messages=(MessageRow("gen_ai.completion"), MessageRow("gen_ai.prompt", Side.HISTORY)),
    wrappers=("langchain_input", "langchain_output"),
    pause_marks=(interrupts_in("gen_ai.completion"),),
    refusals=LANGGRAPH_REFUSALS,
    # A failed tool has an empty output, and so have hidden inputs and outputs.
    placeholders={
        **PLACEHOLDERS,
        "gen_ai.completion": frozenset({"{}"}),
        "gen_ai.prompt": frozenset({"{}"}),
    },
    failures_in_results=True,
)

# `ai.generateText` is the run and `ai.generateText.doGenerate` one model call within it: the text
# must fit whole.
VERCEL: Final = Convention(
    name="vercel_ai_sdk",
    source=(
        "vercel/ai packages/ai/src/telemetry, versions 3.4-6; with version 7 LegacyOpenTelemetry"
        " (@ai-sdk/otel itself writes GenAI); E: 6.0"
    ),
    rules=(
        Rule(Kind.TOOL, "ai.operationId", "ai.toolCall"),
        Rule(Kind.TOOL, "operation.name", "ai.toolCall|ai.toolCall *"),
        Rule(
            Kind.AGENT,
            "ai.operationId",
            "ai.generateText|ai.streamText|ai.generateObject|ai.streamObject",
        ),
        Rule(
            Kind.MODEL,
            "ai.operationId",
            "ai.generateText.doGenerate|ai.streamText.doStream|ai.generateObject.doGenerate|"
            "ai.streamObject.doStream",
        ),
        Rule(Kind.OTHER, "ai.operationId"),
    ),
    fields={
        Field.TOOL_NAME: ("ai.toolCall.name",),
        Field.ARGUMENTS: ("ai.toolCall.args", "ai.toolCall.input"),
        Field.RESULT: ("ai.toolCall.result", "ai.toolCall.output"),
        Field.CALL_ID: ("ai.toolCall.id",),
        Field.ERROR_TYPE: ("error.type",),
        Field.AGENT_NAME: ("ai.telemetry.functionId", "resource.name"),
        Field.INPUT: ("ai.prompt",),
        Field.OUTPUT: ("ai.response.text", "ai.response.object", "ai.result.text"),
        Field.CONVERSATION: ("ai.telemetry.metadata.sessionId", "ai.telemetry.metadata.threadId"),
        Field.INPUT_TOKENS: (
            "gen_ai.usage.input_tokens",
            "ai.usage.inputTokens",
            "ai.usage.promptTokens",
        ),
        Field.OUTPUT_TOKENS: (
            "gen_ai.usage.output_tokens",
            "ai.usage.outputTokens",
            "ai.usage.completionTokens",
        ),
    },
    messages=(
        MessageRow("ai.response.toolCalls"),
        MessageRow("ai.result.toolCalls"),
        MessageRow("ai.prompt.messages", Side.HISTORY),
    ),
    refusals=AI_SDK_REFUSALS,
    tool_spans=True,
    # A call that waits for an approval, and one of a tool that runs at the client, leaves no span.
    pauses_unanswered=True,
)

MCP: Final = Convention(
    name="mcp",
    source=(
        "OpenTelemetry GenAI conventions docs/gen-ai/mcp.md (1.39 and later); mcp python SDK 2.3.0;"
        " fastmcp 4.2.3, where a server passes a call on to one that is mounted on it under a"
        " prefix; E"
    ),
    rules=(
        Rule(Kind.OTHER, "fastmcp.provider.type", name="delegate *", artefact=True),
        *by_kind("mcp.method.name", tool="tools/call", other="*"),
    ),
    fields=GEN_AI.fields,
    span_name=("tools/call *", "MCP send tools/call *"),
    mcp_names=("*",),
    placeholders=PLACEHOLDERS,
)

MCP_PYTHON_CLIENT: Final = replace(
    MCP,
    name="mcp_python_client",
    source=(
        "mcp python SDK 2.3.0 client: its span shows an error only if the request failed or ran"
        " into its time limit; that the tool failed is in the result, which is not recorded, and in"
        " the server's span if that has one; E"
    ),
    scopes=("mcp-python-sdk",),
    rules=(Rule(Kind.TOOL, "mcp.method.name", "tools/call", name="MCP send tools/call *"),),
    failures_unrecorded=True,
)

PLAIN: Final = Convention(
    name="plain",
    source=(
        "UiPath uipath 2.14.44 (a span is a tool call if tool.name is set and tool.synthesized is"
        " not true); any span with tool.name, input.value and output.value"
    ),
    rules=(Rule(Kind.TOOL, "tool.name"),),
    fields=OPENINFERENCE_FIELDS,
    wrappers=("python_call", "uipath_output"),
    not_call_marks=(Mark("tool.synthesized", "true"),),
    placeholders={"*": frozenset({"__REDACTED__"})},
)

CLAUDE_CODE: Final = Convention(
    name="claude_code",
    source=(
        "Claude Code docs, monitoring (traces, beta) @2026-06: `claude_code.tool` names the call,"
        " `.tool.execution` below it, with the same id and no name, records how it ended; a"
        " session's title is requested in a trace of its own; arguments and the output only in log"
        " records; E: the CLI of claude-agent-sdk 0.2.187"
    ),
    scopes=("*claude*code*",),
    rules=(
        Rule(Kind.OTHER, "llm_request.context", "standalone"),
        Rule(Kind.TOOL, name="claude_code.tool|claude_code.tool.execution"),
        Rule(Kind.AGENT, name="claude_code.interaction"),
        Rule(Kind.MODEL, name="claude_code.llm_request"),
        Rule(Kind.OTHER, name="claude_code.*"),
    ),
    fields={
        Field.TOOL_NAME: ("tool_name", "gen_ai.tool.name"),
        Field.ARGUMENTS: ("gen_ai.tool.call.arguments", "tool_input"),
        Field.RESULT: ("gen_ai.tool.call.result",),
        Field.CALL_ID: ("gen_ai.tool.call.id", "tool_use_id"),
        Field.ERROR_TYPE: ("error.type", "error_type"),
        Field.INPUT: ("user_prompt",),
        Field.FINISH_REASONS: ("stop_reason", *FINISH_REASONS),
        Field.CONVERSATION: ("session.id",),
        Field.INPUT_TOKENS: ("input_tokens", "gen_ai.usage.input_tokens"),
        Field.OUTPUT_TOKENS: ("output_tokens", "gen_ai.usage.output_tokens"),
    },
    mcp_names=("mcp__*__*",),
    errors=(Mark("success", "false"),),
    events=(EventRow("tool.output", Field.RESULT, "output"),),
    placeholders={"*": frozenset({"<REDACTED>"})},
    tool_spans=True,
)

GEMINI_CLI: Final = Convention(
    name="gemini_cli",
    source=(
        "gemini-cli packages/core/src/telemetry/trace.ts and constants.ts,"
        " scheduler/tool-executor.ts @2026: a tool span's input is the request, its output the"
        " completed call; before, `input-json` and `output-json`"
    ),
    scopes=("gemini-cli*|@google/gemini-cli*",),
    rules=by_kind(
        OPERATION, tool="tool_call", agent="agent_call|user_prompt", model="llm_call", other="*"
    ),
    fields=with_fields(
        GEN_AI.fields,
        arguments=("gen_ai.input.messages", "input-json"),
        result=("gen_ai.output.messages", "output-json"),
        call_id=("gen_ai.tool.call_id",),
    ),
    span_name=(),
    wrappers=("gemini_cli_request", "gemini_cli_result"),
    placeholders=PLACEHOLDERS,
    tool_spans=True,
    failures_in_results=True,
)

GEMINI_CLI_MODEL: Final = replace(
    GEMINI_CLI,
    name="gemini_cli_model",
    source=(
        "gemini-cli 0.61.0: without a terminal each model call and each batch of tool calls is a"
        " trace of its own, so that the calls of a model span are elsewhere; E"
    ),
    rules=by_kind(OPERATION, model="llm_call"),
    messages=INCONCLUSIVE_MESSAGES,
    tool_spans=None,
)

CODEX: Final = Convention(
    name="codex",
    source=(
        "Codex CLI 0.169.0 (`trace_exporter`): one span in many is a call, without content, also of"
        " a tool that does not exist; whether it failed is in log records of spans below it; tools"
        " that the model's provider runs leave no span; E"
    ),
    scopes=("codex_*|codex-*",),
    rules=(
        Rule(Kind.TOOL, "codex.tool.phase", "dispatch"),
        Rule(Kind.AGENT, name="session_task.turn"),
        Rule(Kind.MODEL, name="codex.sampling"),
        Rule(Kind.OTHER, name="*"),
    ),
    fields={
        Field.TOOL_NAME: ("tool_name",),
        Field.CALL_ID: ("call_id",),
        Field.INPUT_TOKENS: ("codex.turn.token_usage.input_tokens",),
        Field.OUTPUT_TOKENS: ("codex.turn.token_usage.output_tokens",),
    },
    failures_unrecorded=True,
)

GENKIT_V2: Final = replace(
    GENKIT,
    name="genkit_v2",
    source="github.com/firebase/genkit/go 1.4.0: the result of each tool stands under `output`",
    rules=by_kind("genkit:metadata:subtype", tool="tool.v2"),
    wrappers=("genkit_output",),
)

LLAMA_INDEX_OWN: Final = Convention(
    name="llama_index_own",
    source=(
        "llama-index-observability-otel 0.7.0: a span per method; a tool is named in the text of"
        " its step's event only, and a call of a tool that does not exist looks like any other"
    ),
    scopes=("llamaindex.opentelemetry.*",),
    rules=(
        Rule(
            Kind.TOOL,
            "llamaindex.step.input_summary",
            "ToolCall(*",
            name="*.call_tool|*Tool.acall|*Tool.call",
        ),
        Rule(Kind.AGENT, name="*Agent.run|AgentWorkflow.run"),
        Rule(Kind.MODEL, name="*.achat|*.astream_chat|*.chat|*.stream_chat"),
    ),
    title="llamaindex.step.input_summary",
    span_name=("ToolCall(tool_name='*', tool_kwargs=*",),
    tool_spans=True,
    failures_unrecorded=True,
)
