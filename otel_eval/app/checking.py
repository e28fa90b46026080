"""Checks the files, keys and datasets that a configuration names, and hints at what may not do what
was intended.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from otel_eval.app.build import build_engine
from otel_eval.app.exporting import (
    known_scorers,
    score_endpoints,
)
from otel_eval.app.judge_clients import build_judges
from otel_eval.app.receiving import certificate_loaders, open_tokens, refuse_unshared
from otel_eval.config import (
    EvalConfig,
    refuse_credentials,
)
from otel_eval.datasets import Dataset
from otel_eval.errors import ConfigError, collect_errors
from otel_eval.evaluations import is_awaited
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Skipped, Trajectory
from otel_eval.otlp.endpoint import for_signal, is_secure
from otel_eval.scorers.base_scorer import BaseScorer, ReferencedScorer
from otel_eval.scorers.outcomes import NoScore
from otel_eval.scorers.rule_conflicts import contradictions

_MOST_PROBLEMS: Final = 20


def check(config: EvalConfig) -> None:
    """Check what validation alone cannot: that files, keys, datasets and clients can be used
    together as configured.

    Raises:
        ConfigError: with every problem, and without secrets.
    """
    checks: list[Callable[[], object]] = []
    if otlp := config.receivers.otlp:
        checks += [*certificate_loaders(otlp).values(), partial(open_tokens, otlp)]
    checks += [partial(refuse_credentials, config), *_client_files(config)]
    if to := score_endpoints(config):
        checks += [endpoint.tls.context for endpoint in to.values() if is_secure(endpoint)]
        checks.append(partial(known_scorers, config))
    for key, client in (
        ("receivers.kafka", config.receivers.kafka),
        ("exporters.kafka", config.exporters.kafka),
    ):
        if client:
            checks.append(partial(_check_kafka, client.settings(), key))
    checks += [
        partial(build_judges, config),
        partial(_check_datasets, config),
        partial(refuse_unshared, config),
        *_outputs(config),
    ]
    collect_errors(checks)


def _outputs(config: EvalConfig) -> Iterator[Callable[[], object]]:
    """Functions that check each file, and the directory, that is written."""
    jsonl, kafka, storage = config.exporters.jsonl, config.receivers.kafka, config.storage
    if jsonl and jsonl.path != "-":
        yield partial(_check_writable, "exporters.jsonl.path", jsonl.path)
    if config.exporters.dead_letter:
        yield partial(_check_writable, "exporters.dead_letter", config.exporters.dead_letter)
    if kafka and kafka.dead_letter:
        yield partial(_check_writable, "receivers.kafka.dead_letter", kafka.dead_letter)
    if config.exporters.cases:
        key, directory = "exporters.cases.directory", config.exporters.cases.directory
        yield partial(_check_writable, key, directory, is_directory=True)
    if storage:
        yield partial(_check_writable, "storage.directory", storage.directory, is_directory=True)


def _check_writable(key: str, path: str, *, is_directory: bool = False) -> None:
    """Check, without creating anything, whether a file can be opened or created, or a directory
    with those above it.

    Raises:
        ConfigError: it cannot.
    """
    full = existing = os.path.abspath(path)
    while not os.path.exists(existing) and (is_directory or existing == full):
        existing = os.path.dirname(existing)
    in_folder = is_directory or existing != full
    mode = os.W_OK | (os.X_OK if in_folder else 0)
    effective = os.access in os.supports_effective_ids
    is_folder = os.path.isdir(existing)
    if is_folder != in_folder or not os.access(existing, mode, effective_ids=effective):
        raise ConfigError(
            f"{key}: {path!r} cannot be written; name a {'directory' if is_directory else 'file'}"
            " that can be"
        )


def _client_files(config: EvalConfig) -> Iterator[Callable[[], object]]:
    """Functions that read the TLS files of every endpoint to which results, spans or metrics are
    sent.
    """
    forward, metrics = config.exporters.forward, config.telemetry.otlp
    if forward and forward.tls:
        yield forward.address("exporters.forward").tls.context
    endpoints = [
        (endpoint.address(key), endpoint.signals)
        for key, endpoint in config.exporters.otlp_endpoints.items()
    ]
    endpoints += [(metrics.address("telemetry.otlp"), ("metrics",))] if metrics else []
    yield from (
        for_signal(to, signal).tls.context
        for to, signals in endpoints
        if is_secure(to)
        for signal in signals
    )


def _check_datasets(config: EvalConfig) -> None:
    """Read every record of the files of references as its scorer reads it.

    Raises:
        ConfigError: a record is invalid; has at most 20 problems.
    """
    problems = [
        problem for _, scorer in _placed_scorers(config) for problem in _unusable_records(scorer)
    ]
    if problems:
        omitted = (
            [f"and {len(problems) - _MOST_PROBLEMS} more records that cannot be used"]
            if len(problems) > _MOST_PROBLEMS
            else []
        )
        raise ConfigError(*dict.fromkeys(problems[:_MOST_PROBLEMS]), *omitted)


def _unusable_records(scorer: object) -> Iterator[str]:
    """A problem for each record that the scorer cannot use."""
    for further in getattr(scorer, "scorers", ()):
        yield from _unusable_records(further)
    if not isinstance(scorer, ReferencedScorer) or is_awaited(scorer) or not scorer.reference:
        return
    reference, dataset = scorer.reference, scorer.reference.records
    if not isinstance(dataset, Dataset):
        return
    for key in dataset.record_keys():
        outcome = _outcome(scorer, Trajectory(attributes={reference.key: key}))
        if isinstance(outcome, Failed):  # names the file and the line
            yield outcome.message
        elif outcome is not None and outcome.reason == "no_reference":
            position = dataset.place_of(key)
            missing = f"{reference.field}: missing; add it, or remove the record"
            yield f"{position['dataset']} line {position['line']}: {missing}"


def _outcome(scorer: BaseScorer, run: Trajectory) -> Skipped | Failed | None:
    """Why there is no score for a run of which only the reference counts; None if that is valid."""
    try:
        scorer.find(run)
    except NoScore as error:
        outcome = error.outcome
        is_invalid = isinstance(outcome, Failed) and outcome.error_type == "InvalidReference"
        return outcome if is_invalid or isinstance(outcome, Skipped) else None
    except Exception:  # noqa: BLE001
        # the run has no calls, which is checked before `find` is called
        return None
    return None


def suggestions(config: EvalConfig) -> list[str]:
    """Hints at parameters of scorers that may not do what was intended, and at rules that
    contradict each other, each with its place in the configuration.
    """
    hints = [
        f"{place}: {hint}"
        for place, scorer in _placed_scorers(config)
        for hint in (*_threshold_hints(scorer), *getattr(scorer, "suggestions", ()))
    ]
    return hints + [
        f"evaluations[{row}]: {problem}; correct one of them"
        for row, evaluation in enumerate(build_engine(config).evaluations)
        for problem in contradictions(evaluation.scorers)
    ]


def _threshold_hints(scorer: Scorer) -> Iterator[str]:
    if getattr(scorer, "applied_threshold", None) == 0:
        yield (
            "threshold: 0 lets every score pass; raise it, or write severity: warn for a score that"
            " is not to decide"
        )


def _placed_scorers(config: EvalConfig) -> Iterator[tuple[str, Scorer]]:
    """Every scorer with its place in the configuration."""
    for row, evaluation in enumerate(build_engine(config).evaluations):
        for column, scorer in enumerate(evaluation.scorers):
            yield f"evaluations[{row}].scorers[{column}]", scorer


def _check_kafka(settings: Mapping[str, Any], key: str) -> None:
    """Check whether librdkafka accepts the settings, without a connection.

    Raises:
        ConfigError: a name, a value or a file is invalid.
    """
    from confluent_kafka import Consumer, KafkaException  # deferred: the package is an extra

    try:
        Consumer(dict(settings) | {"bootstrap.servers": "", "group.id": "check"}).close()
    except KafkaException as error:
        reason = " ".join(error.args[0].str().split())
        raise ConfigError(
            f"{key}: librdkafka refuses its settings ({reason}); correct options, tls or sasl"
        ) from None
