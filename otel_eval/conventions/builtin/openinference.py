"""OpenInference and the instrumentations that write it.

One trap decides the order of its rows: `tool.parameters` is the JSON schema of the tool nearly
everywhere and the arguments in one place, so it is read as arguments only there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import (
    ADK_UNCONFIRMED,
    DSPY_CLOSING_TOOLS,
    LANGGRAPH_REFUSALS,
    OPENAI_AGENTS_TIMEOUT,
    PYDANTIC_AI_NOT_CALLS,
    PYDANTIC_AI_PAUSES,
    PYDANTIC_AI_REFUSALS,
    STRANDS_REFUSALS,
    by_kind,
    interrupts_in,
    with_fields,
)
from otel_eval.conventions.table import (
    CLIENT_TOOL_TYPES,
    CLIENT_TOOLS,
    Convention,
    Field,
    Mark,
    MessageRow,
    Rule,
    Side,
)
from otel_eval.model import Kind

KIND: Final = "openinference.span.kind"
RULES: Final = by_kind(
    KIND,
    tool="TOOL|tool|Tool",
    agent="AGENT|agent|Agent",
    model="LLM|llm|Llm",
    other="CHAIN|RETRIEVER|RERANKER|EMBEDDING|GUARDRAIL|PROMPT|chain|retriever|reranker|embedding|guardrail",
)
FIELDS: Final[Mapping[Field, tuple[str, ...]]] = {
    # Processors that add OpenInference to spans of GenAI leave some of what they found where it
    # was.
    Field.TOOL_NAME: ("tool.name", "tool_call.function.name", "gen_ai.tool.name"),
    Field.ARGUMENTS: ("input.value", "tool_call.function.arguments", "gen_ai.tool.call.arguments"),
    Field.RESULT: ("output.value", "gen_ai.tool.call.result"),
    Field.CALL_ID: ("tool_call.id", "tool.id", "gen_ai.tool.call.id"),
    Field.ERROR_TYPE: ("error.type",),
    Field.AGENT_NAME: ("agent.name", "gen_ai.agent.name"),
    Field.INPUT: ("input.value",),
    Field.OUTPUT: ("output.value",),
    Field.CONVERSATION: ("session.id", "gen_ai.conversation.id"),
    Field.INPUT_TOKENS: ("llm.token_count.prompt",),
    Field.OUTPUT_TOKENS: ("llm.token_count.completion",),
}

OPENINFERENCE: Final = Convention(
    name="openinference",
    source=(
        "Arize-ai/openinference spec/semantic_conventions.md @2026-08-21 (semantic-conventions"
        " 0.1.42); E: openai-agents 2.6, llama-index 4.6"
    ),
    rules=RULES,
    fields=FIELDS,
    # Some recorders name the tool only in the span's name.
    span_name=("*",),
    agent_span_name=("*.run", "*.invoke", "*.on_messages", "*.on_messages_stream", "*"),
    messages=(MessageRow("llm.output_messages."), MessageRow("llm.input_messages.", Side.HISTORY)),
    wrappers=("python_call", "kwargs"),
    not_call_marks=(Mark("tool.synthesized", "true"),),
    placeholders={"*": frozenset({"__REDACTED__"})},
)

LANGCHAIN: Final = replace(
    OPENINFERENCE,
    name="openinference_langchain",
    source=(
        "openinference-instrumentation-langchain 0.1.80: a tool of one text argument is recorded as"
        " the bare text, its call id within the output; an agent whose name lacks the word `agent`"
        " is a CHAIN, recognisable only by its metadata or LangGraph's name; E"
    ),
    scopes=("openinference.instrumentation.langchain*",),
    rules=(
        *(rule for rule in RULES if rule.kind in (Kind.TOOL, Kind.MODEL)),
        # The agent's steps share its metadata and add their own; so does an agent within a step,
        # recognisable only by its name. Steps of `create_react_agent` and supervisors are agents to
        # the instrumentation because of their names.
        Rule(Kind.AGENT, "metadata", '*"lc_agent_name": "{name}"*|*"lc_agent_name":"{name}"*'),
        Rule(Kind.AGENT, KIND, "CHAIN", name="LangGraph"),
        Rule(
            Kind.OTHER,
            "metadata",
            '*"langgraph_node":*',
            name="agent|call_agent|*.before_agent|*.after_agent",
        ),
        Rule(Kind.AGENT, KIND, "AGENT|agent|Agent"),
        Rule(Kind.OTHER, "metadata", '*"langgraph_node":*'),
        Rule(
            Kind.AGENT,
            "metadata",
            '*"ls_integration":*"langchain_create_agent"*|*"ls_integration":*"langgraph"*',
        ),
        *(rule for rule in RULES if rule.kind is Kind.OTHER),
    ),
    # on_tool_start(serialized, input_str, inputs=…)
    wrappers=("langchain_tool_start", "langchain_input"),
    pause_marks=(interrupts_in("output.value"),),
    refusals=LANGGRAPH_REFUSALS,
    tool_spans=True,
    pauses_unanswered=True,
    failures_in_results=True,
)

LANGCHAIN_JS: Final = replace(
    LANGCHAIN,
    name="openinference_langchain_js",
    source=(
        "@arizeai/openinference-instrumentation-langchain 4.1.1: the same, but a result that is no"
        " text stands under `output`"
    ),
    scopes=("@arizeai/openinference-instrumentation-langchain*",),
    wrappers=(*LANGCHAIN.wrappers, "langchain_output"),
    own_content=(Field.INPUT, Field.OUTPUT),
)

OPENAI_AGENTS: Final = replace(
    OPENINFERENCE,
    name="openinference_openai_agents",
    source=(
        "openinference-instrumentation-openai-agents 0.1 to 2.6: the outer AGENT span is the"
        " workflow, the inner one the agent; a handoff is marked as a tool; E"
    ),
    scopes=("openinference.instrumentation.openai_agents*",),
    rules=(Rule(Kind.OTHER, KIND, "TOOL", name="handoff to *", handoff=True), *RULES),
    agent_span_name=(),
    errors=(Mark("output.value", OPENAI_AGENTS_TIMEOUT),),
    tool_spans=True,
    pauses_unrecorded=True,
    # It writes `stop` for every model call.
    unreliable_finish_reasons=(Mark(KIND, "*"),),
)

OPENAI_AGENTS_EARLY: Final = replace(
    OPENAI_AGENTS,
    name="openinference_openai_agents_early",
    source=(
        "openinference-instrumentation-openai-agents 0.1.14, 1.1: an agent's name is only that of"
        " its span, which has the attributes that all but the workflow's have; E"
    ),
    rules=(
        *(rule for rule in OPENAI_AGENTS.rules if rule.kind is not Kind.AGENT),
        Rule(Kind.AGENT, "llm.system"),
    ),
    agent_span_name=("*",),
)

OPENAI_AGENTS_JS: Final = replace(
    OPENAI_AGENTS,
    name="openinference_openai_agents_js",
    source=(
        "@arizeai/openinference-instrumentation-openai-agents 0.2.15 processor.js: the same, but an"
        " agent's name is that of its node in the graph, and listing the tools of an MCP server is"
        " marked as a tool without a name; E"
    ),
    scopes=("@arizeai/openinference-instrumentation-openai-agents*",),
    rules=(Rule(Kind.OTHER, KIND, "TOOL", name="mcp_tools", artefact=True), *OPENAI_AGENTS.rules),
    fields=with_fields(FIELDS, agent_name=("graph.node.id",)),
)

CLAUDE_AGENT_SDK: Final = replace(
    OPENINFERENCE,
    name="openinference_claude_agent_sdk",
    source=(
        "openinference-instrumentation-claude-agent-sdk 0.1.22: tool.parameters holds the"
        " arguments; a sub-agent is a tool `Agent` or `Task` around an AGENT span, or beside it"
        " where it runs in the background, and has that tool's name; no model spans; an MCP server"
        " in the process records spans of its own; E"
    ),
    scopes=(
        "openinference.instrumentation.claude_agent_sdk*|@arizeai/openinference-instrumentation-claude-agent-sdk*",
    ),
    fields=with_fields(FIELDS, arguments=("input.value", "tool.parameters")),
    tool_spans=True,
    agent_span_name=(),
    mcp_names=("mcp__*__*",),
    placeholders={**OPENINFERENCE.placeholders, "agent.name": frozenset({"Agent", "Task"})},
)

GOOGLE_ADK: Final = replace(
    OPENINFERENCE,
    name="openinference_google_adk",
    source=(
        "openinference-instrumentation-google-adk _wrappers.py @2026: writes on ADK's own tool"
        " spans; a result is a FunctionResponse, names of agents stand in brackets"
    ),
    scopes=("openinference.instrumentation.google_adk*|gcp.vertex.agent",),
    agent_span_name=("agent_run [*]", "invocation [*]", "invoke_agent *", "*"),
    span_name=("execute_tool *", "*"),
    wrappers=("function_response",),
    # ADK 2 writes the messages of several model calls on one span, over one another.
    messages=(),
    not_calls=frozenset({"(merged tools)"}),
    pause_marks=(Mark("output.value", ADK_UNCONFIRMED),),
    tool_spans=True,
    pauses_unrecorded=True,
    own_content=(Field.OUTPUT,),
)

HAYSTACK: Final = replace(
    OPENINFERENCE,
    name="openinference_haystack",
    source=(
        "openinference-instrumentation-haystack 0.1.46: every span is a CHAIN, an agent's tools"
        " leave no span and messages are repr text; E"
    ),
    scopes=("openinference.instrumentation.haystack*",),
    rules=(
        Rule(Kind.AGENT, KIND, "CHAIN", name="Agent.run*|Pipeline.run*|AsyncPipeline.run*"),
        *RULES,
    ),
    agent_span_name=(),
    messages=tuple(replace(row, conclusive=False) for row in OPENINFERENCE.messages),
    tool_spans=False,
)

CREWAI: Final = replace(
    OPENINFERENCE,
    name="openinference_crewai",
    source=(
        "openinference-instrumentation-crewai 1.1.21: no tool spans by default with crewai 1.15,"
        " one TOOL span per attempt with use_event_listener; ReAct text is not read as calls; E"
    ),
    scopes=("openinference.instrumentation.crewai*",),
    rules=(Rule(Kind.AGENT, KIND, "CHAIN", name="*.kickoff*"), *RULES),
    span_name=("*.run", "*"),
    agent_span_name=("*._execute_core", "*.kickoff*"),
    messages=(*OPENINFERENCE.messages, MessageRow("output.value", conclusive=False)),
    # Of a tool that does not exist.
    errors=(Mark("output.value", "tool not found"),),
    tool_spans=False,
    own_content=(Field.INPUT, Field.OUTPUT),
    failures_in_results=True,
)

SMOLAGENTS: Final = replace(
    OPENINFERENCE,
    name="openinference_smolagents",
    source=(
        "openinference-instrumentation-smolagents 0.1.43: a tool's span holds the Python call and,"
        " in order, the tool's parameters; an agent called by another one leaves no tool span; E"
    ),
    scopes=("openinference.instrumentation.smolagents*",),
    fields={**FIELDS, Field.PARAMETERS: ("tool.parameters",)},
    # The tool by which an agent gives its answer.
    not_calls=frozenset({"final_answer"}),
    not_requests=("final_answer",),
    refusals=(
        "*Unknown tool *, should be one of: *",
        "*Argument * is not in the tool's input schema*",
        "*Argument * has type * but should be *",
    ),
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)

LLAMA_INDEX: Final = replace(
    OPENINFERENCE,
    name="openinference_llama_index",
    source=(
        "openinference-instrumentation-llama-index 4.6.1: preparing a model's call is marked as"
        " one; E"
    ),
    scopes=("openinference.instrumentation.llama_index*",),
    rules=(Rule(Kind.OTHER, KIND, "LLM", name="*._prepare_chat_with_tools"), *RULES),
    refusals=("Tool * not found. Please select a tool that is available.*",),
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
    failures_in_results=True,
)

FRAMEWORKS: Final = replace(
    OPENINFERENCE,
    name="openinference_frameworks",
    source=(
        "openinference-instrumentation-agno 1.0.15; the span processors -pydantic-ai 0.1.30 and"
        " -strands-agents 0.1.12, which write on the framework's own spans: each call of a tool"
        " leaves a span; E"
    ),
    scopes=(
        (
            "openinference.instrumentation.agno*|openinference.instrumentation.pydantic_ai*|openinference.instrumentation.strands_agents*|"
            "pydantic-ai*|pydantic_ai*|strands.*|strands-agents*"
        ),
    ),
    not_call_marks=(*OPENINFERENCE.not_call_marks, *PYDANTIC_AI_NOT_CALLS),
    pause_marks=PYDANTIC_AI_PAUSES,
    refusals=(*PYDANTIC_AI_REFUSALS, *STRANDS_REFUSALS),
    tool_spans=True,
    failures_in_results=True,
    # A tool of Strands that called `interrupt`, and a cancelled call of AutoGen.
    pauses_unrecorded=True,
)

AUTOGEN: Final = replace(
    FRAMEWORKS,
    name="openinference_autogen",
    source=(
        "openinference-instrumentation-autogen-agentchat 0.1.22: the span of a call of a tool that"
        " does not exist, or whose arguments are no JSON, has the framework's text as its result,"
        " and that of a cancelled call has none; E"
    ),
    scopes=("openinference.instrumentation.autogen_agentchat*",),
    errors=(
        Mark(
            "output.value",
            "error: tool '*' not found in any workbench|error: *: line * column * (char *)",
        ),
    ),
)

MODEL_CLIENTS: Final = replace(
    OPENINFERENCE,
    name="openinference_clients",
    source=(
        "openinference-instrumentation-openai, -anthropic, -litellm, -groq, -mistralai, -vertexai,"
        " -google-genai: they wrap the model's client and see no tool run"
    ),
    scopes=(
        (
            "openinference.instrumentation.openai|openinference.instrumentation.anthropic|openinference.instrumentation.litellm|"
            "openinference.instrumentation.groq|openinference.instrumentation.mistralai|openinference.instrumentation.vertexai|"
            "openinference.instrumentation.google_genai|openinference.instrumentation.instructor|"
            "openinference.instrumentation.portkey|openinference.instrumentation.ollama|openinference.instrumentation.cohere|"
            "openinference.instrumentation.together|"
            "@arizeai/openinference-instrumentation-openai|@arizeai/openinference-instrumentation-anthropic|"
            "@arizeai/openinference-instrumentation-bedrock"
        ),
    ),
    # Portkey's streamed answers.
    masks=("<openai.Stream object at ",),
    # The SDK of Gemini can run the tools itself within one model call, and what it called stands
    # beside the messages.
    messages=(*OPENINFERENCE.messages, MessageRow("message.", conclusive=False, made=True)),
    client_tools=CLIENT_TOOLS,
    client_tool_types=CLIENT_TOOL_TYPES,
    tool_spans=False,
)

BEDROCK: Final = replace(
    OPENINFERENCE,
    name="openinference_bedrock",
    source=(
        "openinference-instrumentation-bedrock 0.1.61: the model client, and an agent that runs at"
        " the provider, whose spans are made from its trace; a call that failed, and one that is"
        " left to the caller (`RETURN_CONTROL`), has no result; E"
    ),
    scopes=("openinference.instrumentation.bedrock",),
    agent_span_name=("agent_collaborator[*]", "*"),
    failures_in_results=True,
    pauses_unrecorded=True,
)

AG2: Final = replace(
    OPENINFERENCE,
    name="openinference_ag2",
    source=(
        "openinference-instrumentation-ag2 0.1.12 with ag2 0.14: a tool's input is the request with"
        " its arguments as text, and its output a list of whether it succeeded and a message, which"
        " is not read; E"
    ),
    scopes=("openinference.instrumentation.ag2",),
    fields={**FIELDS, Field.ARGUMENTS: ("tool_call.function.arguments",), Field.RESULT: ()},
    messages=(MessageRow("output.value"), MessageRow("input.value", Side.HISTORY)),
)

AGENTSPEC: Final = replace(
    OPENINFERENCE,
    name="openinference_agentspec",
    source=(
        "openinference-instrumentation-agentspec 0.1.15 (pyagentspec 26.3, LangGraph, WayFlow):"
        " spans have no scope, those of calls that raised look like any other, and an agent's input"
        " and output are those of a flow, without its messages; E"
    ),
    rules=(
        Rule(Kind.TOOL, KIND, "TOOL", name="ToolExecution*"),
        Rule(Kind.MODEL, KIND, "LLM", name="LlmGeneration*"),
        Rule(Kind.AGENT, KIND, "AGENT", name="AgentExecution*"),
    ),
    fields={**FIELDS, Field.INPUT: (), Field.OUTPUT: ()},
    agent_span_name=(),
    failures_unrecorded=True,
)

BEEAI: Final = replace(
    OPENINFERENCE,
    name="openinference_beeai",
    source=(
        "openinference-instrumentation-beeai 0.1.30 with beeai-framework 0.1.85: an event within a"
        " run (`error`, `retry`, `final_answer`) is a span of the kind of its run, parallel calls"
        " of a streamed answer run together in the output messages, and the answer is a tool of the"
        " framework; E"
    ),
    scopes=("openinference.instrumentation.beeai*",),
    rules=(Rule(Kind.OTHER, "metadata.path", artefact=True), *RULES),
    # The steps of an agent stand beside its output.
    messages=(MessageRow("metadata.steps.", made=True),),
    wrappers=("beeai_input",),
    not_calls=frozenset({"final_answer"}),
    not_requests=("final_answer",),
    not_call_marks=(*OPENINFERENCE.not_call_marks, Mark("metadata.class_name", "FinalAnswerTool")),
    tool_spans=True,
    own_content=(Field.INPUT, Field.OUTPUT),
)

BEEAI_EVENTS: Final = replace(
    OPENINFERENCE,
    name="openinference_beeai_events",
    source=(
        "@arizeai/openinference-instrumentation-beeai 1.5.30 with beeai-framework 0.1.13 for"
        " TypeScript; openinference-instrumentation-beeai up to 0.1.6: a span per event"
        " (`tool.search.wikipedia.start-12`), whose `target` names the tool's class or changes its"
        " name, and ReAct's calls are text: calls cannot be read reliably; E"
    ),
    scopes=("openinference.instrumentation.beeai*|@arizeai/openinference-instrumentation-beeai*",),
    rules=(
        Rule(Kind.MODEL, "target", "backend.*.success"),
        Rule(Kind.OTHER, "target", "tool.*", unread=True),
        Rule(Kind.OTHER, "target"),
        Rule(Kind.AGENT, KIND, "AGENT", name="beeai-framework-main"),
    ),
    fields=with_fields(FIELDS, agent_name=("source",)),
    agent_span_name=(),
    messages=(),
    tool_spans=False,
    own_content=(Field.INPUT, Field.OUTPUT),
)

# DSPy's own modules that only call a model or combine the outputs of other modules.
_DSPY_STEPS: Final = "|".join(
    f"{name}.forward|{name}.aforward"
    for name in (
        "Predict*",
        "ChainOfThought*",
        "ProgramOfThought",
        "MultiChainComparison",
        "BestOfN",
        "Refine",
        "Parallel",
        "KNN",
    )
)
DSPY: Final = replace(
    OPENINFERENCE,
    name="openinference_dspy",
    source=(
        "openinference-instrumentation-dspy 0.1.48 with dspy 3.4.1: a tool's name stands only in"
        " the span's name (`search.__call__`, `search.acall`), messages are text in DSPy's own"
        " format, programs are CHAINs, and tools that CodeAct, RLM or ToolCalls.execute call leave"
        " no span; E"
    ),
    scopes=("openinference.instrumentation.dspy*",),
    rules=(
        *(rule for rule in RULES if rule.kind is not Kind.OTHER),
        Rule(Kind.OTHER, KIND, "CHAIN", name=_DSPY_STEPS),
        Rule(Kind.AGENT, KIND, "CHAIN", name="*.forward|*.aforward"),
        *(rule for rule in RULES if rule.kind is Kind.OTHER),
    ),
    span_name=("*.__call__", "*.acall"),
    agent_span_name=("*.forward", "*.aforward"),
    messages=(),
    not_calls=DSPY_CLOSING_TOOLS,
    not_requests=tuple(sorted(DSPY_CLOSING_TOOLS)),
    tool_spans=None,
    failures_in_results=False,
)

DSPY_REACT: Final = replace(
    DSPY,
    name="openinference_dspy_react",
    source="the same: ReAct calls its tools itself, so each call leaves a span",
    rules=(
        Rule(
            Kind.AGENT,
            KIND,
            "CHAIN",
            name="ReAct.forward|ReAct.aforward|ReActV2.forward|ReActV2.aforward",
        ),
    ),
    messages=(MessageRow("output.value"),),
    tool_spans=True,
)

DIALECTS: Final = (
    LANGCHAIN,
    LANGCHAIN_JS,
    OPENAI_AGENTS_EARLY,
    OPENAI_AGENTS,
    OPENAI_AGENTS_JS,
    CLAUDE_AGENT_SDK,
    GOOGLE_ADK,
    HAYSTACK,
    CREWAI,
    SMOLAGENTS,
    LLAMA_INDEX,
    BEEAI_EVENTS,
    BEEAI,
    DSPY_REACT,
    DSPY,
    FRAMEWORKS,
    AUTOGEN,
    MODEL_CLIENTS,
    BEDROCK,
    AG2,
    AGENTSPEC,
)
