"""Files of JSON Lines: the exporter to a file or to standard output, and the dead-letter file for
results that were refused.
"""

from __future__ import annotations

import glob
import io
import json
import logging
import os
import re
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar, Final

from otel_eval.counters import Warnings, renew_after_fork
from otel_eval.errors import ConfigError
from otel_eval.exporters import Exporter
from otel_eval.exporters.result_rows import encoded, lines_of, rows_of
from otel_eval.model import Report
from otel_eval.retry import ExportResult, reason_of

_log = logging.getLogger("otel_eval")

_LOCKS: tuple[Callable[[io.RawIOBase, int], object], ...] = ()
with suppress(ImportError):  # Windows has no such locks
    from fcntl import LOCK_EX, LOCK_UN, flock, lockf

    _LOCKS = (flock, lockf)

_BLOCK: Final = 65536
OWNER_ONLY: Final = 0o600
"""Permissions of a file that is created: results may quote agents' inputs and outputs."""
_TAIL_BYTES: Final = 64 * 2**20
_TURN_S: Final = 5.0  # to wait for another thread's write, which may hang (a disk, a lock)
_CLOSE_S: Final = 0.5  # the same at the end
_RESULT_ID: Final = re.compile(rb'"result_id": "([0-9a-f]{32})"\}\n')
_LINE_START: Final = b'{"trace_id":'


class JsonLinesFile:
    """Appends lines to a file.

    Before each write and `reopen`, the path is looked at: if the file was renamed or deleted, for
    instance by logrotate, it is opened anew. Lines that reached a file only after it was deleted
    are written again.

    Args:
        path: the file, created if it does not exist, or "-" for standard output.
        key: the key of the path in the configuration, for errors; `usual_key` if left out.
        mode: permissions of the file if it is created, whatever the umask; a file that exists keeps
            its own.

    Raises:
        ConfigError: the file cannot be opened for writing.
    """

    usual_key: ClassVar[str] = "exporters.jsonl.path"

    def __init__(
        self, path: str | os.PathLike[str], *, key: str = "", mode: int = OWNER_ONLY
    ) -> None:
        # guards _file and _end: one thread may write while another one flushes
        self._lock = threading.Lock()
        renew_after_fork(self)
        self._warnings: Final = Warnings()
        self._mode = mode
        # absolute: the program may change its working directory before the file is opened anew
        self._path: Final = Path(os.path.abspath(path))
        self._file: io.RawIOBase | None = (
            None
            if os.fspath(path) == "-"
            else _open_configured(Path(path), key or self.usual_key, mode)
        )
        self._end = 0  # the size of the file after the last write

    def write(self, lines: bytes) -> None:
        """Write whole lines.

        Raises:
            OSError: they could not be written; the file is as it was before.
        """
        with self._turn():
            if self._file is None:
                return _write_to_stdout(lines)
            is_lost = True
            while is_lost:
                file = self._follow_path(self._file)
                with _locked(file):
                    _cut_torn_line(file)
                    _append(file, lines)
                # nobody can read a deleted file
                is_lost = not (_leads_to(self._path, file) or os.fstat(file.fileno()).st_nlink)
            self._end = _size(file)
        return None

    def _follow_path(self, file: io.RawIOBase) -> io.RawIOBase:
        """Return the open file if the path leads to it; else open the path anew.

        Raises:
            OSError: it cannot be opened, or what was written to the former file may not be on the
                disk.
        """
        if _leads_to(self._path, file):
            if _size(file) < self._end:
                self._warnings.say(
                    "truncated",
                    "%s was truncated: lines that were not copied before are lost; rotate it by"
                    " renaming it",
                    self._path,
                )
            self._end = _size(file)
            return file
        opened = _open(self._path, self._mode)
        try:
            os.fsync(file.fileno())
        except OSError:
            opened.close()
            raise
        file.close()
        _log.info("%s was renamed or deleted; it was opened anew", self._path)
        self._file, self._end = opened, 0
        return opened

    def reopen(self) -> None:
        """Open the file anew if it was renamed or deleted. Neither raises nor waits: the next write
        looks again.
        """
        if self._lock.acquire(blocking=False):
            try:
                if self._file is not None and not self._file.closed:
                    with suppress(OSError):
                        self._follow_path(self._file)
            finally:
                self._lock.release()

    @contextmanager
    def _turn(self, limit_s: float = _TURN_S) -> Iterator[None]:
        """Hold the lock.

        Raises:
            TimeoutError: another thread's write hangs.
        """
        if not self._lock.acquire(timeout=limit_s):
            raise TimeoutError(None, "an earlier write to the file hangs")
        try:
            yield
        finally:
            self._lock.release()

    def sync(self) -> None:
        """Write the file to the disk (fsync).

        Raises:
            OSError: that failed.
        """
        with self._turn():
            # a device has no disk
            if self._file is not None and not self._file.closed and self._file.seekable():
                os.fsync(self._file.fileno())

    def written_ids(self) -> set[str]:
        """The ids of results in the last 64 MiB of the file and of those it was renamed to, by
        their names; none for standard output.
        """
        if self._file is None or not self._path.is_file():
            return set()
        ids: set[str] = set()
        remaining = _TAIL_BYTES
        for path in _newest_first(self._path):
            with suppress(OSError), path.open("rb", buffering=0) as file:
                start = max(0, _size(file) - remaining)
                tail = _read(file, start, remaining)
                remaining -= len(tail)
                ids |= {result_id.decode() for result_id in _RESULT_ID.findall(tail)}
            if remaining <= 0:
                break
        return ids

    def close(self) -> None:
        """Close the file; one to which a write hangs is left."""
        with suppress(TimeoutError), self._turn(_CLOSE_S):
            if self._file is not None:
                self._file.close()


