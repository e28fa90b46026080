"""Read stored traces: files of OTLP, Tempo and Jaeger, plain or gzipped, as the same batches as
live traces.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from otel_eval.otlp.protobuf import SpanBatch

_log = logging.getLogger("otel_eval")

MAX_DOCUMENT: Final = 512 * 1024 * 1024
"""The most bytes, after decompression, of a part that has to be decoded as a whole."""

FORMATS: Final = (
    "give OTLP (JSON, JSON Lines or protobuf), or Jaeger or Tempo JSON, each optionally gzipped"
)
"""What a file may be, for messages."""

PIECE: Final = 1024 * 1024
"""The bytes of one read."""

Notify = Callable[[str], None]
"""Receives one line about something that was skipped."""


class ReadingListener:
    """Told what happens while stored traces are read. This one logs problems, and ignores all
    else.
    """

    def problem(self, message: str) -> None:
        """A file, or a part of one, cannot be used, or results were not exported."""
        _log.warning("%s", message)

    def notice(self, message: str) -> None:
        """The format of a file lacks something."""

    def advance(self, read: int, total: int) -> None:
        """So much of all inputs was read, of so much."""

    def wait(self, finished: int, awaited: int) -> None:
        """Judges have been awaited for a second; so many of their results are finished, of so
        many.
        """


class ProblemListener(ReadingListener):
    """Passes problems to a function, and ignores all else."""

    def __init__(self, on_problem: Notify) -> None:
        self._on_problem: Final = on_problem

    def problem(self, message: str) -> None:
        """Pass on the problem."""
        self._on_problem(message)


@dataclass
class CollectedMessages(ReadingListener):
    """Collects the messages."""

    problems: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    def problem(self, message: str) -> None:
        """Collect a problem."""
        self.problems.append(message)

    def notice(self, message: str) -> None:
        """Collect a notice."""
        self.notices.append(message)


def with_prefix(notify: Notify, prefix: str) -> Notify:
    """Return a function that calls `notify` with lines that begin with the prefix."""
    return lambda problem: notify(f"{prefix}: {problem}")


class Gap(SpanBatch):
    """An empty batch that takes the place of a part of the input that could not be read."""
