"""Agent frameworks and their tracers that follow no common convention.

Some have attribute families of their own; the spans of others can be distinguished by their names
only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import (
    AGENT_OPERATIONS,
    GEN_AI,
    MESSAGES,
    MODEL_OPERATIONS,
    OPENAI_AGENTS_TIMEOUT,
    OPERATION,
    PLACEHOLDERS,
    SCRUBBED,
    by_kind,
    with_fields,
)
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.model import Kind

GENKIT: Final = Convention(
    name="genkit",
    source=(
        "genkit docs, telemetry overview @2026-09 (genkit:* attributes); Langfuse"
        " ObservationTypeMapper.ts @2026-08-22"
    ),
    rules=by_kind(
        "genkit:metadata:subtype",
        tool="tool|tool.v2",
        model="model|background-model",
        agent="flow|agent|executablePrompt|executable-prompt",
    ),
    fields={
        Field.TOOL_NAME: ("genkit:name",),
        Field.ARGUMENTS: ("genkit:input",),
        Field.RESULT: ("genkit:output",),
        Field.AGENT_NAME: ("genkit:name",),
        Field.INPUT: ("genkit:input",),
        Field.OUTPUT: ("genkit:output",),
        Field.CONVERSATION: ("genkit:sessionId",),
    },
    span_name=("*",),
    errors=(Mark("genkit:state", "error"),),
    messages=(MessageRow("genkit:output"), MessageRow("genkit:input", Side.HISTORY)),
    tool_spans=True,
)

FLUE: Final = Convention(
    name="flue",
    source="Langfuse ObservationTypeMapper.ts @2026-08-22 (flue.tool.*)",
    rules=(Rule(Kind.TOOL, "flue.tool.name"),),
    fields={
        Field.TOOL_NAME: ("flue.tool.name",),
        Field.ARGUMENTS: ("flue.tool.arguments",),
        Field.RESULT: ("flue.tool.result",),
    },
)

LIVEKIT: Final = Convention(
    name="livekit",
    source=(
        "livekit-agents 1.x telemetry/trace_types.py @2026-10 (content has moved to `lk.pii.*`,"
        " names and ids of GenAI are written beside)"
    ),
    scopes=("livekit-agents|livekit.agents*|@livekit/agents*",),
    rules=(
        Rule(Kind.TOOL, name="function_tool"),
        Rule(Kind.AGENT, name="agent_session|agent_turn"),
        Rule(Kind.MODEL, name="llm_request"),
        *GEN_AI.rules,
    ),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("lk.function_tool.name",),
        arguments=("lk.pii.function_tool.arguments", "lk.function_tool.arguments"),
        result=("lk.pii.function_tool.output", "lk.function_tool.output"),
        call_id=("lk.function_tool.id",),
        agent_name=("gen_ai.agent.name", "lk.agent_name", "lk.agent_label"),
        input=("lk.pii.user_input", "lk.user_input"),
        output=("lk.pii.response.text", "lk.response.text"),
    ),
    errors=(Mark("lk.function_tool.is_error", "true"),),
    messages=(
        *MESSAGES,
        MessageRow("lk.pii.response.function_calls", conclusive=False),
        MessageRow("lk.response.function_calls", conclusive=False),
    ),
    placeholders=PLACEHOLDERS,
    tool_spans=True,
)

HAYSTACK: Final = Convention(
    name="haystack",
    source=(
        "haystack 2.x and 3.x tracing (components/agents/agent.py, MIGRATION to 3.0): a span per"
        " tool call from 3.0 on; before, only messages, where content is traced; E: 3.4"
    ),
    rules=(
        # A person is asked about a call before it is made.
        Rule(Kind.OTHER, "haystack.agent.hook.human_in_the_loop.strategy.type", artefact=True),
        Rule(Kind.TOOL, "haystack.tool.name"),
        Rule(Kind.AGENT, "haystack.agent.max_steps"),
        Rule(Kind.MODEL, name="haystack.agent.step.llm"),
        Rule(Kind.MODEL, "haystack.component.type", "*Generator"),
        Rule(Kind.OTHER, "haystack.component.type"),
    ),
    fields={
        Field.TOOL_NAME: ("haystack.tool.name",),
        Field.ARGUMENTS: ("haystack.agent.step.tool.input",),
        Field.RESULT: ("haystack.agent.step.tool.output",),
        Field.CALL_ID: ("haystack.tool.call.id",),
        Field.ERROR_TYPE: ("error.type",),
        Field.AGENT_NAME: ("haystack.agent.name", "haystack.component.name"),
        Field.INPUT: ("haystack.agent.input", "haystack.component.input"),
        Field.OUTPUT: ("haystack.agent.output", "haystack.component.output"),
    },
    errors=(Mark("haystack.tool.error", "true"),),
    wrappers=("haystack_error",),
    messages=(
        MessageRow("haystack.agent.step.llm.output"),
        MessageRow("haystack.component.output"),
        MessageRow("haystack.agent.output", Side.HISTORY),
        MessageRow("haystack.agent.step.llm.input", Side.HISTORY),
        MessageRow("haystack.component.input", Side.HISTORY),
    ),
    tool_spans=False,
)

LOONGSUITE: Final = replace(
    GEN_AI,
    name="loongsuite",
    source=(
        "Alibaba Cloud's GenAI conventions (LoongSuite agents; Dify's exporters for Aliyun and"
        " Tencent write them too): `gen_ai.span.kind`, content in GenAI's attributes or in"
        " input.value and output.value"
    ),
    rules=by_kind("gen_ai.span.kind", tool="TOOL", agent="AGENT", model="LLM", other="*"),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("gen_ai.tool.name", "tool.name"),
        arguments=("gen_ai.tool.call.arguments", "input.value", "tool.parameters"),
        result=("gen_ai.tool.call.result", "output.value"),
        input=("gen_ai.input.messages", "input.value"),
        output=("gen_ai.output.messages", "output.value"),
        conversation=("gen_ai.conversation.id", "gen_ai.session.id"),
    ),
    span_name=("execute_tool *", "*"),
    agent_span_name=("invoke_agent *", "*"),
    tool_spans=True,
)

AG2: Final = replace(
    GEN_AI,
    name="ag2",
    source=(
        "ag2 0.x autogen/opentelemetry/instrumentators @2026: GenAI spans with `ag2.span.type`; the"
        " agents of a conversation take turns, and who asks for a tool is not who runs it, so the"
        " conversation is the run; ag2 1.2.1 middleware/builtin/telemetry.py (TelemetryMiddleware):"
        " an agent that was given no name is `unknown`; E: 1.2.1"
    ),
    rules=by_kind(
        "ag2.span.type",
        tool="tool",
        agent="agent|conversation|multi_conversation",
        model="llm",
        other="*",
    ),
    placeholders={**PLACEHOLDERS, "gen_ai.agent.name": frozenset({"unknown"})},
    truncated={"gen_ai.tool.call.result": "ag2.tool.call.result.truncated"},
    tool_spans=True,
    agent_span_name=(),
)

CREWAI: Final = Convention(
    name="crewai",
    source=(
        "crewai 1.15.30 telemetry/tracing (execution traces; GenAI operations, values up to 384"
        " KiB): an agent's name is a hash and its role the name; a failed call leaves a second"
        " span, `tool failure`, and so does a call of an MCP tool; E"
    ),
    scopes=("crewai",),
    rules=(
        Rule(Kind.OTHER, "crewai.event_name", "tool_failure_detected", artefact=True),
        Rule(Kind.OTHER, "gen_ai.tool.type", "mcp", artefact=True),
        Rule(Kind.TOOL, OPERATION, "execute_tool"),
        Rule(
            Kind.AGENT, OPERATION, AGENT_OPERATIONS, name="execute crew|execute agent|execute flow"
        ),
        Rule(Kind.OTHER, OPERATION, "execute_task|execute_method"),
    ),
    fields=with_fields(GEN_AI.fields, agent_name=("crewai.agent.role",)),
    messages=MESSAGES,
    # A crew without inputs writes this instead of leaving its input out.
    placeholders={
        **PLACEHOLDERS,
        "gen_ai.input.messages": frozenset(
            {'[{"role": "user", "parts": [{"type": "text", "content": "null"}]}]'}
        ),
    },
    truncated={
        key: f"{key}.truncated"
        for key in (
            "gen_ai.tool.call.arguments",
            "gen_ai.tool.call.result",
            "gen_ai.input.messages",
            "gen_ai.output.messages",
        )
    },
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)

CREWAI_STEPS: Final = replace(
    CREWAI,
    name="crewai_steps",
    source=(
        "crewai 1.15.30 telemetry/tracing/handlers.py: without a conversation, its id is that of a"
        " task or an agent; E"
    ),
    rules=(
        Rule(Kind.MODEL, OPERATION, MODEL_OPERATIONS),
        Rule(Kind.AGENT, OPERATION, AGENT_OPERATIONS),
    ),
    fields={
        field: keys for field, keys in CREWAI.fields.items() if field is not Field.CONVERSATION
    },
)

LETTA: Final = Convention(
    name="letta",
    source=(
        "letta 0.16.8 (the server) otel/tracing.py, agents/letta_agent*.py: methods with their"
        " parameters as text; the tool's name, its result and its failure are only in events; what"
        " streams has no agent's span around it; E: 0.16.8"
    ),
    scopes=("letta.*",),
    rules=(
        Rule(Kind.TOOL, name="LettaAgent*._execute_tool"),
        Rule(Kind.AGENT, name="LettaAgent*.step"),
        Rule(Kind.MODEL, name="*Client.request_async|*Client.request|*Client.stream_async"),
    ),
    fields={
        Field.ARGUMENTS: ("parameter.tool_args",),
        Field.CONVERSATION: ("parameter.conversation_id",),
    },
    events=(
        EventRow("start_*_execution|finish_*_execution", Field.TOOL_NAME, "*"),
        EventRow("finish_*_execution", Field.RESULT, "func_return"),
        EventRow("finish_*_execution", Field.ERROR_TYPE, "status"),
    ),
    placeholders={
        "parameter.conversation_id": frozenset({"None"}),
        "status": frozenset({"success"}),
    },
    tool_spans=True,
    failures_in_results=True,
)

SPRING_AI: Final = Convention(
    name="spring_ai",
    source=(
        "spring-projects/spring-ai 1.1 docs observability (tool calling; content is opt-in); E:"
        " 1.1.2"
    ),
    rules=(
        Rule(Kind.TOOL, "spring.ai.kind", "tool_call|tool-call"),
        Rule(Kind.TOOL, "spring.ai.tool.definition.name"),
        Rule(Kind.AGENT, "spring.ai.kind", "chat_client|chat-client"),
        Rule(Kind.OTHER, "spring.ai.kind", "advisor|vector_store|vector-store"),
    ),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("spring.ai.tool.definition.name",),
        arguments=("spring.ai.tool.call.arguments",),
        result=("spring.ai.tool.call.result",),
        call_id=("spring.ai.tool.call.id",),
        conversation=("spring.ai.chat.client.conversation.id",),
    ),
    span_name=("tool_call *",),
    messages=MESSAGES,
    tool_spans=True,
    # A tool's exception becomes its result within the span.
    failures_unrecorded=True,
)

SPRING_AI_STREAMED: Final = replace(
    SPRING_AI,
    name="spring_ai_streamed",
    source=(
        "spring-ai 1.1.2: unless Reactor propagates the context, tools of a streamed answer start"
        " traces of their own, and each model call records the finish reason of the last one; E"
    ),
    rules=(
        Rule(Kind.AGENT, "spring.ai.chat.client.stream", "true"),
        Rule(Kind.MODEL, "spring.ai.model.request.tool.names"),
    ),
    tool_spans=None,
    unreliable_finish_reasons=(Mark("spring.ai.model.request.tool.names", "*"),),
)

MASTRA: Final = replace(
    GEN_AI,
    name="mastra",
    source=(
        "@mastra/otel-exporter 0.3 and 1.4, @mastra/otel-bridge 1.5 (`mastra.span.type`, and"
        " GenAI's attributes beside it; content of agents in attributes of Mastra's; with"
        " @mastra/arize spans are OpenInference's); E"
    ),
    rules=(
        Rule(Kind.TOOL, "mastra.span.type", "tool_call|mcp_tool_call|provider_tool_call"),
        Rule(Kind.AGENT, "mastra.span.type", "agent_run|workflow_run"),
        # Which of a model call's nested spans is the call differs by version.
        Rule(Kind.OTHER, OPERATION, "model_generation|model_inference|model_step|agent_step"),
        # Early versions record the steps of a model call within it.
        Rule(Kind.MODEL, "mastra.span.type", "model_generation|model_inference|model_step"),
        Rule(Kind.OTHER, "mastra.span.type"),
    ),
    fields=with_fields(
        GEN_AI.fields,
        agent_name=("gen_ai.agent.name", "gen_ai.agent.id"),
        input=(
            "mastra.agent_run.input",
            "mastra.workflow_run.input",
            "gen_ai.input.messages",
            "input",
        ),
        output=(
            "mastra.agent_run.output",
            "mastra.workflow_run.output",
            "gen_ai.output.messages",
            "output",
        ),
        conversation=("gen_ai.conversation.id", "mastra.metadata.threadId", "threadId"),
    ),
    span_name=("execute_tool *", "tool.execute *"),
    agent_span_name=("invoke_agent *", "invoke_workflow *", "agent.*", "workflow.*"),
    messages=(*GEN_AI.messages, MessageRow("output", conclusive=False)),
    wrappers=("mcp_content",),
    pause_marks=tuple(
        Mark(key, '{"status":"suspended",*')
        for key in ("mastra.agent_run.output", "mastra.workflow_run.output", "output")
    ),
    refusals=(
        '*Tool "*" not found.*Call tools by their exact name only*',
        '*Tool "*" received invalid arguments*',
        "*Tool input validation failed*Please fix the following errors and try again:*",
        "*Tool call was not approved by the user*",
    ),
    resume_marks=(Mark("mastra.metadata.resumed", "true"),),
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)

VOLTAGENT: Final = Convention(
    name="voltagent",
    source=(
        "@voltagent/core 2.10.0: every span names its agent, that of the agent itself has no"
        " `span.type`; one model span stands for all calls of an agent and has the tokens of the"
        " last; E"
    ),
    scopes=("@voltagent/core*",),
    rules=(
        *by_kind("span.type", tool="tool", model="llm", other="*"),
        Rule(Kind.AGENT, "entity.type", "agent|workflow"),
    ),
    fields={
        Field.TOOL_NAME: ("tool.name",),
        Field.ARGUMENTS: ("input",),
        Field.RESULT: ("output",),
        Field.CALL_ID: ("tool.call.id",),
        Field.ERROR_TYPE: ("error.type",),
        Field.AGENT_NAME: ("subagent.name", "entity.name"),
        Field.INPUT: ("input",),
        Field.OUTPUT: ("output",),
        Field.CONVERSATION: ("conversation.id",),
        Field.INPUT_TOKENS: ("usage.prompt_tokens",),
        Field.OUTPUT_TOKENS: ("usage.completion_tokens",),
    },
    span_name=("tool.execution:*",),
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)

LOGFIRE_AGENTS: Final = Convention(
    name="logfire_openai_agents",
    source=(
        "logfire 5.0.0 _internal/integrations/openai_agents.py: a span's name is the template of"
        " its message, attributes are the fields of OpenAI Agents' own spans, and None is written"
        " as `null`; E"
    ),
    scopes=("logfire.openai_agents",),
    rules=(
        # Logfire's own exporter sends each span a second time when it starts.
        Rule(Kind.OTHER, "logfire.span_type", "pending_span", artefact=True),
        Rule(Kind.TOOL, name="Function: {name}"),
        Rule(Kind.AGENT, name="Agent run: {name!r}"),
        Rule(Kind.MODEL, name="Chat completion with *|Responses API*"),
        Rule(Kind.OTHER, name="Handoff: *", handoff=True),
        # Turns, tasks, guardrails and speech.
        Rule(Kind.OTHER, "logfire.span_type"),
    ),
    fields={
        Field.TOOL_NAME: ("name",),
        Field.ARGUMENTS: ("input",),
        Field.RESULT: ("output",),
        Field.AGENT_NAME: ("name",),
        Field.INPUT: ("input", "raw_input"),
        Field.OUTPUT: ("output", "response"),
        Field.CONVERSATION: ("group_id",),
        Field.INPUT_TOKENS: ("gen_ai.usage.input_tokens",),
        Field.OUTPUT_TOKENS: ("gen_ai.usage.output_tokens",),
    },
    # Logfire masks a name that looks like a secret (`create_session`) in each attribute but the
    # message.
    title="logfire.msg",
    span_name=("Function: * failed: *", "Function: *"),
    agent_span_name=("Agent run: '*'", "Agent run: '*' failed: *"),
    errors=(Mark("error", "{*"), Mark("output", OPENAI_AGENTS_TIMEOUT)),
    messages=(
        MessageRow("output"),
        MessageRow("response"),
        MessageRow("input", Side.HISTORY),
        MessageRow("raw_input", Side.HISTORY),
    ),
    placeholders={"*": frozenset({"null"})},
    masks=SCRUBBED,
    tool_spans=True,
    pauses_unrecorded=True,
)

LOGFIRE_WORKFLOW: Final = replace(
    LOGFIRE_AGENTS,
    name="logfire_openai_agents_trace",
    source="the same: the outermost span names the workflow and no agent",
    rules=(LOGFIRE_AGENTS.rules[0], Rule(Kind.AGENT, name="OpenAI Agents trace: {name}")),
    fields={Field.CONVERSATION: ("group_id",)},
    title="",
    span_name=(),
    agent_span_name=(),
)

CAMEL: Final = Convention(
    name="camel",
    source=(
        "camel-ai 0.2.90 with TRACEROOT_ENABLED and traceroot 0.0.7: a span per traced function,"
        " named after it, without content; the span of a tool call does not name the tool; E"
    ),
    scopes=("traceroot*",),
    rules=(
        Rule(Kind.AGENT, name="camel.agents.*.step|camel.agents.*.astep"),
        Rule(Kind.MODEL, name="camel.models.*Backend.run|camel.models.*Backend.arun"),
    ),
    agent_span_name=("camel.agents.chat_agent.*.step", "camel.agents.chat_agent.*.astep"),
    tool_spans=False,
)

AGENTSCOPE: Final = replace(
    GEN_AI,
    name="agentscope",
    source=(
        "agentscope 2.0.10 middleware/_tracing: a result is the `repr` of a ToolResponse, and only"
        " its state shows that a call failed; one that was refused, or of a tool that does not"
        " exist, leaves no span; E"
    ),
    scopes=("agentscope|agentscope-java",),
    errors=(
        Mark("gen_ai.tool.call.result", "*ToolResponse(content=*, state=<ToolResultState.ERROR: *"),
    ),
    wrappers=("agentscope_text",),
    # Histories hold results as lists of the text of objects.
    masks=("\"TextBlock(type='text', text=",),
    tool_spans=True,
    failures_in_results=True,
)

AGENTSCOPE_1: Final = replace(
    AGENTSCOPE,
    name="agentscope_1",
    source=(
        "agentscope 1.0.21 tracing/: the toolkit turns an exception into a result like any other,"
        " also for a tool that does not exist; E"
    ),
    rules=(Rule(Kind.TOOL, "agentscope.function.name", name="execute_tool *"),),
    failures_unrecorded=True,
)

AGENTSCOPE_JAVA: Final = replace(
    AGENTSCOPE,
    name="agentscope_java",
    source=(
        "io.agentscope 1.0.9: a call that failed has a result that begins with `Error: `, and"
        " nothing else shows it; E"
    ),
    scopes=(),
    rules=(Rule(Kind.TOOL, "agentscope.function.name", "Toolkit.callTool"),),
    errors=(Mark("gen_ai.tool.call.result", '[{"text":"error: *'),),
)
