"""Over how many workers the traces in a storage directory are split.

Each worker has a directory of its own within it. What they hold is of use only to the same number of workers: with another one
the rest of a trace would come to another worker. The number stands in a small file until everything was scored and delivered.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from otel_eval.errors import ConfigError
from otel_eval.storage.directory import replace_file

__all__ = ["claim_split", "directories_of", "release_split", "worker_directory"]

_FILE: Final = "workers"


def worker_directory(directory: str | os.PathLike[str], number: int) -> Path:
    """The directory of a worker, numbered from 1."""
    return Path(directory) / f"worker-{number}"


def _held(base: Path) -> int:
    """How many workers' traces the directory holds; 0 if none."""
    try:
        return int((base / _FILE).read_bytes())
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
    if workers > 1 or (base / _FILE).exists():
        _write(base, workers)


def release_split(directory: str | os.PathLike[str]) -> None:
    """Note that nothing in the directory waits any more; raises as `claim_split` does."""
    _write(Path(directory), 0)


def _write(base: Path, workers: int) -> None:
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        replace_file(base / _FILE, b"%d" % workers)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"storage.directory: {str(base)!r} cannot be written ({reason}); make room or name another") from None
