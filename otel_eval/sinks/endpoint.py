"""An OTLP endpoint: its address, its headers, its TLS.

Knows what a user says of it; sends nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from otel_eval.errors import ConfigError
from otel_eval.tls import ClientTls

__all__ = ["PATHS", "Endpoint", "for_signal", "grpc_credentials", "is_secure", "url_of"]

PATHS: Final = {"logs": "v1/logs", "metrics": "v1/metrics", "spans": "v1/traces"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to send.

    Attributes:
        endpoint: `http(s)://host:port`; for HTTP the base, to which `/v1/logs` and so on are added.
        protocol: grpc or http/protobuf.
        headers: sent with each request.
        timeout_s: for one export with its retries.
        compression: gzip or none.
        insecure: gRPC without TLS; None: by the endpoint's scheme.
        tls: files for an https endpoint.
    """

    endpoint: str
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    compression: Literal["gzip", "none"] = "none"
    insecure: bool | None = None
    tls: ClientTls = field(default_factory=ClientTls)


def for_signal(to: Endpoint, signal: str, problems: set[str] | None = None) -> Endpoint:
    """The endpoint with the certificates that the environment names for a signal (logs, metrics, spans), if it uses TLS.

    Args:
        problems: gets what is wrong with the environment's files, which are then left out; None: they are not checked here.
    """
    if not is_secure(to):
        return to
    tls = to.tls.with_environment(os.environ, "traces" if signal == "spans" else signal)
    if problems is not None and tls != to.tls:
        try:
            tls.context()
        except ConfigError as error:
            problems.update(error.problems)
            return to
    return replace(to, tls=tls)


def is_secure(to: Endpoint) -> bool:
    """Whether gRPC speaks TLS: as said, else by the scheme."""
    return to.endpoint.startswith("https") if to.insecure is None else not to.insecure


def grpc_credentials(to: Endpoint) -> Any:
    """TLS as the endpoint asks for it.

    Raises:
        ConfigError: a file cannot be used.
    """
    import grpc

    return grpc.ssl_channel_credentials(*to.tls.pems())


def url_of(to: Endpoint, signal: str) -> str:
    """The signal's own address under the HTTP endpoint."""
    return f"{to.endpoint.rstrip('/')}/{PATHS[signal]}"
