"""More than fits: memory, traces, one trace without measure, one without end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.outcome import Outcome, scored, settled
from tests.faults.fault_rig.sender import Request, Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import Run, body, run_of, trace_id

__all__ = ["endless_trace", "giant_trace", "memory_limit", "too_many_traces"]

MIB = 2**20
BARE = 120 * MIB  # what the process holds before the first span, generously


def memory_limit(folder: Path, *, runs: int) -> Outcome:
    """A scorer slower than the load: closed traces pile up to half of `max_bytes`, then senders
    have to wait.
    """
    limit = 4 * MIB
    slow = ({"type": "fault_rig.broken:sleeps"},)
    traces = {
        "max_bytes": limit,
        "max_bytes_per_trace": MIB,
        "grace_period": 0,
        "decision_wait": "200ms",
    }
    config = configuration(folder, traces=traces, scorers=slow)
    sent = [run_of(number, calls=40) for number in range(runs)]
    with Service(config) as service:
        before = service.rss()
        sender = Sender(sent, lambda: (service.grpc, service.http))
        load = threading.Thread(
            target=sender.send,
            args=(requests_of(sent, at_once=8),),
            kwargs={"within_s": 120 + runs * 0.02},
        )
        load.start()
        until(lambda: not service.rss() or not load.is_alive(), 200 + runs * 0.02, every_s=0.1)
        load.join()
        scored(service, sender.acknowledged, 60 + runs * 0.02)
        grown = service.peak() - before
        _agree(service, sender)
        books = settled(service, sent, sender, within_s=60)
    assert len(sender.acknowledged) == runs, f"{len(sender.acknowledged)} of {runs} acknowledged"
    assert sender.answers["refused"] > 0
    cut_short = {
        row["trace_id"] for row in rows_of(service.results) if row["completeness"] == "overflow"
    }
    assert not cut_short, f"{len(cut_short)} complete traces closed as overflow"
    assert grown < 4 * limit + 32 * MIB, f"grew by {grown // MIB} MiB"
    refused = sender.answers["refused"]
    figures = (
        f"max_bytes {limit // MIB} MiB: grew by {grown // MIB} MiB at most; refused by its own"
        " metrics as often as the"
    )
    figures += f" client saw ({refused}), then accepted all {runs} runs"
    return Outcome("load faster than scoring, until backpressure", refused, books, figures)


def too_many_traces(folder: Path, *, runs: int) -> Outcome:
    """More whole traces at once than `max_traces`, and as many without an end: the latter are
    evaluated early, none is silent.
    """
    # A whole trace is not closed early, so no more than 50 a second are taken.
    config = configuration(
        folder, traces={"max_traces": 50, "decision_wait": "1s", "decision_wait_partial": "2s"}
    )
    sent = [run_of(number) for number in range(runs)]
    halves = [run_of(number, calls=3) for number in range(runs, 2 * runs)]
    with Service(config) as service:
        sender = Sender([*sent, *halves], lambda: (service.grpc, service.http))
        sender.send([*requests_of(sent), *_without_root(halves)], within_s=60 + 0.1 * runs)
        books = settled(service, sent, sender, within_s=60)
    assert sender.acknowledged >= {run.number for run in sent}, (
        f"{len(sender.acknowledged)} of {runs} acknowledged"
    )
    rows = rows_of(service.results)
    unfinished = {trace_id(run.number).hex() for run in halves}
    told = {
        row["trace_id"]
        for row in rows
        if row["trace_id"] in unfinished and row["outcome"] == "skipped"
    }
    early = {row["trace_id"] for row in rows if row["completeness"] == "overflow"}
    assert told == unfinished, f"{len(unfinished - told)} unfinished traces without a word"
    assert early
    assert early <= unfinished, f"{len(early - unfinished)} complete traces closed as overflow"
    figures = (
        f"max_traces 50: {len(early)} evaluated early, marked overflow; {len(told)} without a root"
        " skipped as incomplete"
    )
    return Outcome(f"{2 * runs} traces at once", len(early), books, figures)


def _without_root(runs: list[Run]) -> list[Request]:
    return [Request(body(run.spans()[:-1]), ((run.number, len(run.calls)),)) for run in runs]


def giant_trace(folder: Path, *, spans: int, runs: int) -> Outcome:
    """A trace far over `max_spans_per_trace` among ordinary ones."""
    config = configuration(folder, traces={"max_spans_per_trace": 1000})
    giant = run_of(10**6, calls=spans)
    sent = [run_of(number) for number in range(runs)]
    parts = giant.spans()
    big = [
        Request(body(parts[at : at + 200]), ((giant.number, 0),))
        for at in range(0, len(parts), 200)
    ]
    with Service(config) as service:
        sender = Sender([*sent, giant], lambda: (service.grpc, service.http))
        sender.send(
            [
                each
                for pair in zip(big, requests_of(sent, at_once=1), strict=False)
                for each in pair
            ],
            within_s=60,
        )
        books = settled(service, sent, sender, within_s=30)
    assert len(sender.acknowledged) == min(runs, len(big))
    said = _of(service, giant)
    assert said, "the giant has no result"
    assert {row["outcome"] for row in said} == {"skipped"}
    assert all("max_spans_per_trace" in row["explanation"] for row in said)
    return Outcome(
        f"one trace of {spans} spans among others",
        1,
        books,
        "max_spans_per_trace 1000: skipped as incomplete, naming the limit",
    )


def endless_trace(folder: Path, *, seconds: float, runs: int) -> Outcome:
    """A trace whose root never ends and whose spans never stop, among ordinary ones."""
    config = configuration(folder, traces={"idle_timeout": "2s", "max_age": "2s"})
    endless = run_of(10**6, calls=5000)
    parts = endless.spans()[:-1]
    sent = [run_of(number) for number in range(runs)]
    with Service(config) as service:
        sender = Sender([*sent, endless], lambda: (service.grpc, service.http))
        trickle = [Request(body([span]), ((endless.number, 0),)) for span in parts]
        dripping = threading.Thread(
            target=sender.send,
            args=(trickle,),
            kwargs={"within_s": seconds, "threads": 1, "pace_s": 0.02},
        )
        dripping.start()
        sender.send(requests_of(sent, at_once=1), within_s=60)
        assert scored(service, sender.acknowledged, 30)
        was_open = dripping.is_alive()
        dripping.join()
        books = balance(sent, sender.acknowledged, rows_of(service.results))
        assert service.terminate() == 0
    said = _of(service, endless)
    assert was_open, "the others had to wait for it"
    assert said, "the endless trace has no result"
    assert {row["outcome"] for row in said} == {"skipped"}
    reasons = sorted({row["completeness"] for row in said})
    assert "aged" in reasons, reasons
    return Outcome(
        f"one trace that goes on for {seconds:g} s",
        1,
        books,
        f"max_age 2s: skipped as incomplete, closed as {', '.join(reasons)}",
    )


def _agree(service: Service, sender: Sender) -> None:
    """What the receiver says it refused is what the sender was refused, and what it took what was
    acknowledged.
    """
    assert service.metric("receiver_refused_requests_total") == sender.answers["refused"]
    assert service.metric("receiver_accepted_spans_total") == sender.taken
    assert service.metric("receiver_internal_errors_total") == 0


def _of(service: Service, run: Run) -> list[dict[str, Any]]:
    return [
        row
        for row in rows_of(service.results)
        if row["trace_id"] == trace_id(run.number).hex() and row["evaluation"] == "rig"
    ]
