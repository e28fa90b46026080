"""`otel-eval serve --workers N` as an object: the receiver and the admin server in front of N
worker processes.

The front checks, counts and splits requests by trace id. Each worker is a complete server without
listeners: it assembles, evaluates, stores and exports its traces.

Requests are split without decoding spans, and no byte is lost: resource and scope are copied to
each part that gets some of their spans, and what belongs to no trace goes to the first part. A
request is acknowledged when every part was.
Source: opentelemetry-proto: resource_spans = 1, scope_spans = 2, spans = 2, trace_id = 1; logs
alike, with trace_id = 9.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any, Final, TypeVar
from uuid import uuid4

from otel_eval.admin import Readiness
from otel_eval.admin.metrics import Family, joined_families
from otel_eval.app.build import build_engine
from otel_eval.app.page import FetchedRuns, LivePage, build_recent_runs
from otel_eval.app.receiving import (
    AdminServices,
    build_receiver,
    config_of_worker,
    open_tokens,
    receiver_limits,
    refuse_unshared,
    starting,
    within_open_files,
)
from otel_eval.app.server import NEEDS_RESTART, why_no_span
from otel_eval.app.workers.worker import SupervisedWorker
from otel_eval.config import EvalConfig
from otel_eval.counters import CountName, total_counts
from otel_eval.diagnostics import Diagnostics, UnmatchedRuns
from otel_eval.errors import InputError, Overloaded, StartCancelled, collect_errors
from otel_eval.native import extension
from otel_eval.otlp import Encoding, Signal
from otel_eval.otlp.decoded_size import json_decoded_size
from otel_eval.otlp.otlp_json import Rewritten
from otel_eval.sources.receiver.credentials import BearerTokens
from otel_eval.sources.receiver.export_handler import (
    ExportHandler,
    ExportResponse,
    ExportStatus,
    ReceiverLimits,
)
from otel_eval.sources.receiver.memory import Reservation
from otel_eval.sources.receiver.server import Bound
from otel_eval.storage.directory import claim_split
from otel_eval.wire import fields, sized

T = TypeVar("T")

_LOOK_S: Final = 0.2  # between two looks whether a start is to be stopped
_THREADS: Final = 8  # for each worker; most of them wait for its responses


def _no_preparation(_: int) -> None:
    """Leave the logging of a new process unchanged."""


class FrontServer:
    """The counterpart of `Server` with several processes.

    Args:
        config: the configuration; its `workers` is the number of processes.
        prepare: called in each worker with its number, to set up logging; a function at the top
            level of a module.

    Raises:
        ConfigError: something in the configuration cannot be shared by processes.
    """

    def __init__(
        self, config: EvalConfig, prepare: Callable[[int], None] = _no_preparation
    ) -> None:
        refuse_unshared(config)
        self._config = config
        instance = uuid4().hex
        numbers = range(1, config.workers + 1)
        self._workers: Final = [
            SupervisedWorker(n, config_of_worker(config, n), f"{instance}-{n}", prepare)
            for n in numbers
        ]
        otlp = config.receivers.otlp
        limits = receiver_limits(otlp, grpc_threads=_THREADS * config.workers)
        if otlp:
            limits = within_open_files(limits, otlp)
        handler = SplittingHandler(self._workers, limits, open_tokens(otlp))
        self._receiver: Final = build_receiver(
            config.receivers.otlp, handler, lambda: self.readiness().ready
        )
        self._bound: Bound | None = None
        self._stop_requested = False
        self._diagnostics: Final = Diagnostics(self)
        self.admin: Final = AdminServices(config.telemetry, self)
        recent = build_recent_runs(config.ui)
        self.page: LivePage | None = None
        self._fetched: FetchedRuns | None = None
        if recent:
            self._fetched = FetchedRuns(recent, self._workers)
            self.page = LivePage(config.ui, recent, self)

    def why_no_span(self) -> str:
        """A possible reason why no span has arrived."""
        return why_no_span(self._receiver.counts(), self._bound)

    def why_no_score(self) -> Sequence[str]:
        """Why no run was evaluated, as a worker says it."""
        return self._fetched.why() if self._fetched else ()

    def unmatched_runs(self) -> UnmatchedRuns:
        """The runs of all workers that no evaluation matched although others did."""
        return self._fetched.unmatched_runs() if self._fetched else UnmatchedRuns()

    def fetch_runs(self) -> None:
        """Bring the held runs up to date."""
        if self._fetched:
            self._fetched.fetch()

    def readiness(self) -> Readiness:
        """Whether requests are accepted and every worker is ready."""
        if self._config.receivers.otlp and not self._receiver.is_open:
            return Readiness(False, "requests are not taken: the receiver starts or stops")
        return worst_readiness([(worker.number, worker.readiness) for worker in self._workers])

    def scores(self) -> list[Family]:
        """The metrics of results in every worker."""
        return joined_families(family for worker in self._workers for family in worker.scores())

    def note_stop(self) -> None:
        """End a start that is under way. Safe in a signal handler.

        Each worker records the stop when the front stops it.
        """
        self._stop_requested = True

    def start(self) -> Bound:
        """Start the workers, then listen, and return the addresses that were bound.

        Raises:
            ConfigError: an address cannot be bound, or a worker cannot start; every part is stopped
                then.
            StartCancelled: `note_stop` was called meanwhile.
        """
        atexit.register(self._disconnect)
        with starting(self.admin, self):
            if self._config.storage:
                claim_split(self._config.storage.directory, self._config.workers)
            for worker in self._workers:
                worker.start()
            self._await_workers()
            self._bound = self._receiver.start()
            if self.page:
                self.page.start(self._bound)
            return self._bound

    def _await_workers(self) -> None:
        while wait([worker.first_ready for worker in self._workers], _LOOK_S).not_done:
            if self._stop_requested:
                raise StartCancelled
        collect_errors([worker.await_ready for worker in self._workers])

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop accepting requests, then every worker; False if not everything was evaluated and
        delivered in time.
        """
        self._receiver.stop(min(2.0, timeout_s / 4))
        # each call is bounded by the timeouts in `SupervisedWorker.stop`
        with ThreadPoolExecutor(len(self._workers)) as pool:
            list(pool.map(lambda worker: worker.stop(0.7 * timeout_s), self._workers))
        if self.page:
            self.page.stop()
        self.admin.stop(max(0.2, min(2.0, timeout_s / 4)))
        atexit.unregister(self._disconnect)
        if self._bound is not None:  # otherwise the start failed
            self._diagnostics.end()
        return all(worker.finished for worker in self._workers)

    def _disconnect(self) -> None:
        """Let the workers stop by themselves if the interpreter ends without `stop`."""
        for worker in self._workers:
            worker.disconnect()

    def reload(self, config: EvalConfig) -> list[str]:
        """Use other evaluations in every worker, also for open traces, and return the changed keys
        that need a restart.

        Raises:
            ConfigError: the configuration is invalid; the running one is kept.
        """
        build_engine(config)  # raises before a worker is changed
        needs_restart = [
            key for key in NEEDS_RESTART if getattr(config, key) != getattr(self._config, key)
        ]
        config = config.model_copy(
            update={key: getattr(self._config, key) for key in NEEDS_RESTART}
        )
        refuse_unshared(config)
        for worker in self._workers:
            worker.reload(config_of_worker(config, worker.number))
        self._config = config
        return needs_restart

    def counts(self) -> dict[CountName, Any]:
        """The counters of every part, added up over the workers."""
        return total_counts(
            [
                self._receiver.counts(),
                self._receiver.not_after(),
                *(worker.counts() for worker in self._workers),
            ]
        )