def _leads_to(path: Path, file: io.RawIOBase) -> bool:
    """Whether the path still leads to the open file; true if that cannot be seen."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def _newest_first(path: Path) -> list[Path]:
    """The file, and after it the regular files beside it whose names begin alike (`results.jsonl.1`
    or `results-20260101.jsonl`), the last changed first.
    """
    changed: list[tuple[float, Path]] = []
    for other in path.parent.glob(f"{glob.escape(path.stem)}*"):
        with suppress(OSError):
            status = other.lstat()
            if stat.S_ISREG(status.st_mode) and other != path:
                changed.append((status.st_mtime, other))
    return [path, *[other for _, other in sorted(changed, reverse=True)]]


def _write_to_stdout(lines: bytes) -> None:
    """Write JSON to standard output as UTF-8, whatever encoding `sys.stdout` has for other text."""
    if (binary := getattr(sys.stdout, "buffer", None)) is not None:
        sys.stdout.flush()
        binary.write(lines)
    else:  # a program has replaced it by a stream of text
        sys.stdout.write(lines.decode("utf-8", "replace"))
    sys.stdout.flush()


def _append(file: io.RawIOBase, lines: bytes) -> None:
    """Append all of the lines or nothing: an incomplete line would make the next one invalid."""
    unwritten = memoryview(lines)
    try:
        while unwritten:
            unwritten = unwritten[file.write(unwritten) or 0 :]
    except OSError:
        with suppress(OSError):
            _undo_append(file, len(lines) - len(unwritten), lines)
        raise


def _undo_append(file: io.RawIOBase, length: int, lines: bytes) -> None:
    """Truncate the file by the first `length` bytes of the lines, which were written, if they are
    at its end: other processes may append, too.
    """
    end = _size(file)
    if length and _read(file, end - length, length) == lines[:length]:
        file.truncate(end - length)


def _open_configured(path: Path, key: str, mode: int) -> io.RawIOBase:
    try:
        return _open(path, mode)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"{key}: {str(path)!r} cannot be written ({reason}); name a file in a writable folder,"
            " or '-'"
        ) from None


def _open(path: Path, mode: int) -> io.RawIOBase:
    """Open a file for appending.

    Raises:
        OSError: that is not possible. A pipe is refused: what nobody has read of it is lost with
            the process.
    """
    if path.is_fifo():
        raise OSError(None, "it is a named pipe")
    file = open(path, "ab+", opener=partial(_create, mode))  # noqa: SIM115 - it stays open
    # A buffer has a lock, which a thread may hold when the process forks, and lines that the child
    # would write again.
    return file.detach()


@contextmanager
def _locked(file: io.RawIOBase) -> Iterator[None]:
    """Lock the file against other threads and processes that append to it: workers, or agents, may
    share a file.

    Both locks are needed: that of `flock` belongs to an open file, which a process shares with its
    forked children; that of `lockf` to a process, which may have opened the file twice. Without
    them, on Windows, only one process may write a file.
    """
    for lock in _LOCKS:
        with suppress(OSError):  # a device, or a file system without locks
            lock(file, LOCK_EX)
    try:
        yield
    finally:
        for lock in reversed(_LOCKS):
            with suppress(OSError):
                lock(file, LOCK_UN)


def _create(mode: int, path: str, flags: int) -> int:
    """Open the file, which is created with these permissions if it does not exist, and return its
    descriptor.
    """
    try:
        handle = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        return os.open(path, flags, mode)
    with suppress(OSError, AttributeError):  # a file system without permissions; Windows
        os.fchmod(handle, mode)  # the umask may have removed some of the permissions
    return handle


def _cut_torn_line(file: io.RawIOBase) -> None:
    """Remove an incomplete last line of ours, which a crash left; add the line end to one that
    others wrote.
    """
    end = _size(file) if file.seekable() else 0
    if not end or _read(file, end - 1, 1) == b"\n":
        return
    keep = end
    while keep > 0:
        start = max(0, keep - _BLOCK)
        newline = _read(file, start, keep - start).rfind(b"\n")
        if newline >= 0:
            keep = start + newline + 1
            break
        keep = start
    if _LINE_START.startswith(_read(file, keep, len(_LINE_START))):  # it may be shorter
        file.truncate(keep)
    else:
        _append(file, b"\n")


def _size(file: io.RawIOBase) -> int:
    return os.fstat(file.fileno()).st_size


def _read(file: io.RawIOBase, at: int, size: int) -> bytes:
    """Read bytes at an offset. Forked processes share the position in the file, so it is neither
    used nor changed.
    """
    if hasattr(os, "pread"):
        return os.pread(file.fileno(), size, at)
    file.seek(at)
    return file.read(size) or b""


class JsonLinesExporter(Exporter):
    """Appends one line for each result to a file or to standard output.

    Args:
        path: the file, created if it does not exist, or "-" for standard output.
        mode: permissions of the file if it is created.
        sync: whether results count as exported only when they are on the disk.

    Raises:
        ConfigError: the file cannot be opened for writing.
    """

    exports_no_run = True

    def __init__(
        self, path: str | os.PathLike[str], *, mode: int = OWNER_ONLY, sync: bool = False
    ) -> None:
        self.name = "jsonl"
        self._file: Final = JsonLinesFile(path, mode=mode)
        self._sync = sync
        # results of an earlier process that may be repeated
        self._exported_before: set[str] = set()

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Append the lines of the batch; if that fails, the file is as it was before."""
        try:
            self._file.write(self._lines(batch))
            if self._sync:
                self._file.sync()
        except OSError as error:
            return ExportResult.retryable(reason_of(error))
        return ExportResult.ok()

    def _lines(self, batch: Sequence[Report]) -> bytes:
        if not self._exported_before:
            return b"".join([lines_of(report) for report in batch])
        return encoded(
            row
            for report in batch
            for row in rows_of(report)
            if row["result_id"] not in self._exported_before
        )

    def requeued(self, batch: Sequence[Report] | None) -> None:
        """Find those of the results that are at the end of the file; they are not written again
        (some 100 bytes for each).
        """
        ids = self._file.written_ids() if batch is None or batch else set()
        if batch is not None:
            ids &= {row["result_id"] for report in batch for row in rows_of(report)}
        self._exported_before |= ids

    def flush(self, timeout_s: float) -> bool:
        """Write the file to the disk (fsync); the lines were written to it when they were
        exported.
        """
        with suppress(OSError):  # a device has no disk
            self._file.sync()
        return True

    def reopen(self) -> None:
        """Open the file anew if it was renamed or deleted."""
        self._file.reopen()

    def close(self, timeout_s: float) -> None:
        """Close the file."""
        self._file.close()


