"""Builds the parts of `otel-eval serve` from the configuration, and checks the files, keys and
datasets that it names.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from otel_eval.admin import AdminServer, Monitored
from otel_eval.admin.metrics import SelfMetricsExporter
from otel_eval.app.exporting import (
    known_scorers,
    result_format,
    retry_policy,
    score_endpoints,
    writes_lines,
)
from otel_eval.app.judge_clients import judges_of
from otel_eval.app.wiring import engine_of, require_picklable
from otel_eval.config import (
    EvalConfig,
    HttpServer,
    MetricsOtlp,
    OtlpReceiver,
    Telemetry,
    refuse_credentials,
)
from otel_eval.counters import Counters, Counts
from otel_eval.datasets import Dataset
from otel_eval.descriptors import raise_limit
from otel_eval.engine import Engine
from otel_eval.errors import ConfigError, collect_errors
from otel_eval.forwarding.pending_spans import PendingSpans
from otel_eval.forwarding.stage import Forwarder
from otel_eval.heap import tune_gc, tune_malloc
from otel_eval.interfaces import Scorer
from otel_eval.model import Skipped, Trajectory
from otel_eval.otlp.endpoint import for_signal, is_secure
from otel_eval.scorers.rule_conflicts import contradictions
from otel_eval.sources.receiver.credentials import BearerTokens, Certificates
from otel_eval.sources.receiver.export_handler import ExportHandler, ReceiverLimits
from otel_eval.sources.receiver.server import OtlpServer
from otel_eval.storage.directory import worker_directory
from otel_eval.storage.durable import Durable

_CLOSE_S: Final = 1.0  # for requests to the admin server that are being answered
_UNDO_S: Final = 1.0  # for stopping the parts that were started when a start fails


def receiver_of(
    given: OtlpReceiver | None,
    handler: ExportHandler,
    ready: Callable[[], bool],
    *,
    listens: bool = True,
) -> OtlpServer:
    """Build the receiver; it does not listen yet, and has no transport if it is not configured.

    Args:
        given: `receivers.otlp` of the configuration.
        handler: handles the requests.
        ready: returns whether evaluation makes progress.
        listens: False to have no transport, whatever is configured.
    """
    if given is None or not listens:
        return OtlpServer(handler)
    addresses = {protocol: each.endpoint for protocol, each in _enabled_servers(given).items()}
    return OtlpServer(
        handler,
        certificates=_certificates(given),
        ready=ready,
        **addresses,
    )


def receiver_limits(given: OtlpReceiver | None, **more: Any) -> ReceiverLimits:
    """The limits for clients; for the size of a message, the greater limit of the two protocols."""
    given = given or OtlpReceiver()
    largest = max(each.max_message_size for each in _enabled_servers(given).values())
    sizes = {"max_inflight_bytes": given.max_inflight_size, "max_attributes": given.max_attributes}
    return ReceiverLimits(max_body_bytes=largest, **sizes, **more)


def _enabled_servers(given: OtlpReceiver) -> dict[str, HttpServer]:
    """The enabled servers by protocol."""
    return {protocol: each for protocol, each in given.protocols if each}


def _certificates(given: OtlpReceiver) -> dict[str, Callable[[], Certificates]]:
    """For each protocol with TLS, a function that opens its certificates."""
    return {
        protocol: partial(
            Certificates, f"receivers.otlp.protocols.{protocol}.tls", **dict(each.tls)
        )
        for protocol, each in _enabled_servers(given).items()
        if each.tls
    }


def tokens_of(receiver: OtlpReceiver | None) -> BearerTokens | None:
    """The bearer tokens, of which every request to the receiver needs one; None if it needs none.

    Raises:
        ConfigError: a token cannot be read.
    """
    auth = receiver.auth if receiver else None
    if auth is None:
        return None
    return BearerTokens(auth.token_files, auth.token_env, where="receivers.otlp.auth")


class AdminServices:
    """The admin server of a receiver, and the export of its self-metrics.

    Args:
        given: `telemetry` of the configuration.
        monitored: the server whose state is shown and whose counters are exported.

    Raises:
        ConfigError: the endpoint for metrics is invalid.
    """

    def __init__(self, given: Telemetry, monitored: Monitored) -> None:
        self._given, self._monitored = given, monitored
        self._server: AdminServer | None = None
        instance_id, counts = given.service_instance_id, monitored.counts
        self._metrics: Final = (
            _metrics_exporter(given.otlp, instance_id, counts) if given.otlp else None
        )
        self.address: str | None = None

    def start(self) -> None:
        """Start the admin server and the export of metrics.

        Raises:
            ConfigError: the address cannot be bound.
        """
        if self._given.endpoint:
            self._server = AdminServer(
                self._given.endpoint, self._monitored, self._given.allowed_hosts
            )
            self._server.start()
            self.address = self._server.address
        if self._metrics:
            self._metrics.start()

    def stop(self, timeout_s: float) -> None:
        """Export the metrics once more, then close the admin server."""
        if self._metrics:
            self._metrics.stop(timeout_s)
        if self._server:
            self._server.stop(_CLOSE_S)
            self._server = None


@contextmanager
def starting(
    admin: AdminServices, receiver: OtlpServer, stop: Callable[[float], object]
) -> Iterator[None]:
    """A context in which the parts of a server are started; if that raises, `stop` stops the parts
    that were started.

    The admin server is started first, so that /readyz answers 503 while the rest starts.
    """
    try:
        tune_malloc()
        tune_gc()
        receiver.limit_connections(raise_limit())
        admin.start()
        yield
    except BaseException:
        stop(_UNDO_S)
        raise


def _metrics_exporter(
    given: MetricsOtlp, instance_id: str | None, counts: Counts
) -> SelfMetricsExporter:
    # Deferred: the exporters load grpc's client or requests.
    from otel_eval.exporters.otlp import SdkMetricExporter
    from otel_eval.exporters.result_requests import own_resource

    to = for_signal(given.address("telemetry.otlp"), "metrics")
    exporter = SdkMetricExporter(to, Counters(), "telemetry.otlp.metrics")
    return SelfMetricsExporter(exporter, counts, own_resource(instance_id), given.interval)


_MOST_PROBLEMS: Final = 20


def check(config: EvalConfig) -> None:
    """Check what validation alone cannot: that files, keys, datasets and clients can be used
    together as configured.

    Raises:
        ConfigError: with every problem, and without secrets.
    """
    checks: list[Callable[[], object]] = []
    if otlp := config.receivers.otlp:
        checks += [*_certificates(otlp).values(), partial(tokens_of, otlp)]
    checks += [partial(refuse_credentials, config), *_client_files(config)]
    if to := score_endpoints(config):
        checks += [each.tls.context for each in to.values() if is_secure(each)]
        checks.append(partial(known_scorers, config))
    for key, client in (
        ("receivers.kafka", config.receivers.kafka),
        ("exporters.kafka", config.exporters.kafka),
    ):
        if client:
            checks.append(partial(_check_kafka, client.settings(), key))
    checks += [
        partial(judges_of, config),
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
    full = place = os.path.abspath(path)
    while not os.path.exists(place) and (is_directory or place == full):
        place = os.path.dirname(place)
    in_folder = is_directory or place != full
    wanted, effective = (
        os.W_OK | (os.X_OK if in_folder else 0),
        os.access in os.supports_effective_ids,
    )
    if os.path.isdir(place) != in_folder or not os.access(place, wanted, effective_ids=effective):
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
        (each.address(key), each.signals) for key, each in config.exporters.otlp_endpoints.items()
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
    found = [
        problem for _, scorer in _placed_scorers(config) for problem in _unusable_records(scorer)
    ]
    if found:
        more = (
            [f"and {len(found) - _MOST_PROBLEMS} more records that cannot be used"]
            if len(found) > _MOST_PROBLEMS
            else []
        )
        raise ConfigError(*dict.fromkeys(found[:_MOST_PROBLEMS]), *more)


def _unusable_records(scorer: Any) -> Iterator[str]:
    reference: Any = getattr(scorer, "reference", None)
    read = getattr(scorer, "read_reference", None)
    dataset = getattr(reference, "records", None)
    if isinstance(dataset, Dataset) and read is not None:
        for key in dataset.record_keys():
            place = dataset.place_of(key)
            # as for a run that carries the key
            value = reference.of(Trajectory(attributes={reference.key: key}))
            for problem in _problems(value, reference.field, read):
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
    """Hints at parameters of scorers that may not do what was intended, and at rules that
    contradict each other, each with its place in the configuration.
    """
    hints = [
        f"{place}: {each}"
        for place, scorer in _placed_scorers(config)
        for each in (*_threshold_hints(scorer), *getattr(scorer, "suggestions", ()))
    ]
    return hints + [
        f"evaluations[{row}]: {each}; correct one of them"
        for row, evaluation in enumerate(engine_of(config).evaluations)
        for each in contradictions(evaluation.scorers)
    ]


def _threshold_hints(scorer: Scorer) -> Iterator[str]:
    if getattr(scorer, "applied_threshold", None) == 0:
        yield (
            "threshold: 0 lets every score pass; raise it, or write severity: warn for a score that"
            " is not to decide"
        )


def _placed_scorers(config: EvalConfig) -> Iterator[tuple[str, Scorer]]:
    """Every scorer with its place in the configuration."""
    for row, evaluation in enumerate(engine_of(config).evaluations):
        for column, scorer in enumerate(evaluation.scorers):
            yield f"evaluations[{row}].scorers[{column}]", scorer


def forward_of(
    config: EvalConfig,
    engine: Engine,
    counters: Counters,
    durable: Durable | None,
    held: PendingSpans | None,
) -> Forwarder | None:
    """The forwarding stage, if one is configured; with storage, requests are journaled until they
    are forwarded.

    Args:
        held: where spans are held; the journal knows it.

    Raises:
        ConfigError: a TLS file cannot be used.
    """
    given = config.exporters.forward
    if given is None:
        return None
    to = given.address("exporters.forward")
    journal = durable.forwarded if durable else None
    return Forwarder(
        to,
        engine,
        counters,
        limit_bytes=given.max_queue_size,
        signals=given.signals,
        held=held,
        journal=journal,
        name_of=result_format(config).name_of,
        retry=retry_policy(config),
    )


def _check_kafka(settings: Mapping[str, Any], key: str) -> None:
    """Check whether librdkafka accepts the settings, without a connection.

    Raises:
        ConfigError: a name, a value or a file is invalid.
    """
    from confluent_kafka import Consumer, KafkaException  # deferred: the package is an extra

    try:
        Consumer(dict(settings) | {"bootstrap.servers": "", "group.id": "check"}).close()
    except KafkaException as error:
        why = " ".join(error.args[0].str().split())
        raise ConfigError(
            f"{key}: librdkafka refuses its settings ({why}); correct options, tls or sasl"
        ) from None


def refuse_unshared(config: EvalConfig) -> None:
    """Check whether several workers can run here and share what is configured.

    Raises:
        ConfigError: they cannot.
    """
    if config.workers == 1:
        return
    if not hasattr(socket, "send_fds"):
        raise ConfigError(
            "workers: this system cannot pass connections between processes; set workers to 1"
        )
    jsonl = config.exporters.jsonl
    lines_to_stdout = writes_lines(config) and (jsonl is None or jsonl.path == "-")
    if lines_to_stdout or config.exporters.console:
        key = "jsonl.path" if lines_to_stdout else "console"
        raise ConfigError(
            f"exporters.{key}: {config.workers} workers cannot share standard output; name a"
            " file, or set workers to 1"
        )
    kafka = config.receivers.kafka
    if kafka and "group.instance.id" in kafka.options:
        raise ConfigError(
            "receivers.kafka.options.group.instance.id: workers cannot share it; leave it out, or"
            " set workers to 1"
        )
    require_picklable(config, "workers", config.workers)


def config_of_worker(config: EvalConfig, number: int) -> EvalConfig:
    """The configuration of one worker: its share of the limits of the service, and a storage
    directory of its own.
    """
    workers, traces, storage = config.workers, config.traces, config.storage
    most_bytes = max(traces.max_bytes_per_trace, traces.max_bytes // workers)
    share = traces.model_copy(
        update={"max_traces": max(1, traces.max_traces // workers), "max_bytes": most_bytes}
    )
    own: dict[str, Any] = {"workers": 1, "traces": share}
    if instance := config.telemetry.service_instance_id:
        own["telemetry"] = config.telemetry.model_copy(
            update={"service_instance_id": f"{instance}-{number}"}
        )
    own["ui"] = config.ui.model_copy(update={"max_bytes": max(1, config.ui.max_bytes // workers)})
    if storage:
        directory = str(worker_directory(storage.directory, number))
        own["storage"] = storage.model_copy(
            update={"directory": directory, "max_size": storage.max_size // workers}
        )
    return config.model_copy(update=own)
