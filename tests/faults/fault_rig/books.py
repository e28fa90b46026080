"""Do the books balance: for every acknowledged run exactly one result of each scorer, and the right
one.

Knows rows of results, from JSON Lines or from an endpoint, and the reference. A logical result is a
run's, an evaluation's and a scorer's; of its revisions the last counts. The same result id seen
twice is one result delivered twice.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.faults.fault_rig.reference import by_hand, same
from tests.faults.fault_rig.traffic import Run, trace_id

__all__ = ["Books", "balance", "rows_of", "until"]


@dataclass(slots=True)
class Books:
    """What does not balance.

    Attributes:
        lost: results that are missing.
        duplicated: results given under two result ids for one revision, or again under a further
            revision without need.
        wrong: results that the reference does not share.
        repeated: deliveries of a result id beyond the first.
        revised: results with more than one revision.
        examples: a few examples of what is wrong, for the message.
    """

    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    repeated: int = 0
    revised: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def balanced(self) -> bool:
        """Whether nothing is lost, duplicated or wrong."""
        return not (self.lost or self.duplicated or self.wrong)

    def add(self, other: Books) -> None:
        """Take the numbers of another into this one."""
        for name in ("lost", "duplicated", "wrong", "repeated", "revised"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.examples += other.examples[: 5 - len(self.examples)]


def rows_of(path: Path) -> list[dict[str, Any]]:
    """The results in a file of JSON Lines; a line that is being written is not one yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1] if line]


def balance(
    runs: Iterable[Run],
    acknowledged: set[int],
    rows: Iterable[dict[str, Any]],
    *,
    revisions: bool = False,
) -> Books:
    """Reconcile.

    Args:
        runs: everything that was sent.
        acknowledged: the numbers of those that must have results; the others may have one, or part
            of one.
        rows: what was delivered.
        revisions: whether a result may have been revised; the last revision must be right.
    """
    books = Books()
    results = _by_scorer(rows, books)
    for run in runs:
        if run.number in acknowledged:
            for scorer, expected in by_hand(run).items():
                _compare(
                    books,
                    results.get((trace_id(run.number).hex(), scorer), {}),
                    expected,
                    revisions,
                    f"{run} {scorer}",
                )
    return books


def _by_scorer(
    rows: Iterable[dict[str, Any]], books: Books
) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    results: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    seen: Counter[str] = Counter()
    for row in rows:
        if row["evaluation"] == "rig":
            seen[row["result_id"]] += 1
            results.setdefault((row["trace_id"], row["scorer"]), {})[row["result_id"]] = row
    books.repeated = sum(count - 1 for count in seen.values())
    return results


def _compare(
    books: Books,
    found: dict[str, dict[str, Any]],
    expected: tuple[str, float | None],
    revisions: bool,
    name: str,
) -> None:
    if not found:
        books.lost += 1
        return _note(books, f"lost: {name}")
    numbers = [row["revision"] for row in found.values()]
    last = max(found.values(), key=lambda row: row["revision"])
    if len(set(numbers)) < len(numbers) or (len(numbers) > 1 and not revisions):
        books.duplicated += 1
        _note(books, f"duplicated: {name}: {list(found.values())}")
    books.revised += len(numbers) > 1
    if not same((last["outcome"], last["value"]), expected):
        books.wrong += 1
        _note(books, f"wrong: {name}: expected {expected}: {last}")
    return None


def _note(books: Books, text: str) -> None:
    if len(books.examples) < 5:
        books.examples.append(text)


def until(true: Callable[[], bool], within_s: float, *, every_s: float = 0.05) -> bool:
    """Wait for something; False if it did not come about in time."""
    deadline = time.monotonic() + within_s
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True
