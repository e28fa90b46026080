"""Spans that come late, twice or in any order, and clocks that jump."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import pytest

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.outcome import Outcome, scored, settled
from tests.faults.fault_rig.sender import Request, Sender, requests_of, shuffled
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import body, run_of

__all__ = ["clock_jumps", "late_spans", "mixed_spans", "senders_clocks"]

FAKETIME: Final = [
    place for place in Path("/usr/lib").glob("*/faketime/libfaketime.so.1") if place.exists()
]  # the library of the program `faketime`


def mixed_spans(folder: Path, *, runs: int) -> Outcome:
    """Every span of all runs in random order, a third of them twice, in requests cut anywhere."""
    sent = [run_of(number) for number in range(runs)]
    requests = shuffled(sent, seed=runs)
    config = configuration(folder, traces={"decision_wait": "1s", "decision_wait_partial": "3s"})
    with Service(config) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        sender.send(requests, within_s=60)
        books = settled(service, sent, sender, within_s=60, revisions=True)
    assert len(sender.acknowledged) == runs
    return Outcome(
        "spans in random order, a third of them twice",
        len(requests),
        books,
        f"{runs} runs, {books.revised} results revised",
    )


def late_spans(folder: Path, *, runs: int) -> Outcome:
    """A call of each run arrives only after the run was evaluated without it."""
    sent = [run_of(number, calls=4) for number in range(runs)]
    late = [Request(body([run.spans()[2]]), ((run.number, 1),)) for run in sent]
    early = [
        Request(
            body(span for place, span in enumerate(run.spans()) if place != 2), ((run.number, 4),)
        )
        for run in sent
    ]
    config = configuration(
        folder,
        traces={"decision_wait": "200ms", "decision_wait_partial": "200ms", "grace_period": "60s"},
    )
    with Service(config) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        sender.send(early, within_s=30)
        assert scored(service, {run.number for run in sent}, 30), (
            "not evaluated without the late span"
        )
        sender.send(late, within_s=30)
        assert until(
            lambda: sum(row["revision"] > 0 for row in rows_of(service.results)) >= 4 * runs, 120
        ), "not evaluated again with the late span"
        books = settled(service, sent, sender, within_s=30, revisions=True)
    assert books.revised == 4 * runs, f"{books.revised} of {4 * runs} results revised"
    return Outcome(
        "one call of each run after its evaluation",
        runs,
        books,
        "each result revised once; the last revision is right",
    )


def senders_clocks(folder: Path, *, runs: int) -> Outcome:
    """Times in spans that cannot be: ends before starts, 0, the greatest number. Nothing waits for
    them.
    """
    rng = random.Random(runs)
    sane = [run_of(number) for number in range(runs)]
    wild = [run_of(number) for number in range(runs, 2 * runs)]
    requests = []
    for run in wild:
        spans = run.spans()
        for span in spans:
            span.start_time_unix_nano, span.end_time_unix_nano = (
                rng.choice((0, 1, 2**63, 2**64 - 1, 10**18)) for _ in range(2)
            )
        requests.append(Request(body(spans), ((run.number, len(spans)),)))
    with Service(configuration(folder)) as service:
        sender = Sender([*sane, *wild], lambda: (service.grpc, service.http))
        sender.send([*requests, *requests_of(sane)], within_s=60)
        books = settled(service, sane, sender, within_s=30)
    # What does not depend on time must be as without the jump.
    rows = [row for row in rows_of(service.results) if row["scorer"] != "time_cost"]
    untimed = balance(wild, sender.acknowledged, [*rows, *_any_time(service.results)])
    books.add(untimed)
    return Outcome(
        "spans with impossible times",
        runs,
        books,
        "all scorers but time_cost as if the times were right",
    )


def _any_time(path: Path) -> Iterable[dict[str, object]]:
    """Results on time are taken as they are: there is no right one."""
    from tests.faults.fault_rig.reference import by_hand
    from tests.faults.fault_rig.traffic import trace_id

    known = {
        trace_id(number).hex(): by_hand(run_of(number))["time_cost"] for number in range(10_000)
    }
    for row in rows_of(path):
        if row["scorer"] == "time_cost":
            outcome, value = known[row["trace_id"]]
            assert row["value"] is None or 0 <= row["value"] <= 1, row
            yield {**row, "outcome": outcome, "value": value}


def clock_jumps(folder: Path, *, runs: int, jumps: int) -> Outcome:
    """The host's wall clock jumps by hours and days, both ways, while runs arrive; the monotonic
    clock goes on.
    """
    if not FAKETIME:
        pytest.skip("libfaketime is not installed")
    clock = folder / "clock"
    clock.write_text("+0")
    env = {
        "LD_PRELOAD": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(clock),
        "FAKETIME_NO_CACHE": "1",
        "DONT_FAKE_MONOTONIC": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    _jumps_indeed(clock, env)
    sent = [run_of(number) for number in range(runs)]
    each = runs // jumps
    with Service(configuration(folder), env=env) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http))
        began = time.monotonic()
        for jump in range(jumps):
            clock.write_text(
                random.Random(jump).choice(("+3650d", "-3650d", "+1h", "-1h", "+30s", "-30s"))
            )
            sender.send(requests_of(sent[jump * each : (jump + 1) * each], at_once=2), within_s=30)
            time.sleep(0.05)
        assert scored(service, sender.acknowledged, 30)
        took = time.monotonic() - began
        books = settled(service, sent, sender, within_s=30)
    early = [
        row
        for row in rows_of(service.results)
        if row["completeness"] not in ("complete", "remote_parent", "joined")
    ]
    assert not early, early[:2]
    return Outcome(
        "wall clock by ±30 s, ±1 h, ±10 years under load",
        jumps,
        books,
        f"no trace closed early or late; all evaluated in {took:.1f} s",
    )


def _jumps_indeed(clock: Path, env: dict[str, str]) -> None:
    clock.write_text("+3650d")
    program = "import time; print(time.time(), time.monotonic())"
    said = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=True,
    )
    wall, monotonic = map(float, said.stdout.split())
    assert wall - time.time() > 3e8, "the wall clock did not jump"
    assert abs(monotonic - time.monotonic()) < 60, "the monotonic clock jumped too"
