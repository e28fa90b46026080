"""OTLP out: real exporters against real servers on loopback."""

from __future__ import annotations

import gzip
import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2, metrics_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc

from otel_eval.counters import Counters, count_name
from otel_eval.errors import ConfigError
from otel_eval.exporters.jsonl import DeadLetterFile
from otel_eval.model import Report
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.otlp.tls import ClientTls, PemFile
from otel_eval.retry import RetryPolicy
from otel_eval.wire import fields
from tests.support.free_port import free_port
from tests.support.queued_exporters import otlp_exporters
from tests.support.waiting import LIMIT_S, wait_until

Reports = Callable[..., Report]

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
            (
                "logs",
                logs_service_pb2_grpc.add_LogsServiceServicer_to_server,
                logs_service_pb2_grpc.LogsServiceServicer,
                logs_service_pb2.ExportLogsServiceResponse,
            ),
            (
                "metrics",
                metrics_service_pb2_grpc.add_MetricsServiceServicer_to_server,
                metrics_service_pb2_grpc.MetricsServiceServicer,
                metrics_service_pb2.ExportMetricsServiceResponse,
            ),
            (
                "spans",
                trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
                trace_service_pb2_grpc.TraceServiceServicer,
                trace_service_pb2.ExportTraceServiceResponse,
            ),
        ):
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
        backend.server.stop(0).wait()


@contextmanager
def http_backend(
    paths: Collection[str], headers: dict[str, str] | None = None
) -> Iterator[tuple[str, dict[str, list[Any]]]]:
    got: dict[str, list[Any]] = {path: [] for path in REQUESTS}

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            path = next(path for path in REQUESTS if self.path.endswith(path))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            got[path].append(REQUESTS[path].FromString(body))
            if headers is not None:
                headers.update(
                    {key.lower(): value for key, value in self.headers.items()}
                    | {"requested": self.path}
                )
            self.send_response(200 if path in paths else 404)
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
        thread.join(LIMIT_S)
        server.server_close()


@contextmanager
def backend_of(protocol: str) -> Iterator[tuple[str, dict[str, str]]]:
    """The URL of an endpoint that takes everything, and the headers of the last request."""
    if protocol == "grpc":
        with grpc_backend("logs", "metrics", "spans") as backend:
            yield f"http://127.0.0.1:{backend.port}", backend.headers
    else:
        headers: dict[str, str] = {}
        with http_backend([*REQUESTS], headers) as (url, _):
            yield url, headers


def event_name(record: Any) -> str:
    """Field 12, which the protobuf classes that come with older SDKs do not know and keep as they
    got it.
    """
    body = record.SerializeToString()
    return next(
        body[field.content : field.stop].decode()
        for field in fields(body, 0, len(body))
        if field.number == 12
    )


def send(sinks: list[Any], *reports: Report) -> list[bool]:
    for sink in sinks:
        for report in reports:
            sink.export([report])
    return [sink.flush(LIMIT_S) for sink in sinks]


def close(sinks: list[Any]) -> None:
    for sink in sinks:
        sink.close(LIMIT_S)


def test_all_three_signals_arrive_over_grpc(report: Reports, monkeypatch: pytest.MonkeyPatch):
    """With our service name, the environment's resource attributes, the headers, in the run's
    trace.
    """
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
    with grpc_backend("logs", "metrics", "spans") as backend:
        to = Endpoint(
            endpoint=f"http://127.0.0.1:{backend.port}", headers={"X-Key": "k"}, compression="gzip"
        )
        sinks = otlp_exporters(to)
        assert send(sinks, report("scored")) == [True, True, True]
        close(sinks)
    resource = backend.got["logs"][0].resource_logs[0].resource
    (record,) = backend.got["logs"][0].resource_logs[0].scope_logs[0].log_records
    (span,) = backend.got["spans"][0].resource_spans[0].scope_spans[0].spans
    names = {
        metric.name
        for metric in backend.got["metrics"][0].resource_metrics[0].scope_metrics[0].metrics
    }
    told = {pair.key: pair.value.string_value for pair in resource.attributes}
    assert (told["service.name"], told["deployment.environment.name"]) == ("otel-eval", "test")
    assert event_name(record) == "gen_ai.evaluation.result"
    assert (record.trace_id, record.flags) == (span.trace_id, 1)
    assert span.parent_span_id == record.span_id
    assert "otel_eval.score" in names
    assert backend.headers["x-key"] == "k"


def test_all_three_signals_arrive_over_http(report: Reports):
    """At the endpoint's usual paths."""
    with http_backend([*REQUESTS]) as (url, got):
        sinks = otlp_exporters(Endpoint(endpoint=url, protocol="http/protobuf"))
        assert send(sinks, report("scored")) == [True, True, True]
        close(sinks)
    assert (
        event_name(got["/v1/logs"][0].resource_logs[0].scope_logs[0].log_records[0])
        == "gen_ai.evaluation.result"
    )
    assert got["/v1/traces"][0].resource_spans[0].scope_spans[0].spans[0].name == "evaluate policy"
    assert got["/v1/metrics"]


