"""The file of results is renamed, deleted or truncated, as logrotate and people do it."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any, BinaryIO, Final

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.outcome import Outcome, scored
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of

__all__ = ["replaced", "truncated"]

PAUSE_S: Final = 1.0


def _rows(opened: BinaryIO) -> list[dict[str, Any]]:
    """The results in a file, wherever its name is by now."""
    opened.seek(0)
    return [json.loads(line) for line in opened.read().split(b"\n")[:-1]]


def replaced(folder: Path, *, how: str, times: int, runs: int, kills: bool = False) -> Outcome:
    """The file is renamed or deleted under load, and perhaps the receiver killed at once.

    What is in a deleted file counts as delivered: it was deleted with that.
    """
    sent = [run_of(number) for number in range(runs)]
    config = configuration(folder, storage={"directory": str(folder / "kept")})
    former: list[BinaryIO] = []
    with Service(config) as service:

        def delivered() -> list[dict[str, Any]]:
            return [row for each in former for row in _rows(each)] + rows_of(service.results)

        sender = Sender(sent, lambda: (service.grpc, service.http))
        requests = requests_of(sent)
        pace_s = (times + 1) * PAUSE_S * 4 / len(requests)
        load = threading.Thread(
            target=sender.send, args=(requests,), kwargs={"within_s": 600, "pace_s": pace_s}
        )
        load.start()
        for turn in range(times):
            time.sleep(PAUSE_S)
            assert until(service.results.exists, 60), service.said()
            former.append(service.results.open("rb"))
            if how == "renamed":
                service.results.rename(f"{service.results}.{turn + 1}")
            else:
                service.results.unlink()
            if kills:
                service.kill()
                service.start()
        load.join()
        assert len(sender.acknowledged) == runs
        assert scored(service, sender.acknowledged, 60 + runs * 0.01, delivered), service.said()
        assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, delivered())
    for each in former:
        each.close()
    what = f"file of results {how} under load" + (", and SIGKILL at once" if kills else "")
    return Outcome(what, times, books, f"{books.repeated} results written twice under their id")


def truncated(folder: Path, *, times: int, runs: int) -> Outcome:
    """The file is copied and then truncated in place, between results: what is written between copy
    and truncation would be lost.
    """
    sent = [run_of(number) for number in range(times * runs)]
    config = configuration(folder)
    with Service(config) as service:
        copied: list[dict[str, Any]] = []
        acknowledged: set[int] = set()
        for turn in range(times):
            part = sent[turn * runs : (turn + 1) * runs]
            sender = Sender(part, lambda: (service.grpc, service.http))
            sender.send(requests_of(part), within_s=60)
            acknowledged |= sender.acknowledged
            assert scored(service, sender.acknowledged, 60), service.said()
            copied += rows_of(service.results)
            os.truncate(service.results, 0)
        assert service.terminate() == 0
        assert any("was truncated" in line for line in service.said())
        books = balance(sent, acknowledged, copied + rows_of(service.results))
    return Outcome("file of results copied and truncated", times, books, "it is logged")
