"""Scorers: how each score of a trajectory is computed. `create_scorer` builds one from a mapping,
`scorer` registers one. The modules of built-in scorers are imported when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from otel_eval.scorers.build import create_scorer
from otel_eval.scorers.registry import get_scorer, list_scorers, scorer

if TYPE_CHECKING:
    from otel_eval.scorers.recorded import summarize

__all__ = ["create_scorer", "get_scorer", "list_scorers", "scorer", "summarize"]


def __getattr__(name: str) -> Any:
    if name == "summarize":
        from otel_eval.scorers.recorded import summarize

        return summarize
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
