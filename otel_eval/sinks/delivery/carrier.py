"""What carries results: how they are written, one attempt to hand them over, and what the answer was.

Knows OTLP requests and lines of a file; waits for nothing and tries nothing twice.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence, Set
from typing import Any, Final, Protocol

from otel_eval.model import Report
from otel_eval.sinks.client import OtlpClient
from otel_eval.sinks.endpoint import Endpoint
from otel_eval.sinks.jsonl import JsonLinesSink, encoded, lines_of, rows_of
from otel_eval.sinks.responses import ExportResult

__all__ = ["Carrier", "JsonLinesCarrier", "OtlpCarrier"]


class Carrier(Protocol):
    """A way out."""

    @property
    def name(self) -> str:
        """What counters and warnings call it."""
        ...

    @property
    def lines(self) -> bool:
        """Whether traces without a result are written too."""
        ...

    def written(self, reports: Sequence[Report]) -> bytes:
        """The reports as they are sent."""
        ...

    def attempt(self, written: bytes) -> ExportResult:
        """Hand them over."""
        ...

    def missing(self, reports: Sequence[Report]) -> list[Report]:
        """Those of the reports that were perhaps handed over before a crash and cannot be found there."""
        ...

    def expect_repeats(self) -> None:
        """The journal was damaged: results that were handed over before may be made again."""
        ...

    def close(self) -> None:
        """End."""
        ...


class JsonLinesCarrier:
    """Lines at the end of a file, or of standard output.

    Args:
        sink: the file.
        sync: whether lines are handed over when they are on the disk.
    """

    lines: Final = True

    def __init__(self, sink: JsonLinesSink, *, sync: bool = False) -> None:
        self.name: Final = sink.name
        self._sink, self._sync = sink, sync
        self._before: Set[str] = frozenset()  # results of an earlier life that may be made again

    def written(self, reports: Sequence[Report]) -> bytes:
        """One line per result, but for those that were written before the journal was damaged."""
        if not self._before:
            return b"".join(map(lines_of, reports))
        return encoded(row for report in reports for row in rows_of(report) if row["result_id"] not in self._before)

    def expect_repeats(self) -> None:
        """Remember what stands at the end of the file, some 100 bytes for each result; the same ids are not written again."""
        self._before = self._sink.written_ids()

    def attempt(self, written: bytes) -> ExportResult:
        """Append all of it, or leave the file as it was."""
        try:
            self._sink.write(written)
            if self._sync:
                self._sink.sync()
        except OSError as error:
            return ExportResult("retryable", error.strerror or type(error).__name__)
        return ExportResult("ok")

    def missing(self, reports: Sequence[Report]) -> list[Report]:
        """Those whose results do not stand at the end of the file."""
        ids = {id(report): {row["result_id"] for row in rows_of(report)} for report in reports}
        there = self._sink.there(set().union(*ids.values()))
        return [report for report in reports if ids[id(report)].isdisjoint(there)]

    def close(self) -> None:
        """Close the file."""
        self._sink.close(0.0)


class _Collected:
    """A processor that keeps what passes, for spans and for log records."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def on_start(self, *_: Any, **__: Any) -> None:
        """Nothing yet."""

    def on_emit(self, item: Any) -> None:
        """Keep a log record."""
        self.items.append(item)

    emit = on_end = on_emit  # the name that older SDKs use; the one for spans

    def _on_ending(self, *_: Any) -> None:
        """Nothing; the SDK calls it before `on_end`."""

    def shutdown(self, *_: Any, **__: Any) -> None:
        """Nothing is held."""

    def force_flush(self, *_: Any, **__: Any) -> bool:
        """Nothing is held."""
        return True

    def take(self) -> list[Any]:
        """What passed since the last time."""
        taken, self.items = self.items, []
        return taken


class OtlpCarrier:
    """Requests to one signal of an OTLP endpoint.

    The SDK makes the records and the official exporter's encoder the request. It is sent by ourselves, because the
    exporter tells neither why an endpoint refused, nor what it rejected, nor when to come again.

    Args:
        to: the endpoint, as `for_signal` returns it.
        signal: logs or spans.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    lines: Final = False

    def __init__(self, to: Endpoint, signal: str) -> None:
        self.name: Final = f"otlp.{signal}"
        self._maker: Final = _MAKERS[signal]
        self._client: Final = OtlpClient(to, "traces" if signal == "spans" else signal)
        self._begin()

    def _begin(self) -> None:
        """Make what makes records: at the start, and in a forked child, whose parent may have held a lock of it."""
        self._process = os.getpid()
        self._collected = _Collected()
        self._emit, self._encode = self._maker(self._collected)

    def written(self, reports: Sequence[Report]) -> bytes:
        """One request with all of them."""
        if self._process != os.getpid():
            self._begin()
        for report in reports:
            self._emit(report)
        made: bytes = self._encode(self._collected.take()).SerializeToString()
        return made

    def attempt(self, written: bytes) -> ExportResult:
        """Send the request."""
        return self._client.send(written)

    def missing(self, reports: Sequence[Report]) -> list[Report]:
        """All: an endpoint cannot be asked. It knows them by their result ids."""
        return list(reports)

    def expect_repeats(self) -> None:
        """Nothing: an endpoint knows results by their ids."""

    def close(self) -> None:
        """End the connection."""
        self._client.close()


_Made = tuple[Callable[[Report], None], Callable[[Sequence[Any]], Any]]


def _logs(collected: Any) -> _Made:
    from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
    from opentelemetry.sdk._logs import LoggerProvider

    from otel_eval.sinks.log_events import LogEventSink
    from otel_eval.sinks.resource import own_resource

    provider = LoggerProvider(resource=own_resource(), shutdown_on_exit=False)
    provider.add_log_record_processor(collected)
    return LogEventSink(provider).emit, encode_logs


def _spans(collected: Any) -> _Made:
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.sampling import ALWAYS_ON

    from otel_eval.sinks import attributes as names
    from otel_eval.sinks.resource import own_resource
    from otel_eval.sinks.span_events import ReportIds, SpanSink

    ids = ReportIds()
    provider = TracerProvider(resource=own_resource(), sampler=ALWAYS_ON, id_generator=ids, shutdown_on_exit=False)
    provider.add_span_processor(collected)
    return SpanSink(provider.get_tracer(names.SCOPE), ids=ids).emit, encode_spans


_MAKERS: Final[dict[str, Callable[[Any], _Made]]] = {"logs": _logs, "spans": _spans}
