"""Builds the exporters that the configuration names, of scores to a product's own API too, and checks what they are given."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_eval.config import EvalConfig, JsonlExporter, OtlpExporter, client_tls, exposed_credentials, refuse_credentials
from otel_eval.config.exporters import AnnotationEndpoint
from otel_eval.counters import Counters
from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.evaluations import is_awaited
from otel_eval.exporters import Exporter
from otel_eval.exporters.export_queue import ExportQueue, queue_of
from otel_eval.exporters.fanout import Fanout
from otel_eval.exporters.registry import create_exporter
from otel_eval.exporters.scores import KnownScorers, name_problem
from otel_eval.exporters.window import WindowLimits
from otel_eval.interfaces import Scorer
from otel_eval.otlp.endpoint import Endpoint, by_proxy, for_signal, key_of
from otel_eval.otlp.tls import validity_of
from otel_eval.retry import AcceptedBefore, SignalHistory
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.judge import any_judge_name
from otel_eval.scorers.recorded import LabelDistribution

if TYPE_CHECKING:
    from otel_eval.exporters.delivery import ExportQueues
    from otel_eval.exporters.export_queue import Acknowledge
    from otel_eval.exporters.jsonl import DeadLetterFile, JsonLinesExporter
    from otel_eval.exporters.otlp import OtlpMetricsExporter

__all__ = [
    "DELIVERY_S",
    "certificate_ends",
    "export_queues_of",
    "exporters_of",
    "known_scorers",
    "metrics_of",
    "otlp_endpoint",
    "replay_fanout",
    "score_endpoints",
    "window_limits",
    "writes_lines",
]


def score_exporters(config: EvalConfig) -> list[Exporter]:
    """Each of them that is configured.

    Raises:
        ConfigError: a TLS file or the name of a scorer cannot be used.
    """
    to = score_endpoints(config)
    if not to:
        return []
    # Deferred: they load the HTTP client.
    from otel_eval.exporters.hosted_products import DatadogExporter, LangfuseExporter, LangsmithExporter, LogfireExporter
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
    return {name: _endpoint(name, each) for name, each in config.exporters.score_products.items()}


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


_log = logging.getLogger("otel_eval")


_ROOM_S: Final = 30.0  # that replay waits for room in a queue while an endpoint takes nothing
DELIVERY_S: Final = 4.5
"""For delivering the last results when a process ends: an endpoint that is gone must not delay that by more than 5 s."""


def exporters_of(config: EvalConfig, counters: Counters) -> list[Exporter]:
    """Each exporter that is configured, in a process. Credentials in a URL are used as they are, with a warning.

    Raises:
        ConfigError: one cannot be opened.
    """
    for problem in exposed_credentials(config):
        _log.warning("%s", problem)
    exporters: list[Exporter] = []
    problems: set[str] = set()  # of the environment, which must not end a program
    if config.exporters.jsonl:
        exporters.append(_lines(config.exporters.jsonl))
    exporters += _queued(config, counters, problems)
    if metrics := metrics_of(config, counters, problems):
        exporters.append(metrics)
    for problem in sorted(problems):
        _log.warning("%s; it is not used", problem)
    return exporters


def _queued(config: EvalConfig, counters: Counters, problems: set[str] | None = None, room_s: float = 0.0) -> list[Exporter]:
    """The exporters to endpoints and of packages, each behind a queue."""
    return [
        queue_of(each, counters, _own_dead_letters(config), room_s=room_s)
        for each in [*_to_endpoints(config, problems), *_of_packages(config)]
    ]


def _to_endpoints(config: EvalConfig, problems: set[str] | None = None) -> Iterator[Exporter]:
    """One for each signal in which an OTLP endpoint gets results one by one; `problems` as `for_signal`."""
    for key, each in config.exporters.otlp_endpoints.items():
        # Deferred: the exporters load grpc, which a file of results has no need of.
        from otel_eval.exporters.otlp import OtlpSignalExporter

        to = otlp_endpoint(each, key)
        for signal in ("logs", "spans"):
            if signal in each.signals:
                yield OtlpSignalExporter(for_signal(to, signal, problems), signal, each.name)


def _of_packages(config: EvalConfig) -> list[Exporter]:
    """Kafka's, whose package is an extra, those that send to a product's API, and those of other packages."""
    given = config.exporters
    made = score_exporters(config) + [create_exporter(name, options) for name, options in given.of_packages.items()]
    if given.kafka:
        from otel_eval.exporters.kafka import KafkaTopicExporter

        to = given.kafka
        made.append(KafkaTopicExporter(to.settings(), to.topic, encoding=to.encoding, timeout_s=to.timeout))
    return made


def _lines(given: JsonlExporter | None, *, sync: bool = False) -> JsonLinesExporter:
    """The file that is configured; standard output without one."""
    from otel_eval.exporters.jsonl import JsonLinesExporter

    return JsonLinesExporter(given.path, mode=int(given.mode, 8), sync=sync) if given else JsonLinesExporter("-", sync=sync)


def otlp_endpoint(otlp: OtlpExporter, key: str) -> Endpoint:
    """Where an exporter sends to, which errors name by its key in the configuration."""
    return Endpoint(
        endpoint=otlp.endpoint,
        protocol=otlp.protocol,
        headers=otlp.headers,
        timeout_s=otlp.timeout,
        compression=otlp.compression,
        tls=client_tls(otlp.tls, f"{key}.tls"),
    )


def certificate_ends(config: EvalConfig) -> dict[str, int]:
    """The last second of the client certificate of each exporter that shows one, since the epoch, as a count for the metrics.

    Raises:
        ConfigError: a file cannot be read.
    """
    otlp, forward = config.exporters.otlp_endpoints, config.exporters.forward
    tls = {
        f"{each.name}.{signal}": for_signal(otlp_endpoint(each, key), signal).tls
        for key, each in otlp.items()
        for signal in each.signals
    }
    if forward:
        tls["forward"] = client_tls(forward.tls, "exporters.forward.tls")
    tls |= {name: to.tls for name, to in score_endpoints(config).items()}
    found = {name: validity_of(each.cert.read()) for name, each in tls.items() if each.cert}
    return {f"exporter.certificate_not_after{{exporter={name}}}": each.not_after for name, each in found.items() if each}


def replay_fanout(config: EvalConfig) -> Fanout:
    """Every exporter that `replay` sends results to.

    No metrics: they would add the runs of today's replay to those of yesterday's. A file gets only the lines that are new
    or have changed, so that a second replay of the same traces leaves it as it is.

    Raises:
        ConfigError: one cannot be opened, none takes what is sent, or a URL holds credentials.
    """
    refuse_credentials(config)
    counters, given = Counters(), config.exporters
    exporters: list[Exporter] = []
    if given.jsonl:
        from otel_eval.exporters.jsonl import ChangedLinesExporter

        exporters.append(ChangedLinesExporter(given.jsonl.path, mode=int(given.jsonl.mode, 8)))
    exporters += _queued(config, counters, room_s=_ROOM_S)
    if not exporters:
        raise ConfigError("exporters: none takes what replay --export sends; name jsonl, or otlp with the signals logs or spans")
    return Fanout(exporters, counters)


def export_queues_of(
    config: EvalConfig, counters: Counters, acknowledge: Acknowledge, before: AcceptedBefore | None = None
) -> ExportQueues:
    """Every exporter of results with its queue, and stdout if there is no exporter.

    Args:
        before: what endpoints have accepted in earlier processes.

    Raises:
        ConfigError: one cannot be opened.
    """
    from otel_eval.exporters.delivery import ExportQueues

    dead_letters, histories = _dead_letters(config), _histories(config, before)
    kept = config.storage is not None or config.receivers.otlp is None  # on disk, or in a topic that is read again
    given: dict[str, Any] = {"acknowledge": acknowledge, "dead_letters": dead_letters, "max_reports": config.exporters.max_queue}
    queues = [ExportQueue(each, counters, history=histories.get(each.name), **given) for each in _reliable(config)]
    return ExportQueues(queues, dead_letters, kept=kept)


def writes_lines(config: EvalConfig) -> bool:
    """Whether the receiver writes results as JSON Lines: to a file, or to stdout if there is no exporter."""
    exporters = config.exporters
    others = (exporters.otlp, exporters.forward, exporters.kafka, exporters.score_products, exporters.of_packages)
    return exporters.jsonl is not None or not any(others)


def metrics_of(config: EvalConfig, counters: Counters, problems: set[str] | None = None) -> OtlpMetricsExporter | None:
    """The instruments that `exporters.otlp` pushes and the receiver shows; None if they are neither pushed nor scraped.

    Metrics add up in this process: what is sent is the sum so far, so nothing waits to be delivered.

    Args:
        problems: as `for_signal`, in a process, which has no pages to scrape.
    """
    given = config.telemetry
    scraped = given.endpoint is not None and problems is None
    pushed = {key: each for key, each in config.exporters.otlp_endpoints.items() if "metrics" in each.signals}
    if not (pushed or scraped):
        return None
    from otel_eval.exporters.otlp import OtlpMetricsExporter, SdkMetricExporter  # deferred: loads grpc, the SDK's metrics

    exporters = []
    for key, each in pushed.items():
        to = for_signal(otlp_endpoint(each, key), "metrics", problems)
        exporters.append(SdkMetricExporter(to, counters, f"{each.name}.metrics"))
    options: dict[str, Any] = {"scraped": scraped, "counters": counters, "instance_id": given.service_instance_id}
    return OtlpMetricsExporter(exporters, window_limits(config), **options)


def window_limits(config: EvalConfig) -> WindowLimits:
    """The limits of metrics over a sliding window; a `label_distribution` has its own number of runs."""
    with any_judge_name():  # no judge is called
        built = [(each.name, scorer) for each in config.evaluations for scorer in each.build()]
    fewer = {(name, scorer.name): scorer.window for name, scorer in built if isinstance(scorer, LabelDistribution)}
    return WindowLimits(config.window.time, config.window.results, fewer)


def _histories(config: EvalConfig, before: AcceptedBefore | None) -> dict[str, SignalHistory]:
    """What the endpoint has accepted, by exporter."""
    return {
        name: SignalHistory(key=key_of(otlp_endpoint(each, key), name), before=before)
        for key, each in config.exporters.otlp_endpoints.items()
        for name in (f"{each.name}.logs", f"{each.name}.spans")
    }


def _reliable(config: EvalConfig) -> list[Exporter]:
    """The exporters of a receiver that have a queue."""
    given, sync = config.exporters, config.storage is not None and config.storage.sync
    exporters: list[Exporter] = [_lines(given.jsonl, sync=sync)] if writes_lines(config) else []
    return [*exporters, *_to_endpoints(config), *_of_packages(config)]


def _own_dead_letters(config: EvalConfig) -> DeadLetterFile | None:
    """The file that `exporters` names."""
    from otel_eval.exporters.jsonl import DeadLetterFile

    path, mode = config.exporters.dead_letter, int(config.exporters.dead_letter_mode, 8)
    return DeadLetterFile(path, mode=mode) if path else None


def _dead_letters(config: EvalConfig) -> DeadLetterFile | None:
    """The same for the receiver, which has one with its storage, too."""
    from otel_eval.exporters.jsonl import DeadLetterFile

    if config.exporters.dead_letter or not config.storage:
        return _own_dead_letters(config)
    path, mode = Path(config.storage.directory) / "dead_letter.jsonl", int(config.exporters.dead_letter_mode, 8)
    return DeadLetterFile(path, "storage.directory", mode)
