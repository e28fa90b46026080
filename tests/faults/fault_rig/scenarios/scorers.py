"""Scorers that raise, return junk, end the process, recurse or allocate without end, or never
return.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Final

from tests.faults.fault_rig.books import rows_of
from tests.faults.fault_rig.outcome import Outcome, settled
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of

__all__ = ["allocating", "hanging", "raising"]

GIB: Final = 2**30


def raising(folder: Path, *, runs: int) -> Outcome:
    """Four broken scorers beside four sound ones."""
    names = ("raises", "returns_junk", "recurses", "ends_the_process")
    return _beside_broken(
        folder,
        names,
        runs,
        {},
        "scorers that raise, return junk, recurse without end, call sys.exit",
    )


def allocating(folder: Path, *, runs: int) -> Outcome:
    """A scorer that takes all the memory that the process may have."""
    return _beside_broken(
        folder,
        ("allocates",),
        runs,
        {"RLIMIT_AS": 3 * GIB},
        "a scorer that allocates until nothing is left (3 GiB)",
    )


def hanging(folder: Path, *, runs: int) -> Outcome:
    """A scorer that never returns for one run in eight."""
    sent = [run_of(number) for number in range(runs)]
    scorers = ({"type": "fault_rig.broken:hangs", "name": "hangs"},)
    with Service(
        configuration(folder, scorers=scorers, async_scoring={"scorer_timeout": "300ms"})
    ) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        sender.send(requests_of(sent), within_s=60)
        books = settled(service, sent, sender, within_s=60)
    assert len(sender.acknowledged) == runs
    counts = Counter(
        (row["outcome"], row["error_type"])
        for row in rows_of(service.results)
        if row["evaluation"] == "broken"
    )
    assert sum(counts.values()) == runs, counts
    assert counts["failed", "timeout"] == 3, counts
    assert counts["failed", "quarantined"] > 0, counts
    figures = (
        f"cancelled after 300 ms, 3 times, then not called for {counts['failed', 'quarantined']}"
        " runs; the others went on"
    )
    return Outcome("a scorer that never returns for one run in eight", 3, books, figures)


def _beside_broken(
    folder: Path, names: tuple[str, ...], runs: int, limits: dict[str, int], done: str
) -> Outcome:
    sent = [run_of(number) for number in range(runs)]
    scorers = tuple({"type": f"fault_rig.broken:{name}", "name": name} for name in names)
    with Service(configuration(folder, scorers=scorers), limits=limits) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        sender.send(requests_of(sent), within_s=60)
        books = settled(service, sent, sender, within_s=60)
    assert len(sender.acknowledged) == runs
    counts = Counter(
        (row["scorer"], row["outcome"], row["error_type"])
        for row in rows_of(service.results)
        if row["evaluation"] == "broken"
    )
    assert {(scorer, outcome) for scorer, outcome, _ in counts} == {
        (name, "failed") for name in names
    }, counts
    assert set(counts.values()) == {runs}, counts
    errors = ", ".join(sorted({error for _, _, error in counts}))
    return Outcome(done, sum(counts.values()), books, f"each failed alone: {errors}")
