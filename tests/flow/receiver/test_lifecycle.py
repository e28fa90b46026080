"""Start and stop: addresses, ports in use, requests in flight, and that nothing is left running."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from otel_eval.config import load
from otel_eval.errors import ConfigError
from otel_eval.sources.receiver.export_handler import DecodingHandler, ReceiverLimits
from otel_eval.sources.receiver.server import Bound, OtlpServer
from tests.support.free_port import free_port
from tests.support.waiting import LIMIT_S, wait_until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
TYPE = {"Content-Type": "application/x-protobuf"}


def test_port_zero_picks_free_ports(start: Any) -> None:
    """And says which."""
    _, bound = start()
    assert bound.grpc != bound.http
    assert all(
        address.startswith("127.0.0.1:") and not address.endswith(":0")
        for address in (bound.grpc, bound.http)
    )


@pytest.mark.parametrize(("off", "on"), [("grpc", "http"), ("http", "grpc")])
def test_a_transport_can_be_off(start: Any, off: str, on: str) -> None:
    """One is enough."""
    _, bound = start(**{off: None})
    assert getattr(bound, off) is None
    assert getattr(bound, on)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_port_in_use_is_refused_in_one_line(
    start: Any, intake: Any, protocol: str, capfd: Any
) -> None:
    """Naming the key, the address and what to do; the other transport does not keep its port
    either.
    """
    other = "http" if protocol == "grpc" else "grpc"
    spare = f"127.0.0.1:{free_port()}"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        receiver = OtlpServer(
            DecodingHandler(intake, ReceiverLimits()), **{protocol: address, other: spare}
        )
        with pytest.raises(
            ConfigError,
            match=(
                rf"protocols\.{protocol}\.endpoint: '{address}': the port is in use; .*0 picks a"
                r" free"
            ),
        ):
            receiver.start()
    _, bound = start(**{other: spare})
    assert getattr(bound, other) == spare
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "address",
    ["4317", "localhost", "127.0.0.1:x", "http://127.0.0.1:4317", "127.0.0.1:99999", ":4317", ""],
)
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_is_no_address_is_refused(protocol: str, address: str) -> None:
    """By the configuration, with an example of one."""
    with pytest.raises(ConfigError, match=r"is not host:port; write e\.g\. 127\.0\.0\.1:"):
        load({"receivers": {"otlp": {"protocols": {protocol: {"endpoint": address}}}}})


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_an_address_of_another_machine_is_refused(intake: Any, protocol: str) -> None:
    """TEST-NET-1 is not assigned."""
    with pytest.raises(ConfigError, match="no such address"):
        OtlpServer(DecodingHandler(intake, ReceiverLimits()), **{protocol: "192.0.2.1:0"}).start()


def refuses_connections(address: str) -> bool:
    host, port = address.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port))).close()
    except ConnectionRefusedError:
        return True
    return False


def test_a_running_request_ends_well_and_a_new_one_is_refused(
    start: Any, intake: Any, channel: Any, request_of: Any
) -> None:
    """Requests that are being read when the receiver stops are acknowledged; later ones get a
    retryable error.
    """
    receiver, bound = start()
    intake.gate.clear()
    body = request_of("a").SerializeToString()
    running = channel(bound.grpc).unary_unary(TRACES).future(body, timeout=300)
    host, port = bound.http.rsplit(":", 1)
    waiting, keeping = (http.client.HTTPConnection(host, int(port), timeout=300) for _ in range(2))
    waiting.request("POST", "/v1/traces", body, TYPE)
    keeping.connect()
    assert intake.entered.acquire(timeout=300)
    assert intake.entered.acquire(timeout=300)
    with ThreadPoolExecutor(1) as pool:
        stopping = pool.submit(receiver.stop, LIMIT_S)
        wait_until(lambda: not receiver.is_open)
        keeping.request("POST", "/v1/traces", body, TYPE)
        assert keeping.getresponse().status == 503
        wait_until(lambda: refuses_connections(bound.grpc))
        # Channels of one address share a connection. On the old one a call that crosses the
        # server's GOAWAY would wait for the end of the grace period.
        alone = channel(bound.grpc, ("grpc.use_local_subchannel_pool", 1))
        with pytest.raises(grpc.RpcError) as caught:
            alone.unary_unary(TRACES)(body, timeout=300)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        intake.gate.set()
        stopping.result()
    assert (waiting.getresponse().status, running.result()) == (200, b"")
    assert intake.names() == ["a", "a"]
    for connection in (waiting, keeping):
        connection.close()


def test_stopping_is_quick_and_leaves_nothing(intake: Any, request_of: Any) -> None:
    """Idle connections do not hold it up; threads and ports are gone."""
    before = set(threading.enumerate())
    receiver = OtlpServer(
        DecodingHandler(intake, ReceiverLimits()), grpc="127.0.0.1:0", http="127.0.0.1:0"
    )
    bound = receiver.start()
    assert isinstance(bound, Bound)
    host, port = str(bound.http).rsplit(":", 1)
    idle = http.client.HTTPConnection(host, int(port), timeout=300)
    idle.request("POST", "/v1/traces", b"", TYPE)
    assert idle.getresponse().read() == b""
    began = time.monotonic()
    receiver.stop(2 * LIMIT_S)
    assert time.monotonic() - began < LIMIT_S
    idle.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=LIMIT_S)
    wait_until(lambda: not set(threading.enumerate()) - before)


def test_a_handler_that_hangs_does_not_hold_the_stop_up(
    start: Any, intake: Any, request_of: Any
) -> None:
    """Beyond its grace."""
    receiver, bound = start(grpc=None)
    intake.gate.clear()
    host, port = bound.http.rsplit(":", 1)
    hanging = http.client.HTTPConnection(host, int(port), timeout=300)
    hanging.request("POST", "/v1/traces", request_of("a").SerializeToString(), TYPE)
    assert intake.entered.acquire(timeout=300)
    receiver.stop(0.3)
    assert intake.taken == []  # it hangs still
    hanging.close()


def test_stopping_twice_is_harmless(start: Any) -> None:
    """And so is stopping what never started."""
    receiver, _ = start()
    receiver.stop(1.0)
    receiver.stop(1.0)
