"""Read records from JSON Lines or CSV, each under its key.

Knows the two formats; opens no file. A record's key is the text of one of its columns.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

__all__ = ["FORMATS", "LIMIT", "Record", "Unusable", "parsed"]

Record = Mapping[str, Any]
LIMIT: Final = 64 * 2**20
"""Bytes that a file may have: all of it is held in memory."""


class Unusable(Exception):
    """A file that holds no records; the message continues `path: ` and quotes no value."""


def parsed(raw: bytes, suffix: str, column: str) -> tuple[dict[str, Record], dict[str, int]]:
    """The records of a file by the text of their column, and the line of each.

    Args:
        suffix: one of `FORMATS`.

    Raises:
        Unusable: the bytes are none of that, a record has no key, or two have the same.

    >>> parsed(b'{"id": 7, "expected": ["search"]}', ".jsonl", "id")
    ({'7': {'id': 7, 'expected': ['search']}}, {'7': 1})
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Unusable("is not UTF-8 text; save it as UTF-8") from None
    found: dict[str, Record] = {}
    lines: dict[str, int] = {}
    for line, record in FORMATS[suffix](text, column):
        key = record.get(column)
        if not isinstance(key, str | int | float):
            remedy = f"give each record a text or a number under {column!r}, or name another column"
            raise Unusable(f"line {line} has no key {column!r}; {remedy}")
        name = str(key).lower() if isinstance(key, bool) else str(key)
        if name in found:
            raise Unusable(f"line {line} has the key of line {lines[name]}; keep one of them")
        found[name], lines[name] = record, line
    return found, lines


def _json_lines(text: str, column: str) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise Unusable(f"line {number} is not JSON; write one object a line") from None
        if not isinstance(record, dict):
            raise Unusable(f"line {number} is not an object; write one object a line")
        yield number, record


def _csv(text: str, column: str) -> Iterator[tuple[int, Record]]:
    """An empty cell is one that nobody filled in."""
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = rows.fieldnames or ()
        if column not in columns:
            raise Unusable(f"has no column {column!r}; its columns are {', '.join(columns) or 'none'}")
        if len({*columns}) < len(columns):
            raise Unusable("has two columns of one name; rename one of them")
        for row in rows:
            if None in row:
                raise Unusable(f"line {rows.line_num} has more cells than there are columns; quote cells that hold commas")
            yield rows.line_num, {name: cell for name, cell in row.items() if cell}
    except csv.Error as error:
        raise Unusable(f"line {rows.reader.line_num} is not CSV ({error}); mend it") from None


FORMATS: Final[Mapping[str, Callable[[str, str], Iterator[tuple[int, Record]]]]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
}
"""By the end of a file's name."""
