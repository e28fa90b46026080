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
from otel_eval.app.exporting import cases_of, export_queues_of, metrics_of, writes_lines
from otel_eval.app.judge_clients import Clients, dataset_counts
from otel_eval.app.page import HeldByWorker, LivePage, held_runs_of
from otel_eval.app.server_wiring import (
    AdminServices,
    forward_of,
    receiver_limits,
    receiver_of,
    starting,
)
from otel_eval.app.wiring import ExpectedResults, engine_of, later_of, limits_of, watched_by
from otel_eval.config import EvalConfig, KafkaReceiver, Telemetry
from otel_eval.counters import Counters, Warnings, total_counts
from otel_eval.diagnostics import Diagnostics
from otel_eval.engine import Engine
from otel_eval.exporters import Exporter
from otel_eval.exporters.fanout import Fanout, FinalResults
from otel_eval.forwarding.relay import ForwardingRecovery, ForwardingRelay
from otel_eval.interfaces import SpanFrame
from otel_eval.model import Report
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.pipeline import Pipeline
from otel_eval.sources import Source
from otel_eval.sources.receiver.export_handler import DecodingHandler
from otel_eval.sources.receiver.memory import IdleMemory
from otel_eval.sources.receiver.server import Bound
from otel_eval.storage.directory import claim_split
from otel_eval.storage.durable import Durable
from otel_eval.storage.recovery import PendingResults, Recovery

if TYPE_CHECKING:
    from otel_eval.app.kafka import KafkaIntake
    from otel_eval.judges import AsyncEvaluator

