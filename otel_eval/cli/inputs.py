"""The inputs of a command: files in folders, problems with them, and how far they were read."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable
from typing import Final

import click

from otel_eval.cli.exit_codes import UNUSABLE
from otel_eval.cli.log_format import warn
from otel_eval.errors import InputError
from otel_eval.exporters.text_table import layout_of
from otel_eval.sources.files import ReadingListener

_SUFFIXES: Final = (".json", ".jsonl", ".ndjson", ".pb", ".otlp", ".gz")
_CLEAR: Final = "\r\x1b[2K"  # ANSI: to the start of the line, and erase it
_REDRAWN_S: Final = 0.1


def files_of(paths: Iterable[str]) -> list[str]:
    """The files that the paths name; instead of a folder the files in it and in its subfolders, in
    the order of their names, whose names have a suffix of traces or results and do not begin with a
    dot. Whether a file exists is not checked.

    Raises:
        InputError: a folder cannot be read, or has no such file.
    """
    return [file for path in paths for file in (_files_in(path) if os.path.isdir(path) else [path])]


def _files_in(folder: str) -> list[str]:
    """The files in a folder and its subfolders, as `files_of` chooses them."""

    def refuse(error: OSError) -> None:
        raise InputError(f"{error.filename or folder}: {error.strerror or error}")

    files: list[str] = []
    for parent, folders, names in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [
            os.path.join(parent, name)
            for name in names
            if name.endswith(_SUFFIXES) and not name.startswith(".")
        ]
    if not files:
        raise InputError(
            f"{folder}: the folder has no file with a name that ends in {', '.join(_SUFFIXES)};"
            " name the files"
        )
    return sorted(files)


class InputMessages(ReadingListener):
    """Lines on stderr about the inputs, and a line of progress that is cleared while something else
    is printed.

    The line has how much was read and settled, how many runs, how many of them in a second, and the
    time that is left at this rate. There is none if stderr is not a terminal.

    Args:
        unit: what is counted.

    Attributes:
        problems: invalid inputs.
        done: how many were counted.
    """

    def __init__(self, unit: str = "runs") -> None:
        self.problems = 0
        self.done = 0
        self._unit: Final = unit
        self._is_shown: Final = sys.stderr.isatty()
        self._begun: Final = time.monotonic()
        self._drawn = 0.0
        # positions in all inputs together: of what was read, and of what nothing is awaited for
        self._read = self._settled = self._total = 0
        self._has_waited = False

    def __enter__(self) -> InputMessages:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def exit_code(self, otherwise: int = 0) -> int:
        """The code for invalid inputs if there were any, or the other one."""
        return UNUSABLE if self.problems else otherwise

    def problem(self, message: str) -> None:
        """Print and count a line about an invalid input."""
        self.problems += 1
        self.notice(message)

    def notice(self, message: str) -> None:
        """Print a line that does not affect the exit code."""
        self.clear()
        warn([" ".join(message.split())])

    def advance(self, read: int, total: int) -> None:
        """Tell how much of all inputs was read, and how much there is."""
        self._read, self._total = read, total
        self._draw(self._settled if self._has_waited else read)

    def wait(self, finished: int, awaited: int) -> None:
        """Tell how many of the results are finished that what was read last waits for."""
        self._has_waited = True
        share = finished / awaited if awaited else 0.0
        self._draw(self._settled + (self._read - self._settled) * share)

    def count(self) -> None:
        """Count one more; everything that was read before it is settled."""
        self.done += 1
        self._settled = self._read

    def clear(self) -> None:
        """Clear the line, so that something can be printed; it is drawn again later."""
        if self._is_shown:
            click.echo(_CLEAR, nl=False, err=True)

    def _draw(self, settled: float) -> None:
        """Draw the line of progress, at most every tenth of a second."""
        now = time.monotonic()
        if self._is_shown and now - self._drawn >= _REDRAWN_S:
            self._drawn = now
            line = progress_line(
                settled / self._total if self._total else 0.0,
                self.done,
                self._unit,
                now - self._begun,
            )
            click.echo(f"{_CLEAR}{line[: layout_of(sys.stderr).width - 1]}", nl=False, err=True)


def progress_line(share: float, done: int, unit: str, elapsed_s: float) -> str:
    """How far a command is.

    >>> progress_line(0.25, 500, "runs", 20.0)
    '25 %, 500 runs, 25/s, 1:00 left'
    """
    parts = [f"{100 * share:.0f} %", f"{done:,} {unit}"]
    if done and elapsed_s > 0:
        rate = done / elapsed_s
        parts.append(f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s")
    if share > 0:
        left_s = round(elapsed_s * (1 - share) / share)
        hours, minutes, seconds = left_s // 3600, left_s // 60 % 60, left_s % 60
        parts.append(
            f"{hours}:{minutes:02}:{seconds:02} left" if hours else f"{minutes}:{seconds:02} left"
        )
    return ", ".join(parts)