def test_results_of_a_signal_that_the_endpoint_lacks_wait_with_one_warning(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """The others go on, and no empty request is ever sent. What still waits at the end is
    dropped.
    """
    tally, now = Counters(), [0.0]
    with grpc_backend("spans") as backend:
        to = Endpoint(endpoint=f"http://127.0.0.1:{backend.port}")
        sinks = otlp_exporters(
            to, ("logs", "spans"), counters=tally, retry=RetryPolicy(clock=lambda: now[0])
        )
        assert send(sinks, report("scored", "failed")) == [False, True]
        assert send(sinks, report("scored")) == [False, True]
        counts = sinks[0].counts()
        assert counts[count_name("exports.unsupported", exporter="otlp.logs")] == 1
        assert counts[count_name("results.queued", exporter="otlp.logs")] == 3
        close(sinks)
    assert [(line.name, line.getMessage()) for line in caplog.records] == [
        ("otel_eval", message)
        for message in (
            "the endpoint of otlp does not support logs (UNIMPLEMENTED): results wait for 900 s,"
            " then they are dropped; one is tried again every 60 s",
            "otlp.logs did not deliver 3 results before the end (UNIMPLEMENTED); lost; name"
            " exporters.dead_letter to keep such results",
        )
    ]
    assert tally.snapshot() == {
        count_name("results.dropped", exporter="otlp.logs"): 3,
        count_name("results.exported", exporter="otlp.spans"): 3,
        count_name("results.export_failed", exporter="otlp.logs"): 3,
    }
    assert len(backend.got["spans"]) == 2


def test_a_path_that_http_does_not_know_is_tried_with_one_result_a_minute(report: Reports):
    """All are taken as soon as it is known."""
    now = [0.0]
    paths = ["/v1/traces"]
    with http_backend(paths) as (url, got):
        to = Endpoint(endpoint=url, protocol="http/protobuf")
        sinks = otlp_exporters(to, ("logs", "spans"), retry=RetryPolicy(clock=lambda: now[0]))
        assert send(sinks, report("scored")) == [False, True]
        assert send(sinks, report("scored")) == [False, True]
        assert (len(got["/v1/logs"]), len(got["/v1/traces"])) == (1, 2)
        now[0] += 60.0
        paths.append("/v1/logs")
        assert sinks[0].drain(LIMIT_S)
        assert send(sinks, report("scored")) == [True, True]
        close(sinks)
    # the first was tried twice, the second was sent after it
    assert (len(got["/v1/logs"]), len(got["/v1/traces"])) == (4, 3)


@pytest.fixture
def refusing() -> Iterator[tuple[Endpoint, str]]:
    """An endpoint whose port is taken by nobody who listens, and what gRPC says of it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        yield (
            Endpoint(endpoint=f"http://{address}"),
            f"UNAVAILABLE: ipv4:{address}: Failed to connect to remote host: Connection refused",
        )


def test_an_endpoint_that_is_down_costs_one_line_and_results_wait(
    report: Reports, caplog: pytest.LogCaptureFixture, refusing: tuple[Endpoint, str]
):
    """A flush fails at the first attempt; what could not be delivered before the end is counted."""
    tally, (endpoint, refusal) = Counters(), refusing
    sinks = otlp_exporters(endpoint, ("logs",), counters=tally)
    assert send(sinks, report("scored")) == [False]
    assert send(sinks, report("scored")) == [False]
    assert sinks[0].counts()[count_name("results.queued", exporter="otlp.logs")] == 2
    assert tally.get("results.export_failed") == 0
    sinks[0].close(0.5)
    assert (
        tally.get("exports.outages"),
        tally.get("results.export_failed"),
        tally.get("results.dropped"),
    ) == (1, 2, 2)
    assert [line.getMessage().replace(refusal, "?") for line in caplog.records] == [
        "export to otlp.logs failed (?), 1 queued, retrying",
        (
            "otlp.logs did not deliver 2 results before the end (time was over; last error: ?);"
            " lost; name exporters.dead_letter to keep such results"
        ),
    ]


def test_results_not_delivered_before_the_end_are_in_the_dead_letter_file(
    report: Reports, tmp_path: Path, refusing: tuple[Endpoint, str]
):
    """Where a program names one."""
    path, (endpoint, refusal) = tmp_path / "dead.jsonl", refusing
    (sink,) = otlp_exporters(endpoint, ("spans",), dead_letters=lambda: DeadLetterFile(path))
    sink.export([report("scored")])
    assert sink.flush(LIMIT_S) is False
    sink.close(0.5)
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (row["exporter"], row["why"]) == (
        "otlp.spans",
        f"not delivered before the end (time was over; last error: {refusal})",
    )


def test_a_file_that_cannot_be_used_is_refused_at_start():
    """In one line."""
    to = Endpoint(
        endpoint="https://localhost:4317", tls=ClientTls(ca=PemFile("ca_file", "/no/such.pem"))
    )
    with pytest.raises(ConfigError, match="cannot be read"):
        otlp_exporters(to)


def test_results_are_counted_when_the_endpoint_has_accepted_them(
    report: Reports, caplog: pytest.LogCaptureFixture
):
    """Until then they are queued; when the endpoint works again, one line is logged."""
    caplog.set_level(logging.INFO, "otel_eval")
    port = free_port()
    tally = Counters()
    (sink,) = otlp_exporters(
        Endpoint(endpoint=f"http://127.0.0.1:{port}"), ("spans",), counters=tally
    )
    assert sink.export([report("scored", "failed")]).status == "accepted"
    assert sink.counts()[count_name("results.queued", exporter="otlp.spans")] == 2
    assert sink.flush(LIMIT_S) is False
    with grpc_backend("spans", port=port):
        wait_until(lambda: sink.flush(LIMIT_S))
        close([sink])
    assert (tally.get("results.exported"), tally.get("exports.recovered")) == (2, 1)
    assert sink.counts()[count_name("results.queued", exporter="otlp.spans")] == 0
    assert "export to otlp.spans works again" in caplog.records[-1].getMessage()


def test_results_beyond_a_full_queue_are_counted(
    report: Reports, caplog: pytest.LogCaptureFixture, refusing: tuple[Endpoint, str]
):
    """The program goes on: an endpoint is away."""
    tally = Counters()
    (sink,) = otlp_exporters(refusing[0], ("logs",), counters=tally)
    many = report(*["scored"] * 1000)
    for _ in range(10):
        sink.export([many])
    assert sink.counts()[count_name("results.queued", exporter="otlp.logs")] == 8000
    assert tally.get("results.refused", exporter="otlp.logs") == 2000
    assert "the queue of otlp.logs is full" in caplog.text
    sink.close(0.1)


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_headers_of_the_environment_are_sent_where_the_configuration_has_none(
    report: Reports, protocol: Any, monkeypatch: pytest.MonkeyPatch
):
    """Those of the signal before those of all."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "X-Key=all")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Key=of%20traces")
    for signal, given, expected in (
        ("logs", {}, "all"),
        ("spans", {}, "of traces"),
        ("logs", {"x-key": "own"}, "own"),
    ):
        with backend_of(protocol) as (url, headers):
            sinks = otlp_exporters(
                Endpoint(endpoint=url, protocol=protocol, headers=given), (signal,)
            )
            assert send(sinks, report("scored")) == [True]
            close(sinks)
        assert headers["x-key"] == expected


