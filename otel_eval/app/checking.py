"""What a configuration names outside of itself: certificates, tokens, keys of judges.

Knows which of them there are; keeps none of them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from otel_eval.app.compose import engine_of
from otel_eval.app.entrance import verify
from otel_eval.config import EvalConfig
from otel_eval.telling import gathered

__all__ = ["check", "suggestions"]


def check(config: EvalConfig) -> None:
    """See whether all of it can be had.

    Raises:
        ConfigError: something cannot; every such thing is named, and no secret.
    """
    readings: list[Callable[[], object]] = [partial(verify, config.receivers.otlp)]
    if config.judges:
        from otel_eval.app.judges import judges_of  # deferred: it loads every scorer

        readings.append(partial(judges_of, config))
    gathered(readings)


def suggestions(config: EvalConfig) -> list[str]:
    """What scorers may be meant to do otherwise than they are configured, each with its place in the configuration."""
    return [
        f"evaluations[{row}].scorers[{column}]: {suggestion}"
        for row, evaluation in enumerate(engine_of(config).evaluations)
        for column, scorer in enumerate(evaluation.scorers)
        for suggestion in getattr(scorer, "suggestions", ())
    ]
