"""Builds the parts that every way of running needs from the configuration: engine, limits, exporters, schema."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from otel_eval.app.judge_clients import Clients, judges_of
from otel_eval.app.score_exporters import score_endpoints, score_exporters
from otel_eval.assembly import Limits
from otel_eval.config import EvalConfig, JsonlExporter, OtlpExporter, client_tls, exposed_credentials, refuse_credentials
from otel_eval.conventions import TABLES, Convention, convention_from_mapping
from otel_eval.counters import Counters
from otel_eval.engine import Engine
from otel_eval.errors import ConfigError
from otel_eval.evaluations import RunFilter, ScorerSet
from otel_eval.exporters import Exporter
from otel_eval.exporters.export_queue import ExportQueue, queue_of
from otel_eval.exporters.fanout import Fanout
from otel_eval.exporters.interface import create_exporter
from otel_eval.exporters.window import WindowLimits
from otel_eval.interfaces import Scorer
from otel_eval.model import Report
from otel_eval.otlp.endpoint import Endpoint, for_signal, key_of
from otel_eval.otlp.tls import validity_of
from otel_eval.retry import AcceptedBefore, SignalHistory
from otel_eval.scorers.build import scorer_schema
from otel_eval.scorers.judge import any_judge_name, named_judges
from otel_eval.scorers.recorded import LabelDistribution
from otel_eval.trajectory import ALL_NEEDS, Plan

if TYPE_CHECKING:
    from otel_eval.exporters.delivery import ExportQueues
    from otel_eval.exporters.export_queue import Acknowledge
    from otel_eval.exporters.jsonl import DeadLetterFile, JsonLinesExporter
    from otel_eval.exporters.otlp_metrics import OtlpMetricsExporter
    from otel_eval.judges import AsyncEvaluator

__all__ = [
    "DELIVERY_S",
    "certificate_ends",
    "config_schema",
    "engine_of",
    "export_queues_of",
    "exporters_of",
    "later_of",
    "limits_of",
    "metrics_of",
    "otlp_endpoint",
    "plan_of",
    "replay_fanout",
    "tables_of",
    "window_limits",
    "writes_lines",
]

_log = logging.getLogger("otel_eval")


def limits_of(config: EvalConfig) -> Limits:
    """The limits of assembly."""
    traces = config.traces
    return Limits(
        decision_wait_s=traces.decision_wait,
        decision_wait_partial_s=traces.decision_wait_partial,
        decision_wait_detached_s=min(max(traces.decision_wait_detached, traces.decision_wait_partial), traces.idle_timeout),
        keep_s=traces.max_age,
        grace_period_s=traces.grace_period,
        idle_s=traces.idle_timeout,
        max_age_s=traces.max_age,
        max_traces=traces.max_traces,
        max_spans_per_trace=traces.max_spans_per_trace,
        max_bytes_per_trace=traces.max_bytes_per_trace,
        max_bytes=traces.max_bytes,
    )


def tables_of(config: EvalConfig) -> tuple[Convention, ...]:
    """The convention tables: the user's own first."""
    own = (each if isinstance(each, Convention) else convention_from_mapping(each) for each in config.own_conventions.tables)
    return (*own, *TABLES)


def plan_of(config: EvalConfig) -> Plan:
    """A plan that reads everything of a trace, not only what the evaluations need."""
    return Plan(tables=tables_of(config), needs=ALL_NEEDS, records_tool_spans=config.own_conventions.records_tool_spans)


def engine_of(
    config: EvalConfig,
    guard: Callable[[Scorer], Scorer] = lambda scorer: scorer,
    *,
    lines: bool = False,
    clients: Clients | None = None,
) -> Engine:
    """The engine for the configuration's evaluations, each scorer wrapped by `guard`.

    Args:
        lines: whether results are written as JSON Lines, in which a trace without a result has a line too.
        clients: clients of judges; those whose endpoint did not change are reused.

    Raises:
        ConfigError: the API key of a judge cannot be read.
    """
    with (clients or Clients()).used(), named_judges(judges_of(config) if config.judges else {}):
        built = [each.build() for each in config.evaluations]
    evaluations = [
        ScorerSet(
            name=each.name,
            scorers=tuple(map(guard, scorers)),
            sample=each.sample,
            match=RunFilter(
                service=each.match.service,
                agent=each.match.agent,
                span=each.match.span,
                runs=each.match.runs,
                attributes=dict(each.match.attributes),
            ),
        )
        for each, scorers in zip(config.evaluations, built, strict=True)
    ]
    return Engine(
        evaluations,
        tables_of(config),
        config.results.attributes,
        config.own_conventions.records_tool_spans,
        no_run=lines and config.results.no_run,
    )


