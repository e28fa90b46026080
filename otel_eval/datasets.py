"""A file of records, JSON Lines or CSV, that is read again when it changes.

The file is checked at most once a second, on the calling thread; an invalid version is counted and
logged once, and the records read before stay in use. There is no lock: two threads that check at
the same time read the same, and records are replaced in one assignment. A record's key is the text
of one of its columns.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.watched_files import Stamp, file_stamp, read_small_file

Record = Mapping[str, Any]
LIMIT: Final = 64 * 2**20
"""The greatest size of a file in bytes; all of it is kept in memory."""


class InvalidDataset(Exception):
    """A file is not a valid dataset. The message is written after `path: ` and quotes no value."""


def parse_records(raw: bytes, suffix: str, column: str) -> dict[str, tuple[int, Record]]:
    """Parse the records of a file: key, the text of `column`, → line and record.

    Args:
        suffix: the suffix of the file's name, one of `FORMATS`.

    Raises:
        InvalidDataset: the content is not in this format, a record has no key, or two records have
            the same key.

    >>> parse_records(b'{"id": 7, "expected": ["search"]}', ".jsonl", "id")
    {'7': (1, {'id': 7, 'expected': ['search']})}
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidDataset("is not UTF-8 text; save it as UTF-8") from None
    records: dict[str, tuple[int, Record]] = {}
    for line, record in FORMATS[suffix](text, column):
        key = record.get(column)
        if not isinstance(key, str | int | float):
            remedy = f"give each record a text or a number under {column!r}, or name another column"
            raise InvalidDataset(f"line {line} has no key {column!r}; {remedy}")
        name = str(key).lower() if isinstance(key, bool) else str(key)
        if name in records:
            raise InvalidDataset(
                f"line {line} has the key of line {records[name][0]}; keep one of them"
            )
        records[name] = line, record
    return records


def _json_lines(text: str, column: str) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            raise InvalidDataset(f"line {number} is not JSON; write one object a line") from None
        if not isinstance(record, dict):
            raise InvalidDataset(f"line {number} is not an object; write one object a line")
        yield number, record


def _csv(text: str, column: str) -> Iterator[tuple[int, Record]]:
    """Yield line and row of CSV text. An empty cell is a missing field."""
    rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
    try:
        columns = rows.fieldnames or ()
        if column not in columns:
            raise InvalidDataset(
                f"has no column {column!r}; its columns are {', '.join(columns) or 'none'}"
            )
        if len({*columns}) < len(columns):
            raise InvalidDataset("has two columns of one name; rename one of them")
        for row in rows:
            if None in row:
                raise InvalidDataset(
                    f"line {rows.line_num} has more cells than there are columns; quote cells that"
                    " hold commas"
                )
            yield rows.line_num, {name: cell for name, cell in row.items() if cell}
    except csv.Error as error:
        raise InvalidDataset(f"line {rows.reader.line_num} is not CSV ({error}); mend it") from None


_Parser = Callable[[str, str], Iterator[tuple[int, Record]]]
FORMATS: Final[Mapping[str, _Parser]] = {
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
}
"""The parsers of files, by the suffix of their names."""


_log = logging.getLogger("otel_eval")

_CHECK_INTERVAL_S: Final = 1.0
_NO_RECORD: Final = (0, None)


class Dataset:
    """The records of a file by key; the file is read again when it changes.

    Args:
        path: a file whose suffix is one of `FORMATS`.
        column: the column with the keys.
        clock: returns monotonic time in seconds.

    Attributes:
        changes: number of valid new versions that were read.
        broken: number of invalid new versions.

    Raises:
        InvalidDataset: the file cannot be read or is not a valid dataset.
    """

    def __init__(
        self, path: Path, column: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.path: Final = path
        self._column, self._clock = column, clock
        self._records: dict[str, tuple[int, Record]] = {}
        self._stamp: Stamp | None = None
        self._error: InvalidDataset | None = None
        self._next_check = 0.0
        self.changes = self.broken = 0
        self.check()

    def check(self) -> None:
        """Read the file now if it changed, without waiting for the next lookup of a key.

        Raises:
            InvalidDataset: it cannot be read or is not a valid dataset.
        """
        self._reload()
        if self._error is not None:
            raise self._error

    def __call__(self, key: str) -> Record | None:
        """The record of a key, or None."""
        if self._clock() >= self._next_check:
            before = self._stamp
            self._reload()
            if self._stamp != before:
                self._count_and_log()
        return self._records.get(key, _NO_RECORD)[1]

    def place_of(self, key: str) -> Mapping[str, Any]:
        """The file's name and the line of the record with a key."""
        return {"dataset": self.path.name, "line": self.line_of(key)}

    def line_of(self, key: str) -> int:
        """The line of the record of a key, from 1; 0 if there is none."""
        return self._records.get(key, _NO_RECORD)[0]

    def record_keys(self) -> list[str]:
        """The keys of the records, in the order of the file."""
        return list(self._records)

    def fields(self) -> set[str]:
        """Every column that some record has."""
        return {name for _, record in self._records.values() for name in record}

    def _reload(self) -> None:
        """Read the file if it changed; an invalid version is remembered as an error."""
        self._next_check = self._clock() + _CHECK_INTERVAL_S
        stamp = file_stamp(self.path)
        if stamp == self._stamp and (stamp is not None or self._error is not None):
            return
        # Set before the file is read: if it changes meanwhile, the next check sees another stamp
        # and reads it again.
        self._stamp = stamp
        try:
            raw = read_small_file(
                self.path,
                LIMIT,
                lambda cause: InvalidDataset(f"{cause}; name a file of at most 64 MiB of records"),
            )
            self._records = parse_records(raw, self.path.suffix.lower(), self._column)
            self._error = None
        except InvalidDataset as error:
            self._error = error

    def _count_and_log(self) -> None:
        if self._error is None:
            self.changes += 1
            return
        self.broken += 1
        _log.warning("%s: %s; the records read before stay in use", self.path, self._error)


_CACHED: Final = 8  # cached, because a configuration builds its scorers more than once
_in_use: Final[WeakSet[Dataset]] = WeakSet()


def open_dataset(path: str, column: str, field: str) -> Dataset:
    """Open a file of references.

    Args:
        path: the path of the file, relative to the working directory (`load` makes paths in a
            configuration file absolute).
        column, field: the columns of the keys and of the references.

    Raises:
        ConfigError: the file is invalid, or no record has the field.
    """
    if Path(path).suffix.lower() not in FORMATS:
        raise ConfigError(
            f"dataset: {redacted_repr(path)} is no file of records; name one that ends in"
            f" {', '.join(FORMATS)}"
        )
    try:
        dataset = _dataset(Path(path).absolute(), column)
        dataset.check()
    except InvalidDataset as error:
        raise ConfigError(f"dataset: {redacted_repr(path)} {error}") from None
    fields = sorted(dataset.fields())
    if fields and field not in fields:
        raise ConfigError(
            f"field: {redacted_repr(field)} is in no record of {path};"
            f" {did_you_mean(field, fields)}"
        )
    return dataset


@lru_cache(maxsize=_CACHED)
def _dataset(path: Path, column: str) -> Dataset:
    dataset = Dataset(path, column)
    _in_use.add(dataset)
    return dataset


def dataset_counts() -> dict[str, int]:
    """How often files of references were read again in this process, and how often the new version
    was invalid.
    """
    datasets = list(_in_use)
    if not datasets:
        return {}
    return {
        "references.reread": sum(dataset.changes for dataset in datasets),
        "references.broken": sum(dataset.broken for dataset in datasets),
    }
