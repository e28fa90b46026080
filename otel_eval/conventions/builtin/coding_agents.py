"""Coding agents that run in a terminal and trace themselves."""

from __future__ import annotations

from typing import Final

from otel_eval.conventions.builtin.genai import FIELDS as GEN_AI_FIELDS
from otel_eval.conventions.builtin.genai import OPERATION, PLACEHOLDERS, with_fields
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, Rule
from otel_eval.model import Kind

__all__ = ["CLAUDE_CODE", "GEMINI_CLI"]

CLAUDE_CODE: Final = Convention(
    name="claude_code",
    source="Claude Code docs, monitoring (traces, beta) @2026-06: `claude_code.tool` names the call, `.tool.execution` below "
    "it, with the same id and no name, records how it ended; a session's title is requested in a trace of its own; "
    "arguments and the output only in log records; E: the CLI of claude-agent-sdk 0.2.187",
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
    source="gemini-cli packages/core/src/telemetry/trace.ts and constants.ts, scheduler/tool-executor.ts @2026: a tool span's "
    "input is the request, its output the completed call; before, `input-json` and `output-json`",
    scopes=("gemini-cli*|@google/gemini-cli*",),
    rules=(
        Rule(Kind.TOOL, OPERATION, "tool_call"),
        Rule(Kind.AGENT, OPERATION, "agent_call|user_prompt"),
        Rule(Kind.MODEL, OPERATION, "llm_call"),
        Rule(Kind.OTHER, OPERATION),
    ),
    fields=with_fields(
        GEN_AI_FIELDS,
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
