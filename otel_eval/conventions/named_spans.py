"""Frameworks whose spans can be distinguished by their names only: their attributes follow no convention.

Data only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.gen_ai import SCRUBBED
from otel_eval.conventions.table import Convention, Field, Mark, MessageRow, Rule, Side
from otel_eval.model import Kind

__all__ = ["CAMEL", "LOGFIRE_AGENTS", "LOGFIRE_WORKFLOW"]

LOGFIRE_AGENTS: Final = Convention(
    name="logfire_openai_agents",
    source="logfire 5.0.0 _internal/integrations/openai_agents.py: a span's name is the template of its message, attributes "
    "are the fields of OpenAI Agents' own spans, and None is written as `null`; E",
    scopes=("logfire.openai_agents",),
    rules=(
        # Logfire's own exporter sends each span a second time when it starts.
        Rule(Kind.OTHER, "logfire.span_type", "pending_span"),
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
    # Logfire masks a name that looks like a secret (`create_session`) in each attribute but the message.
    title="logfire.msg",
    span_name=("Function: * failed: *", "Function: *"),
    agent_span_name=("Agent run: '*'", "Agent run: '*' failed: *"),
    errors=(Mark("error", "{*"),),
    messages=(
        MessageRow("output"),
        MessageRow("response"),
        MessageRow("input", Side.HISTORY),
        MessageRow("raw_input", Side.HISTORY),
    ),
    placeholders={"*": frozenset({"null"})},
    masks=SCRUBBED,
    tool_spans=True,
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
    source="camel-ai 0.2.90 with TRACEROOT_ENABLED and traceroot 0.0.7: a span per traced function, named after it, without "
    "content; the span of a tool call does not name the tool; E",
    scopes=("traceroot*",),
    rules=(
        Rule(Kind.AGENT, name="camel.agents.*.step|camel.agents.*.astep"),
        Rule(Kind.MODEL, name="camel.models.*Backend.run|camel.models.*Backend.arun"),
    ),
    agent_span_name=("camel.agents.chat_agent.*.step", "camel.agents.chat_agent.*.astep"),
    tool_spans=False,
)