_IGNORED: Final = ("evaluated_at", "evaluator")  # results that differ in these alone are equal


class ChangedLinesExporter(JsonLinesExporter):
    """Appends a line for each result that is new or has changed; of two lines with one id the later
    one counts.

    The lines in the file are read once, when it is opened: a digest of 8 bytes is kept for each
    result.

    Args:
        path: the file, created if it does not exist, or "-" for standard output, to which every
            result is written once.
        mode: permissions of the file if it is created.

    Raises:
        ConfigError: the file cannot be opened for writing.
    """

    def __init__(self, path: str, *, mode: int = OWNER_ONLY) -> None:
        super().__init__(path, mode=mode)
        # Pipes and devices cannot be read back.
        self._digests: dict[str, bytes] = (
            dict(_digests_of(Path(path))) if path != "-" and Path(path).is_file() else {}
        )

        # Of the lines of the last batch. They count once it is written: it may be exported again.
        self._written: dict[str, bytes] = {}

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Append the lines of results that are new or have changed."""
        result = super().export(batch)
        if result.status == "ok":
            self._digests |= self._written
        return result

    def _lines(self, batch: Sequence[Report]) -> bytes:
        self._written = {}
        changed = []
        for report in batch:
            for row in rows_of(report):
                line, result_id = encoded([row]), row["result_id"]
                digest = _digest(json.loads(line))
                if self._written.get(result_id, self._digests.get(result_id)) != digest:
                    self._written[result_id] = digest
                    changed.append(line)
        return b"".join(changed)


def _digests_of(path: Path) -> Iterator[tuple[str, bytes]]:
    """The id of each result in the file, and a digest that shows whether the result has changed."""
    with path.open("rb") as lines:
        for line in lines:
            try:
                row = json.loads(line)
                yield row["result_id"], _digest(row)
            except (ValueError, KeyError, TypeError, RecursionError):
                continue  # not a line of ours


def _digest(row: Mapping[str, Any]) -> bytes:
    compared = {key: value for key, value in row.items() if key not in _IGNORED}
    return blake2b(json.dumps(compared, sort_keys=True).encode(), digest_size=8).digest()


class DeadLetterFile(JsonLinesFile):
    """Appends a line for each result that was refused permanently."""

    usual_key = "exporters.dead_letter"

    def add(
        self, exporter: str, reports: Sequence[Report], why: str, rejected: int | None = None
    ) -> None:
        """Write the results to the file.

        Args:
            exporter: the exporter's name.
            reports: the reports with the results.
            why: the reason, written with each result.
            rejected: how many of the results were refused, if it is not known which; None: all.

        Raises:
            OSError: they could not be written.
        """
        rows = [row for report in reports if report.results for row in rows_of(report)]
        refusal: dict[str, Any] = {"exporter": exporter, "why": why}
        refusal |= {} if rejected is None else {"rejected": rejected, "of": len(rows)}
        self.write(encoded([row | refusal for row in rows]))
        self.sync()
