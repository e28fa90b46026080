"""The standalone receiver (`otel-eval serve`): starts, reloads and stops its parts in order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from otel_eval.admin import Readiness
from otel_eval.admin.metrics import Family, families_of
from otel_eval.app.build import EngineBuilder
from otel_eval.app.exporting import build_cases, build_receiver_exporters, writes_lines
from otel_eval.app.live import EvaluationParts
from otel_eval.app.page import HeldByWorker, LivePage, build_recent_runs
from otel_eval.app.receiving import (
    AdminServices,
    ReceiverEvaluation,
    ReceiverExports,
    build_forwarder,
    build_receiver,
    open_tokens,
    receiver_limits,
    starting,
    within_open_files,
)
from otel_eval.config import EvalConfig, Telemetry
from otel_eval.counters import Counters, CountName, Warnings, total_counts
from otel_eval.datasets import dataset_counts
from otel_eval.delivery.export_queue import STORED_S
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.diagnostics import UnmatchedRuns
from otel_eval.errors import StartCancelled
from otel_eval.forwarding.pending_spans import PendingSpans
from otel_eval.forwarding.relay import ForwardingRecovery, ForwardingRelay
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.pipeline import Pipeline
from otel_eval.sources import Source
from otel_eval.sources.receiver.export_handler import DecodingHandler
from otel_eval.sources.receiver.server import Bound
from otel_eval.storage.directory import claim_split
from otel_eval.storage.durable import Durable
from otel_eval.storage.recovery import PendingResults, Recovery

if TYPE_CHECKING:
    from otel_eval.app.kafka import KafkaIntake

NEEDS_RESTART: Final = (
    "workers",
    "traces",
    "async_scoring",
    "receivers",
    "exporters",
    "delivery",
    "storage",
    "telemetry",
    "window",
    "ui",
)

_REQUESTS: Final = (
    "requests",
    "refused_requests",
    "unauthenticated_requests",
    "bad_requests",
    "oversized_requests",
    "internal_errors",
)
# when draining no trace is open; only judges and a full disk can take long
_DRAIN_S: Final = 24 * 3600.0
_LOOK_S: Final = 1.0
_MOMENT_S: Final = 0.05
_IDLE_S: Final = (
    1.0  # for delivery before the end if nothing was received: there is no score to lose
)


class _PipelineConsumer:
    """The consumer that passes requests of the receiver to the pipeline."""

    forwards = False

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline

    def spans(self, batch: SpanBatch) -> None:
        self._pipeline.spans(batch.spans, batch.origin)

    def logs(self, batch: SpanBatch) -> None:
        self._pipeline.logs(batch.logs, batch.origin)

    def metrics(self, body: bytes) -> bool:
        return False


class Server:
    """`otel-eval serve` as an object.

    Args:
        config: its `receivers`, `traces`, `evaluations` and `exporters`; without exporters results
            go to stdout. This is always one process: `app.workers.front.FrontServer` starts
                several.
        listens: whether receiver and admin server listen; otherwise requests arrive by `take`.
        clock: monotonic seconds, by which traces are closed.

    Raises:
        ConfigError: an exporter cannot be opened, or the storage directory belongs to several
            workers.
    """

    def __init__(
        self,
        config: EvalConfig,
        *,
        listens: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config: Final = config
        self._counters: Final = Counters()
        self._bound: Bound | None = None
        self._stop_once: Final = threading.Lock()
        self._stopped: bool | None = None
        self._warnings: Final = Warnings()
        self._pending_results: PendingResults | None = None
        self._recent_runs: Final = build_recent_runs(config.ui)
        writes_no_run = writes_lines(config) or config.exporters.has_no_run
        self._engines: Final = EngineBuilder(self._counters, writes_no_run=writes_no_run)
        engine = self._engines.build(config)
        if config.storage:
            claim_split(config.storage.directory, 1)
        exporters = build_receiver_exporters(config)
        pending_spans = PendingSpans() if config.exporters.forward else None
        self._durable: Final = (
            Durable(config.storage, clock=clock, exporters=exporters, pending_spans=pending_spans)
            if config.storage
            else None
        )
        self._forward: Final = build_forwarder(
            config, engine, self._counters, self._durable, pending_spans
        )
        undelivered = Undelivered() if config.receivers.kafka else None
        cases = build_cases(config, self._counters, engine.plan)
        self._exports: Final = ReceiverExports(
            config,
            self._counters,
            exporters=exporters,
            durable=self._durable,
            forward=self._forward,
            cases=cases,
            recent_runs=self._recent_runs,
            undelivered=undelivered,
        )
        self._evaluation: Final = ReceiverEvaluation(
            EvaluationParts(
                config=config,
                engine=engine,
                exports=self._exports,
                process=self,
                cases=cases,
                expects_results=self._exports.metrics is not None,
                attempts=self._durable.attempts if self._durable else None,
            ),
            counters=self._counters,
            durable=self._durable,
            forward=self._forward,
            undelivered=undelivered,
            clock=clock,
        )
        self._pipeline: Final = self._evaluation.pipeline
        relay = (
            ForwardingRelay(self._forward, self._pipeline, self._durable) if self._forward else None
        )
        otlp, limits = config.receivers.otlp, receiver_limits(config.receivers.otlp)
        handler = DecodingHandler(
            relay or _PipelineConsumer(self._pipeline),
            within_open_files(limits, otlp) if otlp and listens else limits,
            open_tokens(otlp) if listens else None,
        )
        self._receiver: Final = build_receiver(
            config.receivers.otlp, handler, lambda: self.readiness().ready, listens=listens
        )
        self.take: Final = self._receiver.take
        self._kafka: Final = self._kafka_of(config, undelivered) if undelivered else None
        self._instance: Final = uuid4().hex
        self.page: Final = (
            LivePage(config.ui, self._recent_runs, self) if self._recent_runs and listens else None
        )
        pages = config.telemetry if listens else Telemetry(endpoint=None)
        self.admin: Final = AdminServices(pages, self)

    def scores(self) -> list[Family]:
        """The metrics of results, for `/metrics`."""
        return list(families_of(metrics.collect() if (metrics := self._exports.metrics) else None))

    def state(self) -> tuple[dict[CountName, Any], Readiness]:
        """The counters and the readiness, for the front."""
        return self.counts(), self.readiness()

    def _kafka_of(self, config: EvalConfig, undelivered: Undelivered) -> KafkaIntake | None:
        if config.receivers.kafka is None:
            return None
        from otel_eval.app.kafka import KafkaIntake  # deferred: the package for Kafka is an extra

        return KafkaIntake(
            config,
            config.receivers.kafka,
            self._engines.build(config),  # another one: an engine is used by one thread only
            self._evaluation,
            self._counters,
            undelivered,
        )

    @property
    def _sources(self) -> list[Source]:
        """The receivers."""
        otlp: list[Source] = [self._receiver] if self._config.receivers.otlp else []
        return [*otlp, self._kafka.source] if self._kafka else otlp

    def readiness(self) -> Readiness:
        """Whether requests are accepted and evaluation makes progress."""
        now = self._pipeline.evaluation()
        shown = {"state": now.state, "for_s": round(now.for_s, 1), "trace_id": now.trace_id}
        if not all(source.is_open for source in self._sources):
            return Readiness(
                False, "spans are not taken: a receiver starts, stops or makes no progress", shown
            )
        if now.state == "stalled":
            self._warnings.say("stalled", "%s (trace %s)", now.why, now.trace_id or "unknown")
        paused = f"evaluation is paused: {now.why}" if now.state == "paused" else now.why
        return Readiness(now.state != "stalled", paused, shown)

    def recent_runs(self, after: int) -> HeldByWorker | None:
        """The last runs that changed after a change with this number, for the front."""
        if self._recent_runs is None:
            return None
        changes = self._recent_runs.changes(after)
        reasons = self.why_no_score() if self._recent_runs.is_empty else ()
        return HeldByWorker(
            self._instance, changes, self._recent_runs.exported_ms, reasons, self.unmatched_runs()
        )

    def why_no_span(self) -> str:
        """A possible reason why no span has arrived."""
        return why_no_span(self._receiver.counts(), self._bound)

    def why_no_score(self) -> Sequence[str]:
        """Why no run was evaluated, in lines."""
        return self._evaluation.diagnostics.why_no_score()

    def unmatched_runs(self) -> UnmatchedRuns:
        """The runs that no evaluation matched although others did."""
        return self._evaluation.diagnostics.unmatched_runs()

    def fetch_runs(self) -> None:
        """Do nothing: the runs are held here."""

    def note_stop(self) -> None:
        """Record that the process was asked to stop, so that its end does not count as a crash, and
        end the recovery of a start that is under way. Safe in a signal handler.
        """
        if self._durable:
            self._durable.note_stop()

    def _recover(self) -> None:
        if self._durable is None:
            return
        later = self._evaluation.later
        resuming = (
            ForwardingRecovery(self._durable.forwarded, self._forward) if self._forward else None
        )
        max_attributes = receiver_limits(self._config.receivers.otlp).max_attributes
        recovery = Recovery(self._durable, self._exports, max_attributes, resuming)
        self._pipeline.recover(recovery)
        unfinished = recovery.unfinished(self._evaluation.engine) if later is not None else []
        if later is not None and unfinished:
            timeout_s = self._config.async_scoring.timeout
            self._pending_results = PendingResults(
                unfinished,
                self._durable,
                later,
                self._evaluation,
                self._pipeline.caught_up,
                timeout_s,
            )
            self._pending_results.start()

    def start(self) -> Bound:
        """Start every part, and return the addresses that were bound.

        Raises:
            ConfigError: an address cannot be bound; every part is stopped then.
            StartCancelled: `note_stop` was called while storage was read; every part is stopped.
        """
        with starting(self.admin, self):
            self._recover()
            self._exports.start()
            if self._forward:
                self._forward.start()
            self._bound = self._receiver.start()
            # After the addresses are bound, so that a server that cannot start exports no counters;
            # before the first result.
            if self._evaluation.expected is not None:
                self._evaluation.expected.start()
            self._pipeline.start()
            if self._kafka:
                self._kafka.source.start()
            if self.page:
                self.page.start(self._bound)
            return self._bound

    def drain(self, stopping: threading.Event) -> bool:
        """Score and deliver what storage kept, without listening; False if `stopping` was set
        before that was finished.
        """
        try:
            self._recover()
        except StartCancelled:
            self.stop(0.0)
            return False
        self._exports.start()
        if self._forward:
            self._forward.start()
        with ThreadPoolExecutor(1) as pool:
            scored = pool.submit(self._score_all, stopping)
            while not scored.done() and not stopping.wait(_MOMENT_S):
                pass
            # end the wait for judges and for the disk; what is missing stays in storage
            if self._durable and stopping.is_set():
                self._durable.stop()
                self._pipeline.stop_waiting(0.0)
        self._evaluation.diagnostics.warn_of_names()
        while not self._exports.drain(_LOOK_S) and not stopping.is_set():
            pass
        while self._forward and not self._forward.wait(_LOOK_S) and not stopping.is_set():
            pass
        if self._forward:
            self._forward.stop(0.0)
        delivered = self._exports.close(STORED_S)
        if self._durable:
            self._durable.close()
        return delivered and scored.result() and not stopping.is_set()

    def _score_all(self, stopping: threading.Event) -> bool:
        """Score what storage kept, also the results of judges; False if that was not finished."""
        while self._pending_results and not self._pending_results.is_over and not stopping.is_set():
            self._pipeline.step()
            stopping.wait(_MOMENT_S)
        return self._pipeline.stop(timeout_s=_DRAIN_S)

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop accepting requests, evaluate open traces (marked `shutdown`) and deliver; False if
        this took too long.

        Later calls return the result of the first one.
        """
        # the front stops a worker, which stops by itself if the front has ended
        with self._stop_once:
            if self._stopped is None:
                self._stopped = self._stop(timeout_s)
            return self._stopped

    def _stop(self, timeout_s: float) -> bool:
        self.note_stop()
        deadline = time.monotonic() + timeout_s
        for source in self._sources:
            source.stop(min(2.0, timeout_s / 4))
        if is_idle := self._is_idle:
            deadline = min(deadline, time.monotonic() + _IDLE_S)
        scored = self._stop_evaluation(max(0.0, (deadline - time.monotonic()) * 0.7))
        forwarded = self._stop_forwarding((deadline - time.monotonic()) * 0.7)
        delivered = self._exports.close(max(0.1, deadline - time.monotonic()))
        for source in self._sources:
            source.close(max(0.5, deadline - time.monotonic()))
        if self._durable:
            self._durable.close()
        if self.page:
            self.page.stop()
        self.admin.stop(max(0.2, min(2.0, deadline - time.monotonic())))
        if self._bound is not None:  # otherwise the start failed
            self._evaluation.diagnostics.end()
        return is_idle or (scored and delivered and forwarded)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing was received, now or in an earlier process: then nothing can be lost."""
        return not (self._kafka or self._durable or self._receiver.counters.get("requests"))

    def _stop_forwarding(self, left_s: float) -> bool:
        """Forward the queued requests; with storage, those not accepted within 3 s are forwarded
        after the next start.
        """
        left_s = min(left_s, STORED_S) if self._durable else left_s
        return self._forward is None or self._forward.stop(max(0.1, left_s))

    def _stop_evaluation(self, timeout_s: float) -> bool:
        """Stop evaluation. Without storage, or if it was removed, open traces are evaluated now;
        with storage, they stay open for the next start.
        """
        if self._durable is None or self._durable.is_removed:
            return self._pipeline.stop(timeout_s=timeout_s)
        self._durable.stop()
        self._pipeline.halt(timeout_s)
        self._pipeline.stop_waiting(0.0)
        return True

    def reload(self, config: EvalConfig) -> list[str]:
        """Use other evaluations from now on, also for open traces, and return the changed keys that
        need a restart.

        Raises:
            ConfigError: a scorer or a judge cannot be built; the running configuration is kept.
        """
        self._exports.reopen()
        engine = self._engines.build(config)
        of_kafka = self._engines.build(config) if self._kafka else None
        self._evaluation.use(engine, config)
        if self._kafka and of_kafka:
            self._kafka.use_engine(of_kafka)
        return [key for key in NEEDS_RESTART if getattr(config, key) != getattr(self._config, key)]

    def counts(self) -> dict[CountName, Any]:
        """The counters of every part."""
        storage = self._durable.counts() if self._durable else {}
        queues = self._exports.counts() | self._evaluation.diagnostics.counts() | dataset_counts()
        queues |= self._receiver.not_after()
        of_kafka = self._kafka.source.counts() if self._kafka else {}
        evaluated = total_counts([self._pipeline.counts(), of_kafka])
        return (
            dict[CountName, Any](self._receiver.counts())
            | evaluated
            | self._counters.snapshot()
            | queues
            | storage
        )


def why_no_span(counted: Mapping[str, Any], bound: Bound | None) -> str:
    """A possible reason why no span has arrived at a receiver with these counters and addresses."""
    totals = {
        key: sum(value.values()) for key, value in counted.items() if isinstance(value, Mapping)
    }
    requests = (
        ", ".join(f"{totals[key]} {key.replace('_', ' ')}" for key in _REQUESTS if totals.get(key))
        or "no request came"
    )
    addresses = " and ".join(
        f"{name} {address}" for name in ("grpc", "http") if (address := getattr(bound, name, None))
    )
    if not addresses:
        return (
            "no record of the topic was read; check the topic, the group's offsets and"
            " initial_offset"
        )
    return (
        f"the receiver listens on {addresses} ({requests}); check the sender's endpoint and"
        " protocol"
    )
