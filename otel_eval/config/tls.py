"""The files of a client for TLS: part of every connection that the configuration describes."""

from __future__ import annotations

from collections.abc import Iterator

from otel_eval.config.validation import Shape
from otel_eval.errors import redacted_repr

__all__ = ["TlsFiles", "tls_without_https"]


class TlsFiles(Shape):
    """PEM files for a connection by TLS."""

    ca_file: str | None = None
    """Authorities to trust instead of the system's."""
    cert_file: str | None = None
    """A client certificate."""
    key_file: str | None = None
    """The client certificate's key."""

    def contradictions(self) -> Iterator[str]:
        """A certificate and its key come together."""
        if (self.cert_file is None) != (self.key_file is None):
            given, other = ("cert_file", "key_file") if self.cert_file else ("key_file", "cert_file")
            yield f"{given} is given without {other}; name both or neither"


def tls_without_https(tls: TlsFiles | None, url: str) -> Iterator[str]:
    """The problem of files for TLS that are named for an endpoint without it."""
    if tls is not None and not url.startswith("https"):
        yield f"tls: files are named, but {redacted_repr(url)} is not an https:// URL; write https://"
