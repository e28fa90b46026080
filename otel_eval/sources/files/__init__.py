"""Stored traces: files of OTLP, Tempo and Jaeger, plain or gzipped, read into the same batches as live ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from otel_eval.otlp.protobuf import SpanBatch

MAX_DOCUMENT: Final = 512 * 1024 * 1024
"""Bytes, unpacked, of what has to be read as one piece."""

FORMATS: Final = "give OTLP (JSON, JSON Lines or protobuf), or Jaeger or Tempo JSON, each optionally gzipped"
"""What a file may be, for messages."""

PIECE: Final = 1024 * 1024
"""Bytes that are read at one time."""

Notify = Callable[[str], None]
"""Takes one line about something that was skipped."""


def placed(notify: Notify, place: str) -> Notify:
    """The same, for what is inside `place`."""
    return lambda problem: notify(f"{place}: {problem}")


class Gap(SpanBatch):
    """Stands where a part of the input could not be read although what came before it was used."""
