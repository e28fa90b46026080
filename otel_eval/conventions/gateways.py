"""Libraries and gateways between an application and its models.

Data only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.conventions.gen_ai import GEN_AI, MESSAGES, RULES
from otel_eval.conventions.table import Convention, Rule
from otel_eval.model import Kind

__all__ = ["LITELLM", "LITELLM_CALLER"]

LITELLM: Final = replace(
    GEN_AI,
    name="litellm",
    source="litellm 1.109.1 integrations/opentelemetry.py: calls asked for stand in gen_ai.completion.N.function_call, without "
    "ids, and what came back in the history of later requests; E",
    scopes=("litellm*",),
    rules=(
        Rule(Kind.OTHER, name="Received Proxy Server Request"),
        # Below `litellm_request` it repeats the request as the provider got it; alone it stands where LiteLLM wrote the rest
        # on the caller's span. Its content is Python's `repr` of the provider's own format, below keys of the provider's.
        Rule(Kind.MODEL, name="raw_gen_ai_request"),
        *RULES,
        Rule(Kind.MODEL, name="litellm_request"),
    ),
    messages=MESSAGES,
    tool_spans=False,
)

LITELLM_CALLER: Final = Convention(
    name="litellm_caller",
    source="the same: within a span of the caller's, each request writes its attributes on that span, over those of the request "
    "before, so that they describe no request reliably; E",
    rules=(
        Rule(Kind.OTHER, "litellm.call_id"),
        Rule(Kind.OTHER, "litellm.provider.model"),
        Rule(Kind.OTHER, "hidden_params", '*"litellm_model_name"*|*"litellm_overhead_time_ms"*'),
    ),
)
