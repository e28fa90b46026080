"""Results as JSON Lines, in a file or on standard output.

Knows the fields of a line, which `otel-eval replay --format json` prints too. Knows no OpenTelemetry.
"""

from __future__ import annotations

import io
import json
import math
import os
import re
import sys
import threading
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

from otel_eval.errors import ConfigError
from otel_eval.model import Failed, NoRun, Report, Result, Scored, Skipped
from otel_eval.sinks.instants import SCHEMA, duration_ms, rfc3339, start_time
from otel_eval.sinks.tally import renew_after_fork

__all__ = ["NO_RUN", "OWNER_ONLY", "JsonLinesSink", "encoded", "line_of", "lines_of", "result_fields", "rows_of"]
_BLOCK: Final = 65536
OWNER_ONLY: Final = 0o600
"""Permissions of a file that is created: results may quote agents' inputs and outputs."""
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=str)  # making one costs more than using it
# DEL and the C1 controls (with U+0085), line and paragraph separators, bidirectional embeddings, overrides and isolates: they
# control terminals, end lines in some readers, or show text in another order than it has. Lone surrogates have no UTF-8.
_UNSAFE: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
NO_RUN: Final = "no_run"
"""The outcome of a line that says that a trace has no result."""
_TAIL: Final = 64 * 2**20
_RESULT_ID: Final = re.compile(rb'"result_id": "([0-9a-f]{32})"\}\n')
_OUTCOME_FIELDS: Final = ("outcome", "value", "passed", "explanation", "reason")
_BEGINNING: Final = b'{"trace_id":'


def result_fields(report: Report, result: Result) -> dict[str, Any]:
    """One result as JSON values.

    `value` and `passed` are null unless the result is scored, `reason` (a `SkipReason`) unless it was skipped, `threshold`
    where something else than a threshold decides. `explanation` of a skipped result is its text, of a failed one the
    error's type (never the error's message, which may quote content).
    """
    return _fields(report, result, _run_fields(report))


def rows_of(report: Report) -> Iterator[dict[str, Any]]:
    """The fields of each line that a report has."""
    shared = _run_fields(report)
    for result in report.results:
        yield _fields(report, result, shared)
    if report.no_run is not None:
        yield _fields(report, _in_place(report.no_run), shared) | {"outcome": NO_RUN, "reason": None}


def _in_place(no_run: NoRun) -> Result:
    """What stands where a result would."""
    skipped = Skipped(no_run.why)
    return Result(evaluation="", scorer="", type="", version="", outcome=skipped, revision=0, result_id=no_run.result_id)


def _run_fields(report: Report) -> dict[str, Any]:
    """What all results of a report share: when, where, which case, made from which spans by whom."""
    run, evidence, stamp = report.trajectory, report.evidence, report.stamp
    return {
        "completeness": run.completeness.value,
        "start_time": start_time(run),
        "duration_ms": duration_ms(run),
        "evaluated_at": rfc3339(stamp.at_ns),
        "service": run.service,
        "service_version": run.service_version,
        "environment": run.environment,
        "conversation_id": run.conversation_id,
        "attributes": dict(report.attributes),
        "spans": evidence.spans if evidence else None,
        "spans_digest": evidence.digest if evidence else None,
        "evaluator": stamp.evaluator or None,
        "schema": SCHEMA,
    }


def _fields(report: Report, result: Result, shared: dict[str, Any]) -> dict[str, Any]:
    run, outcome = report.trajectory, result.outcome
    return {
        "trace_id": run.trace_id,
        "span_id": run.span_id,
        "agent": run.agent,
        "evaluation": result.evaluation,
        "scorer": result.scorer,
        "type": result.type,
        "version": result.version,
        **_outcome_fields(outcome),
        "threshold": result.threshold,
        **shared,
        "revision": report.revision,
        "result_id": result.result_id,
    }


def _outcome_fields(outcome: Scored | Skipped | Failed) -> dict[str, Any]:
    match outcome:
        case Scored():
            values: tuple[Any, ...] = ("scored", outcome.value, outcome.passed, outcome.explanation, None)
        case Skipped():
            values = ("skipped", None, None, outcome.why, outcome.reason)
        case Failed():
            values = ("failed", None, None, outcome.error_type, None)
    return dict(zip(_OUTCOME_FIELDS, values, strict=True)) | {"details": dict(outcome.details)}


def line_of(fields: dict[str, Any]) -> str:
    """The fields as one line of strict JSON; numbers that JSON has no name for become null, invisible controls are escaped."""
    try:
        text = _ENCODER.encode(fields)
    except ValueError:
        text = _ENCODER.encode(_finite(fields))
    if text.isascii() and "\x7f" not in text:
        return text
    return _UNSAFE.sub(_escaped, text)  # JSON's own characters are ASCII: what is found stands in a string


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def lines_of(report: Report) -> bytes:
    """The lines of a report's results."""
    return encoded(rows_of(report))


