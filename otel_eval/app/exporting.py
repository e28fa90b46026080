"""Builds the exporters that the configuration names, including those for products with an API of
their own.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from otel_eval.config import EvalConfig, JsonlExporter, exposed_credentials, refuse_credentials
from otel_eval.counters import Counters
from otel_eval.delivery.export_queue import Acknowledge, ExportQueue, start_queue
from otel_eval.delivery.exports import Exports
from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.evaluations import is_awaited
from otel_eval.exporters import Exporter
from otel_eval.exporters.attributes import ResultFormat
from otel_eval.exporters.jsonl import ChangedLinesExporter, DeadLetterFile, JsonLinesExporter
from otel_eval.exporters.registry import create_exporter
from otel_eval.exporters.scores import RESERVED, VERDICT, KnownScorers, name_problem
from otel_eval.exporters.window import WindowLimits
from otel_eval.interfaces import Scorer
from otel_eval.retry import RetryPolicy
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.recorded import LabelDistribution
from otel_eval.trajectory.classify import Plan

if TYPE_CHECKING:
    from otel_eval.exporters.cases import CaseFolder
    from otel_eval.exporters.otlp import OtlpMetricsExporter
    from otel_eval.otlp.endpoint import Endpoint


def score_endpoints(config: EvalConfig) -> dict[str, Endpoint]:
    """The endpoints of the APIs of products, by the name of the product."""
    products = config.exporters.score_products
    if not products:
        return {}
    from otel_eval.otlp.endpoint import by_proxy  # deferred: it loads HTTP and TLS

    return {
        name: by_proxy(replace(product.address(f"exporters.{name}"), protocol="http/protobuf"))
        for name, product in products.items()
    }


def known_scorers(config: EvalConfig) -> KnownScorers:
    """Names and kinds of the configured scorers, for the exporters.

    Raises:
        ConfigError: a configured product does not accept the name of a scorer.
    """
    built = config.named_scorers()
    if problems := list(_unusable_names(config, built)):
        raise ConfigError(*problems)
    counts = Counter(scorer.name for _, scorer in built)
    judges = frozenset(
        (name, scorer.name)
        for name, scorer in built
        if is_awaited(scorer) and is_own_scorer(scorer)
    )
    return KnownScorers(
        frozenset(name for name, count in counts.items() if count > 1),
        judges,
        config.ui.public_url or "",
    )


def result_format(config: EvalConfig) -> ResultFormat:
    """The configured options of exported results: links to the page with runs, bodies of log
    events, attributes of scores on spans, and the service's version as a label of metrics.

    Raises:
        ConfigError: a configured product does not accept the name of a scorer.
    """
    results = config.results
    return ResultFormat(
        config.ui.public_url or "",
        results.log_body,
        known_scorers(config).name_of if results.score_attributes else None,
        results.metrics_by_version,
    )


def _unusable_names(config: EvalConfig, built: list[tuple[str, Scorer]]) -> Iterator[str]:
    """A problem for each name that a configured product does not accept."""
    for evaluation, scorer in built:
        where = (
            f"evaluations: the scorer {redacted_repr(scorer.name)} of {redacted_repr(evaluation)}"
        )
        if config.exporters.phoenix and scorer.name == RESERVED:
            yield f"{where} has a name that Phoenix keeps for notes; give it another name"
        elif scorer.name == VERDICT and any(
            product.options.get("verdict") for product in config.exporters.score_products.values()
        ):
            yield f"{where} has the name under which verdicts are sent; give it another name"
        elif problem := name_problem(f"{evaluation}.{scorer.name}"):
            yield f"{where}: with its evaluation {problem}; shorten it"


_log = logging.getLogger("otel_eval")


_RESULTS_IN: Final = ("logs", "spans")  # the signals that carry single results
_QUEUE_WAIT_S: Final = 30.0  # that replay waits while a queue is full
DELIVERY_S: Final = 4.5
"""For delivering the last results when a process ends: an unreachable endpoint must not delay the
end by more than 5 s.
"""


def build_exporters(config: EvalConfig, counters: Counters) -> list[Exporter]:
    """Build the configured exporters for use in a process that evaluates itself. Credentials in a
    URL are used, with a warning.

    Raises:
        ConfigError: an exporter cannot be opened.
    """
    for problem in exposed_credentials(config):
        _log.warning("%s", problem)
    problems: set[str] = set()  # in environment variables; they must not end the program
    lines = [_lines(config.exporters.jsonl)] if config.exporters.jsonl else []
    exporters = _queued([*lines, *_unqueued(config, problems)], config, counters)
    if metrics := build_metrics(config, counters, problems):
        exporters.append(metrics)
    for problem in sorted(problems):
        _log.warning("%s; it is not used", problem)
    return exporters


def destinations(config: EvalConfig) -> list[str]:
    """The configured exporters with their targets, for the log: without headers and keys."""
    lines = [
        f"{endpoint.name} {redacted_repr(endpoint.endpoint)} ({', '.join(endpoint.signals)})"
        for endpoint in config.exporters.otlp_endpoints.values()
    ]
    return lines + [
        f"{name} {_target(options)}".rstrip()
        for name, options in config.exporters.configured.items()
        if name != "otlp"
    ]


def _target(options: object) -> str:
    """Where an exporter with these options sends results, as far as one of them says it; else
    "".
    """
    if endpoint := getattr(options, "endpoint", ""):
        return redacted_repr(endpoint)
    targets = [getattr(options, key, "") for key in ("path", "topic", "directory")]
    return next(filter(None, targets), "")


def retry_policy(config: EvalConfig) -> RetryPolicy:
    """How long exporters wait between attempts, and for endpoints that do not support a signal."""
    return RetryPolicy(recheck_s=config.delivery.recheck, give_up_s=config.delivery.give_up_after)


def _queued(
    exporters: Sequence[Exporter], config: EvalConfig, counters: Counters, room_s: float = 0.0
) -> list[Exporter]:
    """The exporters, each behind a queue of a process."""
    retry, dead_letters = retry_policy(config), build_dead_letters(config)
    return [
        start_queue(exporter, counters, dead_letters, retry, room_s=room_s)
        for exporter in exporters
    ]


def _unqueued(
    config: EvalConfig, problems: set[str] | None = None, *, console: bool = True
) -> list[Exporter]:
    """The exporters of results to OTLP endpoints, products and Kafka, and those of installed
    packages.
    """
    configured, exporters, form = config.exporters, list[Exporter](), result_format(config)
    if configured.console and console:
        from otel_eval.exporters.console import ConsoleExporter

        output: object = configured.console  # from Python it may be the exporter itself
        exporters.append(output if isinstance(output, ConsoleExporter) else ConsoleExporter())
    for key, endpoint in configured.otlp_endpoints.items():
        # Deferred: the exporters load grpc, which is not needed to write a file of results.
        from otel_eval.exporters.otlp import OtlpSignalExporter
        from otel_eval.otlp.endpoint import for_signal

        signals = [
            (signal, for_signal(endpoint.address(key), signal, problems))
            for signal in _RESULTS_IN
            if signal in endpoint.signals
        ]
        exporters += [OtlpSignalExporter(to, signal, endpoint.name, form) for signal, to in signals]
    if endpoints := score_endpoints(config):
        from otel_eval.exporters.products import PRODUCTS  # deferred: it loads the HTTP client

        scorers = known_scorers(config)
        exporters += [
            PRODUCTS[name](endpoints[name], scorers, **product.options)
            for name, product in configured.score_products.items()
        ]
    exporters += [
        create_exporter(name, options) for name, options in configured.of_packages.items()
    ]
    if configured.kafka:
        from otel_eval.exporters.kafka import KafkaTopicExporter

        topic = configured.kafka
        exporters.append(
            KafkaTopicExporter(
                topic.settings(),
                topic.topic,
                encoding=topic.encoding,
                timeout_s=topic.timeout,
                form=form,
            )
        )
    return exporters


def _lines(options: JsonlExporter | None, *, sync: bool = False) -> JsonLinesExporter:
    """The JSON Lines exporter of the configured file, or of standard output."""
    return (
        JsonLinesExporter(options.path, mode=int(options.mode, 8), sync=sync)
        if options
        else JsonLinesExporter("-", sync=sync)
    )


def build_cases(config: EvalConfig, counters: Counters, plan: Plan) -> CaseFolder | None:
    """The folder of runs that become test cases; None if none is configured.

    Args:
        plan: how the engine builds the runs of a trace.

    Raises:
        ConfigError: the folder cannot be written to.
    """
    options = config.exporters.cases
    if options is None:
        return None
    from otel_eval.exporters.cases import CaseFolder  # deferred: it loads the encoder of spans

    return CaseFolder(**dict(options), plan=plan, counters=counters)


def build_replay_exports(config: EvalConfig, cases: CaseFolder | None = None) -> Exports:
    """Build the exporters of `replay --export`.

    Metrics are excluded, because each replay would add the same runs to the counters again. Only
    lines that are new or have changed are appended to a file, so a second replay of the same traces
    leaves it unchanged.

    Args:
        config: the configuration.
        cases: the folder of cases, if one is configured.

    Raises:
        ConfigError: an exporter cannot be opened, no exporter of results is configured, or a URL
            holds credentials.
    """
    refuse_credentials(config)
    counters, jsonl = Counters(), config.exporters.jsonl
    # `replay` prints results itself
    exporters = _queued(_unqueued(config, console=False), config, counters, _QUEUE_WAIT_S)
    if jsonl:  # without a queue: a full disk is reported at once instead of being waited for
        exporters.insert(0, ChangedLinesExporter(jsonl.path, mode=int(jsonl.mode, 8)))
    exporters += [cases] if cases else []
    if not exporters:
        raise ConfigError(
            "exporters: none takes what replay --export sends; name jsonl, or otlp with the signals"
            " logs or spans"
        )
    return Exports(exporters, counters)


def build_receiver_exporters(config: EvalConfig) -> list[Exporter]:
    """Build every exporter of results of a receiver; JSON Lines to stdout if none is configured.

    Raises:
        ConfigError: an exporter cannot be opened.
    """
    sync = config.storage is not None and config.storage.sync
    lines: list[Exporter] = (
        [_lines(config.exporters.jsonl, sync=sync)] if writes_lines(config) else []
    )
    return [*lines, *_unqueued(config)]


def build_export_queues(
    config: EvalConfig,
    exporters: Sequence[Exporter],
    counters: Counters,
    acknowledge: Acknowledge,
    dead_letters: DeadLetterFile | None,
) -> list[ExportQueue]:
    """Build a queue for each of the exporters of a receiver.

    Args:
        acknowledge: called with reports that an exporter delivered or that were refused
            permanently.
        dead_letters: the file for results that are refused permanently.
    """
    return [
        ExportQueue(
            exporter,
            counters,
            acknowledge=acknowledge,
            dead_letters=dead_letters,
            max_reports=config.exporters.max_queue,
            retry=retry_policy(config),
        )
        for exporter in exporters
    ]


def writes_lines(config: EvalConfig) -> bool:
    """Whether the receiver writes results as JSON Lines: to a file, or to stdout if there is no
    exporter.
    """
    configured = config.exporters.configured
    return "jsonl" in configured or not configured.keys() - {"cases"}


def build_metrics(
    config: EvalConfig, counters: Counters, problems: set[str] | None = None
) -> OtlpMetricsExporter | None:
    """The instruments that `exporters.otlp` pushes and the receiver shows; None if they are neither
    pushed nor scraped.

    Metrics are cumulative: each export has the sum so far, so there is no queue of undelivered
    metrics.

    Args:
        problems: collects problems as in `for_signal`; given in a process that evaluates itself,
            which cannot be scraped.
    """
    telemetry = config.telemetry
    scraped = telemetry.endpoint is not None and problems is None
    pushed = {
        key: endpoint
        for key, endpoint in config.exporters.otlp_endpoints.items()
        if "metrics" in endpoint.signals
    }
    if not (pushed or scraped):
        return None
    # deferred: loads grpc, the SDK's metrics
    from otel_eval.exporters.otlp import OtlpMetricsExporter, SdkMetricExporter
    from otel_eval.otlp.endpoint import for_signal

    exporters = []
    for key, endpoint in pushed.items():
        to = for_signal(endpoint.address(key), "metrics", problems)
        name = f"{endpoint.name}.metrics"
        exporters.append(SdkMetricExporter(to, counters, name, retry_policy(config)))
    return OtlpMetricsExporter(
        exporters,
        window_limits(config),
        scraped=scraped,
        counters=counters,
        by_version=config.results.metrics_by_version,
        instance_id=telemetry.service_instance_id,
    )


def window_limits(config: EvalConfig) -> WindowLimits:
    """The limits of metrics over a sliding window; a `label_distribution` has its own number of
    runs.
    """
    built = config.named_scorers()
    fewer = {
        (name, scorer.name): scorer.window
        for name, scorer in built
        if isinstance(scorer, LabelDistribution)
    }
    return WindowLimits(config.window.time, config.window.results, fewer, config.window.max_size)


def build_dead_letters(config: EvalConfig, *, in_storage: bool = False) -> DeadLetterFile | None:
    """The dead-letter file of `exporters`; if none is configured, a file beside the journal with
    `in_storage`, else None.
    """
    path, mode = config.exporters.dead_letter, int(config.exporters.dead_letter_mode, 8)
    if not path and in_storage and config.storage:
        return DeadLetterFile(
            Path(config.storage.directory) / "dead_letter.jsonl", key="storage.directory", mode=mode
        )
    return DeadLetterFile(path, mode=mode) if path else None
