"""Attributes that are computed when they are first read."""

from __future__ import annotations

import threading

from otel_eval.caching import cached_property


class Slow:
    """Its sum is computed when `go_on` is set."""

    def __init__(self, number: int) -> None:
        self.number, self.began, self.go_on = number, threading.Event(), threading.Event()
        self.computed = 0

    @cached_property
    def sum(self) -> int:
        """One more than the number."""
        self.began.set()
        assert self.go_on.wait(300)
        self.computed += 1
        return self.number + 1


def test_an_attribute_is_computed_once() -> None:
    slow = Slow(1)
    slow.go_on.set()
    assert (slow.sum, slow.sum, slow.computed) == (2, 2, 1)


def test_an_object_does_not_wait_for_the_attribute_of_another_one() -> None:
    """A forked child has no thread that would ever finish computing it."""
    waiting, other = Slow(1), Slow(2)
    thread = threading.Thread(target=lambda: waiting.sum, daemon=True)
    thread.start()
    assert waiting.began.wait(300)
    other.go_on.set()
    reader = threading.Thread(target=lambda: other.sum, daemon=True)
    reader.start()
    reader.join(60)
    assert other.computed == 1
    waiting.go_on.set()
    thread.join(300)
    assert waiting.computed == 1
