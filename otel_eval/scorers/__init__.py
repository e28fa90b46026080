"""Scorers: how each score of a trajectory is computed.

Knows trajectories and specifications; knows no span, no sink, no clock. `create_scorer` builds one from a mapping,
`scorer` registers one's own.
"""

from __future__ import annotations

from otel_eval.scorers import (  # noqa: F401 - importing them registers them
    calls,
    correctness,
    counts,
    dag,
    expression,
    failures,
    judged,
    labels,
    pattern,
    precedence,
    repeats,
    structure,
    times,
)
from otel_eval.scorers.building import create_scorer
from otel_eval.scorers.labels import summarize
from otel_eval.scorers.registry import get_scorer, list_scorers, scorer

__all__ = ["create_scorer", "get_scorer", "list_scorers", "scorer", "summarize"]