NEEDS_RESTART: Final = (
    "workers",
    "traces",
    "async_scoring",
    "receivers",
    "exporters",
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
_CLOSING_S: Final = 1.5  # of the time for stopping, for closing the journal, sockets and so on
_STORED_S: Final = 3.0  # for delivery before the end if undelivered results are on disk
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
        self._clients: Final = Clients(self._counters.add)
        self._bound: Bound | None = None
        self._stop_once: Final = threading.Lock()
        self._stopped: bool | None = None
        self._warnings: Final = Warnings()
        self._pending_results: PendingResults | None = None
        self._held_runs: Final = held_runs_of(config.ui)
        engine = self._engine_of(config)
        self._diagnostics: Final = Diagnostics(self.counts, self._why_no_span, engine.evaluations)
        self._emit: Final = self._diagnostics.counted(self._export)
        if config.storage:
            claim_split(config.storage.directory, 1)
        self._durable: Final = Durable(config.storage, clock=clock) if config.storage else None
        self._forward: Final = forward_of(config, engine, self._counters, self._durable)
        accepted = self._durable.accepted if self._durable else None
        self._delivery: Final = export_queues_of(
            config, self._counters, self._delivered_to, accepted
        )
        forward: list[Exporter] = [self._forward] if self._forward else []
        self._metrics: Final = metrics_of(config, self._counters)
        # Results of detached runs are measured when they are final.
        metrics = [FinalResults(self._metrics)] if self._metrics else []
        self._cases: Final = cases_of(config, self._counters, lambda: self._engine)
        cases = [self._cases] if self._cases else []
        self._fanout: Final = Fanout([*forward, *metrics, *cases], self._counters)
        self._watch: Final = watched_by(self._diagnostics.evaluated, self._cases)
        self._expected: Final = ExpectedResults(self._fanout, engine) if self._metrics else None
        note = self._expected.note if self._expected else lambda _: None
        evaluated = self._forward.evaluated if self._forward else lambda _: None
        self._engine = engine
        self._later = self._later_of(config, engine)
        self._pipeline: Final = Pipeline(
            engine,
            self._emit,
            limits_of(config),
            clock,
            evaluated=evaluated,
            resting=evaluated,
            later=self._later,
            journal=self._durable,
            backpressure=self._delivery.backpressure,
            final=self._fanout.final,
            evaluator=self._durable.identity.evaluator if self._durable else None,
            since_ns=self._durable.identity.since_ns if self._durable else time.time_ns(),
            note=note,
            between=self._run_periodic,
            watch=self._watch,
        )
        relay = (
            ForwardingRelay(self._forward, self._pipeline, self._durable) if self._forward else None
        )
        handler = DecodingHandler(
            relay or _PipelineConsumer(self._pipeline), receiver_limits(config.receivers.otlp)
        )
        self._receiver: Final = receiver_of(
            config.receivers.otlp, handler, lambda: self.readiness().ready, listens=listens
        )
        self.take: Final = self._receiver.take
        self._memory: Final = IdleMemory(
            lambda: self._receiver.counters.get("requests"),
            lambda: self._pipeline.held_bytes,
            self._pipeline.compact,
        )
        self._kafka: Final = (
            self._kafka_of(config, given, note) if (given := config.receivers.kafka) else None
        )
        self._instance: Final = uuid4().hex
        self.page: Final = (
            LivePage(config.ui, self._held_runs, self.counts, self._diagnostics.why_no_score)
            if self._held_runs and listens
            else None
        )
        pages = config.telemetry if listens else Telemetry(endpoint=None)
        self.admin: Final = AdminServices(pages, self)

    def _run_periodic(self) -> None:
        self._memory.look()
        self._delivery.reopen()
        if self._expected is not None:
            self._expected.examine_queued()

    def scores(self) -> list[Family]:
        """The metrics of results, for `/metrics`."""
        return list(families_of(self._metrics.collect() if self._metrics else None))

    def state(self) -> tuple[dict[str, Any], Readiness]:
        """The counters and the readiness, for the front."""
        return self.counts(), self.readiness()

    def _kafka_of(
        self, config: EvalConfig, given: KafkaReceiver, note: Callable[[Sequence[SpanFrame]], None]
    ) -> KafkaIntake:
        from otel_eval.app.kafka import KafkaIntake  # deferred: the package for Kafka is an extra

        engine = self._engine_of(config)  # another one: an engine is used by one thread only
        hooks = {"final": self._fanout.final, "watch": self._watch, "note": note}
        return KafkaIntake(
            config,
            given,
            engine,
            self._later,
            self._counters,
            self._delivery.backpressure,
            self._emit,
            **hooks,
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

    def _engine_of(self, config: EvalConfig) -> Engine:
        lines = writes_lines(self._config) or self._config.exporters.has_no_run
        return engine_of(config, self._counters, lines=lines, clients=self._clients)

    def _later_of(self, config: EvalConfig, engine: Engine) -> AsyncEvaluator | None:
        if self._durable is None:
            return later_of(config, engine, self._emit_late)
        return later_of(config, engine, self._emit_late, record=self._durable.attempts.later)

    def held_runs(self, after: int) -> HeldByWorker | None:
        """The last runs that changed after a change with this number, for the front."""
        if self._held_runs is None:
            return None
        changes = self._held_runs.changes(after)
        why = self._diagnostics.why_no_score() if self._held_runs.is_empty else ()
        return HeldByWorker(self._instance, changes, self._held_runs.exported_ms, why)

    def _export(self, report: Report) -> None:
        if self._held_runs:
            self._held_runs.add(report)
        if self._forward or self._metrics or self._cases:
            self._fanout.export(report)
        if self._kafka:
            self._kafka.undelivered.made(report, len(self._delivery.exporters_for(report)))
        self._delivery.put(report)

    def _delivered_to(self, exporter: str, reports: Sequence[Report]) -> None:
        if self._held_runs:
            self._held_runs.note_export()
        if self._kafka:
            self._kafka.undelivered.delivered(reports)
        if self._durable:
            self._durable.delivered(exporter, reports)

    def _write_dead_letters(self, reports: Sequence[Report], why: str) -> bool:
        """Write failed results to the dead-letter file, and count them; False if that is not
        possible.
        """
        if not self._delivery.write_dead_letters(reports, "evaluation", why):
            return False
        count = self._diagnostics.counted(lambda _: None)
        for report in reports:
            count(report)
            self._counters.add("results.dead_letters", len(report.results), exporter="evaluation")
        return True

    def _why_no_span(self) -> str:
        return why_no_span(self._receiver.counts(), self._bound)

    def note_stop(self) -> None:
        """Record that the process was asked to stop, so that its end does not count as a crash.
        Safe in a signal handler.
        """
        if self._durable:
            self._durable.note_stop()

    def _emit_late(self, report: Report) -> None:
        if self._kafka and self._kafka.is_own(report):
            # otherwise the next owner of its partition evaluates the trace again
            if self._kafka.source.is_open:
                self._emit(report)
            return
        if self._durable is None or self._durable.late(report):
            self._emit(report)

    def _recover(self) -> None:
        if self._durable is None:
            return
        self._durable.takers = self._delivery.exporters_for
        self._durable.attempts.set_aside = self._write_dead_letters
        resuming = (
            ForwardingRecovery(self._durable.forwarded, self._forward) if self._forward else None
        )
        limits = (receiver_limits(self._config.receivers.otlp).max_attributes, resuming)
        recovery = Recovery(self._durable, self._delivery.requeue, *limits, self._delivery.revised)
        self._pipeline.recover(recovery)
        if self._durable.journal.recovery.is_damaged:
            self._delivery.expect_duplicates()
        unfinished = recovery.unfinished(self._engine) if self._later is not None else []
        if self._later is not None and unfinished:
            timeout_s = self._config.async_scoring.timeout
            self._pending_results = PendingResults(
                unfinished,
                self._durable,
                self._later,
                self._emit,
                self._pipeline.caught_up,
                timeout_s,
            )
            self._pending_results.start()

    def start(self) -> Bound:
        """Start every part, and return the addresses that were bound.

        Raises:
            ConfigError: an address cannot be bound; every part is stopped then.
        """
        with starting(self.admin, self._receiver, self.stop):
            self._recover()
            self._delivery.start()
            if self._forward:
                self._forward.start()
            self._bound = self._receiver.start()
            # After the addresses are bound, so that a server that cannot start exports no counters;
            # before the first result.
            if self._expected is not None:
                self._expected.start()
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
        self._recover()
        self._delivery.start()
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
        self._diagnostics.warn_of_names()
        while not self._delivery.flush(_LOOK_S) and not stopping.is_set():
            pass
        while self._forward and not self._forward.wait(_LOOK_S) and not stopping.is_set():
            pass
        if self._forward:
            self._forward.stop(0.0)
        delivered = self._deliver(time.monotonic() + _STORED_S)
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
        delivered = self._deliver(deadline)
        for source in self._sources:
            source.close(max(0.5, deadline - time.monotonic()))
        if self._durable:
            self._durable.close()
        if self.page:
            self.page.stop()
        self.admin.stop(max(0.2, min(2.0, deadline - time.monotonic())))
        if self._bound is not None:  # otherwise the start failed
            self._diagnostics.end()
        return is_idle or (scored and delivered and forwarded)

    @property
    def _is_idle(self) -> bool:
        """Whether nothing was received, now or in an earlier process: then nothing can be lost."""
        return not (self._kafka or self._durable or self._receiver.counters.get("requests"))

    def _stop_forwarding(self, left_s: float) -> bool:
        """Forward the queued requests; with storage, those not accepted within 3 s are forwarded
        after the next start.
        """
        left_s = min(left_s, _STORED_S) if self._durable else left_s
        return self._forward is None or self._forward.stop(max(0.1, left_s))

    def _deliver(self, deadline: float) -> bool:
        self._delivery.stop()
        left_s = max(0.1, deadline - time.monotonic())
        # With storage, results that no endpoint accepts now are delivered after the next start.
        delivered = (
            self._delivery.flush(min(left_s, _STORED_S) if self._durable else left_s)
            or self._durable is not None
        )
        flushed = self._fanout.flush(max(0.1, deadline - time.monotonic()))
        self._fanout.close(max(0.1, deadline - time.monotonic()))
        # an export may not return: the other parts need time to close, too
        self._delivery.close(max(0.1, deadline - _CLOSING_S - time.monotonic()))
        return delivered and flushed

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
        self._delivery.reopen()
        engine = self._engine_of(config)
        later = self._later or self._later_of(config, engine)
        if self._forward:
            self._forward.use_engine(engine)
        self._pipeline.use_engine(engine, later)
        self._diagnostics.use(engine.evaluations)
        if self._expected is not None:
            self._expected.use_engine(engine)
            self._expected.start()
        if self._kafka:
            self._kafka.use_engine(self._engine_of(config), later)
        self._engine, self._later = engine, later
        return [key for key in NEEDS_RESTART if getattr(config, key) != getattr(self._config, key)]

    def counts(self) -> dict[str, Any]:
        """The counters of every part."""
        waiting = self._forward.counts() if self._forward else {}
        kept = self._durable.counts() if self._durable else {}
        waiting |= self._delivery.counts() | self._diagnostics.counts() | dataset_counts()
        waiting |= self._receiver.not_after()
        evaluated = self._pipeline.counts()
        if self._kafka:
            evaluated = total_counts([evaluated, self._kafka.source.counts()])
        return (
            dict[str, Any](self._receiver.counts())
            | evaluated
            | self._counters.snapshot()
            | waiting
            | kept
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
    places = " and ".join(
        f"{name} {place}" for name in ("grpc", "http") if (place := getattr(bound, name, None))
    )
    if not places:
        return (
            "no record of the topic was read; check the topic, the group's offsets and"
            " initial_offset"
        )
    return (
        f"the receiver listens on {places} ({requests}); check the sender's endpoint and protocol"
    )
