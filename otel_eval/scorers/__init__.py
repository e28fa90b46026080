"""Scorers: how each score of a trajectory is computed. `create_scorer` builds one from a mapping, `scorer` registers one."""

from __future__ import annotations

from otel_eval.scorers import (  # noqa: F401 - importing them registers them
    calls,
    counts,
    dag,
    expression,
    failures,
    judge_scorers,
    labels,
    pattern,
    precedence,
    repeats,
    structure,
    times,
)
from otel_eval.scorers.labels import summarize
from otel_eval.scorers.spec.build import create_scorer
from otel_eval.scorers.spec.registry import get_scorer, list_scorers, scorer

__all__ = ["create_scorer", "get_scorer", "list_scorers", "scorer", "summarize"]
