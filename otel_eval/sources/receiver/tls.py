"""The receiver's certificates, read anew when their files change.

Knows PEM files, ssl and grpcio's credentials. Files are looked at when somebody connects, at most once in an interval; what
cannot be used then leaves the old certificate in place and is said once for each change.
"""

from __future__ import annotations

import logging
import ssl
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError
from otel_eval.sources.receiver.watched import content, stamp
from otel_eval.telling import gathered

__all__ = ["Certificates", "Tls"]

_log = logging.getLogger("otel_eval")

_LARGEST_FILE: Final = 4 * 1024 * 1024  # the authorities of a whole system have a fraction of that
_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """What a server needs to speak TLS.

    Attributes:
        cert_file, key_file: PEM files of the server's certificate, with its chain, and of its key.
        client_ca_file: PEM file of authorities; clients must then show a certificate from one of them.
        min_version: "1.2" or "1.3".
        reload_s: how often the files are looked at, in seconds; 0: never again.
    """

    cert_file: str
    key_file: str
    client_ca_file: str | None = None
    min_version: str = "1.2"
    reload_s: float = 60.0


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    key: bytes
    chain: bytes
    authorities: bytes | None


class Certificates:
    """The certificates of one server.

    Args:
        tls: where they are.
        where: the key of the configuration that errors name.

    Raises:
        ConfigError: a file cannot be read, or the key does not belong to the certificate.
    """

    def __init__(self, tls: Tls, where: str) -> None:
        self._tls, self._where = tls, where
        self._lock = threading.Lock()  # guards what follows
        self._stamp = self._stamped()
        self._loaded = self._load()
        self._looked = time.monotonic()

    def current(self) -> _Loaded:
        """What the files hold, or held when they could last be used."""
        if not self._tls.reload_s:
            return self._loaded
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= self._tls.reload_s:
                self._looked = now
                self._look()
            return self._loaded

    def _look(self) -> None:
        found = self._stamped()
        if found == self._stamp:
            return
        self._stamp = found
        try:
            self._loaded = self._load()
        except ConfigError as error:
            _log.warning("%s; the certificate read before stays in use", error)

    def _stamped(self) -> tuple[Any, ...]:
        files = (self._tls.cert_file, self._tls.key_file, self._tls.client_ca_file)
        return tuple(stamp(file) for file in files if file)

    def _load(self) -> _Loaded:
        tls = self._tls
        named = {"cert_file": tls.cert_file, "key_file": tls.key_file, "client_ca_file": tls.client_ca_file}
        found = {key: partial(self._read, key, file) for key, file in named.items() if file}
        chain, key, *further = gathered(found.values())
        authorities = further[0] if further else None
        return _Loaded(self._context(authorities), key, chain, authorities)

    def _context(self, authorities: bytes | None) -> ssl.SSLContext:
        tls = self._tls
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[tls.min_version]
        context.set_alpn_protocols(["http/1.1"])
        try:
            # A password is never asked for: without one given, OpenSSL would ask on the terminal.
            context.load_cert_chain(tls.cert_file, tls.key_file, password=lambda: "")
        except (ssl.SSLError, ValueError, OSError):
            raise ConfigError(
                f"{self._where}.key_file: {tls.key_file!r} and cert_file {tls.cert_file!r} are no key without a password and its "
                "certificate in PEM; name a pair that belongs together"
            ) from None
        if authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            try:
                context.load_verify_locations(cadata=authorities.decode("ascii", "replace"))
            except (ssl.SSLError, ValueError):  # the latter of an empty file
                found = f"{self._where}.client_ca_file: {tls.client_ca_file!r}"
                raise ConfigError(f"{found} holds no certificate in PEM; name a file of authorities") from None
        return context

    def _read(self, key: str, file: str) -> bytes:
        try:
            found = content(file, _LARGEST_FILE)
        except OSError as error:
            raise ConfigError(f"{self._where}.{key}: {file!r} cannot be read ({error.strerror}); name a PEM file") from None
        if len(found) > _LARGEST_FILE:
            raise ConfigError(f"{self._where}.{key}: {file!r} is larger than 4 MiB; name a PEM file")
        return found

    def grpc_credentials(self) -> Any:
        """Credentials for a grpcio server, which asks for the certificates at each connection."""
        import grpc

        told = self.current()

        def configuration(loaded: _Loaded) -> Any:
            return grpc.ssl_server_certificate_configuration([(loaded.key, loaded.chain)], loaded.authorities)

        def fetch() -> Any:
            nonlocal told
            now = self.current()
            if now is told:
                return None
            told = now
            return configuration(now)

        required = self._tls.client_ca_file is not None
        return grpc.dynamic_ssl_server_credentials(configuration(told), fetch, require_client_authentication=required)
