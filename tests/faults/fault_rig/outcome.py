"""What came of a fault: one row of the table.

Knows how a scenario is named and counted, and the end that most of them share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.fault_rig.books import Books, balance, rows_of, until
from tests.faults.fault_rig.sender import Sender
from tests.faults.fault_rig.service import Service
from tests.faults.fault_rig.traffic import Run, trace_id

__all__ = ["Outcome", "Scenario", "scored", "settled"]

SCORERS: Final = 4


@dataclass(frozen=True, slots=True)
class Outcome:
    """One row.

    Attributes:
        done: what was done, in words.
        times: how often the fault happened.
        books: whether every acknowledged run has its results.
        other: what else was seen, in words and figures.
    """

    done: str
    times: int
    books: Books
    other: str = ""


@dataclass(frozen=True, slots=True)
class Scenario:
    """A fault and how to bring it about.

    Attributes:
        fault: its name in the table.
        run: takes an empty folder and the numbers of `quick` or `full`.
        quick: sizes for a test of seconds.
        full: sizes for the table.
    """

    fault: str
    run: Callable[..., Outcome]
    quick: Mapping[str, Any] = field(default_factory=dict)
    full: Mapping[str, Any] = field(default_factory=dict)

    def play(self, folder: Path, *, full: bool = False) -> Outcome:
        """Do it."""
        return self.run(folder, **(self.full if full else self.quick))


def scored(
    service: Service,
    numbers: set[int],
    within_s: float,
    rows: Callable[[], list[dict[str, Any]]] | None = None,
) -> bool:
    """Wait until each of the runs has a result of every scorer, in the file of results or in what
    `rows` gives.
    """
    wanted = {trace_id(number).hex() for number in numbers}
    told = rows or (lambda: rows_of(service.results))

    def complete() -> bool:
        found: dict[str, set[str]] = {}
        for row in told():
            if row["evaluation"] == "rig":
                found.setdefault(row["trace_id"], set()).add(row["scorer"])
        return all(len(found.get(each, ())) == SCORERS for each in wanted)

    return until(complete, within_s, every_s=0.2)


def evaluated(service: Service, within_s: float) -> bool:
    """Wait until no trace is open: what came late has revised its results."""
    return until(lambda: service.metric("processor_traces_on_memory") == 0, within_s, every_s=0.2)


def settled(
    service: Service,
    runs: Sequence[Run],
    sender: Sender,
    *,
    within_s: float,
    revisions: bool = False,
) -> Books:
    """Wait for the results, end the process in peace, and balance the books."""
    scored(service, sender.acknowledged, within_s)
    code = service.terminate()
    assert code == 0, f"ended with {code}: {service.said()[-3:]}"
    return balance(runs, sender.acknowledged, rows_of(service.results), revisions=revisions)
