"""The built-in conventions: one module for each family, all of them data.

The order of `TABLES` matters, because the first table that recognises a span decides: products that mark their spans
explicitly, then dialects recognised by their scope, then the general conventions, then spans that hold little more than a
tool's name. A user's own tables go before all of them.
"""

from __future__ import annotations

from typing import Final

from otel_eval.conventions.builtin import distributions, frameworks, genai, openinference, tracers, vendors
from otel_eval.conventions.table import Convention

TABLES: Final[tuple[Convention, ...]] = (
    vendors.LANGFUSE,
    *openinference.DIALECTS,
    openinference.OPENINFERENCE,
    frameworks.MASTRA,
    genai.KOOG,
    genai.KOOG_AGENT,
    tracers.LITELLM,
    tracers.OPENLIT_STREAMED,
    tracers.OPENLIT_RESPONSES,
    tracers.OPENLIT,
    distributions.SPLUNK_LANGCHAIN,
    distributions.LOONGSUITE_TOOLS,
    distributions.SPLUNK,
    distributions.AZURE_LANGCHAIN,
    distributions.A365_LANGCHAIN,
    tracers.TRACEAI,
    tracers.LANGWATCH,
    tracers.NETRA,
    tracers.MONOCLE,
    tracers.JUDGMENT,
    *genai.DIALECTS,
    tracers.LAMINAR_RESPONSES,
    tracers.LAMINAR,
    tracers.LANGTRACE_TEXT,
    tracers.LANGTRACE,
    vendors.LANGSMITH,
    *vendors.OPENLLMETRY,
    vendors.TRACELOOP,
    tracers.LITELLM_CALLER,
    vendors.TRACELOOP_MODELS,
    tracers.MLFLOW_DSPY,
    tracers.MLFLOW_SMOLAGENTS,
    tracers.MLFLOW_STREAMED,
    tracers.MLFLOW_LANGCHAIN,
    tracers.MLFLOW,
    vendors.VERCEL,
    frameworks.SPRING_AI_STREAMED,
    frameworks.SPRING_AI,
    vendors.MCP_PYTHON_CLIENT,
    vendors.MCP,
    vendors.CLAUDE_CODE,
    vendors.GEMINI_CLI_MODEL,
    vendors.GEMINI_CLI,
    vendors.CODEX,
    vendors.LLAMA_INDEX_OWN,
    frameworks.LIVEKIT,
    frameworks.VOLTAGENT,
    frameworks.LOGFIRE_WORKFLOW,
    frameworks.LOGFIRE_AGENTS,
    frameworks.CAMEL,
    frameworks.LOONGSUITE,
    frameworks.AG2,
    frameworks.LETTA,
    frameworks.CREWAI,
    frameworks.CREWAI_STEPS,
    frameworks.AGENTSCOPE_1,
    frameworks.AGENTSCOPE,
    tracers.WEAVE,
    tracers.AGENTOPS,
    genai.GEN_AI,
    frameworks.HAYSTACK,
    vendors.GENKIT_V2,
    frameworks.GENKIT,
    frameworks.FLUE,
    genai.BARE_TOOL,
    vendors.PLAIN,
)
