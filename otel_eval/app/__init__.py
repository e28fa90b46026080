"""The composition root: builds the parts that a configuration names, and connects them.

The only package that may import every other one.
"""

from __future__ import annotations

from otel_eval.app.stored_traces import Coverage, EvaluationOfRun, ExplainedRun, ExplainedTrace, explain, replay, understand
from otel_eval.app.wiring import engine_of, limits_of, tables_of

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
