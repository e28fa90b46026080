"""The errors that this package raises on purpose.

OtelEvalError
├── ConfigError      the configuration is invalid: raised at start, never later
├── InputError       a file or a payload is malformed; a retry cannot help
├── Overloaded       there is no room now; the client should retry later
└── RequestTooLarge  a request exceeds a limit for one request; a retry cannot help
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

__all__ = ["ConfigError", "InputError", "OtelEvalError", "Overloaded", "RequestTooLarge", "collect_errors"]

T = TypeVar("T")


class OtelEvalError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(OtelEvalError, ValueError):
    """A configuration or a scorer's specification cannot be used.

    The message is one line that names the key, the value received, what would be right and the remedy:
    ``evaluations[0].scorers[1].max_ms: -5 is not a positive number of milliseconds; write e.g. 30000``.
    Several problems are joined by `; `. Line ends and what a terminal would obey are escaped.

    Args:
        problems: one or more.
        where: prefix of the whole message, usually the name of the file.

    Attributes:
        problems: each problem by itself.
    """

    def __init__(self, *problems: str, where: str = "") -> None:
        self.problems = tuple(map(_printable, problems))
        super().__init__(_printable(where) + "; ".join(self.problems))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class InputError(OtelEvalError, ValueError):
    """Bytes or a file that cannot be read as traces. Sending the same again cannot help."""


class Overloaded(OtelEvalError):
    """Intake is full for now.

    Attributes:
        retry_after_s: how long the client should wait before it retries, in seconds.
    """

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestTooLarge(OtelEvalError):
    """A request is, or would take, more than one request may; sending it again cannot help."""


def collect_errors(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Call every function and return the results; errors are raised together after the last call.

    Raises:
        ConfigError: at least one call raised it; has the problems of all of them, each once.
    """
    found: list[T] = []
    problems: list[str] = []
    for call in calls:
        try:
            found.append(call())
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return found