def later_of(
    config: EvalConfig,
    engine: Engine,
    emit: Callable[[Report], None],
    *,
    unbounded: bool = False,
    record: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> AsyncEvaluator | None:
    """The evaluator of asynchronous scorers; None if there are none.

    Args:
        unbounded: the queue has no limit, because the caller bounds the number of reports itself.
        record: a context manager around the work on each result, given its trace id.
    """
    if not engine.waits:
        return None
    from otel_eval.judges import AsyncEvaluator  # deferred: it loads asyncio

    given = config.async_scoring
    bounds = {"max_queue": sys.maxsize, "max_bytes": sys.maxsize} if unbounded else {"max_queue": given.max_queue}
    return AsyncEvaluator(emit, concurrency=given.concurrency, timeout_s=given.timeout, record=record, **bounds)


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
    if config.exporters.otlp:
        # Deferred: the exporters load grpc, which a file of results has no need of.
        from otel_eval.exporters.otlp import otlp_exporters

        given: dict[str, Any] = {"counters": counters, "dead_letters": partial(_own_dead_letters, config), "problems": problems}
        for key, each in config.exporters.otlp_endpoints.items():
            exporters.extend(otlp_exporters(otlp_endpoint(each, key), _results_in(each), name=each.name, **given))
    if metrics := metrics_of(config, counters, in_process=True, problems=problems):
        exporters.append(metrics)
    for problem in sorted(problems):
        _log.warning("%s; it is not used", problem)
    return [*exporters, *_queued_packages(config, counters)]


def _queued_packages(config: EvalConfig, counters: Counters, room_s: float = 0.0) -> list[Exporter]:
    """The exporters of installed packages, each behind a queue."""
    return [queue_of(each, counters, _own_dead_letters(config), room_s=room_s) for each in _of_packages(config)]


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


def _results_in(otlp: OtlpExporter) -> list[str]:
    """The signals in which an endpoint gets results one by one."""
    return [signal for signal in ("logs", "spans") if signal in otlp.signals]


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
    for key, each in given.otlp_endpoints.items():
        from otel_eval.exporters.otlp import otlp_exporters

        options: dict[str, Any] = {"counters": counters, "dead_letters": partial(_own_dead_letters, config), "room_s": _ROOM_S}
        exporters.extend(otlp_exporters(otlp_endpoint(each, key), _results_in(each), name=each.name, **options))
    exporters.extend(_queued_packages(config, counters, _ROOM_S))
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
    others = (exporters.otlp, exporters.forward, exporters.kafka, score_endpoints(config), exporters.of_packages)
    return exporters.jsonl is not None or not any(others)


def metrics_of(
    config: EvalConfig, counters: Counters, *, in_process: bool = False, problems: set[str] | None = None
) -> OtlpMetricsExporter | None:
    """The instruments that `exporters.otlp` pushes and the receiver shows; None if they are neither pushed nor scraped.

    Metrics add up in this process: what is sent is the sum so far, so nothing waits to be delivered.

    Args:
        problems: as `for_signal`.
    """
    given = config.telemetry
    scraped = given.endpoint is not None and not in_process
    pushed = {key: each for key, each in config.exporters.otlp_endpoints.items() if "metrics" in each.signals}
    if not (pushed or scraped):
        return None
    from otel_eval.exporters.otlp_metrics import OtlpMetricsExporter, SdkMetricExporter  # deferred: loads grpc, the SDK's metrics

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
    for key, each in given.otlp_endpoints.items():
        from otel_eval.exporters.otlp import OtlpSignalExporter

        to = otlp_endpoint(each, key)
        exporters.extend(OtlpSignalExporter(for_signal(to, signal), signal, each.name) for signal in _results_in(each))
    return [*exporters, *_of_packages(config)]


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


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:otel-eval:configuration"


def config_schema() -> dict[str, Any]:
    """The schema as JSON values; editors that know it complete and validate configuration files."""
    schema = EvalConfig.model_json_schema()
    specification, definitions = scorer_schema()
    schema["$defs"]["Scorer"] = specification
    schema["$defs"] |= definitions
    schema["$defs"]["Evaluation"]["properties"]["scorers"]["items"] = {"$ref": "#/$defs/Scorer"}
    return {"$schema": _DIALECT, "$id": _ID, **schema}
