"""Inputs with results: JSON Lines of rows or run documents, perhaps gzipped, and beside them files
of traces.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from io import BufferedIOBase
from typing import Any, Final

from otel_eval.errors import ConfigError, InputError

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
        try:
            if _holds_results(path):
                rows += _rows_of(path)
            else:
                traces.append(path)
        except (EOFError, zlib.error) as error:
            raise InputError(f"{path}: {error}") from None
        except OSError as error:
            raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
    if traces and not is_configured:
        raise ConfigError(
            f"{traces[0]}: holds no results; to score it as traces, name a configuration with"
            " --config"
        )
    return rows, traces


def _opened(path: str) -> BufferedIOBase:
    with open(path, "rb") as file:
        is_zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path) if is_zipped else open(path, "rb")


def _holds_results(path: str) -> bool:
    """Whether the first line is a row of results or a run document."""
    with _opened(path) as file:
        while line := file.readline(_PEEKED):
            if line.strip():
                try:
                    first = json.loads(line)
                except (ValueError, RecursionError):
                    return False
                return isinstance(first, dict) and ("outcome" in first or "document" in first)
    return False


def _rows_of(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the JSON objects of a file of results."""
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{path}, line {number}: not JSON") from None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: not a row of results")
            yield row
