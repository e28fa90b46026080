"""What recovery returns of earlier processes, for tests without exporters."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from otel_eval.model import Report


@dataclass
class RecoveredReports:
    """Collects the undelivered reports, each with the names of its exporters."""

    undelivered: list[tuple[Report, Collection[str]]] = field(default_factory=list)

    def requeue(self, unacknowledged: Sequence[tuple[Report, Collection[str]]]) -> None:
        self.undelivered.extend(unacknowledged)

    def revised(self, report: Report) -> None:
        pass

    def expect_duplicates(self) -> None:
        pass