def encoded(rows: Iterable[dict[str, Any]]) -> bytes:
    """The rows as lines."""
    # Each line as bytes at once: a line can be long, and all of them as text beside the bytes would take twice as much.
    return b"".join([(line_of(row) + "\n").encode("utf-8", "backslashreplace") for row in rows])


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(each) for key, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


class JsonLinesSink:
    """Appends one line per result; the lines of a report are written together.

    Args:
        path: the file, made if it does not exist, or "-" for standard output.
        key: where the path stands in the configuration, for errors.
        mode: permissions of the file if it is created, whatever the umask; a file that exists keeps its own.

    Raises:
        ConfigError: the file cannot be opened for writing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        name: str = "jsonl",
        *,
        key: str = "exporters.jsonl.path",
        mode: int = OWNER_ONLY,
    ) -> None:
        self.name: Final = name
        self._lock = threading.Lock()  # guards _file: reports may come from a worker and from whoever flushes
        renew_after_fork(self)
        self._file: io.RawIOBase | None = None if os.fspath(path) == "-" else _opened(Path(path), key, mode)

    def emit(self, report: Report) -> None:
        """Write the report's results."""
        self.write(lines_of(report))

    def write(self, lines: bytes) -> None:
        """Write whole lines.

        Raises:
            OSError: they could not be written; nothing of them is in the file.
        """
        with self._lock:
            if self._file is None:
                sys.stdout.write(lines.decode("utf-8", "replace"))
                sys.stdout.flush()
            else:
                _append(self._file, lines)

    def sync(self) -> None:
        """Hand the file to the disk.

        Raises:
            OSError: that failed.
        """
        with self._lock:
            if self._file is not None and not self._file.closed and self._file.seekable():  # a pipe has no disk
                os.fsync(self._file.fileno())

    def there(self, result_ids: Collection[str]) -> set[str]:
        """Those of the results that stand in the last 64 MiB of the file."""
        return self.written_ids().intersection(result_ids) if result_ids else set()

    def written_ids(self) -> set[str]:
        """The results in the last 64 MiB of the file; none of standard output or a pipe."""
        with self._lock:
            if self._file is None or not self._file.seekable():
                return set()
            end = self._file.seek(0, os.SEEK_END)
            self._file.seek(max(0, end - _TAIL))
            return {each.decode() for each in _RESULT_ID.findall(self._file.read() or b"")}

    def flush(self, timeout_s: float) -> bool:
        """Every report is written when it is emitted; this hands the file to the disk."""
        del timeout_s
        with suppress(OSError):  # a device has no disk
            self.sync()
        return True

    def close(self, timeout_s: float) -> None:
        """Close the file."""
        del timeout_s
        with self._lock:
            if self._file is not None:
                self._file.close()


def _append(file: io.RawIOBase, lines: bytes) -> None:
    """All of it or nothing: half a line would spoil the next one."""
    rest = memoryview(lines)
    try:
        while rest:
            rest = rest[file.write(rest) or 0 :]
    except OSError:
        with suppress(OSError):
            _take_back(file, len(lines) - len(rest), lines)
        raise


def _take_back(file: io.RawIOBase, written: int, lines: bytes) -> None:
    """Cut what was written of the lines, if it is the end: another process may append to the same file."""
    end = file.seek(0, os.SEEK_END)
    file.seek(end - written)
    if written and file.read(written) == lines[:written]:
        file.truncate(end - written)


def _opened(path: Path, key: str, mode: int) -> io.RawIOBase:
    try:
        file = open(path, "ab+", opener=partial(_created, mode))  # noqa: SIM115 - it is kept
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(
            f"{key}: {str(path)!r} cannot be written ({reason}); name a file in a writable folder, or '-'"
        ) from None
    if file.seekable():
        _cut_torn_line(file)
    # A buffer has a lock of its own, which a thread may hold when the process forks, and lines that the child would write again.
    return file.detach()


def _created(mode: int, path: str, flags: int) -> int:
    """A handle of the file, which is created with these permissions if it does not exist."""
    try:
        handle = os.open(path, flags | os.O_EXCL, mode)
    except FileExistsError:
        return os.open(path, flags, mode)
    with suppress(OSError, AttributeError):  # a file system without permissions; Windows
        os.fchmod(handle, mode)  # the umask may have taken away what was asked for
    return handle


def _cut_torn_line(file: IO[bytes]) -> None:
    """Remove what a crash left of a last line of ours, so that the next line does not continue it; end a line of another's."""
    end = file.seek(0, os.SEEK_END)
    keep = end
    while keep > 0:
        start = max(0, keep - _BLOCK)
        file.seek(start)
        newline = file.read(keep - start).rfind(b"\n")
        if newline >= 0:
            keep = start + newline + 1
            break
        keep = start
    if keep == end:
        return
    file.seek(keep)
    if file.read(len(_BEGINNING)) == _BEGINNING:
        file.truncate(keep)
    else:
        file.write(b"\n")
