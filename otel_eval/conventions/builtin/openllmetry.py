"""OpenLLMetry: Traceloop's SDK and the instrumentations that came from it.

Its spans often carry GenAI attributes too, filled with the framework's own envelopes, so these tables precede the GenAI ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import FIELDS as GEN_AI_FIELDS
from otel_eval.conventions.builtin.genai import MESSAGES, PLACEHOLDERS, with_fields
from otel_eval.conventions.builtin.genai import RULES as GEN_AI_RULES
from otel_eval.conventions.table import Convention, Field, Mark, Rule
from otel_eval.model import Kind

__all__ = ["DIALECTS", "TRACELOOP", "TRACELOOP_MODELS"]

KIND: Final = "traceloop.span.kind"
RULES: Final = (
    Rule(Kind.TOOL, KIND, "tool"),
    Rule(Kind.AGENT, KIND, "agent|workflow"),
    Rule(Kind.MODEL, "llm.request.type", "chat|completion"),
    Rule(Kind.OTHER, KIND, "task"),
)
FIELDS: Final[Mapping[Field, tuple[str, ...]]] = with_fields(
    GEN_AI_FIELDS,
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

TRACELOOP: Final = Convention(
    name="traceloop",
    source="traceloop/openllmetry 0.62.4, opentelemetry-semantic-conventions-ai 0.5.1; E: langchain",
    rules=tuple(rule for rule in RULES if rule.key == KIND),
    fields=FIELDS,
    span_name=("execute_tool *", "*.tool"),
    agent_span_name=("invoke_agent *", "*.workflow", "*.agent"),
    errors=(Mark("gen_ai.task.status", "failure"),),
    messages=MESSAGES,
    wrappers=("langchain_tool_start", "langchain_output", "python_call"),
    placeholders=PLACEHOLDERS,
)

TRACELOOP_MODELS: Final = replace(
    TRACELOOP,
    name="traceloop_models",
    source="the same: model calls in the spelling that other libraries copied",
    rules=tuple(rule for rule in RULES if rule.key != KIND),
    tool_spans=False,
)

LANGCHAIN: Final = replace(
    TRACELOOP,
    name="traceloop_langchain",
    source="opentelemetry-instrumentation-langchain 0.62.4 (some spans carry only GenAI attributes); E",
    scopes=("opentelemetry.instrumentation.langchain*",),
    rules=(*RULES, *GEN_AI_RULES),
    tool_spans=True,
    failures_in_results=True,
)

AGNO: Final = replace(
    TRACELOOP,
    name="traceloop_agno",
    source="opentelemetry-instrumentation-agno 0.62.4: agents and teams, no model spans; results are `repr` text, and only "
    "that text shows that a call failed; E",
    scopes=("opentelemetry.instrumentation.agno*",),
    rules=RULES,
    fields=with_fields(FIELDS, agent_name=("agno.team.name",)),
    agent_span_name=("*.team", "*.agent"),
    errors=(Mark("traceloop.entity.output", "status='failure' *"),),
    tool_spans=True,
    failures_in_results=True,
)

LLAMA_INDEX: Final = replace(
    TRACELOOP,
    name="traceloop_llama_index",
    source="opentelemetry-instrumentation-llamaindex 0.62.4 with llama-index-core 0.14: tools are tasks without names; E",
    scopes=("opentelemetry.instrumentation.llamaindex*",),
    rules=(*RULES, *GEN_AI_RULES),
    tool_spans=False,
    failures_in_results=True,
)

CREWAI: Final = replace(
    TRACELOOP,
    name="traceloop_crewai",
    source="opentelemetry-instrumentation-crewai 0.62.4: crew, agent and task spans, no tool spans; E",
    scopes=("opentelemetry.instrumentation.crewai*",),
    rules=(*RULES, *GEN_AI_RULES),
    messages=tuple(replace(row, conclusive=False) for row in MESSAGES),
    tool_spans=False,
)

MODEL_CLIENTS: Final = replace(
    TRACELOOP,
    name="traceloop_clients",
    source="opentelemetry-instrumentation-openai, -anthropic, -bedrock, -cohere, -groq, -mistralai, -ollama, -together, "
    "-vertexai, -google-generativeai 0.62.4: they wrap the model's client and see no tool run",
    scopes=tuple(
        f"{origin}{each}"
        for origin in ("opentelemetry.instrumentation.", "@traceloop/instrumentation-")
        for each in ("openai", "openai.*", "anthropic", "bedrock", "cohere", "groq", "mistralai", "ollama", "together",
                     "vertexai", "google_generativeai", "watsonx", "replicate", "sagemaker", "writer")
    ),
    rules=(*RULES, *GEN_AI_RULES),
    tool_spans=False,
)  # fmt: skip

DIALECTS: Final = (LANGCHAIN, AGNO, LLAMA_INDEX, CREWAI, MODEL_CLIENTS)
