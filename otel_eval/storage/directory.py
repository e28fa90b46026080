"""The storage directory: its lock, the names of its segments, the small files beside them, and its
split over workers.

With several workers each has its own subdirectory. The content can only be used with the same
number of workers: with another number the rest of a trace would be sent to another worker. The
number is recorded in a small file until everything was scored and delivered.
"""

from __future__ import annotations

import json
import os
import re
import stat
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from otel_eval.errors import ConfigError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_KEY: Final = "storage.directory"
# the greatest number of ten digits would have no next name
_SEGMENT_NAME: Final = re.compile(r"([0-8][0-9]{9})\.journal")
NO_LINK: Final = getattr(os, "O_NOFOLLOW", 0)  # not on Windows
"""The flag for `os.open` that refuses to follow a symbolic link in the place of the file."""


class DirectoryLock:
    """The exclusive lock of a storage directory, held until `release` or the end of the process, a
    crash included.

    Raises:
        ConfigError: the directory cannot be created or written, another process holds the lock, or
            the system has no such locks.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        if fcntl is None:
            raise ConfigError(
                f"{_KEY}: this system has no flock, which storage needs; leave storage out"
            )
        self.path: Final = Path(directory)
        shown = repr(str(self.path))
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(
                self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | NO_LINK, 0o600
            )
        except OSError as error:
            raise ConfigError(
                f"{_KEY}: {shown} cannot be used ({_reason(error)}); name a directory that can be"
                " written"
            ) from None
        try:
            # The kernel releases the lock when the process ends: a crash leaves none behind.
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise ConfigError(
                f"{_KEY}: {shown} is in use by another process; stop it or name another directory"
            ) from None

    @property
    def is_in_place(self) -> bool:
        """Whether the path leads to the locked directory: it was not removed, moved or replaced.
        False if that cannot be seen.
        """
        try:
            return os.path.samestat(os.stat(self.path / "lock"), os.fstat(self._lock))
        except OSError:
            return False

    def segments(self) -> list[tuple[int, Path]]:
        """Return number and path of each segment, oldest first.

        Raises:
            ConfigError: something with the name of a segment is not a regular file.
        """
        matches = ((_SEGMENT_NAME.fullmatch(path.name), path) for path in self.path.iterdir())
        segments = sorted((int(match[1]), path) for match, path in matches if match)
        for _, path in segments:
            # opening a pipe would block, and a link may lead anywhere
            if not stat.S_ISREG(path.lstat().st_mode):
                raise ConfigError(
                    f"{_KEY}: {str(path)!r} is not a file; remove it, or name another directory"
                )
        return segments

    def segment(self, number: int) -> Path:
        """Return the path of the segment with a number, whether it exists or not."""
        return self.path / f"{number:010d}.journal"

    def release(self) -> None:
        """Release the lock, so that another process can use the directory."""
        os.close(self._lock)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a small file atomically, and sync it to the disk.

    Raises:
        OSError: it could not be written. The previous file is still there, unless the last sync of
            the directory failed.
    """
    temporary = path.with_suffix(".new")
    temporary.unlink(missing_ok=True)  # left by a crash, or a link or a pipe that someone created
    with open(temporary, "xb", buffering=0, opener=partial(os.open, mode=0o600)) as file:
        if file.write(content) < len(content):
            raise OSError(None, "the disk is full")
        os.fsync(file.fileno())
    # atomically, after the content is on the disk: a crash leaves the old file or the new one
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


_IDENTITY_FILE: Final = "evaluator.json"


class EvaluatorIdentity(NamedTuple):
    """The identity of the evaluator that uses a directory.

    Attributes:
        evaluator: 32 random hex digits, created when the directory was first used.
        since_ns: that time in Unix nanoseconds.
    """

    evaluator: str
    since_ns: int


def evaluator_identity(directory: DirectoryLock, now_ns: int) -> EvaluatorIdentity:
    """Return the identity that the directory holds; create one if there is none that can be read.

    Raises:
        ConfigError: the new identity cannot be written.
    """
    path = directory.path / _IDENTITY_FILE
    match _read(path):
        case {"evaluator": str(evaluator), "since_ns": int(since_ns)} if evaluator:
            return EvaluatorIdentity(evaluator, since_ns)
    created = EvaluatorIdentity(uuid4().hex, now_ns)
    _write(path, json.dumps(created._asdict()).encode(), path)
    return created


def _read(path: Path) -> Any:
    """Return the JSON value in a small file; None if it cannot be read."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None


_SPLIT_FILE: Final = "workers"


def worker_directory(directory: str | os.PathLike[str], number: int) -> Path:
    """Return the subdirectory of a worker, numbered from 1."""
    return Path(directory) / f"worker-{number}"


def _recorded_workers(base: Path) -> int:
    """Return the number of workers whose traces the directory holds; 0 if it holds none."""
    try:
        return int((base / _SPLIT_FILE).read_bytes())
    except (OSError, ValueError):
        return int(any(base.glob("*.journal")))


def directories_of(directory: str | os.PathLike[str]) -> list[Path]:
    """Return the directories that hold, or may hold, traces."""
    recorded = _recorded_workers(Path(directory))
    return (
        [worker_directory(directory, number) for number in range(1, recorded + 1)]
        if recorded > 1
        else [Path(directory)]
    )


def claim_split(directory: str | os.PathLike[str], workers: int) -> None:
    """Record the number of workers that use the directory from now on.

    Raises:
        ConfigError: the directory holds traces that are split over another number of workers, or
            cannot be written.
    """
    base = Path(directory)
    recorded = _recorded_workers(base)
    if recorded not in (0, workers):
        raise ConfigError(
            f"workers: {workers}, but storage.directory {str(base)!r} holds traces of {recorded}; "
            f"run `otel-eval serve --drain` once, or set workers to {recorded}"
        )
    if workers > 1 or (base / _SPLIT_FILE).exists():
        _write(base / _SPLIT_FILE, b"%d" % workers, base)


def release_split(directory: str | os.PathLike[str]) -> None:
    """Record that everything in the directory was scored and delivered.

    Raises:
        ConfigError: the directory cannot be written.
    """
    _write(Path(directory) / _SPLIT_FILE, b"0", Path(directory))


def _write(path: Path, content: bytes, named: Path) -> None:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(path, content)
    except OSError as error:
        raise ConfigError(
            f"{_KEY}: {str(named)!r} cannot be written ({_reason(error)}); make room or name"
            " another"
        ) from None


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
