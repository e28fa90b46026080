"""Files for new segments: those of segments that nobody needs any more are written over.

Knows files, their heads and names; knows no record. To the kernel a page that is there costs a tenth of a new one.

A file is begun under a name that no start reads, and gets a segment's name when its head is on the disk. So a segment has a
sound head whatever a crash came between, and what stands behind its records are bytes under another salt, which are none.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from otel_eval.storage.directory import NO_LINK, Claim, sync_directory
from otel_eval.storage.records import Seal, head, seal_of

__all__ = ["Spares"]

_MOST: Final = 2  # more gave no less


class Spares:
    """Begins segments, in files that it was given where there are some. One thread at a time.

    Args:
        claim: the directory.
        sync: whether what is begun has to outlast the machine.
    """

    def __init__(self, claim: Claim, *, sync: bool) -> None:
        self._claim, self._sync = claim, sync
        self._files: Final[list[tuple[Path, int]]] = []
        for path in claim.spares():
            _unlink(path)  # what a crash left may be as long as any

    @property
    def bytes(self) -> int:
        """Of all files that are kept."""
        return sum(size for _, size in self._files)

    def take(self, path: Path, size: int) -> bool:
        """Keep the file of a segment that nobody needs; False if there are enough, or it cannot be."""
        if len(self._files) == _MOST:
            return False
        spare = self._claim.spare(path)
        try:
            path.rename(spare)
        except OSError:
            return False
        self._files.append((spare, size))
        return True

    def give_back(self) -> bool:
        """Remove all that are kept, for their room; False if there is none."""
        had = bool(self._files)
        while self._files:
            _unlink(self._files.pop()[0])
        return had

    def begin(self, path: Path) -> tuple[int, Seal]:
        """A segment of that name: its file, open, with nothing but its head, and its seal.

        Raises:
            OSError: that cannot be written; no such segment is there.
        """
        # The one that came last: the kernel is likely to have it still.
        spare = self._files.pop()[0] if self._files else self._claim.spare(path)
        file = self._opened(spare)
        try:
            seal = self._headed(file)
            spare.rename(path)
            if self._sync:
                sync_directory(self._claim.path)
        except OSError:
            os.close(file)
            _unlink(spare)
            _unlink(path)
            raise
        return file, seal

    def _opened(self, spare: Path) -> int:
        try:
            return os.open(spare, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | NO_LINK, 0o600)
        except OSError:
            _unlink(spare)  # nothing of ours; the next attempt makes a file
            raise

    def _headed(self, file: int) -> Seal:
        beginning = head(os.urandom(8), stale=os.fstat(file).st_size)
        if os.pwrite(file, beginning, 0) < len(beginning):
            raise OSError("the disk is full")
        if self._sync:
            os.fdatasync(file)
        seal = seal_of(beginning)
        assert seal is not None
        return seal


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink()
