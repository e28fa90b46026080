"""A progress bar over the bytes of files, on a terminal only.

Knows sizes of files and terminals; knows nothing of what is read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import click

__all__ = ["Progress"]

_CLEAR: Final = "\r\x1b[2K"
_CURSOR: Final = "\x1b[?25h"  # the bar hides it


class Progress:
    """A bar on stderr that makes room while something else is printed; nothing at all if stderr is no terminal."""

    def __init__(self, files: Sequence[str]) -> None:
        sizes = [os.path.getsize(file) for file in files if os.path.isfile(file)]
        self._bar: Any = None
        if sizes and len(sizes) == len(files) and sys.stderr.isatty():
            self._bar = click.progressbar(length=sum(sizes), label="reading", file=sys.stderr)

    def __enter__(self) -> Progress:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            click.echo(_CLEAR + _CURSOR, nl=False, err=True)

    def advance(self, read: int) -> None:
        """So many bytes more were read."""
        if self._bar is not None:
            self._bar.update(read)

    @contextmanager
    def aside(self) -> Iterator[None]:
        """A clean line to print on; the bar is drawn again afterwards."""
        if self._bar is None:
            yield
            return
        click.echo(_CLEAR, nl=False, err=True)
        yield
        sys.stdout.flush()
        self._bar._last_line = None  # it would not draw the same line twice
        self._bar.render_progress()
