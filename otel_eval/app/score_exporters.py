"""Builds the exporters that send scores to a product's own API, and checks what they are configured with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from otel_eval.config import EvalConfig, client_tls
from otel_eval.config.exporters import AnnotationEndpoint
from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.evaluations import is_awaited
from otel_eval.exporters import Exporter
from otel_eval.exporters.scores import KnownScorers, name_problem
from otel_eval.interfaces import Scorer
from otel_eval.otlp.endpoint import Endpoint, by_proxy
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.judge import any_judge_name

__all__ = ["known_scorers", "score_endpoints", "score_exporters"]


def score_exporters(config: EvalConfig) -> list[Exporter]:
    """Each of them that is configured.

    Raises:
        ConfigError: a TLS file or the name of a scorer cannot be used.
    """
    to = score_endpoints(config)
    if not to:
        return []
    from otel_eval.exporters.datadog import DatadogExporter  # deferred: they load the HTTP client
    from otel_eval.exporters.langfuse import LangfuseExporter
    from otel_eval.exporters.langsmith import LangsmithExporter
    from otel_eval.exporters.logfire import LogfireExporter
    from otel_eval.exporters.mlflow import MlflowExporter
    from otel_eval.exporters.phoenix import PhoenixExporter

    exporting, known = config.exporters, known_scorers(config)
    plain = replace(known, summarized=frozenset())
    phoenix, mlflow, langfuse = exporting.phoenix, exporting.mlflow, exporting.langfuse
    exporters: list[Exporter] = []
    if phoenix:
        given: dict[str, Any] = {"unscored": phoenix.unscored, "trace_annotations": phoenix.trace_annotations}
        exporters.append(PhoenixExporter(to["phoenix"], plain, **given))
    if mlflow:
        given = {"unscored": mlflow.unscored, "experiment": mlflow.experiment, "max_wait_s": mlflow.max_wait}
        exporters.append(MlflowExporter(to["mlflow"], known if mlflow.evaluation_passed else plain, **given))
    if langfuse:
        exporters.append(LangfuseExporter(to["langfuse"], plain, unscored=langfuse.unscored))
    if langsmith := exporting.langsmith:
        given = {"unscored": langsmith.unscored, "max_wait_s": langsmith.max_wait}
        exporters.append(LangsmithExporter(to["langsmith"], plain, **given))
    if datadog := exporting.datadog:
        exporters.append(DatadogExporter(to["datadog"], plain, ml_app=datadog.ml_app))
    if exporting.logfire:
        exporters.append(LogfireExporter(to["logfire"], plain))
    return exporters


def score_endpoints(config: EvalConfig) -> dict[str, Endpoint]:
    """Where they send to, by exporter."""
    exporters = config.exporters
    given: dict[str, AnnotationEndpoint | None] = {
        "phoenix": exporters.phoenix,
        "mlflow": exporters.mlflow,
        "langfuse": exporters.langfuse,
        "langsmith": exporters.langsmith,
        "datadog": exporters.datadog,
        "logfire": exporters.logfire,
    }
    return {name: _endpoint(name, each) for name, each in given.items() if each}


def _endpoint(name: str, given: AnnotationEndpoint) -> Endpoint:
    tls = client_tls(given.tls, f"exporters.{name}.tls")
    return by_proxy(
        Endpoint(endpoint=given.endpoint, protocol="http/protobuf", headers=given.headers, timeout_s=given.timeout, tls=tls)
    )


def known_scorers(config: EvalConfig) -> KnownScorers:
    """What the exporters have to know of the configuration's scorers.

    Raises:
        ConfigError: a score could not be shown under the name of its scorer.
    """
    with any_judge_name():  # no judge is called
        built = [(each.name, scorer) for each in config.evaluations for scorer in each.build()]
    if problems := list(_unusable_names(config, built)):
        raise ConfigError(*problems)
    counts = Counter(scorer.name for _, scorer in built)
    judges = frozenset((name, scorer.name) for name, scorer in built if is_awaited(scorer) and is_own_scorer(scorer))
    later = {name for name, scorer in built if is_awaited(scorer)}
    at_once = frozenset(each.name for each in config.evaluations if each.name not in later)
    return KnownScorers(frozenset(name for name, count in counts.items() if count > 1), judges, at_once)


def _unusable_names(config: EvalConfig, built: list[tuple[str, Scorer]]) -> Iterator[str]:
    """Names that a product that is configured does not take."""
    from otel_eval.exporters.phoenix import RESERVED

    for evaluation, scorer in built:
        where = f"evaluations: the scorer {redacted_repr(scorer.name)} of {redacted_repr(evaluation)}"
        if config.exporters.phoenix and scorer.name == RESERVED:
            yield f"{where} has a name that Phoenix keeps for notes; give it another name"
        elif config.exporters.mlflow and config.exporters.mlflow.evaluation_passed and scorer.name == evaluation:
            yield f"{where} has the name of its evaluation, which exporters.mlflow.evaluation_passed uses; give it another name"
        elif problem := name_problem(f"{evaluation}.{scorer.name}"):
            yield f"{where}: with its evaluation {problem}; shorten it"
