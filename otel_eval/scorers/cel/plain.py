"""Values of the evaluator as values of Python, where nothing is shared: as many and as long as an expression may look at."""

from __future__ import annotations

from typing import Any, Final

from otel_eval.scorers.cel.binding import MOST_VALUES, Unavailable
from otel_eval.scorers.cel.functions import MOST_CHARACTERS
from otel_eval.scorers.cel.memory import TOO_LARGE

__all__ = ["plain_value"]

_DEEPEST: Final = 64


def plain_value(found: Any, *, heavy: bool) -> Any:
    """The value in plain Python types.

    Args:
        found: a value of the library.
        heavy: whether it may take much more in Python, so that it must be converted piece by piece.

    Raises:
        Unavailable: it is too large, too many or too deep.
    """
    return _Pieces().of(found, 0) if heavy else found.plain_value()


class _Pieces:
    def __init__(self) -> None:
        self._values, self._characters = MOST_VALUES, MOST_CHARACTERS

    def of(self, found: Any, depth: int) -> Any:
        value = found.value()
        self._values -= 1
        self._characters -= len(value) if isinstance(value, str) else 0
        if depth > _DEEPEST or self._values < 0 or self._characters < 0:
            raise Unavailable(f"{TOO_LARGE}: what the expression gives", "too_large")
        if isinstance(value, list):
            return [self.of(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return {key: self.of(each, depth + 1) for key, each in value.items()}
        return value
