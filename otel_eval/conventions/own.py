"""What is never evaluated: this package's own telemetry and the carriers of other evaluations.

Knows the marks of an evaluation span; knows no convention of agents.
"""

from __future__ import annotations

from typing import Final

from otel_eval.conventions.table import Mark

__all__ = ["EVALUATION_MARKS", "OWN_SCOPE"]

OWN_SCOPE: Final = "otel_eval"

EVALUATION_MARKS: Final = (
    # OpenInference spec/semantic_conventions.md @2026-08-21: span kinds.
    Mark("openinference.span.kind", "EVALUATOR"),
    # OpenTelemetry GenAI conventions, change #185: operation of evaluation spans (proposed).
    Mark("gen_ai.operation.name", "evaluation"),
)
