"""The OpenTelemetry GenAI conventions, and instrumentations and gateways that follow them with
additions of their own.

Each table names the revisions it was read at; E marks what was also seen in a recorded trace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from otel_eval.conventions.table import (
    CLIENT_TOOL_TYPES,
    CLIENT_TOOLS,
    Convention,
    EventRow,
    Field,
    Mark,
    MessageRow,
    Rule,
    Side,
)
from otel_eval.model import Kind

OPERATION: Final = "gen_ai.operation.name"
AGENT_OPERATIONS: Final = "invoke_agent|invoke_workflow"
MODEL_OPERATIONS: Final = "chat|generate_content|text_completion"
# Operations that are neither: creating an agent runs nothing, and the rest are framework steps.
_STEPS: Final = (
    "create_agent|plan|embeddings|retrieval|rerank|create_memory|create_memory_store|update_memory|upsert_memory|"
    "search_memory|delete_memory|delete_memory_store|chain|execute_task|execute_event_loop_cycle|unknown|guardrail"
)
# "not recorded" as instrumentations spell it: OpenInference, Koog, langchain-azure-ai.
PLACEHOLDERS: Final[Mapping[str, frozenset[str]]] = {
    "*": frozenset({"__REDACTED__", "HIDDEN:non-empty", "[redacted]", '"[redacted]"'}),
    "gen_ai.tool.call.id": frozenset({"<not specified>", "unknown", ""}),
}


def by_kind(key: str, **values: str) -> tuple[Rule, ...]:
    """A rule for each kind, in order: the value that the attribute has for spans of the kind (`*`:
    any other).
    """
    return tuple(Rule(Kind[kind.upper()], key, value) for kind, value in values.items())


RULES: Final = (
    Rule(Kind.TOOL, OPERATION, "execute_tool"),
    Rule(Kind.AGENT, OPERATION, AGENT_OPERATIONS),
    Rule(Kind.MODEL, OPERATION, MODEL_OPERATIONS),
    Rule(Kind.OTHER, OPERATION, "handoff", handoff=True),
    Rule(Kind.OTHER, OPERATION, _STEPS),
)
FIELDS: Final[Mapping[Field, tuple[str, ...]]] = {
    Field.TOOL_NAME: ("gen_ai.tool.name",),
    # Sentry's spelling and OpenInference's stand beside the operation's name in spans of some.
    Field.ARGUMENTS: ("gen_ai.tool.call.arguments", "gen_ai.tool.input", "input.value"),
    Field.RESULT: ("gen_ai.tool.call.result", "gen_ai.tool.output", "output.value"),
    Field.CALL_ID: ("gen_ai.tool.call.id",),
    Field.ERROR_TYPE: ("error.type",),
    Field.AGENT_NAME: ("gen_ai.agent.name", "gen_ai.workflow.name"),
    Field.INPUT: ("gen_ai.input.messages",),
    Field.OUTPUT: ("gen_ai.output.messages",),
    Field.CONVERSATION: ("gen_ai.conversation.id", "session.id"),
    Field.INPUT_TOKENS: ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
    Field.OUTPUT_TOKENS: ("gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
}
MESSAGES: Final = (
    MessageRow("gen_ai.output.messages"),
    MessageRow("gen_ai.input.messages", Side.HISTORY),
    # ≤1.36: flattened (OpenLLMetry's spelling, widely copied).
    MessageRow("gen_ai.completion."),
    MessageRow("gen_ai.prompt.", Side.HISTORY),
)
# where requests may be missing
INCONCLUSIVE_MESSAGES: Final = tuple([replace(row, conclusive=False) for row in MESSAGES])

GEN_AI: Final = Convention(
    name="gen_ai",
    source=(
        "OpenTelemetry GenAI semantic conventions 1.27-1.36 (gen_ai.system, *.message events) and"
        " 1.37-1.44 (gen_ai.input.messages, gen_ai.output.messages); opentelemetry-util-genai 1.3b0"
    ),
    rules=RULES,
    fields=FIELDS,
    span_name=("execute_tool *",),
    agent_span_name=("invoke_agent *", "invoke_workflow *"),
    messages=MESSAGES,
    placeholders=PLACEHOLDERS,
    # Messages of langchain-azure-ai, whose scope is the name that the program gives to the tracer.
    masks=('"content": "[redacted]"', '"arguments": "[redacted]"'),
)


def with_fields(
    base: Mapping[Field, tuple[str, ...]], **more: tuple[str, ...]
) -> dict[Field, tuple[str, ...]]:
    """The base with these attributes looked at first."""
    added = {Field[name.upper()]: keys for name, keys in more.items()}
    return {
        each: (*added.get(each, ()), *base.get(each, ()))
        for each in (*base, *(f for f in added if f not in base))
    }


# ReAct, and ReActV2, reserve these names for the tool that ends the loop.
DSPY_CLOSING_TOOLS: Final = frozenset({"finish", "submit"})

# Logfire writes this in place of what may be a secret.
SCRUBBED: Final = ("[Scrubbed due to '",)

# A call that waits for an approval, or for a result from elsewhere, leaves a span with the second.
PYDANTIC_AI_NOT_CALLS: Final = (
    Mark("logfire.msg", "running output function*"),
    Mark("pydantic_ai.tool.deferral.name", "*"),
)
# The run ends with `DeferredToolRequests` where a tool is declared to require an approval, too.
_APPROVALS: Final = '{"calls":[*"approvals":[{"tool_name":*'
PYDANTIC_AI_PAUSES: Final = (
    Mark("pydantic_ai.tool.deferral.name", "ApprovalRequired"),
    Mark("final_result", _APPROVALS),
    Mark("output.value", _APPROVALS),
)

# The text that the model gets in place of a result.
# What a tool that ran asks to be retried for ends like an answer about invalid arguments.
PYDANTIC_AI_REFUSALS: Final = (
    "Unknown tool name: *",
    "* validation error:*",
    "* validation errors:*",
    '[{"type": "*", "loc": [*], "msg": "*',
)
LANGGRAPH_REFUSALS: Final = (
    "Error: * is not a valid tool, try one of [*",
    "Error invoking tool '*' with kwargs *",
)
STRANDS_REFUSALS: Final = (
    "*Unknown tool: *",
    "*Validation failed for input parameters: *",
)

PYDANTIC_AI: Final = replace(
    GEN_AI,
    name="pydantic_ai",
    source=(
        "pydantic-ai 0.2-2.68 InstrumentationSettings versions 1-6 (docs/logfire.md); E: versions 2"
        " and 5"
    ),
    scopes=("pydantic-ai|pydantic_ai|pydantic-ai.*",),
    rules=(
        # A function that makes the output; it names a tool, and older versions set no operation.
        Rule(Kind.OTHER, name="running output function*", artefact=True),
        *RULES,
        # Before operation names were set.
        Rule(Kind.AGENT, "agent_name", name="agent run|* run|invoke_agent *"),
        Rule(Kind.MODEL, "gen_ai.request.model"),
    ),
    fields=with_fields(
        FIELDS,
        arguments=("tool_arguments",),
        result=("tool_response",),
        agent_name=("agent_name",),
        input=("pydantic_ai.all_messages", "all_messages_events"),
        output=("final_result",),
        input_tokens=("gen_ai.aggregated_usage.input_tokens",),
        output_tokens=("gen_ai.aggregated_usage.output_tokens",),
        first_new_message=("pydantic_ai.new_message_index",),
    ),
    span_name=("running tool: *", "execute_tool *"),
    messages=(
        *MESSAGES,
        MessageRow("pydantic_ai.all_messages"),
        MessageRow("all_messages_events"),
        MessageRow("events", choices=True),
    ),
    # A structured output is requested as a call of a tool that is never run, or that an output
    # function replaces.
    not_requests=("final_result*",),
    not_call_marks=PYDANTIC_AI_NOT_CALLS,
    pause_marks=PYDANTIC_AI_PAUSES,
    refusals=PYDANTIC_AI_REFUSALS,
    client_tool_types=("external",),
    refusal_marks=(Mark("pydantic_ai.tool.failure_stage", "validation"),),
    output_results=("Final result processed.*", "Output tool not used - *"),
    masks=SCRUBBED,
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)

PYDANTIC_AI_EARLY: Final = replace(
    PYDANTIC_AI,
    name="pydantic_ai_early",
    source=(
        "pydantic-ai before operation names were set (0.x, 1.0): early ones record neither the"
        " result of a call nor that the tool asked for a retry; E: 0.2.20, 0.4.11, 1.0.5"
    ),
    rules=(Rule(Kind.TOOL, "gen_ai.tool.name", name="running tool*|execute_tool *"),),
    failures_in_results=True,
)

STRANDS: Final = replace(
    GEN_AI,
    name="strands",
    source=(
        "strands-agents 1.62 telemetry/tracer.py: content in span events by default, in attributes"
        " with the gen_ai_latest_experimental opt-in; a graph or swarm runs several agents; 0.2"
        " writes `tool.status`; E: default, 0.2.1; @strands-agents/sdk 1.19 for TypeScript: the"
        " same; E"
    ),
    scopes=("strands.*|strands-agents*",),
    rules=(Rule(Kind.AGENT, OPERATION, "invoke_graph|invoke_swarm"), *RULES),
    errors=(Mark("gen_ai.tool.status", "error"), Mark("tool.status", "error")),
    events=(
        EventRow("gen_ai.tool.message", Field.ARGUMENTS, "content"),
        EventRow("gen_ai.tool.message", Field.CALL_ID, "id"),
        EventRow("gen_ai.choice", Field.RESULT, "message"),
    ),
    wrappers=("strands_value",),
    refusals=STRANDS_REFUSALS,
    results_in_user_events=True,
    tool_spans=True,
    # A tool that called `interrupt`.
    pauses_unrecorded=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)


def interrupts_in(key: str) -> Mark:
    """The mark of a graph of LangGraph that `interrupt` stopped: its output, an object, says so."""
    return Mark(key, '{*"__interrupt__":*')


# The result of a call that waits for a confirmation.
ADK_UNCONFIRMED: Final = (
    '*"error":*"this tool call requires confirmation, please approve or reject."*'
)

GOOGLE_ADK: Final = replace(
    GEN_AI,
    name="google_adk",
    source=(
        "google-adk 1.x and 2.13 telemetry (schema opt-in 1: gcp.vertex.agent.* content); up to"
        " 1.14 an agent is known by its span's name only; E: 1.14, 1.39, 2.13 default"
    ),
    # OpenInference moves the spans to its own scope and leaves some of them as they were.
    scopes=("gcp.vertex.agent|openinference.instrumentation.google_adk*",),
    rules=(
        # Written when the tool has returned or raised.
        Rule(Kind.TOOL, "gcp.vertex.agent.event_id", name="execute_tool *"),
        Rule(Kind.TOOL, "error.type", name="execute_tool *"),
        *(rule for rule in RULES if rule.kind is not Kind.TOOL),
        Rule(Kind.AGENT, name="invocation|agent_run [*"),
        Rule(Kind.MODEL, name="call_llm"),
    ),
    agent_span_name=("agent_run [*]", *GEN_AI.agent_span_name),
    fields=with_fields(
        FIELDS,
        arguments=("gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args"),
        result=("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response"),
        conversation=("gcp.vertex.agent.session_id",),
        input=("gcp.vertex.agent.llm_request",),
        output=("gcp.vertex.agent.llm_response",),
    ),
    messages=(
        *MESSAGES,
        MessageRow("gcp.vertex.agent.llm_response"),
        MessageRow("gcp.vertex.agent.llm_request", Side.HISTORY),
    ),
    # An additional span merges the results of parallel calls.
    not_calls=frozenset({"(merged tools)", "(merged)"}),
    pause_marks=tuple(
        Mark(key, ADK_UNCONFIRMED)
        for key in ("gen_ai.tool.call.result", "gcp.vertex.agent.tool_response")
    ),
    # Written instead of the content when it is not captured.
    placeholders={
        **PLACEHOLDERS,
        "gcp.vertex.agent.tool_call_args": frozenset({"{}"}),
        "gcp.vertex.agent.tool_response": frozenset(
            {"{}", "<not specified>", '{"result": "<not specified>"}'}
        ),
        "gcp.vertex.agent.llm_request": frozenset({"{}"}),
        "gcp.vertex.agent.llm_response": frozenset({"{}"}),
    },
    tool_spans=True,
    # Without content; a tool whose work goes on, or that ends the loop, looks the same.
    pauses_unrecorded=True,
)

GOOGLE_ADK_JAVA: Final = replace(
    GOOGLE_ADK,
    name="google_adk_java",
    source=(
        "com.google.adk 1.8.0: a call's id has a name of its own, and only the result of a call"
        " that raised shows it; E"
    ),
    rules=(Rule(Kind.TOOL, "gen_ai.tool_call.id"),),
    fields=with_fields(GOOGLE_ADK.fields, call_id=("gen_ai.tool_call.id",)),
    errors=(
        Mark(
            "gcp.vertex.agent.tool_response",
            '{"status":"error","message":"*"}|{"message":"*","status":"error"}',
        ),
    ),
    failures_in_results=True,
)

GOOGLE_ADK_FAILED: Final = replace(
    GOOGLE_ADK,
    name="google_adk_failed",
    source=(
        "google-adk up to 1.14 and @google/adk 2.0.0 for JavaScript: a tool's span gets its"
        " attributes when the tool returns, so that the span of a call that raised has only a name,"
        " in JavaScript without a status; so has that of a long-running tool that returned None; E"
    ),
    rules=(Rule(Kind.TOOL, OPERATION, "execute_tool"), Rule(Kind.TOOL, name="execute_tool *")),
    # A call whose tool goes on after it, and returned nothing yet, leaves the same span, and so
    # does one that was cancelled.
    failures_unrecorded=True,
)

# The result by which OpenAI Agents tells the model that a tool did not return in time.
OPENAI_AGENTS_TIMEOUT: Final = "tool '*' timed out after * seconds."
# The name that OpenAI Agents gives to a workflow unless the program gives one.
DEFAULT_WORKFLOW: Final = {**PLACEHOLDERS, "gen_ai.workflow.name": frozenset({"Agent workflow"})}

OPENAI_AGENTS: Final = replace(
    GEN_AI,
    name="openai_agents",
    source=(
        "opentelemetry-instrumentation-openai-agents-v2 0.1.0 and -genai-openai-agents 1.3b0; E:"
        " 0.1.0 (turn spans are called `unknown`; output messages hold calls only as repr text)"
    ),
    scopes=(
        "opentelemetry.instrumentation.openai_agents*|opentelemetry.instrumentation.genai.openai_agents*",
    ),
    messages=INCONCLUSIVE_MESSAGES,
    placeholders=DEFAULT_WORKFLOW,
    agent_span_name=("invoke_agent *",),
    errors=(Mark("gen_ai.tool.call.result", OPENAI_AGENTS_TIMEOUT),),
    tool_spans=True,
    hosted_unrecorded=True,
    pauses_unrecorded=True,
)

LANGCHAIN: Final = replace(
    GEN_AI,
    name="otel_langchain",
    source=(
        "opentelemetry-instrumentation-genai-langchain 1.3b0: a result is the text alone, so that a"
        " failure that the tool handled itself does not show; E"
    ),
    scopes=("opentelemetry.instrumentation.genai.langchain*",),
    refusals=LANGGRAPH_REFUSALS,
    tool_spans=True,
    # A graph ends so where it stops before its tools or in a middleware.
    pauses_unanswered=True,
    failures_in_results=True,
)

ADOT: Final = replace(
    GEN_AI,
    name="adot",
    source=(
        "aws-opentelemetry-distro 0.21 instrumentation/ langchain, crewai, llama_index,"
        " openai_agents and mcp (a result of LangChain is the text of its message; a missing finish"
        " reason becomes `stop`), llo_handler.py (messages are moved into the bodies of log"
        " records); E: langchain"
    ),
    scopes=("amazon.opentelemetry.distro.instrumentation.*",),
    wrappers=("langchain_text",),
    refusals=LANGGRAPH_REFUSALS,
    tool_spans=True,
    pauses_unanswered=True,
    # It writes `stop` where the model gave no reason.
    unreliable_finish_reasons=(Mark(OPERATION, "*"),),
    failures_in_results=True,
)

AUTOGEN: Final = replace(
    GEN_AI,
    name="autogen",
    source="autogen-core 0.7.5 _telemetry/_genai.py: no arguments, no results, no model spans; E",
    scopes=("autogen*",),
    tool_spans=True,
)

AGENT_FRAMEWORK: Final = replace(
    GEN_AI,
    name="agent_framework",
    source=(
        "agent-framework-core 1.23 observability.py; E (`unknown` stands for no call id; a workflow"
        " runs several agents)"
    ),
    scopes=("agent_framework*|Microsoft.Agents*",),
    rules=(*RULES, Rule(Kind.AGENT, "workflow.id", name="workflow.run")),
    pause_marks=(
        Mark("gen_ai.output.messages", '*{"type": "function_approval_request",*"function_call":*'),
    ),
    tool_spans=True,
    # A tool that needs an approval, and one that runs at the client, leaves no span.
    pauses_unanswered=True,
    # The span of a call that was cancelled ends without an error.
    pauses_unrecorded=True,
)

SEMANTIC_KERNEL: Final = replace(
    GEN_AI,
    name="semantic_kernel",
    source=(
        "semantic-kernel 1.45 utils/telemetry (tool names are `plugin-function`; messages use"
        " `content`); E"
    ),
    scopes=("semantic_kernel*|Microsoft.SemanticKernel*",),
    tool_spans=True,
    # The span of a call that was cancelled ends without an error.
    pauses_unrecorded=True,
)

OTEL_FRAMEWORKS: Final = replace(
    GEN_AI,
    name="otel_frameworks",
    source=(
        "opentelemetry-instrumentation-genai-agno, -genai-llama-index 1.3b0: agents and tools, no"
        " model spans"
    ),
    scopes=(
        "opentelemetry.instrumentation.genai.agno*|opentelemetry.instrumentation.genai.llama_index*",
    ),
    tool_spans=True,
)

MODEL_CLIENTS: Final = replace(
    GEN_AI,
    name="gen_ai_clients",
    source=(
        "opentelemetry-instrumentation-openai-v2 2.4b0, -genai-openai, -anthropic, -google-genai"
        " 1.3b0, -botocore: they wrap the model's client and see no tool run"
    ),
    scopes=(
        (
            "opentelemetry.instrumentation.openai_v2*|opentelemetry.instrumentation.genai.openai|"
            "opentelemetry.instrumentation.genai.portkey*|"
            "opentelemetry.instrumentation.genai.anthropic*|opentelemetry.instrumentation.anthropic_v2*|"
            "opentelemetry.instrumentation.botocore*|opentelemetry.instrumentation.vertexai_v2*|"
            "opentelemetry.util.genai.handler|azure.ai.inference*|openai.*|OpenAI.*|Experimental.Microsoft.Extensions.AI*|"
            "@opentelemetry/instrumentation-openai|@opentelemetry/instrumentation-aws-sdk"
        ),
    ),
    client_tools=CLIENT_TOOLS,
    client_tool_types=CLIENT_TOOL_TYPES,
    tool_spans=False,
)

GOOGLE_GENAI: Final = replace(
    GEN_AI,
    name="google_genai",
    source=(
        "opentelemetry-instrumentation-google-genai 1.3b0 message.py: Gemini gives no ids, so a"
        " request in messages gets the name of the tool and its position in the message; E"
    ),
    scopes=("opentelemetry.instrumentation.google_genai*",),
    positional_ids=True,
)

ANTHROPIC: Final = replace(
    GEN_AI,
    name="anthropic_client",
    source=(
        "anthropic 2.12: the client's own spans, without content; instrumentations leave them"
        " beside theirs; E"
    ),
    scopes=("com.anthropic.sdk.*",),
    tool_spans=False,
    repeats=("*anthropic*",),
)

# AI_NoSuchToolError and AI_InvalidToolInputError, up to version 6 without the name.
AI_SDK_REFUSALS: Final = (
    "Model tried to call unavailable tool '*",
    "Invalid input for tool *",
    "AI_NoSuchToolError: *",
    "AI_InvalidToolInputError: *",
)
AI_SDK_REQUESTS: Final = (Mark("gen_ai.tool.type", "extension"),)
AI_SDK: Final = replace(
    GEN_AI,
    name="ai_sdk",
    source=(
        "@ai-sdk/otel 1.0 with ai 7 (open-telemetry.ts): a request for a tool of the provider gets"
        " a span whether or not the provider ran it; a call that waits for an approval, and one of"
        " a tool that runs at the client, leaves none; E: 1.0.173"
    ),
    scopes=("gen_ai",),
    request_marks=AI_SDK_REQUESTS,
    refusals=AI_SDK_REFUSALS,
    tool_spans=True,
    pauses_unanswered=True,
)

DIALECTS: Final = (
    PYDANTIC_AI,
    PYDANTIC_AI_EARLY,
    STRANDS,
    GOOGLE_ADK_JAVA,
    GOOGLE_ADK,
    GOOGLE_ADK_FAILED,
    OPENAI_AGENTS,
    LANGCHAIN,
    ADOT,
    AUTOGEN,
    AGENT_FRAMEWORK,
    SEMANTIC_KERNEL,
    OTEL_FRAMEWORKS,
    MODEL_CLIENTS,
    GOOGLE_GENAI,
    ANTHROPIC,
    AI_SDK,
)

KOOG: Final = replace(
    GEN_AI,
    name="koog",
    source=(
        "ai.koog koog-agents 1.1.1 features-opentelemetry (`koog.event.id`; the scope is the name"
        " of the service); E"
    ),
    rules=(
        Rule(Kind.TOOL, "koog.event.id", name="execute_tool *"),
        Rule(Kind.MODEL, "koog.event.id", name="chat *"),
    ),
    # Written for a call that failed; messages hold the text that the model got.
    placeholders={**PLACEHOLDERS, "gen_ai.tool.call.result": frozenset({"{}"})},
    tool_spans=True,
)

KOOG_AGENT: Final = replace(
    KOOG,
    name="koog_agent",
    source=(
        "the same: an agent's span repeats the messages from before the run as its input and"
        " output, and has no tokens; E"
    ),
    rules=(Rule(Kind.AGENT, "koog.event.id", name="invoke_agent *"),),
    fields={Field.AGENT_NAME: ("gen_ai.agent.id",), Field.CONVERSATION: FIELDS[Field.CONVERSATION]},
    messages=(),
)

BARE_TOOL: Final = replace(
    GEN_AI,
    name="gen_ai_bare",
    source=(
        "Spans that name a tool and no operation (Koog, older pydantic-ai, SK for .NET); Langfuse's"
        " ObservationTypeMapper reads them so"
    ),
    rules=(
        Rule(Kind.TOOL, "gen_ai.tool.name"),
        Rule(Kind.TOOL, "gen_ai.tool.call.id"),
        Rule(Kind.MODEL, "gen_ai.request.model"),
    ),
    span_name=("execute_tool *", "tool.*", "running tool: *", "*"),
)
