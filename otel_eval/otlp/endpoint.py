"""An OTLP endpoint: its address, headers, proxy and TLS files, from the configuration and the environment."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from otel_eval.errors import ConfigError

__all__ = ["SIGNALS", "ClientTls", "Endpoint", "PemFile", "by_proxy", "for_signal", "is_secure", "key_of"]

_LARGEST: Final = 4 * 1024 * 1024  # the authorities of a whole system have a fraction of that
_SUFFIXES: Final = {"ca_file": "CERTIFICATE", "cert_file": "CLIENT_CERTIFICATE", "key_file": "CLIENT_KEY"}


@dataclass(frozen=True, slots=True)
class PemFile:
    """A file and the key of the configuration, or the environment variable, that names it."""

    key: str
    path: str

    def read(self) -> bytes:
        """The file's content.

        Raises:
            ConfigError: it cannot be read, or is too large for a file of certificates.
        """
        try:
            with open(self.path, "rb") as file:
                content = file.read(_LARGEST + 1)
        except OSError as error:
            raise self.unusable(f"cannot be read ({error.strerror})") from None
        if len(content) > _LARGEST:
            raise self.unusable("is larger than 4 MiB")
        return content

    def unusable(self, why: str) -> ConfigError:
        """The error that names the key, the file and the remedy."""
        return ConfigError(f"{self.key}: {self.path!r} {why}; name a PEM file")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The files for connections to one endpoint.

    Attributes:
        ca: authorities to trust; None: the system's.
        cert, key: a client certificate with its chain, and its key without a password; None: no client certificate.
    """

    ca: PemFile | None = None
    cert: PemFile | None = None
    key: PemFile | None = None

    @classmethod
    def from_config(cls, where: str, files: Mapping[str, str | None]) -> ClientTls:
        """From a `tls` block (`ca_file`, `cert_file`, `key_file`) at a place in the configuration."""
        ca, cert, key = (PemFile(f"{where}.{name}", path) if (path := files.get(name)) else None for name in _SUFFIXES)
        return cls(ca=ca, cert=cert, key=key)

    def with_environment(self, environment: Mapping[str, str], signal: str) -> ClientTls:
        """What the configuration leaves out, from OTEL_EXPORTER_OTLP_CERTIFICATE, _CLIENT_CERTIFICATE and _CLIENT_KEY.

        A variable of the signal (traces, logs, metrics), such as OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE, goes before the one for all
        signals. Source: opentelemetry.io/docs/specs/otel/protocol/exporter.
        """
        ca, cert, key = (_from_environment(environment, signal, suffix) for suffix in _SUFFIXES.values())
        pair = (self.cert, self.key) if self.cert or self.key else (cert, key)
        return ClientTls(ca=self.ca or ca, cert=pair[0], key=pair[1])

    def context(self) -> ssl.SSLContext:
        """What `ssl` needs for a connection.

        Raises:
            ConfigError: a file cannot be used.
        """
        context = ssl.create_default_context(cadata=self._authorities())
        if self.cert:
            self._load_certificate(context, self.cert)
        elif self.key:
            raise ConfigError(f"{self.key.key}: {self.key.path!r} is a key without a certificate; name both or neither")
        return context

    def _authorities(self) -> str | None:
        if self.ca is None:
            return None
        found = self.ca.read().decode("ascii", "replace")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=found)
        except (ssl.SSLError, ValueError):  # the latter of an empty file
            raise self.ca.unusable("holds no certificate in PEM") from None
        return found

    def _load_certificate(self, context: ssl.SSLContext, cert: PemFile) -> None:
        for each in (cert, self.key):
            if each:
                each.read()
        try:
            # A password is never asked for: without one given, OpenSSL would ask on the terminal.
            context.load_cert_chain(cert.path, self.key.path if self.key else None, password=lambda: "")
        except (ssl.SSLError, ValueError, OSError):
            pair = f"{cert.key}: {cert.path!r}" + (f" and {self.key.key}: {self.key.path!r}" if self.key else "")
            raise ConfigError(f"{pair} hold no certificate with its key in PEM; name a pair that belongs together") from None

    def pems(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Authorities, key and certificate as gRPC takes them.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.context()  # gRPC itself would fail at the first connection, without saying which file
        ca, key, cert = (each.read() if each else None for each in (self.ca, self.key or self.cert, self.cert))
        return ca, key, cert


def _from_environment(environment: Mapping[str, str], signal: str, suffix: str) -> PemFile | None:
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{suffix}", f"OTEL_EXPORTER_OTLP_{suffix}"):
        if path := environment.get(name):
            return PemFile(name, path)
    return None


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
    return by_proxy(replace(to, tls=tls, headers=to.headers or _headers(signal)))


def by_proxy(to: Endpoint) -> Endpoint:
    """The endpoint with the proxy that HTTP_PROXY, HTTPS_PROXY and NO_PROXY name for it."""
    return replace(to, proxy=to.proxy or _proxy(to))


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
    parts = urlsplit(to.endpoint)
    proxy = getproxies().get(parts.scheme)
    if to.protocol == "grpc" or not proxy or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
