"""The receiver: where it listens, how it starts and stops."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from ipaddress import ip_address
from typing import Final

from otel_eval.counters import Counters
from otel_eval.descriptors import Connections, connections
from otel_eval.errors import ConfigError
from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.credentials import BearerTokens, Certificates, Tls
from otel_eval.sources.receiver.export_handler import ExportHandler, ExportResponse, ReceiverLimits, counts_by_transport
from otel_eval.sources.receiver.grpc_server import OtlpGrpcServer
from otel_eval.sources.receiver.http_server import OtlpHttpServer
from otel_eval.sources.receiver.memory import MemoryLimiter

_log = logging.getLogger("otel_eval")

_NOT_AFTER: Final = "receiver.certificate_not_after"
_REASONS: Final = {
    errno.EADDRINUSE: "the port is in use; stop the other process or choose another port, 0 picks a free one",
    errno.EACCES: "this port needs more rights; choose one from 1024 up, 0 picks a free one",
    errno.EADDRNOTAVAIL: "this machine has no such address; choose one it has, such as 127.0.0.1",
}


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the receiver listens, as "host:port"; None for a transport that is off."""

    grpc: str | None
    http: str | None


class OtlpServer:
    """OTLP over gRPC and HTTP.

    Args:
        grpc, http: "host:port", checked by the configuration, port 0 for a free one; None turns the transport off.
        handler: makes what deals with requests, such as a `DecodingHandler` with its consumer.
        limits: what clients may cost.
        grpc_tls, http_tls: certificates; without them the transport is not encrypted.
        tokens: bearer tokens of which every request needs one; without them every client is accepted.
        counters: where to count, to share them with an observer.
        ready: whether evaluation makes progress; gRPC health is NOT_SERVING while it does not.
    """

    def __init__(
        self,
        *,
        grpc: str | None,
        http: str | None,
        handler: Callable[[MemoryLimiter, Counters, ReceiverLimits], ExportHandler],
        limits: ReceiverLimits | None = None,
        grpc_tls: Tls | None = None,
        http_tls: Tls | None = None,
        tokens: BearerTokens | None = None,
        counters: Counters | None = None,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._ready = ready
        self.counters = counters or Counters()
        self._addresses = (grpc, http)
        self._tls = {"grpc": grpc_tls, "http": http_tls}
        self._loaded: dict[str, Certificates] = {}
        self._tokens = tokens
        self._limits = limits = limits or ReceiverLimits()
        self._memory_limiter = MemoryLimiter(limits.max_inflight_bytes)
        self._handler = handler(self._memory_limiter, self.counters, limits)
        self._grpc: OtlpGrpcServer | None = None
        self._http: OtlpHttpServer | None = None
        self._started = False

    def start(self) -> Bound:
        """Listen and serve.

        Raises:
            ConfigError: an address cannot be had, or a certificate cannot be used; then nothing listens.
        """
        grpc, http = self._addresses
        # gRPC last: grpcio does not give back the port of a server that never started.
        bound_http = None if http is None else self._bind_http(http)
        try:
            bound_grpc = None if grpc is None else self._bind_grpc(grpc)
        except ConfigError:
            if self._http:
                self._http.server_close()
            self._http = None
            raise
        for server in (self._grpc, self._http):
            if server:
                server.start()
        self._started = True
        return Bound(bound_grpc, bound_http)

    def fit(self, limit: int | None) -> None:
        """Before the start: take no more connections than a limit of open files has room for; None: there is no limit."""
        # A connection by TLS is held twice over HTTP: as it is, to be ended from elsewhere, and wrapped.
        per_http = 2 if self._tls["http"] else 1
        wanted = Connections(self._limits.grpc_connections, self._limits.http_connections)
        most = connections(limit, wanted, per_http=per_http)
        self._limits = replace(self._limits, grpc_connections=most.grpc, http_connections=most.http)

    def counts(self) -> dict[str, dict[str, int]]:
        """Every counter by name, then by transport; counters that were never raised are {}."""
        return counts_by_transport(self.counters)

    @property
    def is_open(self) -> bool:
        """Whether requests are taken."""
        return self._started and not self._memory_limiter.closed

    def take(self, transport: str, signal: Signal, body: bytes) -> ExportResponse:
        """Deal with a request in protobuf that came to another process by that transport; raises as `ExportHandler.take` does."""
        return self._handler.take(transport, signal, Encoding.PROTOBUF, len(body), lambda _: body)

    def _bind_grpc(self, address: str) -> str:
        host, port = _parsed(address)
        _probe("grpc", address, host, port)  # grpcio itself would complain on stderr
        certificates = self._certificates("grpc")
        server = OtlpGrpcServer(self._handler, self._limits, certificates=certificates, tokens=self._tokens, ready=self._ready)
        try:
            bound = _written(host, server.bind(_written(host, port)))
        except RuntimeError:
            raise ConfigError(_complaint("grpc", address, "cannot listen there; choose another address")) from None
        self._grpc = server
        self._warn("grpc", address, host)
        return bound

    def _certificates(self, protocol: str) -> Certificates | None:
        tls = self._tls[protocol]
        if tls is None:
            return None
        self._loaded[protocol] = Certificates(tls, f"receivers.otlp.protocols.{protocol}.tls")
        return self._loaded[protocol]

    def not_after(self) -> dict[str, int]:
        """The last second of each transport's certificate, since the epoch, as a count that metrics show."""
        found = {protocol: certificates.not_after for protocol, certificates in self._loaded.items()}
        return {f"{_NOT_AFTER}{{receiver=otlp,transport={protocol}}}": end for protocol, end in found.items() if end is not None}

    def _warn(self, protocol: str, address: str, host: str) -> None:
        """Warn at the start if clients beyond this machine can connect without TLS or a token."""
        if self._tls[protocol] or _is_loopback(host):
            return
        if self._tokens is None:
            _log.warning(
                _complaint(protocol, address, "every client that reaches this address can send spans; add tls: or auth:")
            )
        else:
            _log.warning(_complaint(protocol, address, "tokens and data can be read on their way here; add tls:"))

    def _bind_http(self, address: str) -> str:
        host, port = _parsed(address)
        certificates = self._certificates("http")
        try:
            self._http = OtlpHttpServer(
                (host, port), self._handler, self.counters, self._limits, certificates=certificates, tokens=self._tokens
            )
        except OSError as error:
            raise ConfigError(_complaint("http", address, _reason(error))) from None
        self._warn("http", address, host)
        return _written(host, self._http.server_port)

    def stop(self, timeout_s: float = 5.0) -> None:
        """Refuse what is new at once, let what runs end within `timeout_s` seconds, then close every connection."""
        deadline = time.monotonic() + timeout_s
        self._memory_limiter.close()
        if self._http:
            self._http.stopping = True
        wait = self._grpc.stop(timeout_s) if self._grpc else None
        self._memory_limiter.wait_idle(timeout_s)
        if self._http:
            self._http.stop(max(0.5, deadline - time.monotonic()))
        if wait:
            wait()
        self._grpc = self._http = None

    def close(self, timeout_s: float) -> None:
        """Nothing is left to do: requests were acknowledged when they were taken."""


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _written(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _probe(protocol: str, address: str, host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError as error:
            raise ConfigError(_complaint(protocol, address, _reason(error))) from None


def _reason(error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return "no such host; choose an address of this machine, such as 127.0.0.1"
    return _REASONS.get(error.errno or 0, f"cannot listen there: {error.strerror}")


def _complaint(protocol: str, address: str, reason: str) -> str:
    return f"receivers.otlp.protocols.{protocol}.endpoint: {address!r}: {reason}"
