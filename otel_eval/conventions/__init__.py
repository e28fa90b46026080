"""How the many instrumentations of agents spell what they record: tables of data and the reading of values.

Knows attribute names; nothing above it does. Knows no tree of spans, no scorer, no wire.

The order of `TABLES` matters, the first table that knows a span decides: products that mark their spans explicitly,
then dialects recognised by their scope, then the general conventions, then spans that say little more than a tool's
name. A user's own tables go before all of them.
"""

from __future__ import annotations

from typing import Final

from otel_eval.conventions import frameworks, gateways, gen_ai, named_spans, openinference, terminals, traceloop, vendors
from otel_eval.conventions.decode import decode
from otel_eval.conventions.finish import Finish, finish_of, finish_of_messages
from otel_eval.conventions.histories import Histories
from otel_eval.conventions.mapping import convention_from_mapping
from otel_eval.conventions.messages import Answered, Asked, nested, read_messages
from otel_eval.conventions.reader import DROPPED, NOTHING, Reader, Reading, ReadTable, Recognition, ScopeReader
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.conventions.tool_spans import ToolReader, ToolWords
from otel_eval.conventions.wrappers import WRAPPERS, unwrap

__all__ = [
    "DROPPED",
    "NOTHING",
    "TABLES",
    "WRAPPERS",
    "Answered",
    "Asked",
    "Convention",
    "EventRow",
    "Field",
    "Finish",
    "Histories",
    "Mark",
    "MessageRow",
    "ReadTable",
    "Reader",
    "Reading",
    "Recognition",
    "Rule",
    "ScopeReader",
    "Side",
    "ToolReader",
    "ToolWords",
    "convention_from_mapping",
    "decode",
    "finish_of",
    "finish_of_messages",
    "nested",
    "read_messages",
    "unwrap",
]

TABLES: Final[tuple[Convention, ...]] = (
    vendors.LANGFUSE,
    *openinference.DIALECTS,
    openinference.OPENINFERENCE,
    gateways.LITELLM,
    *gen_ai.DIALECTS,
    vendors.LANGSMITH,
    *traceloop.DIALECTS,
    traceloop.TRACELOOP,
    gateways.LITELLM_CALLER,
    traceloop.TRACELOOP_MODELS,
    vendors.MLFLOW_LANGCHAIN,
    vendors.MLFLOW,
    vendors.VERCEL,
    vendors.SPRING_AI,
    vendors.MCP,
    terminals.CLAUDE_CODE,
    terminals.GEMINI_CLI,
    frameworks.LIVEKIT,
    named_spans.LOGFIRE_WORKFLOW,
    named_spans.LOGFIRE_AGENTS,
    named_spans.CAMEL,
    frameworks.LOONGSUITE,
    frameworks.AG2,
    frameworks.LETTA,
    frameworks.CREWAI,
    frameworks.CREWAI_STEPS,
    frameworks.WEAVE,
    frameworks.AGENTOPS,
    gen_ai.GEN_AI,
    frameworks.HAYSTACK,
    frameworks.GENKIT,
    frameworks.FLUE,
    gen_ai.BARE_TOOL,
    vendors.PLAIN,
)
