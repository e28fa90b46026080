"""Builds the parts of a receiver from the configuration: transports, admin server, forwarding,
evaluation, and the exports of results.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from otel_eval.admin import AdminServer, Monitored
from otel_eval.admin.metrics import Counted, SelfMetricsExporter
from otel_eval.app.build import build_limits, require_picklable
from otel_eval.app.exporting import (
    build_dead_letters,
    build_export_queues,
    build_metrics,
    result_format,
    retry_policy,
    writes_lines,
)
from otel_eval.app.live import EvaluationParts, LiveEvaluation
from otel_eval.config import (
    EvalConfig,
    HttpServer,
    MetricsOtlp,
    OtlpReceiver,
    Telemetry,
)
from otel_eval.counters import Counters
from otel_eval.delivery.exports import Exports, FinalResults
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.descriptors import Connections, connections, raise_limit
from otel_eval.engine import Engine
from otel_eval.errors import ConfigError
from otel_eval.exporters import Exporter, names_of_exporters
from otel_eval.forwarding.pending_spans import PendingSpans
from otel_eval.forwarding.stage import Forwarder
from otel_eval.heap import IdleMemory, tune_gc, tune_malloc
from otel_eval.interfaces import SpanFrame
from otel_eval.model import Report
from otel_eval.otlp.endpoint import for_signal
from otel_eval.pipeline import Pipeline
from otel_eval.sources.receiver.credentials import BearerTokens, Certificates
from otel_eval.sources.receiver.export_handler import ExportHandler, ReceiverLimits
from otel_eval.sources.receiver.server import OtlpServer
from otel_eval.storage.directory import worker_directory
from otel_eval.storage.durable import Durable
from otel_eval.ui.recent_runs import RecentRuns

if TYPE_CHECKING:
    from otel_eval.exporters.cases import CaseFolder

_ADMIN_CLOSE_S: Final = 1.0  # for requests to the admin server that are being answered
_UNDO_S: Final = 1.0  # for stopping the parts that were started when a start fails


class ReceiverExports(Exports):
    """Where the results of a receiver go: at once to the spans that are forwarded, the metrics, the
    cases and the page; and to the queues of its exporters.

    Args:
        config: the configuration.
        counters: counts results.
        exporters: the exporters that get a queue.
        durable: journals what was delivered.
        forward, cases, recent_runs: get every report, if they are there.
        undelivered: counts the reports on traces of Kafka.

    Attributes:
        metrics: the instruments of results; None if they are neither pushed nor scraped.

    Raises:
        ConfigError: an exporter cannot be opened.
    """

    def __init__(
        self,
        config: EvalConfig,
        counters: Counters,
        *,
        exporters: Sequence[Exporter],
        durable: Durable | None,
        forward: Forwarder | None,
        cases: CaseFolder | None,
        recent_runs: RecentRuns | None,
        undelivered: Undelivered | None,
    ) -> None:
        self._durable, self._recent_runs, self._undelivered = durable, recent_runs, undelivered
        self._queued: Final = exporters
        self.metrics: Final = build_metrics(config, counters)
        # Results of detached runs are measured when they are final.
        metrics = FinalResults(self.metrics) if self.metrics else None
        at_once = [exporter for exporter in (forward, metrics, cases) if exporter is not None]
        dead_letters = build_dead_letters(config, in_storage=True)
        queues = build_export_queues(
            config, exporters, counters, self._record_delivery, dead_letters
        )
        super().__init__(
            [*at_once, *queues],
            counters,
            dead_letters=dead_letters,
            # on disk, or in a topic that can be read again
            is_stored=config.storage is not None or config.receivers.otlp is None,
        )

    def export(self, reports: Sequence[Report]) -> None:
        """Export reports everywhere."""
        for report in reports:
            if self._recent_runs:
                self._recent_runs.add(report)
            if self._undelivered:
                exporters = names_of_exporters(self._queued, report)
                self._undelivered.count_queued(report, len(exporters))
        super().export(reports)

    def _record_delivery(self, exporter: str, reports: Sequence[Report]) -> None:
        if self._recent_runs:
            self._recent_runs.note_export()
        if self._undelivered:
            self._undelivered.count_delivered(reports)
        if self._durable:
            self._durable.journal_delivery(exporter, reports)


class ReceiverEvaluation(LiveEvaluation):
    """The evaluation of what a receiver accepts, with its storage, forwarding and memory.

    Args:
        parts: its parts.
        counters: counts results that are set aside.
        durable: the journal.
        forward: releases the spans of decided traces.
        undelivered: knows the evaluators of partitions of Kafka.
        clock: monotonic seconds, by which traces are closed.
    """

    def __init__(
        self,
        parts: EvaluationParts,
        *,
        counters: Counters,
        durable: Durable | None,
        forward: Forwarder | None,
        undelivered: Undelivered | None,
        clock: Callable[[], float],
    ) -> None:
        super().__init__(parts)
        self._counters = counters
        self._durable, self._forward, self._undelivered = durable, forward, undelivered
        self.arrived = 0  # batches of spans
        self.pipeline: Final = Pipeline(
            self.engine,
            self,
            build_limits(parts.config),
            clock,
            later=self.later,
            journal=durable,
            evaluator=durable.identity.evaluator if durable else None,
            since_ns=durable.identity.since_ns if durable else time.time_ns(),
        )
        self._memory: Final = IdleMemory(self)

    def use(self, engine: Engine, config: EvalConfig) -> None:
        """Evaluate with another engine from now on, also open traces."""
        super().use(engine, config)
        if self._forward:
            self._forward.use_engine(engine)
        self.pipeline.use_engine(engine, self.later)

    def on_spans_accepted(self, spans: Sequence[SpanFrame]) -> None:
        """Note that requests arrive."""
        self.arrived += 1
        super().on_spans_accepted(spans)

    @property
    def held_bytes(self) -> int:
        """Bytes of the held spans, with overhead."""
        return self.pipeline.held_bytes

    def compact(self) -> None:
        """Free memory that only serves speed."""
        self.pipeline.compact()

    def on_tick(self) -> None:
        """Free memory and open renamed files anew, from time to time."""
        self._memory.look()
        self._exports.reopen()
        super().on_tick()

    def on_decided(self, trace_id: bytes) -> None:
        """Forward the spans that were held for scores."""
        if self._forward:
            self._forward.release((trace_id,))

    def on_resting(self, trace_id: bytes) -> None:
        """Forward the spans that were held for scores."""
        self.on_decided(trace_id)

    def backpressure(self) -> str:
        """Why evaluation must pause, or ""."""
        return self._exports.backpressure()

    def on_late_report(self, report: Report) -> None:
        """Journal and export asynchronous results, unless they are computed again after the next
        start.
        """
        if self._undelivered and self._undelivered.counts(report):
            # after the end the next owner of its partition evaluates the trace again
            if not self._undelivered.is_stopped:
                self.on_reports((report,))
        elif self._durable is None or self._durable.journal_late_results(report):
            self.on_reports((report,))

    def set_aside(self, reports: Sequence[Report], why: str) -> bool:
        """Write failed results to the dead-letter file, and count them; False if that is not
        possible.
        """
        if not self._exports.write_dead_letters(reports, "evaluation", why):
            return False
        for report in reports:
            self.diagnostics.count(report)
            self._counters.add("results.dead_letters", len(report.results), exporter="evaluation")
        return True


def build_receiver(
    receiver: OtlpReceiver | None,
    handler: ExportHandler,
    ready: Callable[[], bool],
    *,
    listens: bool = True,
) -> OtlpServer:
    """Build the receiver; it does not listen yet, and has no transport if it is not configured.

    Args:
        receiver: `receivers.otlp` of the configuration.
        handler: handles the requests.
        ready: returns whether evaluation makes progress.
        listens: False to have no transport, whatever is configured.
    """
    if receiver is None or not listens:
        return OtlpServer(handler)
    addresses = {key: server.endpoint for key, server in _enabled_servers(receiver).items()}
    return OtlpServer(
        handler,
        certificates=certificate_loaders(receiver),
        ready=ready,
        **addresses,
    )


def receiver_limits(receiver: OtlpReceiver | None, **options: Any) -> ReceiverLimits:
    """The limits for clients; for the size of a message, the greater limit of the two protocols."""
    receiver = receiver or OtlpReceiver()
    largest = max(server.max_message_size for server in _enabled_servers(receiver).values())
    sizes = {
        "max_inflight_bytes": receiver.max_inflight_size,
        "max_attributes": receiver.max_attributes,
    }
    return ReceiverLimits(max_body_bytes=largest, **sizes, **options)


def within_open_files(limits: ReceiverLimits, receiver: OtlpReceiver) -> ReceiverLimits:
    """The limits with as many connections as the limit of open files allows, which is raised."""
    # Over HTTP a connection with TLS has two descriptors: its own, by which it can be shut down,
    # and the wrapped duplicate.
    allowed = connections(
        raise_limit(),
        Connections(limits.grpc_connections, limits.http_connections),
        per_http=2 if "http" in certificate_loaders(receiver) else 1,
    )
    return replace(limits, grpc_connections=allowed.grpc, http_connections=allowed.http)


def _enabled_servers(receiver: OtlpReceiver) -> dict[str, HttpServer]:
    """The enabled servers by protocol."""
    return {protocol: server for protocol, server in receiver.protocols if server}


def certificate_loaders(receiver: OtlpReceiver) -> dict[str, Callable[[], Certificates]]:
    """For each protocol with TLS, a function that opens its certificates."""
    return {
        protocol: partial(
            Certificates, f"receivers.otlp.protocols.{protocol}.tls", **dict(server.tls)
        )
        for protocol, server in _enabled_servers(receiver).items()
        if server.tls
    }


def open_tokens(receiver: OtlpReceiver | None) -> BearerTokens | None:
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
        telemetry: `telemetry` of the configuration.
        monitored: the server whose state is shown and whose counters are exported.

    Raises:
        ConfigError: the endpoint for metrics is invalid.
    """

    def __init__(self, telemetry: Telemetry, monitored: Monitored) -> None:
        self._telemetry, self._monitored = telemetry, monitored
        self._server: AdminServer | None = None
        instance_id = telemetry.service_instance_id
        self._metrics: Final = (
            _metrics_exporter(telemetry.otlp, instance_id, monitored) if telemetry.otlp else None
        )
        self.address: str | None = None

    def start(self) -> None:
        """Start the admin server and the export of metrics.

        Raises:
            ConfigError: the address cannot be bound.
        """
        if self._telemetry.endpoint:
            self._server = AdminServer(
                self._telemetry.endpoint, self._monitored, self._telemetry.allowed_hosts
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
            self._server.stop(_ADMIN_CLOSE_S)
            self._server = None


class Stoppable(Protocol):
    """A server that can be stopped before all of it was started."""

    def stop(self, timeout_s: float) -> object:
        """Stop what was started."""


@contextmanager
def starting(admin: AdminServices, server: Stoppable) -> Iterator[None]:
    """A context in which the parts of a server are started; if that raises, those that were started
    are stopped.

    The admin server is started first, so that /readyz answers 503 while the rest starts.
    """
    try:
        tune_malloc()
        tune_gc()
        raise_limit()
        admin.start()
        yield
    except BaseException:
        server.stop(_UNDO_S)
        raise


def _metrics_exporter(
    endpoint: MetricsOtlp, instance_id: str | None, counted: Counted
) -> SelfMetricsExporter:
    # Deferred: the exporters load grpc's client or requests.
    from otel_eval.exporters.otlp import SdkMetricExporter
    from otel_eval.exporters.result_requests import own_resource

    to = for_signal(endpoint.address("telemetry.otlp"), "metrics")
    exporter = SdkMetricExporter(to, Counters(), "telemetry.otlp.metrics")
    return SelfMetricsExporter(exporter, counted, own_resource(instance_id), endpoint.interval)


def build_forwarder(
    config: EvalConfig,
    engine: Engine,
    counters: Counters,
    durable: Durable | None,
    pending_spans: PendingSpans | None,
) -> Forwarder | None:
    """The forwarding stage, if one is configured; with storage, requests are journaled until they
    are forwarded.

    Args:
        pending_spans: where spans are held; the journal knows it.

    Raises:
        ConfigError: a TLS file cannot be used.
    """
    options = config.exporters.forward
    if options is None:
        return None
    to = options.address("exporters.forward")
    journal = durable.forwarded if durable else None
    return Forwarder(
        to,
        engine,
        counters,
        limit_bytes=options.max_queue_size,
        signals=options.signals,
        pending_spans=pending_spans,
        journal=journal,
        name_of=result_format(config).name_of,
        retry=retry_policy(config),
    )


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
    changes: dict[str, Any] = {"workers": 1, "traces": share}
    if instance := config.telemetry.service_instance_id:
        changes["telemetry"] = config.telemetry.model_copy(
            update={"service_instance_id": f"{instance}-{number}"}
        )
    changes["ui"] = config.ui.model_copy(
        update={"max_bytes": max(1, config.ui.max_bytes // workers)}
    )
    if storage:
        directory = str(worker_directory(storage.directory, number))
        changes["storage"] = storage.model_copy(
            update={"directory": directory, "max_size": storage.max_size // workers}
        )
    return config.model_copy(update=changes)
