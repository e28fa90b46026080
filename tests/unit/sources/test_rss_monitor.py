"""How much the process has grown."""

from __future__ import annotations

from pathlib import Path

import pytest

from otel_eval.heap import resident
from otel_eval.sources.receiver.memory import RssMonitor


def test_growth_counts_from_the_last_time_it_was_at_ease() -> None:
    """And from the least there was since."""
    sizes = iter([100, 150, 201, 300, 80, 181, 500, 599, 601])
    growth = RssMonitor(100, sizes.__next__)
    assert [growth.has_grown for _ in range(5)] == [False, True, True, False, True]
    growth.at_ease()
    assert [growth.has_grown for _ in range(2)] == [False, True]


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(),
    reason="memory is asked of /proc, which this system has not",
)
def test_memory_that_is_written_to_is_resident() -> None:
    """Not what is merely asked for."""
    growth = RssMonitor(100 * 2**20)
    held = bytearray(b"x") * (200 * 2**20)
    assert growth.has_grown
    assert resident() > len(held)
