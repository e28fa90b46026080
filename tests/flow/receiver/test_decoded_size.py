"""Requests that are far larger once decoded are refused before that, and counted against the memory
limit.
"""

from __future__ import annotations

import http.client
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.otlp.otlp_json import rewrite
from otel_eval.wire import sized

METHODS = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
PROTOBUF, JSON = "application/x-protobuf", "application/json"
MIB = 2**20


def items(count: int) -> bytes:
    """Spans, or log records, of nothing."""
    return sized(1, sized(2, b"\x12\x00" * count))


def objects(count: int) -> bytes:
    """The same in JSON."""
    return b'{"resourceSpans":[{"scopeSpans":[{"spans":[' + b",".join([b"{}"] * count) + b"]}]}]}"


GREAT: dict[str, tuple[str, str, Callable[[], bytes]]] = {
    "spans": ("traces", PROTOBUF, lambda: items(MIB)),
    "records": ("logs", PROTOBUF, lambda: items(MIB)),
    "groups": ("metrics", PROTOBUF, lambda: b"\x0a\x00" * (8 * MIB)),
    "objects": ("traces", JSON, lambda: objects(2 * MIB)),
    "objects that are not read": ("metrics", JSON, lambda: objects(2 * MIB)),
}


@pytest.mark.parametrize("what", GREAT)
def test_what_becomes_too_much_is_refused_for_good_over_http(start: Any, what: str) -> None:
    """413 that names the limit; it is counted as too great, and the next one is served."""
    receiver, bound = start(grpc=None)
    signal, content_type, make = GREAT[what]
    connection = http.client.HTTPConnection(bound.http, timeout=300)
    try:
        connection.request("POST", f"/v1/{signal}", make(), {"Content-Type": content_type})
        answer = connection.getresponse()
        assert (answer.status, b"max_inflight_size" in answer.read()) == (413, True)
        connection.request(
            "POST",
            f"/v1/{signal}",
            b"{}" if content_type == JSON else b"",
            {"Content-Type": content_type},
        )
        assert connection.getresponse().status == 200
    finally:
        connection.close()
    assert receiver.counters.get("oversized_requests") == 1


@pytest.mark.parametrize("what", ["spans", "records", "groups"])
def test_what_becomes_too_much_is_refused_for_good_over_grpc(
    start: Any, channel: Any, what: str
) -> None:
    """RESOURCE_EXHAUSTED without RetryInfo: no client is asked to retry."""
    _, bound = start(http=None)
    signal, _, make = GREAT[what]
    with pytest.raises(grpc.RpcError) as caught:
        channel(bound.grpc).unary_unary(METHODS[signal])(make(), timeout=300)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "max_inflight_size" in error.details()
    assert "google.rpc.retryinfo-bin" not in dict(error.trailing_metadata())


def test_some_spans_of_nothing_are_rejected_and_the_others_taken(
    start: Any, channel: Any, intake: Any, request_of: Any
) -> None:
    """As any unusable span is."""
    receiver, bound = start(http=None)
    response = channel(bound.grpc).unary_unary(METHODS["traces"])(
        items(1000) + request_of("a").SerializeToString(), timeout=300
    )
    assert b"1000 rejected" in response
    assert intake.names() == ["a"]
    assert receiver.counters.get("rejected_spans") == 1000


def test_what_a_request_becomes_counts_while_it_is_read(
    start: Any, channel: Any, intake: Any, request_of: Any
) -> None:
    """It is refused for now while another request is in flight, and accepted alone."""
    _, bound = start(http=None, max_inflight_bytes=MIB)
    intake.gate.clear()
    running = (
        channel(bound.grpc)
        .unary_unary(METHODS["traces"])
        .future(request_of("a").SerializeToString(), timeout=300)
    )
    assert intake.entered.acquire(timeout=300)
    export = channel(bound.grpc, ("grpc.use_local_subchannel_pool", 1)).unary_unary(
        METHODS["traces"]
    )
    with pytest.raises(grpc.RpcError) as caught:
        export(items(10_000), timeout=300)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    intake.gate.set()
    assert running.result() == b""
    assert b"10000 rejected" in export(items(10_000), timeout=300)


def test_a_great_request_of_ordinary_spans_is_taken(start: Any, intake: Any) -> None:
    """As large as one may be, in spans of half a kilobyte."""
    attribute = {"key": "gen_ai.tool.call.result", "value": {"stringValue": "x" * 400}}
    spans = [
        {"traceId": "7" * 32, "spanId": f"{number:016x}", "attributes": [attribute]}
        for number in range(1, 11)
    ]
    body, _, _ = rewrite("traces", {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]})
    whole = body * (60 * MIB // len(body))
    _, bound = start(grpc=None)
    assert taken(bound.http, whole)
    assert len(intake.taken[0].spans) > 100_000


def crowded(name: str, count: int) -> bytes:
    """A request of one span with so many attributes."""
    attributes = [{"key": f"k{number}", "value": {"intValue": number}} for number in range(count)]
    span = {"traceId": "7" * 32, "spanId": "8" * 16, "name": name, "attributes": attributes}
    body, _, _ = rewrite("traces", {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]})
    return body


def test_spans_of_too_many_attributes_are_rejected_and_the_others_taken(
    start: Any, channel: Any, intake: Any
) -> None:
    """By partial success that names the limit; far more are taken than any sender writes."""
    receiver, bound = start(http=None)
    export = channel(bound.grpc).unary_unary(METHODS["traces"])
    response = export(crowded("a", 5000) + crowded("b", 4096), timeout=300)
    assert b"1 rejected, the first: a span has more than 4096 attributes" in response
    assert intake.names() == ["b"]
    assert receiver.counters.get("rejected_spans") == 1


def test_what_was_rejected_is_not_found_after_a_restart(tmp_path: Path) -> None:
    """Storage keeps whole requests; the span of another trace is there, and has its limit from the
    configuration.
    """
    places = {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}, "max_attributes": 10}
    config = load(
        {
            "traces": {"decision_wait": "60s", "decision_wait_partial": "60s"},
            "receivers": {"otlp": places},
            "storage": {"directory": str(tmp_path / "kept")},
            "exporters": {"jsonl": {"path": str(tmp_path / "out.jsonl")}},
        }
    )
    other = crowded("b", 10).replace(b"\x77" * 16, b"\x66" * 16)
    opened = []
    for body in (crowded("a", 11) + other, b""):
        server = Server(config)
        try:
            bound = server.start()
            assert taken(str(bound.http), body)
            opened.append(server.counts()["open_traces"])
        finally:
            server.stop(3.0)
    assert opened == [1, 1]


def taken(address: str, body: bytes) -> bool:
    """Whether a request over HTTP is."""
    connection = http.client.HTTPConnection(address, timeout=300)
    try:
        connection.request("POST", "/v1/traces", body, {"Content-Type": PROTOBUF})
        return connection.getresponse().status == 200
    finally:
        connection.close()