def worst_readiness(workers: Sequence[tuple[int, Readiness]]) -> Readiness:
    """The readiness of the first worker that is not ready, else of the first that gives a reason to
    wait, else of the first.
    """
    number, worst = min(workers, key=lambda worker: (worker[1].ready, not worker[1].why))
    ready = sum(readiness.ready for _, readiness in workers)
    reason = f"worker {number}: {worst.why}" if worst.why else ""
    return Readiness(
        worst.ready, reason, {"workers_ready": f"{ready} of {len(workers)}", **worst.evaluation}
    )


_ID_FIELDS: Final = {Signal.TRACES: 1, Signal.LOGS: 9}
_ID_BYTES: Final = 8
# levels: 0 a scope with its spans or logs, 1 a resource with its scopes, 2 the request with its
# resources
_REQUEST: Final = 2
_MEMBERS: Final = (2, 2, 1)  # by level, the field number of the members

_native: Final = extension("_native")


def part_of(trace_id: bytes, count: int) -> int:
    """The index of the part that gets the spans of a trace: by the end of its id, where ids that
    are partly random are random.
    """
    return int.from_bytes(trace_id[-_ID_BYTES:]) % count


def split_request(body: bytes, signal: Signal, count: int) -> list[bytes]:
    """Split a request into `count` requests by trace id; b"" for a part without spans or logs.

    Args:
        body: a request of traces or logs in protobuf.
        signal: which of them.
        count: the number of parts.

    Raises:
        ValueError: the body is not valid protobuf.
    """
    parts: list[bytes] | None = (
        None if _native is None else _native.split(body, count, _ID_FIELDS[signal])
    )
    return split_request_python(body, signal, count) if parts is None else parts


