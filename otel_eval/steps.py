"""Count the steps that the evaluation of one trace takes, and end what takes too many."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["LIMIT", "TOO_LARGE", "Steps", "TooLarge", "steps_of", "steps_of_text"]

LIMIT: Final = 20_000_000
"""Steps that the evaluation of one trace may take, about 0.1 µs each; see docs/reference/scorers.md."""
TOO_LARGE: Final = f"evaluating the trace takes more than {LIMIT:,} steps"
_CHARACTERS: Final = 32  # read in one step; values in the text cost more than its characters
_OF_A_VALUE: Final = 4


class TooLarge(Exception):
    """The evaluation of a trace would take more steps than it may."""


class Steps:
    """The steps that are left for the evaluation of one trace; the same trace always takes the same.

    Time does not count: it depends on the load, and a trace would be scored on one machine and skipped on another.
    """

    __slots__ = ("left",)

    def __init__(self, limit: int = LIMIT) -> None:
        self.left = limit

    def take(self, count: int) -> None:
        """Count steps before they are taken.

        Raises:
            TooLarge: there are fewer left, now or at an earlier call.
        """
        self.left -= count
        if self.left < 0:
            raise TooLarge(TOO_LARGE)

    def allow(self, count: int) -> bool:
        """Whether so many are left."""
        return count <= self.left


def steps_of_text(text: str) -> int:
    """The steps of reading JSON: its characters, and the values in lists and objects."""
    return len(text) // _CHARACTERS + _OF_A_VALUE * (1 + text.count(",") + text.count("{") + text.count("["))


def steps_of(value: Any) -> int:
    """The same of a value that may be text."""
    return steps_of_text(value) if isinstance(value, str) else _OF_A_VALUE
