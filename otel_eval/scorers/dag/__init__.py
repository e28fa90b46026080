"""Decision trees: scores at the end of a way that expressions and judges decide.

Knows nodes, how they are joined, checked, walked and drawn; importing it registers the scorer `dag`.
"""

from __future__ import annotations

from otel_eval.scorers.dag.scorer import Dag

__all__ = ["Dag"]