def split_request_python(body: bytes, signal: Signal, count: int) -> list[bytes]:
    """`split_request` in Python, without the extension."""
    unsplit, parts = _split(body, 0, len(body), _REQUEST, _ID_FIELDS[signal], count)
    return [parts[0] + unsplit, *parts[1:]]


def _split(
    body: bytes, start: int, stop: int, level: int, id_field: int, count: int
) -> tuple[bytes, list[bytes]]:
    """The fields of a message that are not members, and the members of each part, as bytes."""
    unsplit: list[bytes] = []
    parts: list[list[bytes]] = [[] for _ in range(count)]
    for field in fields(body, start, stop):
        if field.number != _MEMBERS[level]:
            unsplit.append(body[field.start : field.stop])
        elif level:
            outer, members = _split(body, field.content, field.stop, level - 1, id_field, count)
            for number, each in enumerate(members):
                if each or (number == 0 and not any(members)):
                    parts[number].append(sized(_MEMBERS[level], outer + each))
        else:
            ids = [
                body[each.content : each.stop]
                for each in fields(body, field.content, field.stop)
                if each.number == id_field
            ]
            parts[part_of(ids[-1] if ids else b"", count)].append(body[field.start : field.stop])
    return b"".join(unsplit), [b"".join(each) for each in parts]


_REJECTED: Final = {Signal.TRACES: "rejected_spans", Signal.LOGS: "rejected_logs"}


class SplittingHandler(ExportHandler):
    """Splits requests by trace id for workers, which count the spans and logs.

    If one worker refuses its part, the client retries the whole request, and the others get their
    parts a second time: they recognise duplicate spans by their ids.

    Args:
        workers: the workers; the spans of a trace always go to the same one.
        limits: the limits for clients.
        tokens: bearer tokens, of which every request needs one; None: every client is accepted.
    """

    def __init__(
        self,
        workers: Sequence[SupervisedWorker],
        limits: ReceiverLimits,
        tokens: BearerTokens | None = None,
    ) -> None:
        super().__init__(limits, tokens)
        self._workers: Final = workers

    def _reserve(
        self, signal: Signal, encoding: Encoding, body: bytes, reservation: Reservation
    ) -> None:
        """Reserve memory for the parts, which have the size of the request; workers reserve what
        decoding takes.
        """
        reservation.grow(json_decoded_size(body) if encoding is Encoding.JSON else len(body))

    def _process(
        self, transport: str, signal: Signal, request: Rewritten, reservation: Reservation
    ) -> ExportResponse:
        body, rejected, reason = request
        answers = self._send(
            transport, signal, [body] if signal is Signal.METRICS else self._split(signal, body)
        )
        if rejected:
            self.count(transport, **{_REJECTED[signal]: rejected})
            answers.append(
                ExportResponse(
                    ExportStatus.ACCEPTED, f"{rejected} rejected, the first: {reason}", rejected
                )
            )
        return _merged(answers)

    def _split(self, signal: Signal, body: bytes) -> list[bytes]:
        try:
            return split_request(body, signal, len(self._workers))
        except ValueError:
            raise InputError(
                f"not OTLP {signal} in protobuf: the bytes are corrupt or cut"
            ) from None

    def _send(self, transport: str, signal: Signal, parts: Sequence[bytes]) -> list[ExportResponse]:
        """Send every part, then wait for every response; raises as `take` does if a worker refuses
        its part.
        """
        parts_to_send = [
            (worker, body) for worker, body in zip(self._workers, parts, strict=False) if body
        ]
        calls = [
            partial(worker.begin_part, transport, signal, body)
            for worker, body in parts_to_send or [(self._workers[0], b"")]
        ]
        under_way, refused = _call_all(calls)
        answers, refused_later = _call_all(under_way)
        if refusals := refused + refused_later:
            final_refusals = [
                refusal for refusal in refusals if not isinstance(refusal, Overloaded)
            ]
            raise (final_refusals or refusals)[0]
        return answers


def _call_all(calls: Iterable[Callable[[], T]]) -> tuple[list[T], list[Exception]]:
    """The results of the functions that returned, and the exceptions of the others."""
    results, refusals = [], []
    for call in calls:
        try:
            results.append(call())
        except Exception as error:  # noqa: BLE001 - raised after every worker has responded
            refusals.append(error)
    return results, refusals


def _merged(answers: Sequence[ExportResponse]) -> ExportResponse:
    """One response from those of several workers: rejected items are added up, and the first
    message is used.
    """
    message = next((answer.message for answer in answers if answer.message), "")
    return ExportResponse(
        ExportStatus.ACCEPTED, message, sum(answer.rejected for answer in answers)
    )
