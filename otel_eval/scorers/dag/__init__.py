"""Decision trees: scores at the end of a path that expressions and judges decide. Importing it registers the scorer `dag`."""

from __future__ import annotations

from otel_eval.scorers.dag.scorer import Dag

__all__ = ["Dag"]
