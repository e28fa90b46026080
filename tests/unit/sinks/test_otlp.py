"""OTLP out: real exporters against real servers on loopback."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.sdk.version import __version__

from otel_eval.errors import ConfigError
from otel_eval.model import Report
from otel_eval.sinks.endpoint import Endpoint
from otel_eval.sinks.otlp import otlp_sinks
from otel_eval.sinks.refusal import Ledger
from otel_eval.sinks.tally import Tally, Warnings
from otel_eval.tls import ClientTls, PemFile

Reports = Callable[..., Report]
SDK = tuple(int(part) for part in __version__.split(".")[:2])

REQUESTS = {
    "/v1/logs": logs_service_pb2.ExportLogsServiceRequest,
    "/v1/metrics": metrics_service_pb2.ExportMetricsServiceRequest,
    "/v1/traces": trace_service_pb2.ExportTraceServiceRequest,
}


class Backend:
    """Takes what it knows over gRPC and remembers requests with their headers."""

    def __init__(self, signals: tuple[str, ...], port: int = 0) -> None:
        self.got: dict[str, list[Any]] = {"logs": [], "metrics": [], "spans": []}
        self.headers: dict[str, str] = {}
        self.server = grpc.server(ThreadPoolExecutor(2))
        for signal, add, servicer, response in (
            ("logs", logs_service_pb2_grpc.add_LogsServiceServicer_to_server, logs_service_pb2_grpc.LogsServiceServicer,
             logs_service_pb2.ExportLogsServiceResponse),
            ("metrics", metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
             metrics_service_pb2_grpc.MetricsServiceServicer, metrics_service_pb2.ExportMetricsServiceResponse),
            ("spans", trace_service_pb2_grpc.add_TraceServiceServicer_to_server, trace_service_pb2_grpc.TraceServiceServicer,
             trace_service_pb2.ExportTraceServiceResponse),
        ):  # fmt: skip
            if signal in signals:
                add(self._taking(servicer, signal, response), self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")
        self.server.start()

    def _taking(self, servicer: type, signal: str, response: type) -> Any:
        backend = self

        class Taking(servicer):  # type: ignore[misc]
            def Export(self, request: Any, context: Any) -> Any:
                backend.got[signal].append(request)
                backend.headers |= dict(context.invocation_metadata())
                return response()

        return Taking()


@contextmanager
def grpc_backend(*signals: str, port: int = 0) -> Iterator[Backend]:
    backend = Backend(signals, port)
    try:
        yield backend
    finally:
        backend.server.stop(0).wait(5)


@contextmanager
def http_backend(*paths: str) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    got: dict[str, list[Any]] = {path: [] for path in REQUESTS}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got[self.path].append(REQUESTS[self.path].FromString(body))
            self.send_response(200 if self.path in paths else 404)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", got
    finally:
        server.shutdown()
        thread.join(5)
        server.server_close()


def event_name(record: Any) -> str:
    """Its own field, or the attribute that SDKs before 1.35 use."""
    named = {pair.key: pair.value.string_value for pair in record.attributes}
    return getattr(record, "event_name", "") or named["event.name"]


def send(sinks: list[Any], *reports: Report) -> list[bool]:
    for sink in sinks:
        for report in reports:
            sink.emit(report)
    return [sink.flush(5.0) for sink in sinks]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def close(sinks: list[Any]) -> None:
    for sink in sinks:
        sink.close(5.0)


def test_all_three_signals_arrive_over_grpc(report: Reports, monkeypatch: pytest.MonkeyPatch):
    """With our service name, the environment's resource attributes, the headers, in the run's trace."""
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with grpc_backend("logs", "metrics", "spans") as backend:
        to = Endpoint(endpoint=f"http://127.0.0.1:{backend.port}", headers={"X-Key": "k"}, compression="gzip")
        sinks = otlp_sinks(to)
        assert send(sinks, report("scored")) == [True, True, True]
        close(sinks)
    resource = backend.got["logs"][0].resource_logs[0].resource
    (record,) = backend.got["logs"][0].resource_logs[0].scope_logs[0].log_records
    (span,) = backend.got["spans"][0].resource_spans[0].scope_spans[0].spans
    names = {metric.name for metric in backend.got["metrics"][0].resource_metrics[0].scope_metrics[0].metrics}
    told = {pair.key: pair.value.string_value for pair in resource.attributes}
    assert (told["service.name"], told["deployment.environment.name"]) == ("otel-eval", "test")
    assert event_name(record) == "gen_ai.evaluation.result"
    assert (record.trace_id, record.flags) == (span.trace_id, 1)
    assert span.parent_span_id == record.span_id
    assert "gen_ai.evaluation.score" in names
    assert backend.headers["x-key"] == "k"


def test_all_three_signals_arrive_over_http(report: Reports):
    """At the endpoint's usual paths."""
    with http_backend(*REQUESTS) as (url, got):
        sinks = otlp_sinks(Endpoint(endpoint=url, protocol="http/protobuf"))
        assert send(sinks, report("scored")) == [True, True, True]
        close(sinks)
    assert event_name(got["/v1/logs"][0].resource_logs[0].scope_logs[0].log_records[0]) == "gen_ai.evaluation.result"
    assert got["/v1/traces"][0].resource_spans[0].scope_spans[0].spans[0].name == "evaluate policy"
    assert got["/v1/metrics"]


