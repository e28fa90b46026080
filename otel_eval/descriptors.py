"""File descriptors of a server process: their limit, how many connections it allows, and how to
accept when none is left.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, TypeVar

resource: Any = import_module("resource") if find_spec("resource") else None  # not on Windows

T = TypeVar("T")
_log = logging.getLogger("otel_eval")

_MOST: Final = 65_536
"""The highest soft limit that is set, far above what our connections take. The hard limit may be a
billion, and child processes that close all descriptors they might have inherited count up to the
limit.
"""
_RESERVE: Final = 128
"""Descriptors that are not used for connections of clients: admin server (16), journal, files,
exporters, judges.
"""
_RESERVED_SHARE: Final = 4  # at most a quarter of the limit is reserved
_LEAST: Final = 4  # connections of each kind that are accepted, however low the limit is
_EXHAUSTED: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_BACKOFF_S: Final = 0.1
_SPARE: Final = 4
_TOO_FEW_FILES: Final = (
    "open files: the limit of %d has room for %d gRPC and %d HTTP connections; for %d and %d raise"
    " it to %d (ulimit -n)"
)


class Connections(NamedTuple):
    """How many connections of each kind may be open at once."""

    grpc: int
    http: int


def soft_limit() -> int | None:
    """The number of files that this process may have open; None if it is not limited."""
    if resource is None:
        return None
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> int | None:
    """Raise the soft limit of open files to the hard one, at most 65536; return the limit, or None
    if there is none.

    Many systems start processes with 1024 because of programs that use `select`; this one does not.
    """
    soft = soft_limit()
    if soft is None:
        return None
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    target = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    if soft >= target:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
    except (OSError, ValueError):  # a limit of the kernel is lower
        return soft
    _log.info("open files: soft limit raised from %d to %d", soft, target)
    return target


def connections(limit: int | None, requested: Connections, *, per_http: int = 1) -> Connections:
    """Return the requested connections, or those that the limit of open files allows beside the
    reserve, which is logged.

    Args:
        limit: the limit of open files; None: there is none.
        per_http: descriptors that an HTTP connection takes.
    """
    need = requested.grpc + requested.http * per_http
    if limit is None or limit - _RESERVE >= need:
        return requested
    # With a very low limit a reserve of fixed size would leave no connection at all.
    available = max(0, limit - min(_RESERVE, limit // _RESERVED_SHARE))
    allowed = Connections(*(max(_LEAST, number * available // need) for number in requested))
    _log.warning(_TOO_FEW_FILES, limit, *allowed, *requested, need + _RESERVE)
    return allowed


def accept(accepting: Callable[[], T]) -> T:
    """Accept a connection. If no descriptor is left, wait a moment before the error is raised.

    The connection stays in the queue of the socket, which is thus readable: without a wait a loop
    would spin.
    """
    try:
        return accepting()
    except OSError as error:
        if error.errno in _EXHAUSTED:
            time.sleep(_BACKOFF_S)
        raise


class Spare:
    """Descriptors held open so that connections can be accepted when the process has no other
    left.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _descriptors
        self._descriptors: list[int] = []
        self.refill()

    def refill(self) -> None:
        """Open spare descriptors up to their number, if the limit allows it. To be called when a
        connection was closed.
        """
        with self._lock, suppress(OSError):
            while len(self._descriptors) < _SPARE:
                self._descriptors.append(os.open(os.devnull, os.O_RDONLY))

    def accept(self, accepting: Callable[[], T]) -> T:
        """Accept a connection; if no descriptor is left, close a spare one for it."""
        while True:
            try:
                return accepting()
            except OSError as error:
                if error.errno not in _EXHAUSTED or not self._release():
                    raise

    def _release(self) -> bool:
        """Close one spare descriptor; False if none is left."""
        with self._lock:
            if self._descriptors:
                os.close(self._descriptors.pop())
                return True
            return False

    def close(self) -> None:
        """Close all spare descriptors."""
        while self._release():
            pass
