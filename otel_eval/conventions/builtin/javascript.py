"""Frameworks and tracers of JavaScript that need tables of their own."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.builtin.genai import (
    AI_SDK_REFUSALS,
    AI_SDK_REQUESTS,
    GEN_AI,
    INCONCLUSIVE_MESSAGES,
    with_fields,
)
from otel_eval.conventions.builtin.openinference import FRAMEWORKS as OPENINFERENCE_FRAMEWORKS
from otel_eval.conventions.builtin.vendors import MODEL_CLIENTS, TRACELOOP
from otel_eval.conventions.table import EventRow, Field, Mark, Rule
from otel_eval.model import Kind

OPENINFERENCE_VERCEL: Final = replace(
    OPENINFERENCE_FRAMEWORKS,
    name="openinference_vercel",
    source=(
        "@arizeai/openinference-vercel 3.2.1 TraceAggregateManager.js, which writes on the spans of"
        " the Vercel AI SDK: with version 2 of OpenTelemetry's SDK it takes each span for the root,"
        " so that all that end after a failure have its status; E"
    ),
    scopes=("ai|gen_ai",),
    request_marks=AI_SDK_REQUESTS,
    pauses_unanswered=True,
    refusals=AI_SDK_REFUSALS,
    failures_in_results=False,
    statuses_spread=True,
)

TRACELOOP_JS: Final = replace(
    TRACELOOP,
    name="traceloop_js",
    source=(
        "@traceloop/node-server-sdk 0.27 decorators: the span of a function that raised is never"
        " ended; E"
    ),
    scopes=("@traceloop/node-server-sdk",),
    raised_unrecorded=True,
)

TRACELOOP_RESPONSES_JS: Final = replace(
    MODEL_CLIENTS,
    name="traceloop_responses_js",
    source=(
        "@traceloop/instrumentation-openai 0.27: of an answer of the Responses API only its text is"
        " recorded, and `stop` as its finish reason; E"
    ),
    scopes=("@traceloop/instrumentation-openai",),
    rules=(Rule(Kind.MODEL, "gen_ai.response.id", "resp_*"),),
    messages=INCONCLUSIVE_MESSAGES,
    unreliable_finish_reasons=(Mark("gen_ai.response.id", "*"),),
)

AX: Final = replace(
    GEN_AI,
    name="ax",
    source=(
        "@ax-llm/ax 24.0.21: a function's span has neither content nor a status, and its exception"
        " as an event; a generator has no name but that of its signature; E"
    ),
    rules=(
        Rule(Kind.TOOL, "tool.mode", name="Tool: *"),
        Rule(Kind.AGENT, "signature_name", name="AxGen"),
    ),
    fields={
        Field.TOOL_NAME: ("tool.name",),
        Field.CALL_ID: ("function.id",),
        Field.CONVERSATION: ("session.id",),
    },
    span_name=("Tool: *",),
    agent_span_name=(),
    events=(EventRow("exception", Field.ERROR_TYPE, "exception.type"),),
    tool_spans=True,
)

TANSTACK: Final = replace(
    GEN_AI,
    name="tanstack",
    source=(
        "@tanstack/ai 0.58.0 middlewares/otel.js: the run is a `chat` without an operation; a"
        " call's arguments stand in a message without a request and are not read; E"
    ),
    rules=(
        Rule(Kind.TOOL, "tanstack.ai.tool.outcome"),
        Rule(Kind.MODEL, "tanstack.ai.iteration"),
        Rule(Kind.AGENT, "tanstack.ai.iterations"),
        Rule(Kind.AGENT, "tanstack.ai.completion.reason"),
    ),
    fields=with_fields(
        GEN_AI.fields,
        input=("langfuse.trace.input",),
        output=("langfuse.trace.output",),
    ),
    agent_span_name=(),
    tool_spans=True,
)

EFFECT: Final = replace(
    GEN_AI,
    name="effect",
    source=(
        "@effect/ai 0.37.0 Toolkit.ts, whose spans have the name of the service as their scope: a"
        " tool that returns its failure leaves the span of one that succeeded; E"
    ),
    rules=(Rule(Kind.TOOL, "tool", name="Toolkit.handle"),),
    fields={Field.TOOL_NAME: ("tool",), Field.ARGUMENTS: ("parameters",)},
    span_name=(),
    failures_unrecorded=True,
)
