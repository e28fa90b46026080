"""Certificates of the receiver and bearer tokens (RFC 6750) of its clients, read again when their
files change.

Only digests of tokens are kept, and no message quotes a token. Every digest is compared in constant
time, so that the time of a refusal reveals nothing.

Certificate files are checked for changes when a client connects or a metric is read, at most once
in an interval. Invalid files, and a certificate that is expired or not yet valid, do not replace a
valid one; that is logged once for each change.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

from otel_eval.errors import ConfigError, collect_errors
from otel_eval.otlp.tls import PemFile, Validity, load_pair, validity_of
from otel_eval.watched_files import WatchedFiles, read_small_file

_log = logging.getLogger("otel_eval")

_MOST_TOKENS: Final = 64 * 1024
_LONGEST_HEADER: Final = 8 * 1024


class BearerTokens:
    """The bearer tokens in files, one a line, and in environment variables.

    Files are checked for changes at most once a second. If a changed file is invalid or empty, its
    previous tokens stay valid, because clients drop their data when they are refused. To revoke a
    token, write another one.

    Args:
        files: paths of files with at least one token each; empty lines are skipped.
        variables: names of environment variables with one token each.
        where: the key of the configuration, for errors.
        look_s: the interval of the checks for changes, in seconds.

    Raises:
        ConfigError: a file cannot be read, or holds no usable token; a variable is unset.
    """

    def __init__(
        self,
        files: Sequence[str] = (),
        variables: Sequence[str] = (),
        *,
        where: str = "auth",
        look_s: float = 1.0,
    ) -> None:
        consequence = "the tokens read before stay valid"
        digests = [partial(_read_variable, name, where) for name in variables]
        watched = [
            partial(WatchedFiles, (file,), partial(_read_tokens, file, where), look_s, consequence)
            for file in files
        ]
        sources: list[Any] = collect_errors([*digests, *watched])
        self._fixed: Final[list[bytes]] = sources[: len(digests)]
        self._files: Final[list[WatchedFiles[list[bytes]]]] = sources[len(digests) :]

    def allow(self, header: str | None) -> bool:
        """Whether an `Authorization` header has one of the tokens."""
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or len(token) > _LONGEST_HEADER:
            return False
        digest = _digest(token.strip(" "))
        is_known = False
        for digests in (self._fixed, *(file.current() for file in self._files)):
            for token_digest in digests:
                is_known |= hmac.compare_digest(token_digest, digest)
        return is_known


def _read_tokens(file: str, where: str) -> list[bytes]:
    """The digests of the tokens in a file."""
    where = f"{where}.token_files: {file!r}"
    raw = read_small_file(
        file,
        _MOST_TOKENS,
        lambda problem: ConfigError(f"{where} {problem}; name a file with one token a line"),
    )
    lines = [line.strip() for line in raw.decode("utf-8-sig", "replace").splitlines()]
    if not any(lines):
        raise ConfigError(f"{where} is empty; write one token a line")
    return [_digest(_check_token(line, where)) for line in lines if line]


def _read_variable(name: str, where: str) -> bytes:
    return _digest(
        _check_token(os.environ.get(name, ""), f"{where}.token_env: the variable {name!r}")
    )


def _check_token(token: str, where: str) -> str:
    """The token without blanks around it; raises ConfigError if it is none."""
    token = token.strip()
    if not token:
        raise ConfigError(f"{where} is unset or empty; give it a token")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{where} is not a token; write printable ASCII without spaces")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()


@dataclass(frozen=True, slots=True)
class _Loaded:
    context: ssl.SSLContext
    key: bytes
    chain: bytes
    authorities: bytes | None
    validity: Validity | None  # None: unknown; the certificate is used

    @property
    def problem(self) -> str | None:
        """Why clients refuse the certificate now; None if they accept it, as far as known."""
        return self.validity.problem(time.time()) if self.validity else None


class Certificates:
    """The certificates of one server.

    Args:
        where: the key of the configuration, for errors.
        cert_file, key_file: PEM files of the server's certificate, with its chain, and of its key.
        client_ca_file: PEM file of authorities; clients must then have a certificate from one of
            them.
        reload_interval: the interval of the checks for changes, in seconds; 0: the files are read
            once.

    Raises:
        ConfigError: a file cannot be read, or the key does not belong to the certificate.
    """

    def __init__(
        self,
        where: str,
        cert_file: str,
        key_file: str,
        client_ca_file: str | None = None,
        reload_interval: float = 60.0,
    ) -> None:
        self._cert = PemFile(f"{where}.cert_file", cert_file)
        self._key = PemFile(f"{where}.key_file", key_file)
        self._ca = PemFile(f"{where}.client_ca_file", client_ca_file) if client_ca_file else None
        self._loaded: _Loaded | None = None
        files = [file.path for file in (self._cert, self._key, self._ca) if file]
        self._files: Final = WatchedFiles(
            files, self._read, reload_interval or inf, "the certificate read before stays in use"
        )

    def current(self) -> _Loaded:
        """The certificate in the files, or the previous one if the files do not hold a valid one
        now.
        """
        return self._files.current()

    @property
    def not_after(self) -> int | None:
        """The end of validity of the certificate in use, in seconds since the epoch; None if it is
        unknown.
        """
        validity = self.current().validity
        return validity.not_after if validity else None

    def _read(self) -> _Loaded:
        """Read the certificate in the files.

        Raises:
            ConfigError: the files are invalid, or their certificate is not valid now while the one
                in use is.
        """
        loaded = self._load()
        if problem := loaded.problem:
            described = f"{self._cert.key}: {self._cert.path!r} {problem}"
            if self._loaded and not self._loaded.problem:
                raise ConfigError(described)
            _log.warning("%s; clients refuse it: renew it", described)
        self._loaded = loaded
        return loaded

    def _load(self) -> _Loaded:
        """Load the files, all of whose problems are raised together."""
        reads: list[Callable[[], bytes]] = [
            file.read for file in (self._cert, self._key, self._ca) if file
        ]
        chain, key, *further = collect_errors(reads)
        authorities = further[0] if further else None
        return _Loaded(self._context(authorities), key, chain, authorities, validity_of(chain))

    def _context(self, authorities: bytes | None) -> ssl.SSLContext:
        """The context of TLS connections, which asks for client certificates if there are
        authorities.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        load_pair(context, self._cert, self._key)
        if self._ca and authorities is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=self._ca.authorities(authorities))
        return context

    def grpc_credentials(self) -> Any:
        """Credentials for a grpcio server, which calls `fetch` at each connection to get changed
        certificates.
        """
        import grpc

        sent = self.current()

        def configuration(loaded: _Loaded) -> Any:
            return grpc.ssl_server_certificate_configuration(
                [(loaded.key, loaded.chain)], loaded.authorities
            )

        def fetch() -> Any:
            nonlocal sent
            now = self.current()
            if now is sent:
                return None
            sent = now
            return configuration(now)

        return grpc.dynamic_ssl_server_credentials(
            configuration(sent), fetch, require_client_authentication=self._ca is not None
        )
