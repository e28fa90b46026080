"""Explanations: names and positions in short sentences. Values of arguments and results never appear in them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

__all__ = ["listed", "plural", "seen", "tool"]

_MOST_LISTED: Final = 8
_LONGEST_NAME: Final = 60
_MOST_SEEN: Final = 50


def tool(name: str) -> str:
    """A tool's name, cut to 60 characters."""
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def listed(items: Sequence[tuple[str, int]]) -> str:
    """Names with positions: `search (0), open (3) and 2 more`."""
    shown = items if len(items) <= _MOST_LISTED else items[:_MOST_LISTED]
    text = ", ".join([f"{name if len(name) <= _LONGEST_NAME else tool(name)} ({position})" for name, position in shown])
    return text if len(items) <= _MOST_LISTED else f"{text} and {len(items) - _MOST_LISTED} more"


def plural(number: int, noun: str) -> str:
    """`1 call`, `2 calls`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


class _Named(Protocol):
    @property
    def name(self) -> str: ...


def seen(calls: Iterable[_Named]) -> list[str]:
    """The distinct names, sorted, at most 50: what a misspelt name of a policy is compared with."""
    return [tool(name) for name in sorted({call.name for call in calls})[:_MOST_SEEN]]
