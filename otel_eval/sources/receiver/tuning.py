"""Two settings of the process that make a receiver cheaper; for a process of its own, never set on import.

Knows glibc's allocator and CPython's garbage collector, and does nothing where they are something else.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Final

__all__ = ["tune_gc", "tune_malloc"]

_M_TRIM_THRESHOLD: Final = -1  # malloc.h
_M_MMAP_THRESHOLD: Final = -3
_MIB: Final = 1024 * 1024
_KEPT: Final = 64 * _MIB


def tune_malloc() -> bool:
    """Keep the memory of request bodies instead of giving each back to the kernel; False where that cannot be set.

    A body of 1.5 MB is otherwise mapped and unmapped each time, which costs as much as decoding it. The price: up to
    64 MiB of freed memory stay with the process.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # another C library
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _KEPT)) and bool(mallopt(_M_TRIM_THRESHOLD, _KEPT))


def tune_gc() -> None:
    """Look for garbage less often: buffered spans are tuples of bytes, which form no cycles, but there are many."""
    gc.set_threshold(50_000, 20, 100)
