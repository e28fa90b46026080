"""Bearer tokens (RFC 6750) that clients need.

Only digests are kept; no token is ever in a message. All digests are compared, each in constant time, so that the time of a
refusal reveals nothing.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import threading
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError, collect_errors
from otel_eval.sources.receiver.file_reload import file_stamp, read_regular_file

__all__ = ["BearerTokens"]

_log = logging.getLogger("otel_eval")

_LARGEST_FILE: Final = 64 * 1024
_LONGEST_HEADER: Final = 8 * 1024


class BearerTokens:
    """The tokens of some files, one a line, and of some environment variables.

    Files are read again when they change, looked at once a second at most. One that cannot be used then, or is empty, leaves
    the tokens that it held: clients drop their data when they are refused. To revoke a token, write another.

    Args:
        files: each with at least one token; empty lines are skipped.
        variables: names of environment variables, each one token.
        environ: the environment; the process's own if None.
        where: the key of the configuration that errors name.
        look_s: how often the files are looked at, in seconds.

    Raises:
        ConfigError: a file cannot be read, or holds no usable token; a variable is unset.
    """

    def __init__(
        self,
        files: Sequence[str] = (),
        variables: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        *,
        where: str = "auth",
        look_s: float = 1.0,
    ) -> None:
        environ = os.environ if environ is None else environ
        self._where, self._look_s = where, look_s
        digests = [partial(_variable, environ, name, where) for name in variables]
        opened = [partial(self._opened, file) for file in files]
        found: list[Any] = collect_errors([*digests, *opened])
        self._fixed: Final[list[bytes]] = found[: len(digests)]
        self._lock = threading.Lock()  # guards what follows
        self._files: dict[str, tuple[Any, list[bytes]]] = dict(zip(files, found[len(digests) :], strict=True))
        self._looked = time.monotonic()

    def allow(self, header: str | None) -> bool:
        """Whether an `Authorization` header carries one of the tokens."""
        kind, _, token = (header or "").partition(" ")
        if kind.lower() != "bearer" or len(token) > _LONGEST_HEADER:
            return False
        given = _digest(token.strip(" "))
        found = False
        for each in self._known():
            found |= hmac.compare_digest(each, given)
        return found

    def _known(self) -> list[bytes]:
        with self._lock:
            now = time.monotonic()
            if now - self._looked >= self._look_s:
                self._looked = now
                self._look()
            return [*self._fixed, *(digest for _, digests in self._files.values() for digest in digests)]

    def _look(self) -> None:
        for file, (seen, digests) in self._files.items():
            if (now := file_stamp(file)) == seen:
                continue
            try:
                digests = self._read(file)
            except ConfigError as error:
                _log.warning("%s; the tokens read before stay valid", error)
            self._files[file] = (now, digests)

    def _opened(self, file: str) -> tuple[Any, list[bytes]]:
        return file_stamp(file), self._read(file)

    def _read(self, file: str) -> list[bytes]:
        where = f"{self._where}.token_files: {file!r}"
        try:
            raw = read_regular_file(file, _LARGEST_FILE)
        except OSError as error:
            raise ConfigError(f"{where} cannot be read ({error.strerror}); name a file with one token a line") from None
        if len(raw) > _LARGEST_FILE:
            raise ConfigError(f"{where} is larger than 64 KiB; name a file with one token a line")
        lines = [line.strip() for line in raw.decode("utf-8-sig", "replace").splitlines()]
        if not any(lines):
            raise ConfigError(f"{where} is empty; write one token a line")
        return [_digest(_checked(line, where)) for line in lines if line]


def _variable(environ: Mapping[str, str], name: str, where: str) -> bytes:
    return _digest(_checked(environ.get(name, ""), f"{where}.token_env: the variable {name!r}"))


def _checked(token: str, where: str) -> str:
    token = token.strip()
    if not token:
        raise ConfigError(f"{where} is unset or empty; give it a token")
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{where} holds what is no token; write one of printable ASCII without spaces")
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
