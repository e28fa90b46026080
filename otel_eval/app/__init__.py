"""The composition root: configuration in, running parts out.

The only room that sees every other; it connects and decides nothing else.
"""

from __future__ import annotations

from otel_eval.app.compose import engine_of, limits_of, tables_of
from otel_eval.app.coverage import Coverage
from otel_eval.app.explaining import EvaluationOfRun, ExplainedRun, ExplainedTrace, explain
from otel_eval.app.stored import replay, understand

__all__ = [
    "Coverage",
    "EvaluationOfRun",
    "ExplainedRun",
    "ExplainedTrace",
    "engine_of",
    "explain",
    "limits_of",
    "replay",
    "tables_of",
    "understand",
]
