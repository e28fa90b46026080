"""Compare the CPU time of work of two sizes."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

TRIALS = 3


def is_in_proportion(
    small: Callable[[], object], great: Callable[[], object], most: float, floor_s: float = 1e-3
) -> bool:
    """Whether the great work takes less than `most` times the CPU of the small one, the best of
    three trials each.

    No further trial is made once one of the great work was quick enough. Below `floor_s` other
    processes on the machine decide. Garbage is not collected meanwhile: what that costs depends on
    all other tests.
    """
    gc.disable()
    try:
        least_s = max(min(_cpu_s(small) for _ in range(TRIALS)), floor_s)
        return any(_cpu_s(great) < most * least_s for _ in range(TRIALS))
    finally:
        gc.enable()


def _cpu_s(work: Callable[[], object]) -> float:
    began = time.thread_time()
    work()
    return time.thread_time() - began
