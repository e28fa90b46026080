"""Answers that were given, so that equal questions are asked once.

Knows texts; knows no judge. Nothing is locked: each step is one operation of a dict.
"""

from __future__ import annotations

from typing import Final

__all__ = ["Cache"]


class Cache:
    """Remembers the answers that were put or looked up last: at least half of `size`, at most `size`; 0 none at all."""

    def __init__(self, size: int) -> None:
        self._half: Final = (size + 1) // 2
        self._new: dict[bytes, str] = {}
        self._old: dict[bytes, str] = {}

    def get(self, key: bytes) -> str | None:
        """The answer, or None."""
        found = self._new.get(key)
        if found is None and (found := self._old.get(key)) is not None:
            self.put(key, found)
        return found

    def put(self, key: bytes, answer: str) -> None:
        """Remember an answer."""
        if self._half == 0:
            return
        if len(self._new) >= self._half:
            self._new, self._old = {}, self._new
        self._new[key] = answer
