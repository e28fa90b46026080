"""Judges: the scorers that wait for them run here, beside the others, and endpoints are asked from here.

Knows event loops, clocks and one chat protocol; knows no trajectory's meaning.
"""

from __future__ import annotations

from otel_eval.judges.async_evaluator import AsyncEvaluator

__all__ = ["AsyncEvaluator"]
