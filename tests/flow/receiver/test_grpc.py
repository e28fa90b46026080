"""OTLP over gRPC, line by line of the specification, with a bare channel."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from tests.support.waiting import LIMIT_S

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
METRICS = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"


def refused(
    channel: grpc.Channel, body: bytes, method: str = TRACES, **options: Any
) -> grpc.RpcError:
    """The error that a call ends with."""
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary(method)(body, timeout=300, **options)
    return caught.value


def details(error: Any) -> status_pb2.Status:
    """The google.rpc.Status among the trailers."""
    found = dict(error.trailing_metadata())["grpc-status-details-bin"]
    return status_pb2.Status.FromString(found)


def test_full_success_leaves_partial_success_unset(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """The answer is an empty message."""
    _, bound = start()
    assert channel(bound.grpc).unary_unary(TRACES)(request_of("a", "b").SerializeToString()) == b""
    assert intake.names() == ["a", "b"]


def test_calls_for_which_no_thread_starts_wait_for_another(
    start: Any, intake: Any, channel: Any, request_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container with a limit of processes; the server goes on."""
    _, bound = start(http=None)
    call = channel(bound.grpc).unary_unary(TRACES)
    intake.gate.clear()
    calls = [call.future(request_of("a").SerializeToString(), timeout=300)]
    assert intake.entered.acquire(timeout=300)
    with monkeypatch.context() as patched:
        patched.setattr(ThreadPoolExecutor, "_adjust_thread_count", cannot_start)
        calls.append(call.future(request_of("b").SerializeToString(), timeout=300))
        assert not intake.entered.acquire(timeout=0.2)
        intake.gate.set()
        assert [each.result() for each in calls] == [b"", b""]
    assert call(request_of("c").SerializeToString(), timeout=300) == b""


def cannot_start(_: ThreadPoolExecutor) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("method", [TRACES, LOGS, METRICS])
def test_an_empty_request_is_a_success(start: Any, channel: Any, method: str) -> None:
    """For each signal."""
    _, bound = start()
    assert channel(bound.grpc).unary_unary(method)(b"") == b""


def test_rejected_spans_are_counted_in_the_response_and_the_others_accepted(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """Partial success, with the reason."""
    receiver, bound = start()
    answer = channel(bound.grpc).unary_unary(TRACES)(request_of("a", "", "c").SerializeToString())
    partial = ExportTraceServiceResponse.FromString(answer).partial_success
    assert (partial.rejected_spans, "trace id" in partial.error_message) == (1, True)
    assert intake.names() == ["a", "c"]
    assert receiver.counters.get("rejected_spans") == 1


@pytest.mark.parametrize("method", [TRACES, LOGS, METRICS])
def test_bad_data_is_an_invalid_argument(start: Any, channel: Any, method: str) -> None:
    """With a BadRequest in the details, and for good: a retry cannot help."""
    receiver, bound = start()
    error = refused(channel(bound.grpc), b"\xff\xff", method)
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert details(error).details[0].Is(error_details_pb2.BadRequest.DESCRIPTOR)
    assert receiver.counters.get("bad_requests") == 1


def test_overload_says_when_to_retry(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """UNAVAILABLE, with RetryInfo in both places where exporters look."""
    receiver, bound = start()
    intake.full = True
    error = refused(channel(bound.grpc), request_of("a", "b").SerializeToString())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    info = error_details_pb2.RetryInfo()
    assert details(error).details[0].Unpack(info)
    assert info.retry_delay.ToTimedelta().total_seconds() == 1
    trailer = dict(error.trailing_metadata())["google.rpc.retryinfo-bin"]
    assert error_details_pb2.RetryInfo.FromString(trailer) == info
    assert receiver.counts()["refused_spans"] == {"grpc": 2}


def test_a_fault_of_ours_costs_no_data(
    start: Any, intake: Any, channel: Any, request_of: Any, capfd: Any
) -> None:
    """Never INTERNAL or UNKNOWN, after which senders drop; and no traceback."""
    receiver, bound = start()
    intake.broken = True
    error = refused(channel(bound.grpc), request_of("a").SerializeToString())
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert receiver.counters.get("internal_errors") == 1
    intake.broken = False
    assert channel(bound.grpc).unary_unary(TRACES)(request_of("a").SerializeToString()) == b""
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_message_over_the_limit_is_refused_for_good(
    start: Any, channel: Any, compression: Any
) -> None:
    """RESOURCE_EXHAUSTED without RetryInfo; a compressed one by what it unpacks to."""
    _, bound = start(max_body_bytes=100_000)
    error: Any = refused(
        channel(bound.grpc), b"\x1a\x80\x80\x20" + bytes(0x80000), compression=compression
    )
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "google.rpc.retryinfo-bin" not in dict(error.trailing_metadata())


def test_more_than_four_mebibytes_are_taken(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """The default of grpcio is not ours."""
    _, bound = start()
    request = request_of("a")
    request.resource_spans[0].resource.attributes.add(key="big").value.string_value = (
        "x" * 5_000_000
    )
    assert channel(bound.grpc).unary_unary(TRACES)(request.SerializeToString()) == b""
    assert intake.names() == ["a"]


@pytest.mark.parametrize(
    "method",
    ["/opentelemetry.proto.collector.trace.v1.TraceService/Import", "/other.Service/Export"],
)
def test_other_methods_are_unimplemented(start: Any, channel: Any, method: str) -> None:
    """A sender learns that it need not try again."""
    _, bound = start()
    assert refused(channel(bound.grpc), b"", method).code() is grpc.StatusCode.UNIMPLEMENTED


def test_concurrent_requests_are_all_taken(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """Many more than there are threads, on one connection."""
    _, bound = start(grpc_threads=2)
    export = channel(bound.grpc).unary_unary(TRACES)
    with ThreadPoolExecutor(16) as pool:
        answers = list(
            pool.map(
                lambda n: export(request_of(f"s{n}").SerializeToString(), timeout=300), range(200)
            )
        )
    assert answers == [b""] * 200
    assert sorted(intake.names()) == sorted(f"s{n}" for n in range(200))


def test_room_is_asked_for_before_anything_is_decoded(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """While one request holds the budget, another is refused, and accepted when it is retried."""
    receiver, bound = start(max_inflight_bytes=100)
    export = channel(bound.grpc).unary_unary(TRACES)
    intake.gate.clear()
    first = export.future(request_of("first").SerializeToString(), timeout=300)
    assert intake.entered.acquire(timeout=300)
    body = request_of(*["x" * 50] * 3).SerializeToString()
    error: Any = refused(channel(bound.grpc), body)
    assert error.code() is grpc.StatusCode.UNAVAILABLE
    assert receiver.counters.get("refused_requests") == 1
    intake.gate.set()
    assert first.result() == b""
    assert export(body) == b""


def test_a_connection_without_calls_is_closed(start: Any, channel: Any) -> None:
    """After `grpc_idle_s`; a client opens another for its next call and notices nothing."""
    _, bound = start(grpc_idle_s=0.2)
    export = channel(bound.grpc).unary_unary(TRACES)
    host, port = bound.grpc.rsplit(":", 1)
    with socket.create_connection((host, int(port)), LIMIT_S) as silent:
        silent.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
        assert export(b"") == b""
        while silent.recv(4096):
            pass
    assert export(b"", timeout=300) == b""
