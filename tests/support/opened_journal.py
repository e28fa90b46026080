"""A journal in a folder of its own, for tests, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from otel_eval.storage.directory import DirectoryLock
from otel_eval.storage.journal import Journal

__all__ = ["journal", "read"]


@contextmanager
def journal(path: Path, **options: Any) -> Iterator[Journal]:
    """The journal at this path, closed and unlocked afterwards."""
    claim = DirectoryLock(path)
    opened = Journal(claim, **({"max_bytes": 2**30} | options))
    try:
        yield opened
    finally:
        opened.close()
        claim.release()


def read(opened: Journal) -> list[tuple[int, bytes]]:
    """Its records from the last start, each with its kind."""
    return [(kind, payload) for _, kind, payload, _ in opened.replay()]
