"""The OTLP receiver: binds the addresses of both transports, and starts and stops them."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

from otel_eval.counters import CountName, count_name
from otel_eval.errors import ConfigError
from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.credentials import Certificates
from otel_eval.sources.receiver.export_handler import ExportHandler, ExportResponse
from otel_eval.sources.receiver.grpc_server import OtlpGrpcServer
from otel_eval.sources.receiver.http_server import OtlpHttpServer

_log = logging.getLogger("otel_eval")

_NOT_AFTER: Final = "receiver.certificate_not_after"
_EXPOSED: Final = "every client that reaches this address can send spans; add tls: or auth:"
_READABLE: Final = "tokens and data can be read on their way here; add tls:"
_REASONS: Final = {
    errno.EADDRINUSE: (
        "the port is in use; stop the other process or choose another port, 0 picks a free one"
    ),
    errno.EACCES: "this port needs more rights; choose one from 1024 up, 0 picks a free one",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose one it has, such as 127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """The addresses on which the receiver listens, as "host:port"; None for a transport that is
    off.
    """

    grpc: str | None = None
    http: str | None = None


class OtlpServer:
    """OTLP over gRPC and HTTP.

    Args:
        handler: handles the requests, for instance a `DecodingHandler` with its consumer.
        grpc, http: "host:port", validated by the configuration, port 0 for a free one; None turns
            the transport off.
        certificates: by "grpc" or "http", a function that opens the certificates; a transport
            without is not encrypted.
        ready: whether evaluation makes progress; gRPC health is NOT_SERVING while it does not.
    """

    def __init__(
        self,
        handler: ExportHandler,
        *,
        grpc: str | None = None,
        http: str | None = None,
        certificates: Mapping[str, Callable[[], Certificates]] | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._handler, self._ready = handler, ready
        self.counters, self.counts = handler.counters, handler.counts
        # gRPC last: grpcio does not release the port of a server that was never started.
        self._addresses = {"http": http, "grpc": grpc}
        self._certificates = certificates or {}
        self._opened: dict[str, Certificates] = {}
        self._grpc: OtlpGrpcServer | None = None
        self._http: OtlpHttpServer | None = None
        self._started = False

    def start(self) -> Bound:
        """Bind the addresses and serve.

        Raises:
            ConfigError: an address cannot be bound, or a certificate is invalid; then no transport
                listens.
        """
        try:
            bound = {
                protocol: self._bind(protocol, address)
                for protocol, address in self._addresses.items()
                if address
            }
        except ConfigError:
            if self._http:
                self._http.server_close()
            self._http = None
            raise
        for server in (self._grpc, self._http):
            if server:
                server.start()
        self._started = True
        return Bound(**bound)

    @property
    def is_open(self) -> bool:
        """Whether requests are accepted."""
        return self._started and self._handler.is_open()

    def take(self, transport: str, signal: Signal, body: bytes) -> ExportResponse:
        """Handle a protobuf request that another process received by a transport; raises as
        `ExportHandler.take` does.
        """
        return self._handler.take(transport, signal, Encoding.PROTOBUF, len(body), lambda _: body)

    def _bind(self, protocol: str, address: str) -> str:
        """Bind the address, and return it with the bound port."""
        host, port = _split_address(address)
        try:
            port = (
                self._bind_grpc(host, port) if protocol == "grpc" else self._bind_http(host, port)
            )
        except (OSError, RuntimeError) as error:
            raise ConfigError(_complaint(protocol, address, _reason(error))) from None
        # clients beyond this machine can connect
        if protocol not in self._opened and not _is_loopback(host):
            _log.warning(
                _complaint(protocol, address, _READABLE if self._handler.tokens else _EXPOSED)
            )
        return _join_address(host, port)

    def _bind_grpc(self, host: str, port: int) -> int:
        _probe(host, port)  # grpcio itself would write the problem to stderr
        server = OtlpGrpcServer(self._handler, self._open("grpc"), self._ready)
        port = server.bind(_join_address(host, port))
        self._grpc = server
        return port

    def _bind_http(self, host: str, port: int) -> int:
        self._http = OtlpHttpServer((host, port), self._handler, self._open("http"))
        return int(self._http.server_address[1])

    def _open(self, protocol: str) -> Certificates | None:
        if protocol in self._certificates:
            self._opened[protocol] = self._certificates[protocol]()
        return self._opened.get(protocol)

    def not_after(self) -> dict[CountName, int]:
        """The end of validity of each transport's certificate, in seconds since the epoch, as a
        gauge for the self-metrics.
        """
        return {
            count_name(_NOT_AFTER, receiver="otlp", transport=protocol): end
            for protocol, certificates in self._opened.items()
            if (end := certificates.not_after) is not None
        }

    def stop(self, timeout_s: float = 5.0) -> None:
        """Refuse new requests, wait at most `timeout_s` seconds for running ones, then close every
        connection.
        """
        deadline = time.monotonic() + timeout_s
        self._handler.memory.close()
        if self._http:
            self._http.stopping = True
        wait = self._grpc.stop(timeout_s) if self._grpc else None
        self._handler.memory.wait_idle(timeout_s)
        if self._http:
            self._http.stop(max(0.5, deadline - time.monotonic()))
        if wait:
            wait()
        self._grpc = self._http = None

    def close(self, timeout_s: float) -> None:
        """Do nothing: requests were acknowledged when they were accepted."""


def _split_address(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _join_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _probe(host: str, port: int) -> None:
    """Bind an address and release it again; raises OSError if it cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind((host, port))
        probe.listen(1)


def _reason(error: OSError | RuntimeError) -> str:
    """Why an address cannot be bound, with a remedy."""
    if isinstance(error, RuntimeError):  # of grpcio
        return "cannot listen there; choose another address"
    if isinstance(error, socket.gaierror):
        return "no such host; choose an address of this machine, such as 127.0.0.1"
    return _REASONS.get(error.errno or 0, f"cannot listen there: {error.strerror}")


def _complaint(protocol: str, address: str, reason: str) -> str:
    return f"receivers.otlp.protocols.{protocol}.endpoint: {address!r}: {reason}"
