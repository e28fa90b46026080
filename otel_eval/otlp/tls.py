"""Reads and checks the TLS files of an endpoint or a server, and the validity of their
certificates.

Python's `ssl` returns the validity of authorities only, so that of a certificate is read from its
DER encoding, in which only the validity is a sequence of two times. Source: RFC 5280, section
4.1.2.5; ITU-T X.690, section 8.1.
"""

from __future__ import annotations

import binascii
import calendar
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from otel_eval.errors import ConfigError, collect_errors
from otel_eval.watched_files import read_small_file

_LARGEST: Final = 4 * 1024 * 1024  # the authorities of a whole system have a fraction of that
_SUFFIXES: Final = {
    "ca_file": "CERTIFICATE",
    "cert_file": "CLIENT_CERTIFICATE",
    "key_file": "CLIENT_KEY",
}


@dataclass(frozen=True, slots=True)
class PemFile:
    """A PEM file, and the key of the configuration or the environment variable that names it."""

    key: str
    path: str

    def read(self) -> bytes:
        """The file's content.

        Raises:
            ConfigError: it cannot be read, or is too large for a file of certificates.
        """
        return read_small_file(self.path, _LARGEST, self.unusable)

    def authorities(self, content: bytes) -> str:
        """Return the content of the file as text for `ssl`, if there are certificates of
        authorities in it.

        Raises:
            ConfigError: there is none.
        """
        text = content.decode("ascii", "replace")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError):  # the latter of an empty file
            raise self.unusable("holds no certificate in PEM") from None
        return text

    def unusable(self, problem: str) -> ConfigError:
        """The error that names the key, the file and the remedy."""
        return ConfigError(f"{self.key}: {self.path!r} {problem}; name a PEM file")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientTls:
    """The files for connections to one endpoint.

    Attributes:
        ca: authorities to trust; None: the system's.
        cert, key: a client certificate with its chain, and its key without a password; None: no
            client certificate.
    """

    ca: PemFile | None = None
    cert: PemFile | None = None
    key: PemFile | None = None

    @classmethod
    def from_config(cls, where: str, files: Mapping[str, str | None]) -> ClientTls:
        """Create it from a `tls` block (`ca_file`, `cert_file`, `key_file`) at a place in the
        configuration.
        """
        ca, cert, key = (
            PemFile(f"{where}.{name}", path) if (path := files.get(name)) else None
            for name in _SUFFIXES
        )
        return cls(ca=ca, cert=cert, key=key)

    def with_environment(self, environment: Mapping[str, str], signal: str) -> ClientTls:
        """Return these files and, for those not configured, OTEL_EXPORTER_OTLP_CERTIFICATE,
        _CLIENT_CERTIFICATE and _CLIENT_KEY.

        A variable of the signal (traces, logs, metrics), such as
        OTEL_EXPORTER_OTLP_LOGS_CERTIFICATE, takes precedence over the one for all signals. Source:
        opentelemetry.io/docs/specs/otel/protocol/exporter.
        """
        ca, cert, key = (
            _from_environment(environment, signal, suffix) for suffix in _SUFFIXES.values()
        )
        pair = (self.cert, self.key) if self.cert or self.key else (cert, key)
        return ClientTls(ca=self.ca or ca, cert=pair[0], key=pair[1])

    def context(self) -> ssl.SSLContext:
        """Create the SSL context of connections.

        Raises:
            ConfigError: a file cannot be used.
        """
        context = ssl.create_default_context(
            cadata=self.ca.authorities(self.ca.read()) if self.ca else None
        )
        if self.cert:
            # OpenSSL's error does not name the file
            collect_errors(file.read for file in (self.cert, self.key) if file)
            load_pair(context, self.cert, self.key)
        elif self.key:
            raise ConfigError(
                f"{self.key.key}: {self.key.path!r} is a key without a certificate; name both or"
                " neither"
            )
        return context

    def pems(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        """Return authorities, key and certificate as gRPC expects them.

        Raises:
            ConfigError: a file cannot be used.
        """
        self.context()  # gRPC itself would fail at the first connection, without naming the file
        ca, key, cert = (
            file.read() if file else None for file in (self.ca, self.key or self.cert, self.cert)
        )
        return ca, key, cert


def load_pair(context: ssl.SSLContext, cert: PemFile, key: PemFile | None) -> None:
    """Load a certificate and its key into a context, from readable files; without `key`, the file
    of `cert` has both.

    Raises:
        ConfigError: they do not contain a certificate and its key.
    """
    try:
        # A password is never asked for: without one given, OpenSSL would ask on the terminal.
        context.load_cert_chain(cert.path, key.path if key else None, password=lambda: "")
    except (ssl.SSLError, ValueError, OSError):
        pair = f"{cert.key}: {cert.path!r}" + (f" and {key.key}: {key.path!r}" if key else "")
        raise ConfigError(
            f"{pair} hold no certificate with its key in PEM, without a password; name a pair that"
            " belongs together"
        ) from None


def _from_environment(environment: Mapping[str, str], signal: str, suffix: str) -> PemFile | None:
    for name in (f"OTEL_EXPORTER_OTLP_{signal.upper()}_{suffix}", f"OTEL_EXPORTER_OTLP_{suffix}"):
        if path := environment.get(name):
            return PemFile(name, path)
    return None


_BLOCK: Final = re.compile(rb"-----BEGIN (?:X509 |TRUSTED )?CERTIFICATE-----([^-]+)-----END")
# UTCTime, GeneralizedTime; both end with seconds
_TIME: Final = rb"(?:\x17\x0d([0-9]{12})Z|\x18\x0f([0-9]{14})Z)"
_VALIDITY: Final = re.compile(rb"\x30[\x1e\x20\x22]" + _TIME + _TIME)  # a sequence of two of them


class Validity(NamedTuple):
    """When a certificate is valid, in seconds since the epoch, both ends included."""

    not_before: int
    not_after: int

    def problem(self, now: float) -> str | None:
        """Why the certificate is not valid at a time, in seconds since the epoch; None if it is."""
        if now < self.not_before:
            return f"is not valid before {_formatted(self.not_before)}"
        if now > self.not_after + 1:  # the last second belongs to it
            return f"has expired at {_formatted(self.not_after)}"
        return None


def validity_of(pem: bytes) -> Validity | None:
    """The validity of the first certificate, which is a server's own; None if it cannot be read.

    >>> validity_of(b"no certificate")
    """
    block = _BLOCK.search(pem)
    try:
        times = _VALIDITY.search(binascii.a2b_base64(block[1])) if block else None
        return (
            Validity(_seconds(*times.group(1, 2)), _seconds(*times.group(3, 4))) if times else None
        )
    except ValueError:  # invalid base64, or an invalid time
        return None


def _seconds(utc: bytes | None, generalized: bytes | None) -> int:
    """Seconds since the epoch of a UTCTime, whose years are 1950 to 2049, or else of a
    GeneralizedTime.
    """
    text = generalized or (b"19" if (utc or b"") >= b"5" else b"20") + (utc or b"")
    return calendar.timegm(time.strptime(text.decode(), "%Y%m%d%H%M%S"))


def _formatted(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
