"""What becomes of an export that failed: counted, said in one line, and no more of a signal that an endpoint does not take.

The official exporters report only that an export failed and log the rest themselves, at length and each time. So their
lines are kept back while we export, and after a failure the endpoint is asked once with an empty request, whose status
tells whether it knows the signal at all.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Final

from opentelemetry.sdk.metrics.export import MetricExporter, MetricExportResult

from otel_eval.sinks.endpoint import Endpoint, grpc_credentials, is_secure, url_of
from otel_eval.sinks.tally import Counters, Outage, Warnings, renew_after_fork
from otel_eval.telling import redacted

__all__ = ["Ledger", "WatchedExporter", "WatchedMetricExporter", "silenced"]

_PROBE_S: Final = 2.0
_UNKNOWN_SIGNAL: Final = frozenset({404, 405, 501, "UNIMPLEMENTED"})
_SERVICES: Final = {"logs": ("logs", "Logs"), "metrics": ("metrics", "Metrics"), "spans": ("trace", "Trace")}

_quiet = threading.local()
_filtered: set[str] = set()


class _Silence(logging.Filter):
    """Drops records of a thread that exports for us; other exporters of the process are heard as before."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not getattr(_quiet, "on", False)


@contextmanager
def silenced(exporter: Any) -> Iterator[None]:
    """The exporter's own logging is kept back on this thread."""
    for kind in type(exporter).__mro__:
        _filter(kind.__module__)
    _quiet.on = True
    try:
        yield
    finally:
        _quiet.on = False


def _filter(module: str) -> None:
    if module in _filtered or not module.startswith("opentelemetry.exporter"):
        return
    _filtered.add(module)
    logging.getLogger(module).addFilter(_Silence())


class Ledger:
    """What one sink's exports came to: counts, and one log line when exports fail and when they work again.

    Counts `results.emitted`, `results.failed` and `results.refused` (its queue was full) by sink, for metrics
    `exports.sent` and `exports.failed`; `exports.outages` and `exports.recovered`.

    Attributes:
        sink: its name in counters and warnings.
        refused: the endpoint does not take this signal; nothing more is sent.
        failures: exports that failed so far.
    """

    def __init__(
        self, sink: str, signal: str, to: Endpoint, counters: Counters, warnings: Warnings, most_queued: int = sys.maxsize
    ) -> None:
        self.sink: Final = sink
        self.refused = False
        self.failures = 0
        self._signal, self._to, self._counters, self._warnings = signal, to, counters, warnings
        self._outage: Final = Outage(sink, counters)
        self._most_queued: Final = most_queued
        self._lock = threading.Lock()  # guards _queued and _process
        renew_after_fork(self)
        self._queued, self._process = 0, os.getpid()

    @property
    def queued(self) -> int:
        """Results that were queued and neither sent nor lost yet."""
        with self._lock:
            return self._queued if self._process == os.getpid() else 0

    def admit(self, results: int) -> bool:
        """Whether so many results may be queued; where the queue is full they are counted, since the SDK drops silently."""
        if self._signal == "metrics":  # sums, which wait for nothing
            return not self.refused
        with self._lock:
            if self._process != os.getpid():  # a child's queue begins empty
                self._queued, self._process = 0, os.getpid()
            admitted = not self.refused and self._queued + results <= self._most_queued
            self._queued += results if admitted else 0
        if self.refused:
            self._count("failed", results)
        elif not admitted:
            self._count("refused", results)
            self._warnings.say(f"{self.sink} full", "%d results were dropped: the queue of %s is full", results, self.sink)
        return admitted

    def _done(self, results: int) -> None:
        with self._lock:
            self._queued = max(0, self._queued - results)

    def _count(self, what: str, items: int) -> None:
        kind = "exports" if self._signal == "metrics" else "results"
        self._counters.add(f"{kind}.{what}", items, sink=self.sink)

    def unsent(self, lost: int) -> None:
        """Count what was not sent."""
        self._done(lost)
        self._count("failed", lost)

    def sent(self, items: int) -> None:
        """An export was accepted."""
        self._done(items)
        self._count("sent" if self._signal == "metrics" else "emitted", items)
        self._outage.over(self.queued)

    def failed(self, lost: int, why: str = "") -> None:
        """An export failed for good and `lost` items with it."""
        self.failures += 1
        self.unsent(lost)
        self._outage.began()
        status, place = why or _probe(self._to, self._signal), redacted(self._to.endpoint)
        if status in _UNKNOWN_SIGNAL:
            self.refused = True
            self._warnings.once(self.sink, "%s takes no %s (%s); none are sent from now on", place, self._signal, status)
        else:
            status = status or "failed"
            self._warnings.say(self.sink, "scores could not be sent as %s to %s (%s)", self._signal, place, status)


