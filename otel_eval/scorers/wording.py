"""Explanations: names and positions in short sentences.

Knows how to list; never sees a value of an argument or a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

__all__ = ["listed", "plural", "tool"]

_MOST_LISTED: Final = 8
_LONGEST_NAME: Final = 60


def tool(name: str) -> str:
    """A tool's name, cut if somebody put a book into it."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def listed(items: Sequence[tuple[str, int]]) -> str:
    """Names with positions: `search (0), open (3) and 2 more`."""
    shown = items if len(items) <= _MOST_LISTED else items[:_MOST_LISTED]
    text = ", ".join([f"{name if len(name) <= _LONGEST_NAME else tool(name)} ({position})" for name, position in shown])
    return text if len(items) <= _MOST_LISTED else f"{text} and {len(items) - _MOST_LISTED} more"


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
