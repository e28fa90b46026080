"""The same requests to our receiver and to the Collector's: where they differ is written down, with
the reason.

Needs a Collector: what make collector builds, or another that OTELCOL=PATH names.
"""

from __future__ import annotations

import contextlib
import gzip
import http.client
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.faults.fault_rig.service import free_port
from tests.support.collector_process import CollectorProcess

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
PROTOBUF, JSON = "application/x-protobuf", "application/json"


def spans(trace_id: bytes = b"t" * 16) -> bytes:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(
        trace_id=trace_id, span_id=b"s" * 8, name="a"
    )
    return bytes(request.SerializeToString())


def document(trace_id: str) -> bytes:
    span = f'{{"traceId":"{trace_id}","spanId":"{"cd" * 8}","name":"a","unknown":1,"kind":99}}'
    return f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{span}]}}]}}]}}'.encode()


# What is sent, the status of ours, the status of the Collector's, and why they differ.
OVER_HTTP: dict[str, tuple[tuple[str, str, str, bytes, str], int, int, str]] = {
    "spans": (("POST", "/v1/traces", PROTOBUF, spans(), ""), 200, 200, ""),
    "an empty body": (("POST", "/v1/traces", PROTOBUF, b"", ""), 200, 200, ""),
    "an empty body of JSON": (("POST", "/v1/traces", JSON, b"{}", ""), 200, 200, ""),
    "no protobuf": (("POST", "/v1/traces", PROTOBUF, b"\xff\xff", ""), 400, 400, ""),
    "no JSON": (("POST", "/v1/traces", JSON, b"{", ""), 400, 400, ""),
    "JSON with parameters": (
        ("POST", "/v1/traces", JSON + "; charset=utf-8", b"{}", ""),
        200,
        200,
        "",
    ),
    "unknown fields and enums": (
        ("POST", "/v1/traces", JSON, document("ab" * 16), ""),
        200,
        200,
        "",
    ),
    "a short id in JSON": (
        ("POST", "/v1/traces", JSON, document("ab"), ""),
        200,
        400,
        "the others are taken: partial success",
    ),
    "an id of zeros": (
        ("POST", "/v1/traces", PROTOBUF, spans(bytes(16)), ""),
        200,
        200,
        "rejected by partial success here",
    ),
    "another content type": (("POST", "/v1/traces", "text/plain", b"", ""), 415, 415, ""),
    "another method": (("GET", "/v1/traces", PROTOBUF, b"", ""), 405, 405, ""),
    "another path": (("POST", "/v2/traces", PROTOBUF, b"", ""), 404, 404, ""),
    "broken gzip": (("POST", "/v1/traces", PROTOBUF, b"no gzip", "gzip"), 400, 400, ""),
    "another encoding": (
        ("POST", "/v1/traces", PROTOBUF, b"x", "br"),
        415,
        400,
        "415 names the cause",
    ),
    "too large": (
        ("POST", "/v1/traces", PROTOBUF, bytes(25_000_000), ""),
        413,
        400,
        "the specification asks for 413",
    ),
    "a bomb": (
        ("POST", "/v1/traces", PROTOBUF, gzip.compress(bytes(50_000_000)), "gzip"),
        413,
        400,
        "the same",
    ),
}
OVER_GRPC: dict[str, tuple[tuple[str, bytes], str, str, str]] = {
    "spans": ((TRACES, spans()), "OK", "OK", ""),
    "an empty message": ((TRACES, b""), "OK", "OK", ""),
    "no protobuf": (
        (TRACES, b"\xff\xff"),
        "INVALID_ARGUMENT",
        "INTERNAL",
        "the specification asks for INVALID_ARGUMENT",
    ),
    "an id of zeros": ((TRACES, spans(bytes(16))), "OK", "OK", "rejected by partial success here"),
    "another method": (("/other.Service/Export", b""), "UNIMPLEMENTED", "UNIMPLEMENTED", ""),
    "too large": ((TRACES, bytes(25_000_000)), "RESOURCE_EXHAUSTED", "RESOURCE_EXHAUSTED", ""),
}
LIMIT = 20 * 2**20  # the Collector's own default over HTTP


def over_http(address: str, case: tuple[str, str, str, bytes, str]) -> int:
    method, path, kind, body, coding = case
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        # A server may answer and close before it has read a body beyond its limit: the answer is
        # there to read.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.request(
                method,
                path,
                body,
                {"Content-Type": kind} | ({"Content-Encoding": coding} if coding else {}),
            )
        return connection.getresponse().status
    finally:
        connection.close()


def over_grpc(address: str, case: tuple[str, bytes]) -> str:
    method, body = case
    with grpc.insecure_channel(address) as channel:
        try:
            channel.unary_unary(method)(body, timeout=300, wait_for_ready=True)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


@pytest.mark.parametrize("case", OVER_HTTP)
def test_our_answers_over_http(start: Any, case: str) -> None:
    """As the table says."""
    _, bound = start(max_body_bytes=LIMIT)
    assert over_http(bound.http, OVER_HTTP[case][0]) == OVER_HTTP[case][1]


@pytest.mark.parametrize("case", OVER_GRPC)
def test_our_answers_over_grpc(start: Any, case: str) -> None:
    """As the table says."""
    _, bound = start(max_body_bytes=LIMIT)
    assert over_grpc(bound.grpc, OVER_GRPC[case][0]) == OVER_GRPC[case][1]


@pytest.fixture(scope="module")
def collector(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of a Collector, gRPC and HTTP."""
    there = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    config = tmp_path_factory.mktemp("collector") / "config.yaml"
    config.write_text(
        f'receivers: {{otlp: {{protocols: {{grpc: {{endpoint: "{there[0]}"}}, http: {{endpoint:'
        f' "{there[1]}"}}}}}}}}\nexporters: {{nop: {{}}}}\nservice: {{pipelines: {{traces:'
        " {receivers: [otlp], exporters: [nop]}}}\n",
        encoding="utf-8",
    )
    with CollectorProcess(config):
        yield there


def test_the_collectors_answers(collector: tuple[str, str]) -> None:
    """As the table says, so that what is written of differences is true."""
    assert {case: over_http(collector[1], row[0]) for case, row in OVER_HTTP.items()} == {
        case: row[2] for case, row in OVER_HTTP.items()
    }
    assert {case: over_grpc(collector[0], row[0]) for case, row in OVER_GRPC.items()} == {
        case: row[2] for case, row in OVER_GRPC.items()
    }
