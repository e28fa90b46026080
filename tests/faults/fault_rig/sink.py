"""Somebody to send scores to: an OTLP endpoint for log events that can be down, slow, or of another opinion.

Knows `gen_ai.evaluation.result` events as docs/signals.md has them.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Self

import grpc
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from fault_rig.service import free_port

__all__ = ["Sink"]

SERVICE: Final = "opentelemetry.proto.collector.logs.v1.LogsService"
KEYS: Final = {
    "gen_ai.evaluation.name": "scorer",
    "gen_ai.evaluation.score.value": "value",
    "otel_eval.evaluation": "evaluation",
    "otel_eval.outcome": "outcome",
    "otel_eval.revision": "revision",
    "otel_eval.result_id": "result_id",
}


class Sink:
    """A server on a port that stays the same.

    Attributes:
        trouble: "" takes everything; "slow" takes its time; the name of a status refuses with it.
        refused: events that were refused.
    """

    def __init__(self) -> None:
        self.endpoint = f"http://127.0.0.1:{free_port()}"
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
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(SERVICE, {"Export": export})])
        self._server.add_insecure_port(self.endpoint.removeprefix("http://"))
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
        rows = [_row(record) for record in _records(ExportLogsServiceRequest.FromString(data))]
        if self.trouble == "slow":
            time.sleep(0.5)
        elif self.trouble:
            with self._lock:
                self.refused += len(rows)
            context.abort(getattr(grpc.StatusCode, self.trouble), "not now")
        with self._lock:
            self._rows += rows
        return b""


def _records(request: Any) -> list[Any]:
    return [record for group in request.resource_logs for scope in group.scope_logs for record in scope.log_records]


def _row(record: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"trace_id": record.trace_id.hex(), "value": None, "revision": 0}
    for attribute in record.attributes:
        if attribute.key in KEYS:
            row[KEYS[attribute.key]] = getattr(attribute.value, attribute.value.WhichOneof("value"))
    return row
