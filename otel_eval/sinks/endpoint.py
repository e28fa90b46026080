"""An OTLP endpoint: its address, its headers, its TLS, from the configuration and the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from otel_eval.errors import ConfigError
from otel_eval.tls import ClientTls

__all__ = ["SIGNALS", "Endpoint", "for_signal", "is_secure", "key_of"]

SIGNALS: Final = ("logs", "metrics", "spans")
_HEADERS: Final = "OTEL_EXPORTER_OTLP_{}HEADERS"


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where and how to send.

    Attributes:
        endpoint: `http(s)://host:port`; for HTTP the base, to which `/v1/logs` and so on are added.
        protocol: grpc or http/protobuf.
        headers: sent with each request.
        timeout_s: for one attempt.
        compression: gzip or none.
        tls: files for an https endpoint.
        proxy: URL of an HTTP proxy between here and the endpoint; None: the connection is direct. gRPC finds its own.
    """

    endpoint: str
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 10.0
    compression: Literal["gzip", "none"] = "none"
    tls: ClientTls = field(default_factory=ClientTls)
    proxy: str | None = None


def key_of(to: Endpoint, exporter: str) -> str:
    """What stands for an exporter's signal and endpoint where it is remembered; the URL cannot be read from it."""
    return f"{exporter} {sha256(f'{to.protocol} {to.endpoint}'.encode()).hexdigest()[:16]}"


def is_secure(to: Endpoint) -> bool:
    """Whether connections use TLS."""
    return to.endpoint.startswith("https")


def for_signal(to: Endpoint, signal: str, problems: set[str] | None = None) -> Endpoint:
    """The endpoint with what the environment names for a signal (logs, metrics, spans): certificates, headers, a proxy.

    Headers of the configuration take the place of those of OTEL_EXPORTER_OTLP_HEADERS, as in the SDK.

    Args:
        problems: gets what is wrong with the environment's files, which are then left out; None: they are not checked here.
    """
    signal = "traces" if signal == "spans" else signal
    tls = _tls(to, signal, problems) if is_secure(to) else to.tls
    return replace(to, tls=tls, headers=to.headers or _headers(signal), proxy=to.proxy or _proxy(to))


def _tls(to: Endpoint, signal: str, problems: set[str] | None) -> ClientTls:
    tls = to.tls.with_environment(os.environ, signal)
    if problems is not None and tls != to.tls:
        try:
            tls.context()
        except ConfigError as error:
            problems.update(error.problems)
            return to.tls
    return tls


def _headers(signal: str) -> Mapping[str, str]:
    from opentelemetry.util.re import parse_env_headers

    given = os.environ.get(_HEADERS.format(f"{signal.upper()}_")) or os.environ.get(_HEADERS.format(""), "")
    return parse_env_headers(given, liberal=True)


def _proxy(to: Endpoint) -> str | None:
    """What HTTP_PROXY, HTTPS_PROXY and NO_PROXY say of the endpoint."""
    parts = urlsplit(to.endpoint)
    proxy = getproxies().get(parts.scheme)
    if to.protocol == "grpc" or not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
