"""What an exporter is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from otel_eval.model import Report
from otel_eval.retry import ExportResult

__all__ = ["Exporter"]


class Exporter(Protocol):
    """A way out."""

    @property
    def name(self) -> str:
        """What counters and warnings call it."""
        ...

    @property
    def lines(self) -> bool:
        """Whether traces without a result are written too."""
        ...

    def written(self, reports: Sequence[Report]) -> bytes:
        """The reports as they are sent."""
        ...

    def attempt(self, written: bytes) -> ExportResult:
        """Hand them over."""
        ...

    def missing(self, reports: Sequence[Report]) -> list[Report]:
        """Those of the reports that were perhaps handed over before a crash and cannot be found there."""
        ...

    def expect_repeats(self) -> None:
        """The journal was damaged: results that were handed over before may be made again."""
        ...

    def close(self) -> None:
        """End."""
        ...