def _results_in(item: Any) -> int:
    """How many results a log record (one) or a span (one for each event) carries."""
    events = getattr(item, "events", None)
    return 1 if events is None else len(events) + item.dropped_events


class WatchedExporter:
    """An exporter of spans or log records whose failures go to the ledger."""

    def __init__(self, inner: Any, ledger: Ledger) -> None:
        self._inner, self._ledger = inner, ledger

    def export(self, batch: Sequence[Any]) -> Any:
        """Export, unless the endpoint refused the signal."""
        results = sum(map(_results_in, batch))
        if self._ledger.refused:
            self._ledger.unsent(results)
            return None
        result, why = _export(self._inner, batch)
        if why or getattr(result, "name", "") != "SUCCESS":
            self._ledger.failed(results, why)
        else:
            self._ledger.sent(results)
        return result

    def force_flush(self, timeout_millis: int = 10_000) -> bool:
        """Nothing is held here."""
        return True

    def shutdown(self) -> None:
        """End the exporter."""
        with silenced(self._inner):
            self._inner.shutdown()


class WatchedMetricExporter(MetricExporter):
    """The same for metrics, whose exporter also says how points are to be aggregated."""

    def __init__(self, inner: Any, ledger: Ledger) -> None:
        temporality, aggregation = (getattr(inner, f"_preferred_{what}", None) for what in ("temporality", "aggregation"))
        super().__init__(preferred_temporality=temporality, preferred_aggregation=aggregation)
        self._inner, self._ledger = inner, ledger

    def export(self, metrics_data: Any, timeout_millis: float = 10_000, **kwargs: Any) -> MetricExportResult:
        """Export, unless the endpoint refused the signal."""
        if self._ledger.refused:
            return MetricExportResult.SUCCESS
        result, why = _export(self._inner, metrics_data)
        if why or result is not MetricExportResult.SUCCESS:
            self._ledger.failed(1, why)
            return MetricExportResult.FAILURE
        self._ledger.sent(1)
        return MetricExportResult.SUCCESS

    def force_flush(self, timeout_millis: float = 10_000) -> bool:
        """Nothing is held here."""
        return True

    def shutdown(self, timeout_millis: float = 30_000, **kwargs: Any) -> None:
        """End the exporter."""
        with silenced(self._inner):
            self._inner.shutdown()


def _export(exporter: Any, data: Any) -> tuple[Any, str]:
    with silenced(exporter):
        try:
            return exporter.export(data), ""
        except Exception as error:  # noqa: BLE001 - an exporter must not end the thread that batches
            return None, type(error).__name__


def _probe(to: Endpoint, signal: str) -> Any:
    """The status of an empty export: gRPC's name or HTTP's number, or a word if there was none."""
    try:
        return _probe_grpc(to, signal) if to.protocol == "grpc" else _probe_http(to, signal)
    except Exception as error:  # noqa: BLE001 - a question may fail like what it asks about
        return type(error).__name__


def _probe_grpc(to: Endpoint, signal: str) -> str:
    import grpc

    package, service = _SERVICES[signal]
    base = f"opentelemetry.proto.collector.{package}.v1.{package}_service_pb2"
    stub, request = getattr(import_module(f"{base}_grpc"), f"{service}ServiceStub"), import_module(base)
    target = to.endpoint.split("://", 1)[-1].split("/", 1)[0]
    channel = grpc.secure_channel(target, grpc_credentials(to)) if is_secure(to) else grpc.insecure_channel(target)
    with channel:
        metadata = tuple((key.lower(), value) for key, value in to.headers.items())
        try:
            stub(channel).Export(getattr(request, f"Export{service}ServiceRequest")(), metadata=metadata, timeout=_PROBE_S)
        except grpc.RpcError as error:
            return str(error.code().name)
    return ""


def _probe_http(to: Endpoint, signal: str) -> int:
    import requests

    cert, key, ca = (each.path if each else None for each in (to.tls.cert, to.tls.key, to.tls.ca))
    certificate: Any = (cert, key) if cert and key else cert
    headers = {"Content-Type": "application/x-protobuf"} | dict(to.headers)
    answer = requests.post(url_of(to, signal), data=b"", headers=headers, timeout=_PROBE_S, cert=certificate, verify=ca or True)
    return int(answer.status_code)
