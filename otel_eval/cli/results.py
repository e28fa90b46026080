"""Inputs with results: JSON Lines of rows or run documents, perhaps gzipped, and beside them files
of traces.
"""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

from otel_eval.errors import ConfigError, InputError
from otel_eval.merging import check_row

_PEEKED: Final = 1 << 20  # bytes; a longer first line is no row of results


def split_inputs(
    files: Iterable[str], *, is_configured: bool
) -> tuple[list[Mapping[str, Any]], list[str]]:
    """Return the rows and run documents of the files with results, and the names of the other
    files, which hold traces.

    Args:
        files: the names of the files.
        is_configured: whether a configuration was named, which traces need.

    Raises:
        InputError: a file cannot be read, or a line of results is no JSON object.
        ConfigError: there are traces, and no configuration was named.
    """
    rows: list[Mapping[str, Any]] = []
    traces: list[str] = []
    for path in files:
        if not _holds_results(path):
            traces.append(path)
            continue
        for line_name, line in _lines_of(path):
            row = _parse(line_name, line)
            if not isinstance(row, dict):
                raise InputError(f"{line_name}: not a row of results")
            rows.append(row)
    if traces and not is_configured:
        raise ConfigError(
            f"{traces[0]}: holds no results; to score it as traces, name a configuration with"
            " --config"
        )
    return rows, traces


def valid_rows(path: str, problems: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the valid rows of a file of results; "-" is standard input. A line is added to
    `problems` for each invalid one, and for a file that cannot be read.
    """
    remedy = "results come from `exporters: jsonl` or `replay --format json`"
    try:
        for line_name, line in _lines_of(path):
            try:
                row = _parse(line_name, line)
            except InputError as error:
                problems.append(str(error))
                continue
            try:
                check_row(row)
            except InputError as error:
                problems.append(f"{line_name}: {error}; {remedy}")
            else:
                yield row
    except InputError as error:
        problems.append(str(error))


def _lines_of(path: str) -> Iterator[tuple[str, bytes]]:
    """Yield each line that is not blank, after its name for messages."""
    with _opened(path) as file:
        name = "standard input" if path == "-" else path
        for number, line in enumerate(file, 1):
            if line.strip():
                yield f"{name}, line {number}", line


def _parse(line_name: str, line: bytes) -> Any:
    """The JSON value of a line."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        raise InputError(f"{line_name}: not JSON") from None


def _holds_results(path: str) -> bool:
    """Whether the first line is a row of results or a run document; True of standard input, which
    can be read only once.
    """
    if path == "-":
        return True
    with _opened(path) as file:
        while line := file.readline(_PEEKED):
            if line.strip():
                try:
                    first = json.loads(line)
                except (ValueError, RecursionError):
                    return False
                return isinstance(first, dict) and ("outcome" in first or "document" in first)
    return False


@contextmanager
def _opened(path: str) -> Iterator[BinaryIO | gzip.GzipFile]:
    """Open a file, decompressed if it is gzip, or standard input.

    Raises:
        InputError: it cannot be read.
    """
    try:
        if path == "-":
            yield sys.stdin.buffer
            return
        with open(path, "rb") as file:
            is_zipped = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            yield gzip.GzipFile(fileobj=file) if is_zipped else file
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
