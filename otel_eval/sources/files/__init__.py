"""Read stored traces: files of OTLP, Tempo and Jaeger, plain or gzipped, as the same batches as
live traces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from otel_eval.otlp.protobuf import SpanBatch

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


def with_prefix(notify: Notify, prefix: str) -> Notify:
    """Return a function that calls `notify` with lines that begin with the prefix."""
    return lambda problem: notify(f"{prefix}: {problem}")


class Gap(SpanBatch):
    """An empty batch that takes the place of a part of the input that could not be read."""
