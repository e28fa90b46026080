"""The storage directory: its lock, the names of its segments, the small files beside them, and its split over workers.

With several workers each has a directory of its own within it. What they hold is of use only to the same number of workers: with
another one the rest of a trace would come to another worker. The number stands in a small file until everything was scored and
delivered.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import threading
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from otel_eval.errors import ConfigError

_KEY: Final = "storage.directory"
_SEGMENT_NAME: Final = re.compile(r"([0-8][0-9]{9})\.journal")  # after the last ten digits there would be no next name
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
"""A link in the place of a file is not followed."""


class DirectoryLock:
    """The right to a directory, held until it is given up or the process ends, however it ends.

    Raises:
        ConfigError: it cannot be made or written, or another process holds it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.path: Final = Path(directory)
        shown = repr(str(self.path))
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600)
        except OSError as error:
            raise ConfigError(
                f"{_KEY}: {shown} cannot be used ({_reason(error)}); name a directory that can be written"
            ) from None
        try:
            _lock(self._lock)
        except OSError:
            os.close(self._lock)
            raise ConfigError(f"{_KEY}: {shown} is in use by another process; stop it or name another directory") from None

    def segments(self) -> list[tuple[int, Path]]:
        """Number and path of each segment, oldest first.

        Raises:
            ConfigError: what has the name of one is no file.
        """
        found = ((_SEGMENT_NAME.fullmatch(path.name), path) for path in self.path.iterdir())
        segments = sorted((int(match[1]), path) for match, path in found if match)
        for _, path in segments:
            if not stat.S_ISREG(path.lstat().st_mode):  # a pipe would be waited for, a link may lead anywhere
                raise ConfigError(f"{_KEY}: {str(path)!r} is not a file; remove it, or name another directory")
        return segments

    def segment(self, number: int) -> Path:
        """Where a segment is, or will be."""
        return self.path / f"{number:010d}.journal"

    def release(self) -> None:
        """Let another process have the directory."""
        os.close(self._lock)


def replace_file(path: Path, content: bytes) -> None:
    """Write a small file: all of it or nothing, on the disk.

    Raises:
        OSError: it could not be written; the former one is still there.
    """
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)  # what a crash left, or a link or a pipe that was put there
    with open(fresh, "xb", buffering=0, opener=partial(os.open, mode=0o600)) as file:
        if file.write(content) < len(content):
            raise OSError(None, "the disk is full")
        os.fsync(file.fileno())
    os.replace(fresh, path)  # in one step, after the content is on the disk: a crash leaves the old file or the new one
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _lock(handle: int) -> None:
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        raise ConfigError(f"{_KEY}: this system has no flock, which storage needs; leave storage out") from None
    # The kernel lets go of it when the process ends, so that a crash leaves no lock behind.
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


_IDENTITY_FILE: Final = "evaluator.json"


class EvaluatorIdentity(NamedTuple):
    """Who evaluates.

    Attributes:
        evaluator: 32 hex digits, drawn when the directory was first used.
        since_ns: Unix nanoseconds of that moment.
    """

    evaluator: str
    since_ns: int


def evaluator_identity(directory: DirectoryLock, now_ns: int) -> EvaluatorIdentity:
    """The identity that the directory holds; a new one if it holds none that can be read.

    Raises:
        ConfigError: it cannot be written.
    """
    path = directory.path / _IDENTITY_FILE
    match _read(path):
        case {"evaluator": str(evaluator), "since_ns": int(since_ns)} if evaluator:
            return EvaluatorIdentity(evaluator, since_ns)
    drawn = EvaluatorIdentity(uuid4().hex, now_ns)
    _write(path, json.dumps(drawn._asdict()).encode(), path)
    return drawn


def _read(path: Path) -> Any:
    """The JSON in a small file; None if there is none."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


_ACCEPTED_FILE: Final = "accepted.json"
_MOST: Final = 100  # endpoints that were configured one after the other; the oldest is forgotten

_log = logging.getLogger("otel_eval")


class AcceptedSignals:
    """A small file with the keys of endpoints and signals. Safe from any thread.

    Args:
        directory: the storage directory.
    """

    def __init__(self, directory: DirectoryLock) -> None:
        self._path: Final = directory.path / _ACCEPTED_FILE
        self._lock = threading.Lock()  # guards _keys and the file
        held = _read(self._path)
        self._keys = [key for key in held if isinstance(key, str)] if isinstance(held, list) else []

    def has(self, key: str) -> bool:
        """Whether an endpoint accepted the signal before, also before a restart."""
        return key in self._keys

    def add(self, key: str) -> None:
        """Remember it. A file that cannot be written is logged: after a restart a 404 is then no outage."""
        with self._lock:
            if key in self._keys:
                return
            self._keys = [*self._keys, key][-_MOST:]
            try:
                replace_file(self._path, json.dumps(self._keys).encode())
            except OSError as error:
                _log.warning("%s: %s cannot be written (%s)", _KEY, _ACCEPTED_FILE, _reason(error))


_SPLIT_FILE: Final = "workers"


def worker_directory(directory: str | os.PathLike[str], number: int) -> Path:
    """The directory of a worker, numbered from 1."""
    return Path(directory) / f"worker-{number}"


def _held(base: Path) -> int:
    """How many workers' traces the directory holds; 0 if none."""
    try:
        return int((base / _SPLIT_FILE).read_bytes())
    except (OSError, ValueError):
        return int(any(base.glob("*.journal")))


def directories_of(directory: str | os.PathLike[str]) -> list[Path]:
    """The directories that hold traces, or may."""
    held = _held(Path(directory))
    return [worker_directory(directory, number) for number in range(1, held + 1)] if held > 1 else [Path(directory)]


def claim_split(directory: str | os.PathLike[str], workers: int) -> None:
    """Note that so many workers use the directory from now on.

    Raises:
        ConfigError: it holds traces that are split over another number of workers, or it cannot be written.
    """
    base = Path(directory)
    held = _held(base)
    if held not in (0, workers):
        raise ConfigError(
            f"workers: {workers}, but storage.directory {str(base)!r} holds traces of {held}; "
            f"run `otel-eval serve --drain` once, or set workers to {held}"
        )
    if workers > 1 or (base / _SPLIT_FILE).exists():
        _write(base / _SPLIT_FILE, b"%d" % workers, base)


def release_split(directory: str | os.PathLike[str]) -> None:
    """Note that nothing in the directory waits any more; raises as `claim_split` does."""
    _write(Path(directory) / _SPLIT_FILE, b"0", Path(directory))


def _write(path: Path, content: bytes, named: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise ConfigError(f"{_KEY}: {str(named)!r} cannot be written ({_reason(error)}); make room or name another") from None


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
