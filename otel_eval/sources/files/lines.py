"""Files of JSON: one document, or one a line.

Knows how to tell the two apart without holding more than a line, or one document, in memory.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import MAX_DOCUMENT, Readable, Say, document, placed
from otel_eval.sources.files.documents import frame_document
from otel_eval.sources.otlp import Framed

__all__ = ["frame_text"]


def frame_text(stream: Readable, say: Say) -> Iterator[Framed]:
    """What the documents hold.

    Raises:
        InputError: the file is one document, and not JSON or none of a trace.
    """
    skipped, first = _first_line(stream)
    try:
        _parsed(first)
    except InputError:
        # A document over many lines, or lines of which the first is broken.
        return _whole(first + document(stream), skipped, say)
    return _lines(chain([first], _rest(stream, say)), skipped + 1, say)


def _first_line(stream: Readable) -> tuple[int, bytes]:
    skipped = 0
    while line := stream.readline(MAX_DOCUMENT):
        if line.strip(b"\xef\xbb\xbf \t\r\n"):
            return skipped, line
        skipped += 1
    return skipped, b""


def _rest(stream: Readable, say: Say) -> Iterator[bytes]:
    while line := stream.readline(MAX_DOCUMENT):
        if len(line) == MAX_DOCUMENT and not line.endswith(b"\n"):
            say(f"a line is longer than {MAX_DOCUMENT} bytes")
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_DOCUMENT)
            line = b"\n"
        yield line


def _whole(data: bytes, skipped: int, say: Say) -> Iterator[Framed]:
    if len(data) > MAX_DOCUMENT:
        raise InputError(f"is greater than {MAX_DOCUMENT} bytes as one document; write one document a line")
    try:
        document = _parsed(data, skipped)
    except InputError:
        lines = data.splitlines(keepends=True)
        if not any(_is_document(line) for line in lines[1:]):
            raise
        return _lines(iter(lines), skipped + 1, say)
    return frame_document(document, say)


def _is_document(line: bytes) -> bool:
    try:
        return isinstance(_parsed(line), dict)
    except InputError:
        return False


def _lines(lines: Iterator[bytes], first: int, say: Say) -> Iterator[Framed]:
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            yield from frame_document(_parsed(line), placed(say, f"line {number}"))
        except InputError as error:
            say(f"line {number}: {error}")


def _parsed(data: bytes, skipped: int = 0) -> Any:
    try:
        return json.loads(data.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise InputError("not UTF-8") from None
    except json.JSONDecodeError as error:
        where = f"line {error.lineno + skipped}, " if b"\n" in data.strip() else ""
        raise InputError(f"{where}column {error.colno}: not JSON: {error.msg}") from None
    except RecursionError:
        raise InputError("nested too deeply") from None
    except ValueError:
        raise InputError("not JSON: a number is too long") from None