def test_a_signal_that_grpc_does_not_implement_is_dropped_with_one_warning(report: Reports, caplog: pytest.LogCaptureFixture):
    """The others go on; the exporter's own lines are kept back."""
    tally = Tally()
    with grpc_backend("spans") as backend:
        sinks = otlp_sinks(Endpoint(endpoint=f"http://127.0.0.1:{backend.port}"), ("logs", "spans"), counters=tally)
        assert send(sinks, report("scored", "failed")) == [False, True]
        assert send(sinks, report("scored")) == [True, True]
        close(sinks)
    assert [(line.name, line.getMessage().split(" ", 1)[1]) for line in caplog.records] == [
        ("otel_eval", "takes no logs (UNIMPLEMENTED); none are sent from now on")
    ]
    assert tally.snapshot() == {
        "exports.outages{sink=otlp.logs}": 1,
        "results.emitted{sink=otlp.spans}": 3,
        "results.failed{sink=otlp.logs}": 3,  # also what came after the signal was refused
    }
    assert len(backend.got["spans"]) == 2


def test_a_path_that_http_does_not_know_is_dropped_with_one_warning(report: Reports, caplog: pytest.LogCaptureFixture):
    """One export, one question, and nothing more."""
    with http_backend("/v1/traces") as (url, got):
        sinks = otlp_sinks(Endpoint(endpoint=url, protocol="http/protobuf"), ("logs", "spans"))
        send(sinks, report("scored"))
        send(sinks, report("scored"))
        close(sinks)
    assert [line.getMessage().split(" ", 1)[1] for line in caplog.records] == ["takes no logs (404); none are sent from now on"]
    assert (len(got["/v1/logs"]), len(got["/v1/traces"])) == (2, 2)


@pytest.mark.skipif(SDK < (1, 37), reason="exporters of that time try for a minute, whatever the timeout")
def test_an_endpoint_that_is_down_costs_counted_results_and_one_line(report: Reports, caplog: pytest.LogCaptureFixture):
    """And is tried again."""
    tally = Tally()
    sinks = otlp_sinks(Endpoint(endpoint="http://127.0.0.1:9", timeout_s=0.2), ("logs",), counters=tally)
    assert send(sinks, report("scored")) == [False]
    assert send(sinks, report("scored")) == [False]
    close(sinks)
    assert tally.snapshot() == {"exports.outages{sink=otlp.logs}": 1, "results.failed{sink=otlp.logs}": 2}
    assert [line.getMessage() for line in caplog.records] == [
        "scores could not be sent as logs to http://127.0.0.1:9 (UNAVAILABLE)"
    ]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signals": ("logs", "traces")}, "'traces' is not a signal"),
        ({"to": Endpoint(endpoint="localhost:4317")}, "has no scheme"),
        (
            {"to": Endpoint(endpoint="https://localhost:4317", tls=ClientTls(ca=PemFile("ca_file", "/no/such.pem")))},
            "cannot be read",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_at_start(options: dict[str, Any], message: str):
    """In one line."""
    with pytest.raises(ConfigError, match=message):
        otlp_sinks(**({"to": Endpoint(endpoint="http://127.0.0.1:9")} | options))


@pytest.mark.skipif(SDK < (1, 37), reason="exporters of that time try for a minute, whatever the timeout")
def test_results_are_counted_when_the_endpoint_has_taken_them(report: Reports, caplog: pytest.LogCaptureFixture):
    """Until then they wait; when the endpoint is there again one line says so."""
    caplog.set_level(logging.INFO, "otel_eval")
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        port = reserved.getsockname()[1]
    tally = Tally()
    (sink,) = otlp_sinks(Endpoint(endpoint=f"http://127.0.0.1:{port}", timeout_s=0.2), ("spans",), counters=tally)
    assert sink.emit(report("scored", "failed")) is False
    assert sink.counts() == {"results.waiting{sink=otlp.spans}": 2}
    assert sink.flush(5.0) is False
    with grpc_backend("spans", port=port):
        until(lambda: send([sink], report("scored")) == [True])
        close([sink])
    assert (tally.get("results.emitted"), tally.get("exports.recovered")) == (1, 1)
    assert sink.counts() == {"results.waiting{sink=otlp.spans}": 0}
    assert "export to otlp.spans works again" in caplog.records[-1].getMessage()


def test_what_a_full_queue_cannot_take_is_counted(report: Reports, caplog: pytest.LogCaptureFixture):
    """The SDK's own queue drops silently."""
    tally = Tally()
    ledger = Ledger("otlp.logs", "logs", Endpoint(endpoint="http://127.0.0.1:9"), tally, Warnings(), 3)
    assert [ledger.admit(2), ledger.admit(2), ledger.admit(1)] == [True, False, True]
    assert (ledger.queued, tally.snapshot()) == (3, {"results.refused{sink=otlp.logs}": 2})
    assert "the queue of otlp.logs is full" in caplog.records[0].getMessage()
