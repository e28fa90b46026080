"""Scorers: how each score of a trajectory is computed. `create_scorer` builds one from a mapping,
`scorer` registers one.
"""

from __future__ import annotations

from otel_eval.scorers import (  # noqa: F401 - importing them registers them
    calls,
    counts,
    dag,
    judge_scorers,
    pattern,
    recorded,
    sequence,
)
from otel_eval.scorers.build import create_scorer
from otel_eval.scorers.recorded import summarize
from otel_eval.scorers.registry import get_scorer, list_scorers, scorer

__all__ = ["create_scorer", "get_scorer", "list_scorers", "scorer", "summarize"]
