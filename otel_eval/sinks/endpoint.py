"""An OTLP endpoint: its address, its headers, its TLS.

Knows what a user says of it; sends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from otel_eval.errors import ConfigError

__all__ = ["PATHS", "Endpoint", "grpc_credentials", "is_secure", "url_of"]

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
        ca_file, cert_file, key_file: PEM files for TLS and for a client certificate.
    """

    endpoint: str
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    compression: Literal["gzip", "none"] = "none"
    insecure: bool | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None


def is_secure(to: Endpoint) -> bool:
    """Whether gRPC speaks TLS: as said, else by the scheme."""
    return to.endpoint.startswith("https") if to.insecure is None else not to.insecure


def grpc_credentials(to: Endpoint) -> Any:
    """TLS as the endpoint asks for it.

    Raises:
        ConfigError: a file cannot be read.
    """
    import grpc

    return grpc.ssl_channel_credentials(*(_pem(key, getattr(to, key)) for key in ("ca_file", "key_file", "cert_file")))


def _pem(key: str, path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise ConfigError(f"exporters.otlp.{key}: {path!r} cannot be read ({error.strerror}); name a PEM file") from None


def url_of(to: Endpoint, signal: str) -> str:
    """The signal's own address under the HTTP endpoint."""
    return f"{to.endpoint.rstrip('/')}/{PATHS[signal]}"
