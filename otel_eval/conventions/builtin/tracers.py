"""Tracing SDKs and gateways with integrations and decorators of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import (
    DEFAULT_WORKFLOW,
    DSPY_CLOSING_TOOLS,
    GEN_AI,
    INCONCLUSIVE_MESSAGES,
    LANGGRAPH_REFUSALS,
    MESSAGES,
    OPERATION,
    PLACEHOLDERS,
    RULES,
    by_kind,
    interrupts_in,
    with_fields,
)
from otel_eval.conventions.message_formats import Wrapper
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.model import Kind

MLFLOW: Final = Convention(
    name="mlflow",
    source=(
        "mlflow 3.18 tracing/constant.py, entities/span.py (every attribute value is JSON text); E:"
        " langchain"
    ),
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
    source=(
        "mlflow 3.18 langchain/langchain_tracer.py: an agent is a CHAIN, known only by its metadata"
        " or LangGraph's name; E"
    ),
    scopes=("mlflow*",),
    rules=(
        *(rule for rule in MLFLOW.rules if rule.kind is not Kind.OTHER),
        Rule(Kind.AGENT, "metadata", '*"lc_agent_name": "{name}"*'),
        Rule(Kind.OTHER, "metadata", '*"langgraph_node":*'),
        Rule(
            Kind.AGENT,
            "metadata",
            '*"ls_integration":*"langchain_create_agent"*|*"ls_integration":*"langgraph"*',
        ),
        Rule(Kind.AGENT, "mlflow.spanType", "CHAIN", name="LangGraph"),
        *(rule for rule in MLFLOW.rules if rule.kind is Kind.OTHER),
    ),
    pause_marks=(interrupts_in("mlflow.spanOutputs"),),
    pauses_unanswered=True,
    refusals=LANGGRAPH_REFUSALS,
)

MLFLOW_DSPY: Final = replace(
    MLFLOW,
    name="mlflow_dspy",
    source=(
        "mlflow 3.17 dspy/callback.py: names of classes and methods, and `Tool.` before a tool's"
        " name; E"
    ),
    rules=(
        Rule(Kind.TOOL, "mlflow.spanType", "TOOL", name="Tool.*"),
        Rule(Kind.AGENT, "mlflow.spanType", "AGENT", name="*.forward"),
        Rule(Kind.MODEL, "mlflow.spanType", "LLM", name="Predict.forward"),
    ),
    span_name=("Tool.*",),
    agent_span_name=("*.forward",),
    not_calls=DSPY_CLOSING_TOOLS,
    not_requests=tuple(sorted(DSPY_CLOSING_TOOLS)),
)

MLFLOW_PYDANTIC_AI: Final = replace(
    MLFLOW,
    name="mlflow_pydantic_ai",
    source=(
        "mlflow 3.8 and main @2026-08 pydantic_ai/autolog.py: a span has the names of class and"
        " method, and its inputs are the method's parameters, which hold the call; one of an MCP"
        " server lies below that of the call"
    ),
    scopes=("mlflow*",),
    rules=(
        Rule(
            Kind.TOOL,
            "mlflow.spanType",
            "TOOL",
            name="ToolManager.handle_call|ToolManager.execute_tool_call",
        ),
        Rule(Kind.OTHER, "mlflow.spanType", "TOOL", name="MCPServer*.call_tool|*.list_tools"),
    ),
    fields={**MLFLOW.fields, Field.TOOL_NAME: ("mlflow.spanInputs",)},
    span_name=(),
    tool_name_at=("call.tool_name", "validated.call.tool_name"),
    wrappers=(
        Wrapper((("call", dict),), ("call.args",), call_id="call.tool_call_id"),
        Wrapper(
            (("validated", dict),),
            ("validated.validated_args", "validated.call.args"),
            call_id="validated.call.tool_call_id",
        ),
    ),
)

MLFLOW_STREAMED: Final = replace(
    MLFLOW,
    name="mlflow_streamed",
    source=(
        "mlflow 3.17.2 openai/utils/chat_schema.py: the answer that it joins from the parts of a"
        " streamed one has no calls and always the finish reason `stop`; E"
    ),
    scopes=("mlflow*",),
    rules=(Rule(Kind.MODEL, "stream", "true", name="Completions*|AsyncCompletions*"),),
    messages=tuple(replace(row, conclusive=False) for row in MLFLOW.messages),
    unreliable_finish_reasons=(Mark("stream", "true"),),
)

MLFLOW_SMOLAGENTS: Final = replace(
    MLFLOW,
    name="mlflow_smolagents",
    source=(
        "mlflow 3.17.2 smolagents/autolog.py: a tool's span has the name of the tool's class"
        " (`SimpleTool` for each function), and calls after one that raised may leave none, so"
        " calls cannot be read reliably; E"
    ),
    scopes=("mlflow*",),
    rules=(Rule(Kind.OTHER, "mlflow.spanType", "TOOL", name="*.__call__", unread=True),),
)

LAMINAR: Final = replace(
    GEN_AI,
    name="laminar",
    source=(
        "lmnr 0.8.2 opentelemetry_lib/tracing/attributes.py and instrumentation/ (decorators,"
        " OpenAI Agents, LangChain, model clients): all spans have one scope; E"
    ),
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
    # The SDK for JavaScript sets no status.
    events=(EventRow("exception", Field.ERROR_TYPE, "exception.type"),),
)

LAMINAR_BROWSER_USE: Final = replace(
    LAMINAR,
    name="laminar_browser_use",
    source=(
        "browser-use 0.13.14 tools/service.py: an action's input names it beside its parameters,"
        " its output says whether it failed, and `done` ends the run; E"
    ),
    rules=(
        Rule(Kind.TOOL, "lmnr.span.input", '{"action":"{name}","params":{*'),
        Rule(
            Kind.TOOL,
            "lmnr.span.output",
            '{"is_done":*,"success":*,"error":*,"extracted_content":*',
        ),
    ),
    wrappers=("browser_use_action", "browser_use_result"),
    errors=(Mark("lmnr.span.output", '{"is_done":*,"error":"*'),),
    not_calls=frozenset({"done"}),
    failures_in_results=True,
)

LAMINAR_RESPONSES: Final = replace(
    LAMINAR,
    name="laminar_responses",
    source=(
        "lmnr 0.8.2 instrumentation/openai/v1/responses_wrappers.py: gen_ai.completion.N repeats"
        " the calls of the messages with the ids of items instead of calls; E"
    ),
    rules=(Rule(Kind.MODEL, "lmnr.span.type", "LLM", name="openai.response"),),
    messages=MESSAGES[:2],
)

LANGTRACE: Final = replace(
    GEN_AI,
    name="langtrace",
    source=(
        "langtrace-python-sdk 3.8.21: content in events; spans of model clients, and of frameworks"
        " without kinds; E: openai, anthropic, langchain"
    ),
    scopes=("langtrace_python_sdk.*",),
    tool_spans=False,
)

LANGTRACE_TEXT: Final = replace(
    LANGTRACE,
    name="langtrace_text",
    source=(
        "the same: of a streamed answer the arguments of calls are written as its text, and of the"
        " Responses API nothing but text; E"
    ),
    rules=(
        Rule(Kind.MODEL, "gen_ai.request.stream", "true"),
        Rule(Kind.MODEL, OPERATION, "openai.responses.create"),
    ),
    conclusive_events=False,
)

WEAVE: Final = replace(
    GEN_AI,
    name="weave",
    source=(
        "wandb/weave, agents' attributes @2026: GenAI's names below `weave.`, which win over the"
        " same below `gen_ai.`"
    ),
    rules=tuple(replace(rule, key=rule.key.replace("gen_ai.", "weave.")) for rule in GEN_AI.rules),
    fields={
        field: (*(key.replace("gen_ai.", "weave.") for key in keys), *keys)
        for field, keys in GEN_AI.fields.items()
    },
    messages=(
        *(replace(row, key=row.key.replace("gen_ai.", "weave.")) for row in MESSAGES),
        *MESSAGES,
    ),
    agent_span_name=("invoke_agent *",),
)

AGENTOPS: Final = replace(
    GEN_AI,
    name="agentops",
    source=(
        "agentops-sdk 0.4 semconv/span_attributes.py and sdk/decorators (`agentops.span.kind`;"
        " content as a Python call)"
    ),
    rules=by_kind(
        "agentops.span.kind", tool="tool", agent="agent|workflow", model="llm", other="*"
    ),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=(
            "tool.name",
            "agentops.tool.name",
            "gen_ai.tool.name",
            "operation.name",
            "agentops.entity.name",
        ),
        arguments=(
            "gen_ai.tool.call.arguments",
            "agentops.tool.input",
            "agentops.entity.input",
            "tool.parameters",
        ),
        result=(
            "gen_ai.tool.call.result",
            "agentops.tool.output",
            "agentops.entity.output",
            "tool.result",
        ),
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
    source=(
        "openlit 1.34 (no span of a tool with LangChain 1; names and ids of several calls in one"
        " text), 1.45 (spans of tools; a result of LangChain is the text of its message); E"
    ),
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
    source=(
        "openlit 1.45 instrumentation/openai/utils.py: of several calls in an answer of the"
        " Responses API only the last one is recorded; E"
    ),
    rules=(Rule(Kind.MODEL, "openai.api.type", "responses"),),
    messages=INCONCLUSIVE_MESSAGES,
)

# Splunk's and LoongSuite's copies of opentelemetry-util-genai record spans of clients and
# frameworks alike in this scope.
TRACEAI: Final = replace(
    GEN_AI,
    name="traceai",
    source=(
        "traceai-langchain 0.2.0, -openai 0.1.10, -openai-agents 0.1.6: OpenInference's names below"
        " `gen_ai.`; of streamed answers and of LangChain's the output messages lack the calls; E"
    ),
    scopes=("traceai_*|traceAI*|fi_instrumentation*",),
    rules=by_kind("gen_ai.span.kind", tool="TOOL", agent="AGENT", model="LLM", other="*"),
    fields=with_fields(
        GEN_AI.fields,
        agent_name=("gen_ai.agent.name", "graph.node.id", "lc_agent_name"),
        input=("input.value",),
        output=("output.value",),
    ),
    messages=(
        MessageRow("gen_ai.output.messages.", conclusive=False),
        MessageRow("gen_ai.input.messages.", Side.HISTORY),
    ),
    span_name=("*",),
    agent_span_name=(),
    wrappers=("langchain_output", "langchain_text"),
    placeholders={**PLACEHOLDERS, "input.value": frozenset({"{}"})},
    tool_spans=False,
    failures_in_results=True,
)

LANGWATCH: Final = Convention(
    name="langwatch",
    source=(
        "langwatch 1.4.0 attributes.py, langchain.py: values beside their type, and messages"
        " without their status; langwatch 0.16.1 for JavaScript: the same in a scope that the"
        " program names; E"
    ),
    rules=by_kind(
        "langwatch.span.type", tool="tool", agent="agent|workflow", model="llm", other="*"
    ),
    fields={
        Field.ARGUMENTS: ("langwatch.input",),
        Field.RESULT: ("langwatch.output",),
        Field.INPUT: ("langwatch.input",),
        Field.OUTPUT: ("langwatch.output",),
        Field.CONVERSATION: ("langwatch.thread.id",),
        Field.INPUT_TOKENS: ("gen_ai.usage.prompt_tokens",),
        Field.OUTPUT_TOKENS: ("gen_ai.usage.completion_tokens",),
    },
    span_name=("*",),
    agent_span_name=("*",),
    wrappers=("langwatch_messages", "langwatch_value"),
    failures_unrecorded=True,
)

NETRA: Final = replace(
    GEN_AI,
    name="netra",
    source=(
        "netra-sdk 1.2.2: `netra.span.type` of decorators (`@task` is a tool); in messages calls"
        " are text of JSON"
    ),
    scopes=(),
    rules=(
        *by_kind("netra.span.type", tool="TOOL", agent="AGENT|WORKFLOW"),
        Rule(Kind.MODEL, "netra.instrumentation.name"),
    ),
    fields=with_fields(
        GEN_AI.fields,
        tool_name=("gen_ai.tool.name", "netra.task.name"),
        arguments=("input",),
        result=("output",),
        agent_name=("netra.agent.name",),
        input=("input",),
        output=("output",),
    ),
    span_name=("*",),
    errors=(Mark("netra.entity.error", "*"),),
    messages=(),
    placeholders={**PLACEHOLDERS, "input": frozenset({""}), "output": frozenset({""})},
)

MONOCLE: Final = Convention(
    name="monocle",
    source=(
        "monocle-apptrace 0.8.15: content in events, a span of the model's API within that of the"
        " framework; E"
    ),
    scopes=("monocle_apptrace*",),
    rules=by_kind(
        "span.type",
        tool="agentic.tool.invocation|agentic.mcp.invocation",
        agent="agentic.turn|agentic.invocation",
        model="inference|inference.framework",
        other="*",
    ),
    fields={
        Field.TOOL_NAME: ("entity.1.name",),
        Field.AGENT_NAME: ("entity.1.name",),
        Field.FINISH_REASONS: ("span.subtype",),
    },
    events=(
        EventRow("data.input", Field.ARGUMENTS, "input"),
        EventRow("data.output", Field.RESULT, "response"),
        EventRow("data.output", Field.ERROR_TYPE, "error_code"),
    ),
)

JUDGMENT: Final = Convention(
    name="judgment",
    source=(
        "judgeval 1.6.0 judgment_attribute_keys.py: decorators and a wrapped client of a model,"
        " whose streamed answers are recorded as text"
    ),
    scopes=("judgeval",),
    rules=by_kind("judgment.span_kind", tool="tool", agent="agent", model="llm", other="*"),
    fields={
        Field.ARGUMENTS: ("judgment.input",),
        Field.RESULT: ("judgment.output",),
        Field.INPUT: ("judgment.input",),
        Field.OUTPUT: ("judgment.output",),
        Field.CONVERSATION: ("judgment.session_id",),
    },
    span_name=("*",),
    agent_span_name=("*",),
    messages=(
        MessageRow("gen_ai.completion", conclusive=False),
        MessageRow("gen_ai.prompt", Side.HISTORY),
    ),
    placeholders={"judgment.input": frozenset({"{}"})},
)

_TRULENS: Final = "ai.observability."

TRULENS: Final = Convention(
    name="trulens",
    source=(
        "trulens-core, -apps-langchain 2.16 otel/semconv/trace.py: functions with `@instrument`"
        " have their qualified name, and each of their arguments is an attribute of its own; tools"
        " of LangChain have the tool's; E"
    ),
    scopes=("trulens",),
    rules=by_kind(
        f"{_TRULENS}span_type",
        tool="tool|MCP",
        agent="record_root|nested_record_root|agent",
        model="generation",
        other="*",
    ),
    fields={
        Field.TOOL_NAME: (f"{_TRULENS}mcp.tool_name",),
        Field.RESULT: (f"{_TRULENS}call.return",),
        Field.AGENT_NAME: (f"{_TRULENS}app_name",),
        Field.INPUT: (f"{_TRULENS}record_root.input",),
        Field.OUTPUT: (f"{_TRULENS}record_root.output",),
        Field.INPUT_TOKENS: (f"{_TRULENS}cost.num_prompt_tokens",),
        Field.OUTPUT_TOKENS: (f"{_TRULENS}cost.num_completion_tokens",),
    },
    span_name=("*",),
    errors=(Mark(f"{_TRULENS}mcp.output_is_error", "true"), Mark(f"{_TRULENS}call.error", "*")),
    placeholders={f"{_TRULENS}mcp.tool_name": frozenset({"unknown"})},
)

TRULENS_LANGGRAPH: Final = replace(
    TRULENS,
    name="trulens_langgraph",
    source=(
        "trulens-apps-langgraph 2.16 tru_graph.py: the span of a call is named after the first of"
        " all tools, so only its input names the tool; where that is the state of the graph, or"
        " holds several calls, it names none; E"
    ),
    rules=(
        Rule(
            Kind.OTHER,
            f"{_TRULENS}call.kwargs.input",
            '[{"name": "*", "args": *}, {"name": "*", "args": *',
            unread=True,
        ),
        Rule(
            Kind.TOOL,
            f"{_TRULENS}call.kwargs.input",
            '[{"name": "*", "args": *, "type": "tool_call"}]',
        ),
        Rule(Kind.OTHER, f"{_TRULENS}call.function", "langgraph.prebuilt.tool_node.ToolNode.*"),
    ),
    fields={Field.RESULT: (f"{_TRULENS}call.return",)},
    title=f"{_TRULENS}call.kwargs.input",
    span_name=('[{"name": "*", "args": *',),
    wrappers=("langchain_text",),
    failures_in_results=True,
)

LITELLM: Final = replace(
    GEN_AI,
    name="litellm",
    source=(
        "litellm 1.109.1 integrations/opentelemetry.py: requested calls are in"
        " gen_ai.completion.N.function_call, without ids, and what came back in the history of"
        " later requests; E"
    ),
    scopes=("litellm*",),
    rules=(
        Rule(Kind.OTHER, name="Received Proxy Server Request"),
        # Below `litellm_request` it repeats the request as the provider got it; alone it stands
        # where LiteLLM wrote the rest on the caller's span. Its content is Python's `repr` of the
        # provider's own format, below keys of the provider's.
        Rule(Kind.MODEL, name="raw_gen_ai_request"),
        *RULES,
        Rule(Kind.MODEL, name="litellm_request"),
    ),
    tool_spans=False,
)

LITELLM_CALLER: Final = Convention(
    name="litellm_caller",
    source=(
        "the same: within a span of the caller's, each request writes its attributes on that span,"
        " over those of the request before, so that they describe no request reliably; E"
    ),
    rules=(
        Rule(Kind.OTHER, "litellm.call_id"),
        Rule(Kind.OTHER, "litellm.provider.model"),
        Rule(Kind.OTHER, "hidden_params", '*"litellm_model_name"*|*"litellm_overhead_time_ms"*'),
    ),
)
