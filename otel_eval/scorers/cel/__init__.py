"""Expressions in CEL, the Common Expression Language, over what a run recorded.

Knows how an expression is checked once and then evaluated on many runs; knows no score. The implementation comes with
the extra `cel` and is loaded only where an expression is.
"""

from __future__ import annotations

from otel_eval.scorers.cel.binding import REASONS, Bound, Unavailable, bind
from otel_eval.scorers.cel.program import Evaluation, Invalid, Program, combined, compiled
from otel_eval.scorers.cel.reading import Reading

__all__ = ["REASONS", "Bound", "Evaluation", "Invalid", "Program", "Reading", "Unavailable", "bind", "combined", "compiled"]
