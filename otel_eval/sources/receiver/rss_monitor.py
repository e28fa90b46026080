"""How much the process has grown since it was last at ease.

Knows the kernel's count of resident memory; knows nothing of what takes it. For what is held where nobody tells how much: what
grpcio has received of messages that are not whole yet.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

__all__ = ["RssMonitor", "resident"]


def resident() -> int:
    """Bytes of this process in memory; 0 where that cannot be asked for."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
    except OSError:  # not Linux
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


class RssMonitor:
    """Whether the process has grown by more than so many bytes while it was not at ease.

    Args:
        limit_bytes: more is much.
        size: how great the process is now.
    """

    def __init__(self, limit_bytes: int, size: Callable[[], int] = resident) -> None:
        self._limit: Final = limit_bytes
        self._size: Final = size
        self._base = size()

    def at_ease(self) -> None:
        """What there is now is nobody's fault."""
        self._base = self._size()

    @property
    def much(self) -> bool:
        """Whether it has grown by more than the limit."""
        now = self._size()
        self._base = min(self._base, now)
        return now - self._base > self._limit
