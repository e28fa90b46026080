"""An OTLP endpoint for log events or spans that can be down, slow, or refuse what it gets.

Knows `gen_ai.evaluation.result` events as docs/reference/signals.md has them.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.faults.fault_rig.service import free_port
from tests.support import failing_endpoint

__all__ = ["Backend", "Endpoint", "HttpEndpoint"]

KEYS: Final = {
    "gen_ai.evaluation.name": "scorer",
    "gen_ai.evaluation.score.value": "value",
    "otel_eval.evaluation": "evaluation",
    "otel_eval.outcome": "outcome",
    "otel_eval.revision": "revision",
    "otel_eval.result_id": "result_id",
}


class Endpoint:
    """A server on a port that stays the same.

    Attributes:
        trouble: "" takes everything; "slow" takes its time; the name of a status refuses with it.
        refused: events that were refused.
    """

    service = "opentelemetry.proto.collector.logs.v1.LogsService"

    def __init__(self) -> None:
        self.url = f"http://127.0.0.1:{free_port()}"
        self.trouble = ""
        self.refused = 0
        self._lock = threading.Lock()  # guards _rows and refused
        self._rows: list[dict[str, Any]] = []
        self._server: grpc.Server | None = None

    def rows(self) -> list[dict[str, Any]]:
        """What it took."""
        with self._lock:
            return list(self._rows)

    def up(self) -> Self:
        """Listen."""
        export = grpc.unary_unary_rpc_method_handler(self._export)
        self._server = grpc.server(ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0)])
        self._server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(self.service, {"Export": export})]
        )
        self._server.add_insecure_port(self.url.removeprefix("http://"))
        self._server.start()
        return self

    def down(self) -> None:
        """Be gone."""
        if self._server is not None:
            self._server.stop(0).wait(5)
        self._server = None

    def __enter__(self) -> Self:
        return self.up()

    def __exit__(self, *_: object) -> None:
        self.down()

    def _export(self, data: bytes, context: Any) -> bytes:
        rows = self.read(data)
        if self.trouble == "slow":
            time.sleep(0.5)
        elif self.trouble:
            with self._lock:
                self.refused += len(rows)
            context.abort(getattr(grpc.StatusCode, self.trouble), "not now")
        with self._lock:
            self._rows += rows
        return b""

    def read(self, data: bytes) -> list[dict[str, Any]]:
        """The results in a request."""
        return _events(data)


class HttpEndpoint(failing_endpoint.Endpoint):
    """A server over HTTP, which may answer with something that is not an endpoint's."""

    def __init__(self) -> None:
        super().__init__("http/protobuf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def rows(self) -> list[dict[str, Any]]:
        """What it took."""
        return [row for body in list(self.bodies) for row in _events(body)]


class Backend(Endpoint):
    """Takes the spans that are passed on; its rows are the scores on them, and one with a span id
    for each span.
    """

    service = "opentelemetry.proto.collector.trace.v1.TraceService"

    def read(self, data: bytes) -> list[dict[str, Any]]:
        """The spans in a request, and the results on them."""
        groups = ExportTraceServiceRequest.FromString(data).resource_spans
        spans = [span for group in groups for scope in group.scope_spans for span in scope.spans]
        rows = [
            {"trace_id": span.trace_id.hex(), "span_id": span.span_id.hex(), "evaluation": ""}
            for span in spans
        ]
        return rows + [_row(span.trace_id, event) for span in spans for event in span.events]


def _events(data: bytes) -> list[dict[str, Any]]:
    groups = ExportLogsServiceRequest.FromString(data).resource_logs
    records = [
        record for group in groups for scope in group.scope_logs for record in scope.log_records
    ]
    return [_row(record.trace_id, record) for record in records]


def _row(trace_id: bytes, record: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"trace_id": trace_id.hex(), "value": None, "revision": 0}
    for attribute in record.attributes:
        if attribute.key in KEYS:
            row[KEYS[attribute.key]] = getattr(attribute.value, attribute.value.WhichOneof("value"))
    return row
