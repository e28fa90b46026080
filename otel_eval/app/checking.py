"""What a configuration names outside of itself: certificates, tokens, keys of judges.

Knows which of them there are; keeps none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Final

from otel_eval.app.compose import engine_of
from otel_eval.app.entrance import verify
from otel_eval.app.operating import metrics_endpoint
from otel_eval.app.outlets import otlp_endpoint
from otel_eval.config import EvalConfig, client_tls, refuse_credentials
from otel_eval.datasets import Dataset
from otel_eval.errors import ConfigError, collect_errors
from otel_eval.model import Skipped
from otel_eval.otlp.endpoint import for_signal, is_secure

__all__ = ["check", "suggestions"]

_MOST_PROBLEMS: Final = 20


def check(config: EvalConfig) -> None:
    """See whether all of it can be had.

    Raises:
        ConfigError: something cannot; every such thing is named, and no secret.
    """
    readings: list[Callable[[], object]] = [partial(verify, config.receivers.otlp), partial(refuse_credentials, config)]
    readings += _client_files(config)
    if config.judges:
        from otel_eval.app.judges import judges_of  # deferred: it loads every scorer

        readings.append(partial(judges_of, config))
    readings.append(partial(_check_datasets, config))
    collect_errors(readings)


def _client_files(config: EvalConfig) -> Iterator[Callable[[], object]]:
    """Read the files for TLS of every endpoint that results, spans or metrics are sent to."""
    forward, otlp, metrics = config.exporters.forward, config.exporters.otlp, config.telemetry.otlp
    if forward and forward.tls:
        yield client_tls(forward.tls, "exporters.forward.tls").context
    ways = [(otlp_endpoint(otlp), otlp.signals)] if otlp else []
    ways += [(metrics_endpoint(metrics), ("metrics",))] if metrics else []
    yield from (for_signal(to, signal).tls.context for to, signals in ways if is_secure(to) for signal in signals)


def _check_datasets(config: EvalConfig) -> None:
    """Read every record of the files of references as the scorer that uses it does."""
    found = [
        problem
        for evaluation in engine_of(config).evaluations
        for scorer in evaluation.scorers
        for problem in _unusable_records(scorer)
    ]
    if found:
        more = [f"and {len(found) - _MOST_PROBLEMS} more records that cannot be used"] if len(found) > _MOST_PROBLEMS else []
        raise ConfigError(*dict.fromkeys(found[:_MOST_PROBLEMS]), *more)


def _unusable_records(scorer: Any) -> Iterator[str]:
    reference: Any = getattr(scorer, "reference", None)
    read = getattr(scorer, "read_reference", None)
    dataset = getattr(reference, "records", None)
    if isinstance(dataset, Dataset) and read is not None:
        for key in dataset.record_keys():
            place = dataset.place_of(key)
            for problem in _problems(reference.value_of(key), reference.field, read):
                yield f"{place['dataset']} line {place['line']}: {problem}"
    for further in getattr(scorer, "scorers", ()):
        yield from _unusable_records(further)


def _problems(value: Any, field: str, read: Callable[[Any], object]) -> Sequence[str]:
    if isinstance(value, Skipped):
        return (f"{field}: missing; add it, or remove the record",)
    try:
        read(value)
    except ConfigError as error:
        return error.problems
    return ()


def suggestions(config: EvalConfig) -> list[str]:
    """What scorers may be meant to do otherwise than they are configured, each with its place in the configuration."""
    return [
        f"evaluations[{row}].scorers[{column}]: {suggestion}"
        for row, evaluation in enumerate(engine_of(config).evaluations)
        for column, scorer in enumerate(evaluation.scorers)
        for suggestion in getattr(scorer, "suggestions", ())
    ]
