"""Expressions in CEL, the Common Expression Language, over what a run recorded.

An expression is checked once and evaluated on many runs. The implementation comes with the extra `cel` and is loaded only
where an expression is.
"""

from __future__ import annotations

from otel_eval.scorers.cel.binding import REASONS, Bindings, Unavailable, bind
from otel_eval.scorers.cel.program import ExpressionEvaluator, InvalidExpression, Program, combined, compiled
from otel_eval.scorers.cel.vocabulary import FieldsRead

__all__ = [
    "REASONS",
    "Bindings",
    "ExpressionEvaluator",
    "FieldsRead",
    "InvalidExpression",
    "Program",
    "Unavailable",
    "bind",
    "combined",
    "compiled",
]
