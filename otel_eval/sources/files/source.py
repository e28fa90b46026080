"""Inputs that can be read more than once: files, and standard input or pipes by way of a temporary file."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

__all__ = ["HEAD", "Source"]

HEAD: Final = 256 * 1024
"""Bytes in which the format shows, although log records may be printed before the first span."""

_GZIP: Final = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Source:
    """One input.

    Attributes:
        path: of a file, or "-" for standard input.
        copy: its bytes, where it can be read only once.
    """

    path: str
    copy: IO[bytes] | None = None

    @property
    def name(self) -> str:
        """For messages."""
        return "standard input" if self.path == "-" else self.path

    @classmethod
    @contextmanager
    def repeatable(cls, path: str | os.PathLike[str]) -> Iterator[Source]:
        """The input, to be opened any number of times; a pipe is copied first.

        Raises:
            OSError: it cannot be copied.
        """
        once = cls(os.fspath(path))
        if not once._is_read_once():
            yield once
            return
        with tempfile.TemporaryFile() as copy:
            with once._raw() as stream:
                shutil.copyfileobj(stream, copy)
            yield cls(once.path, copy)

    def _is_read_once(self) -> bool:
        try:
            mode = os.stat(self.path).st_mode
        except (OSError, ValueError):
            return self.path == "-"
        return self.path == "-" or not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))

    @contextmanager
    def open(self) -> Iterator[io.BufferedReader]:
        """The bytes from the beginning, decompressed if they are gzip.

        Raises:
            OSError: they cannot be read.
        """
        with self._raw() as stream:
            if stream.peek(2)[:2] != _GZIP:
                yield stream
                return
            member: Any = gzip.GzipFile(fileobj=stream)
            yield io.BufferedReader(member, HEAD)

    @contextmanager
    def _raw(self) -> Iterator[io.BufferedReader]:
        if self.path != "-" and self.copy is None:
            with open(self.path, "rb", buffering=0) as raw:
                yield io.BufferedReader(raw, HEAD)
            return
        shared: Any = self.copy or sys.stdin.buffer
        if self.copy is not None:
            self.copy.seek(0)
        stream = io.BufferedReader(shared, HEAD)
        try:
            yield stream
        finally:
            stream.detach()  # or what is shared would be closed with it
