"""Compare how much work Python does for input of two sizes, whatever else the machine does."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType


def lines_run(work: Callable[[], object]) -> int:
    """How many lines of Python the work runs in this thread; each turn of a loop counts again.

    The number is the same each time, on a busy machine as on an idle one. What a single call of a
    function written in C does is not seen.
    """
    lines = 0

    def count(frame: FrameType, event: str, argument: object) -> object:
        nonlocal lines
        lines += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines


def is_in_proportion(small: Callable[[], object], great: Callable[[], object], most: float) -> bool:
    """Whether the great work runs less than `most` times the lines of the small one, after a first
    run that fills caches.
    """
    small()
    return lines_run(great) < most * lines_run(small)
