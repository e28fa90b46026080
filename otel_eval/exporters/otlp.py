"""Export results over OTLP: log events and spans through a queue for each signal."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_eval.counters import Counters
from otel_eval.errors import ConfigError, redacted
from otel_eval.exporters import Exporter
from otel_eval.exporters import attributes as names
from otel_eval.exporters.events import LogEventExporter, ReportIds, SpanExporter
from otel_eval.exporters.export_queue import queue_of
from otel_eval.exporters.otlp_metrics import METRICS_INTERVAL_S, OtlpMetricsExporter, SdkMetricExporter, own_resource
from otel_eval.model import Report
from otel_eval.otlp.client import OtlpClient
from otel_eval.otlp.endpoint import SIGNALS, Endpoint, for_signal
from otel_eval.otlp.schema import encode_attributes
from otel_eval.retry import ExportResult, RetryPolicy

if TYPE_CHECKING:
    from otel_eval.exporters.jsonl import DeadLetterFile
    from otel_eval.exporters.window import WindowLimits

__all__ = ["OtlpSignalExporter", "RequestEncoder", "otlp_exporters"]


class _Collected(SpanProcessor):
    """A processor that keeps what passes, for spans and for log records."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def on_end(self, span: Any) -> None:
        """Keep a span."""
        self.items.append(span)

    on_emit = emit = on_end  # log records: by the names of newer and older SDKs

    def take(self) -> list[Any]:
        """What passed since the last time."""
        taken, self.items = self.items, []
        return taken


class RequestEncoder:
    """Reports as OTLP requests: the SDK makes the records and the official exporter's encoder the request.

    What is exported of a run has the run's resource.

    Args:
        signal: logs or spans.
    """

    def __init__(self, signal: str) -> None:
        self._maker: Final = _MAKERS[signal]
        self._groups: Final = (f"resource_{signal}", f"scope_{signal}")
        self._begin()

    def _begin(self) -> None:
        """Make what makes records: at the start, and in a forked child, whose parent may have held a lock of it."""
        self._process = os.getpid()
        self._collected = _Collected()
        self._events, self._encode = self._maker(self._collected)

    def encode(self, batch: Sequence[Report]) -> bytes:
        """One request with the results of the batch."""
        if self._process != os.getpid():
            self._begin()
        # Repeated fields of a message may be continued: the requests one after the other are one request.
        return b"".join([self._request(*group) for group in _by_resource(batch).items()])

    def _request(self, resource: bytes, reports: Sequence[Report]) -> bytes:
        """A request of reports of one resource, in the place of the provider's."""
        self._events.export(reports)
        request = self._encode(self._collected.take())
        resources, scopes = self._groups
        for group in getattr(request, resources):
            group.resource.ParseFromString(resource)
            for scope in getattr(group, scopes):
                scope.schema_url = names.SCHEMA_URL  # the encoders of older SDKs leave it out
        body: bytes = request.SerializeToString()
        return body


class OtlpSignalExporter(Exporter):
    """Requests to one signal of an OTLP endpoint.

    They are sent by ourselves, because the official exporter tells neither why an endpoint refused, nor what it rejected, nor
    when to retry.

    Args:
        to: the endpoint, as `for_signal` returns it.
        signal: logs or spans.
        name: the endpoint's.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    def __init__(self, to: Endpoint, signal: str, name: str = "otlp") -> None:
        self.name = f"{name}.{signal}"
        self._encoder: Final = RequestEncoder(signal)
        self._client: Final = OtlpClient(to, "traces" if signal == "spans" else signal)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Send the batch as one request."""
        return self._client.send(self._encoder.encode(batch))

    def close(self, timeout_s: float) -> None:
        """End the connection."""
        self._client.close()


def _by_resource(batch: Sequence[Report]) -> dict[bytes, list[Report]]:
    """The reports by the OTLP message of their run's resource; where that is not known, of our own."""
    encoded: dict[int, bytes] = {}  # runs share the objects, and equal resources of several scopes are several objects
    groups: dict[bytes, list[Report]] = {}
    for report in batch:
        resource = report.trajectory.resource
        message = encoded.get(id(resource))
        if message is None:
            message = encoded[id(resource)] = encode_attributes(1, resource or own_resource().attributes)
        groups.setdefault(message, []).append(report)
    return groups


_Made = tuple[Exporter, Callable[[Sequence[Any]], Any]]


def _logs(collected: Any) -> _Made:
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

    provider = LoggerProvider(resource=Resource.get_empty(), shutdown_on_exit=False)
    provider.add_log_record_processor(collected)
    return LogEventExporter(provider), encode_logs


def _spans(collected: Any) -> _Made:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    ids = ReportIds()
    provider = TracerProvider(resource=Resource.get_empty(), sampler=ALWAYS_ON, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(collected)
    return SpanExporter(provider.get_tracer(*names.INSTRUMENTATION_SCOPE), ids=ids), encode_spans


_MAKERS: Final[dict[str, Callable[[Any], _Made]]] = {"logs": _logs, "spans": _spans}


_DEFAULT: Final = RetryPolicy()


def otlp_exporters(
    to: Endpoint,
    signals: Collection[str] = SIGNALS,
    *,
    name: str = "otlp",
    counters: Counters | None = None,
    metrics_interval_s: float = METRICS_INTERVAL_S,
    window: WindowLimits | None = None,
    problems: set[str] | None = None,
    dead_letters: Callable[[], DeadLetterFile | None] = lambda: None,
    retry: RetryPolicy = _DEFAULT,
    room_s: float = 0.0,
) -> list[Exporter]:
    """One exporter per signal.

    Events and spans have the resource of the run; metrics have `service.name` otel-eval and what OTEL_RESOURCE_ATTRIBUTES and
    OTEL_SERVICE_NAME contain.

    Args:
        name: the endpoint's, in counters and warnings.
        problems: as `for_signal`.
        dead_letters: opens what takes results that are refused permanently, for each signal; None: they are counted.
        retry: how long to wait between attempts.
        room_s: how long a full queue makes the program wait before results are dropped.

    Raises:
        ConfigError: a signal, the protocol or the endpoint cannot be used.
    """
    unknown = sorted(set(signals) - set(SIGNALS))
    if unknown:
        raise ConfigError(f"exporters.otlp.signals: {unknown[0]!r} is not a signal; choose from logs, metrics, spans")
    if "://" not in to.endpoint:
        place = redacted(to.endpoint)
        raise ConfigError(f"exporters.otlp.endpoint: {place!r} has no scheme; write e.g. 'http://{place}'")
    counted = counters if counters is not None else Counters()
    return [
        OtlpMetricsExporter(
            [SdkMetricExporter(at, counted, f"{name}.metrics", retry)], window, interval_s=metrics_interval_s, counters=counted
        )
        if signal == "metrics"
        else queue_of(OtlpSignalExporter(at, signal, name), counted, dead_letters(), retry, room_s)
        for signal in SIGNALS
        if signal in signals
        for at in [for_signal(to, signal, problems)]
    ]
