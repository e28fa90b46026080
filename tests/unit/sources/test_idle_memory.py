"""When freed memory is returned to the system."""

from __future__ import annotations

import subprocess
import sys

import pytest

from otel_eval.heap import IdleMemory

MIB = 2**20


class Process:
    """What a receiver looks like from outside; trimming leaves what is held."""

    def __init__(self) -> None:
        self.now, self.arrived, self.held_bytes, self.size = 0.0, 0, 0, 50 * MIB
        self.done = list[str]()
        self.memory = IdleMemory(
            self,
            lambda: self.now,
            lambda: self.size,
            self.trim,
        )

    def compact(self) -> None:
        self.done.append("compact")

    def trim(self) -> bool:
        self.done.append("trim")
        self.size = 50 * MIB + self.held_bytes
        return True

    def work(self, seconds: int, *, requests: int, held: int) -> int:
        """So many seconds with so many requests each; how often memory was returned."""
        before = self.done.count("trim")
        self.held_bytes, self.size = held, max(self.size, 50 * MIB + held)
        for _ in range(10 * seconds):
            self.now += 0.1
            self.arrived += requests
            self.memory.look()
        return self.done.count("trim") - before


def test_memory_is_returned_when_requests_have_stopped():
    """Once, and again when closed traces that were kept for late spans are let go."""
    process = Process()
    assert process.work(20, requests=5, held=100 * MIB) == 0
    assert process.work(30, requests=0, held=60 * MIB) == 1
    assert process.work(30, requests=0, held=0) == 1
    assert process.done == ["compact", "trim"] * 2
    assert process.work(600, requests=0, held=0) == 0


def test_requests_that_never_stop_do_not_keep_it_for_ever():
    """Once a minute at most."""
    process = Process()
    process.work(30, requests=5, held=100 * MIB)
    assert process.work(120, requests=1, held=5 * MIB) == 1


def test_little_is_not_worth_it():
    """Less than 8 MiB."""
    process = Process()
    process.work(30, requests=5, held=5 * MIB)
    assert process.work(600, requests=0, held=0) == 0


FREES = """
from otel_eval.heap import resident, trim_malloc, tune_malloc
assert tune_malloc()
held = [bytes(5000) for _ in range(20_000)]
pin = bytes(5000)  # above everything, so that free() alone returns nothing
del held
before = resident()
assert trim_malloc()
print(before - resident())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_trimming_returns_what_was_freed():
    """Most of 100 MB, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", FREES], capture_output=True, text=True, check=True)
    assert int(done.stdout) > 80 * 10**6
