"""The end of the process, asked for while everything is going on."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from tests.faults.fault_rig.books import Books, balance, rows_of
from tests.faults.fault_rig.outcome import Outcome
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of

__all__ = ["sigterm"]


def sigterm(folder: Path, *, times: int, runs: int) -> Outcome:
    """SIGTERM at a random instant under load; the sender gives up on what was never
    acknowledged.
    """
    whole, acknowledged, slowest = Books(), 0, 0.0
    for turn in range(times):
        place = folder / str(turn)
        place.mkdir()
        sent = [run_of(number) for number in range(turn * runs, (turn + 1) * runs)]
        with Service(configuration(place)) as service:
            sender = Sender(
                sent,
                lambda service=service: (service.grpc, service.http),
                protocol="grpc" if turn % 2 else "http",
            )
            load = threading.Thread(
                target=sender.send,
                args=(requests_of(sent),),
                kwargs={"within_s": 30, "pace_s": 0.002},
            )
            load.start()
            _wait_for(sender, int(runs * random.Random(turn).uniform(0.05, 0.5)))
            began = time.monotonic()
            code = service.terminate()
            slowest = max(slowest, time.monotonic() - began)
            sender.stopped.set()
            load.join()
            assert code == 0, service.said()
        assert 0 < len(sender.acknowledged) < runs, (
            f"{len(sender.acknowledged)} of {runs}: not under load"
        )
        whole.add(balance(sent, sender.acknowledged, rows_of(service.results)))
        acknowledged += len(sender.acknowledged)
    return Outcome(
        "SIGTERM under load",
        times,
        whole,
        f"{acknowledged} runs acknowledged; ended within {slowest:.1f} s",
    )


def _wait_for(sender: Sender, acknowledged: int) -> None:
    """Until so many runs were taken: by the clock, a fast machine would be done and a slow one not
    have begun.
    """
    deadline = time.monotonic() + 20
    while len(sender.acknowledged) < acknowledged and time.monotonic() < deadline:
        time.sleep(0.005)