def test_http_goes_by_the_proxy_of_the_environment(
    report: Reports, monkeypatch: pytest.MonkeyPatch
):
    """Unless NO_PROXY names the endpoint."""
    with backend_of("http/protobuf") as (url, headers):
        monkeypatch.setenv("http_proxy", url.replace("//", "//me:secret@"))
        sinks = otlp_exporters(
            Endpoint(endpoint="http://elsewhere.example:4318/base", protocol="http/protobuf"),
            ("logs",),
        )
        assert send(sinks, report("scored")) == [True]
        close(sinks)
        assert headers["requested"] == "http://elsewhere.example:4318/base/v1/logs"
        assert (headers["host"], headers["proxy-authorization"]) == (
            "elsewhere.example:4318",
            "Basic bWU6c2VjcmV0",
        )
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        sinks = otlp_exporters(Endpoint(endpoint=url, protocol="http/protobuf"), ("logs",))
        assert send(sinks, report("scored")) == [True]
        close(sinks)
        assert headers["requested"] == "/v1/logs"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("protocol", ["http/protobuf"])
def test_a_forked_child_delivers_its_own_results_only(report: Reports, protocol: Any):
    """Over a connection of its own; what waited in the parent is the parent's."""
    with http_backend([*REQUESTS]) as (url, got):
        (sink,) = otlp_exporters(Endpoint(endpoint=url, protocol=protocol), ("logs",))
        assert send([sink], report("scored", span_id="1" * 16)) == [True]
        sink.export([report("scored", span_id="2" * 16)])
        child = os.fork()
        if not child:
            try:
                sink.export([report("scored", span_id="3" * 16)])
                os._exit(0 if sink.flush(LIMIT_S) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert sink.flush(LIMIT_S)
        close([sink])
    spans = [
        r.span_id.hex()
        for body in got["/v1/logs"]
        for r in body.resource_logs[0].scope_logs[0].log_records
    ]
    assert sorted(spans) == ["1" * 16, "2" * 16, "3" * 16]
