"""The process dies at any instant, or at the worst one; with `storage`, nothing is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.endpoint import Backend
from tests.faults.fault_rig.outcome import Outcome, evaluated, scored
from tests.faults.fault_rig.sender import Request, Sender, requests_of, shuffled
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import Run, run_of
from tests.support.waiting import LIMIT_S

__all__ = ["killed_at", "passing_on", "sigkill", "worker_killed"]

STEPS: Final = (
    "os:pwritev",  # a record of the journal
    "os:fdatasync",  # its sync
    "otel_eval.storage.durable:Durable.journal_request",
    "otel_eval.storage.durable:Durable.journal_closings",
    "otel_eval.storage.durable:Durable.record_evaluated",
    "otel_eval.storage.durable:Durable.wait_until_journaled",
    "otel_eval.storage.journal:Journal.remove",  # of a segment that is not needed
    "os:replace",  # of the head of a segment that is begun, to its name
    "otel_eval.exporters.jsonl:JsonLinesFile.sync",
    "otel_eval.exporters.jsonl:JsonLinesFile.write",
    "otel_eval.storage.durable:Durable.journal_delivery",
)


@contextmanager
def _under_load(
    service: Service, runs: list[Run], requests: list[Request], pace_s: float
) -> Iterator[Sender]:
    """A sender that goes on whatever happens to the receiver, until the block ends."""
    sender = Sender(runs, lambda: (service.grpc, service.http))
    load = threading.Thread(
        target=sender.send, args=(requests,), kwargs={"within_s": 3600, "pace_s": pace_s}
    )
    load.start()
    try:
        yield sender
    finally:
        sender.stopped.set()
        load.join()


def sigkill(folder: Path, *, times: int, runs: int, mixed: bool = False) -> Outcome:
    """SIGKILL at random instants under load, and a new start each time.

    With `mixed` the spans of the runs come in any order and in different requests, so that runs lie
    on both sides of a kill.
    """
    rng = random.Random(times)
    sent = [run_of(number) for number in range(runs)]
    requests = shuffled(sent, seed=runs, at_once=20) if mixed else requests_of(sent)
    settle = (
        {
            "decision_wait": "300ms",
            "decision_wait_partial": "60s",
            "idle_timeout": "60s",
            "grace_period": "1h",
        }
        if mixed
        else {}
    )
    # Small, so that segments end and are removed all the time; what waits for late spans needs its
    # room.
    storage = {"directory": str(folder / "kept"), "max_size": "1GiB" if mixed else "4MiB"}
    config = configuration(folder, traces={"grace_period": "1s", **settle}, storage=storage)
    with Service(config) as service:
        # Long enough for all the kills: four threads share the requests.
        with _under_load(service, sent, requests, times * 1.5 * 4 / len(requests)) as sender:
            for _ in range(times):
                time.sleep(rng.random())
                service.kill()
                taken = sender.taken
                service.start()
            assert until(
                lambda: len(sender.acknowledged) == runs or (not mixed and sender.taken > taken),
                LIMIT_S,
            ), sender.answers
        assert scored(service, sender.acknowledged, LIMIT_S), service.said()
        assert evaluated(service, LIMIT_S), service.said()
        assert service.terminate() == 0
    books = balance(sent, sender.acknowledged, rows_of(service.results), revisions=mixed)
    figures = (
        f"{len(sender.acknowledged)} runs acknowledged, {sender.answers['lost']} requests without"
        " an answer sent again"
    )
    figures += f", {books.repeated} results delivered twice under their id"
    return Outcome(
        "SIGKILL under load, then a new start" + (", spans in any order" if mixed else ""),
        times,
        books,
        figures,
    )


def worker_killed(folder: Path, *, times: int, runs: int, workers: int) -> Outcome:
    """SIGKILL of one of several workers under load; the service starts it again while the others go
    on.

    The spans of the runs come in any order and in different requests, so that runs lie on both
    sides of a kill.
    """
    rng = random.Random(times)
    sent = [run_of(number) for number in range(runs)]
    settle = {
        "decision_wait": "300ms",
        "decision_wait_partial": "60s",
        "idle_timeout": "60s",
        "grace_period": "1h",
    }
    config = configuration(
        folder, traces=settle, workers=workers, storage={"directory": str(folder / "kept")}
    )
    requests = shuffled(sent, seed=runs, at_once=20)
    with Service(config) as service:
        with _under_load(service, sent, requests, times * 1.5 * 4 / len(requests)) as sender:
            for number in range(times):
                time.sleep(rng.random())
                os.kill(rng.choice(service.workers()), signal.SIGKILL)
                assert until(
                    lambda done=number + 1: service.metric("workers_restarts_total") == done,
                    LIMIT_S,
                ), service.said()
            assert until(lambda: len(sender.acknowledged) == runs, LIMIT_S), sender.answers
        assert scored(service, sender.acknowledged, LIMIT_S), service.said()
        assert evaluated(service, LIMIT_S), service.said()
        assert service.terminate() == 0
    books = balance(sent, sender.acknowledged, rows_of(service.results), revisions=True)
    figures = (
        f"{len(sender.acknowledged)} runs acknowledged, {sender.answers['refused']} requests"
        " refused and sent again"
    )
    figures += f", {books.repeated} results delivered twice under their id"
    return Outcome(
        f"SIGKILL of one of {workers} workers under load, spans in any order", times, books, figures
    )


def killed_at(folder: Path, *, runs: int, rounds: int = 1, steps: int = 1000) -> Outcome:
    """SIGKILL before and after each step from acknowledgement to delivery, in turn; or only at the
    last `steps` of these.
    """
    rng = random.Random(rounds)
    places = [(step, behind) for step in STEPS for behind in (False, True)][-steps:] * rounds
    sent = [run_of(number) for number in range(runs)]
    storage = {"directory": str(folder / "kept"), "max_size": "2MiB"}
    service = Service(configuration(folder, traces={"grace_period": "500ms"}, storage=storage))
    died = 0
    alive: list[str] = []
    try:
        with _under_load(service.start(), sent, requests_of(sent, at_once=2), 0.005) as sender:
            for step, behind in places:
                service.kill()
                service.before = (
                    f"from fault_rig import killing; killing.at({step!r}, {rng.randrange(2, 12)},"
                    f" behind={behind})"
                )
                service.start(may_die=True)
                if until(lambda: not service.alive, 60):  # a busy machine takes long to start it
                    died += 1
                else:
                    alive.append(step)
            service.before = ""
            if service.alive:
                service.kill()
            service.start()
        assert scored(service, sender.acknowledged, LIMIT_S), service.said()
        assert evaluated(service, LIMIT_S), service.said()
        assert service.terminate() == 0
    finally:
        service.__exit__(None, None, None)
    assert not alive, f"never came to {alive}"
    books = balance(sent, sender.acknowledged, rows_of(service.results))
    figures = (
        f"{len(sender.acknowledged)} runs acknowledged, {books.repeated} results delivered twice"
        " under their id"
    )
    return Outcome(
        "SIGKILL immediately before and after the steps from acceptance to delivery"
        f" ({len(set(places))} places)",
        died,
        books,
        figures,
    )


def passing_on(folder: Path, *, times: int, runs: int) -> Outcome:
    """SIGKILL at random instants of a receiver that passes everything on to a backend, which is
    away half of the time.
    """
    rng = random.Random(times)
    sent = [run_of(number) for number in range(runs)]
    requests = requests_of(sent)
    with Backend() as backend:
        exporters = {"forward": {"endpoint": backend.url, "timeout": "2s"}}
        storage = {"directory": str(folder / "kept"), "max_size": "4MiB"}
        with Service(
            configuration(
                folder, traces={"grace_period": "1s"}, storage=storage, exporters=exporters
            )
        ) as service:
            with _under_load(service, sent, requests, times * 1.5 * 4 / len(requests)) as sender:
                for number in range(times):
                    time.sleep(rng.random())
                    backend.up() if number % 2 else backend.down()
                    time.sleep(rng.random() / 2)
                    service.kill()
                    service.start()
                backend.down()
                backend.up()
            wanted = {
                (span.trace_id.hex(), span.span_id.hex())
                for n in sender.acknowledged
                for span in sent[n].spans()
            }
            until(lambda: wanted <= _arrived(backend).keys(), 60, every_s=0.5)
            scored(service, sender.acknowledged, 10, backend.rows)
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, backend.rows())
        arrived = _arrived(backend)
        books.lost += len(wanted - arrived.keys())
    figures = (
        f"{len(sender.acknowledged)} runs acknowledged; all {len(wanted)} spans are at the backend,"
        " the scores on the runs' own"
    )
    figures += f"; {sum(arrived.values()) - len(arrived)} spans arrived twice"
    return Outcome(
        "SIGKILL under load, the backend of `forward` away half of the time", times, books, figures
    )


def _arrived(backend: Backend) -> Counter[tuple[str, str]]:
    return Counter((row["trace_id"], row["span_id"]) for row in backend.rows() if "span_id" in row)
