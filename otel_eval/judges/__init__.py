"""Judges: scorers that wait for answers run here on an event loop of their own, and endpoints are asked from here."""

from __future__ import annotations

from otel_eval.judges.async_evaluator import AsyncEvaluator

__all__ = ["AsyncEvaluator"]
