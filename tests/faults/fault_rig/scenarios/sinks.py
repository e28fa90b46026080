"""Whoever takes the scores is down, slow, or refuses them; with `storage`, they wait."""

from __future__ import annotations

import threading
import time
from pathlib import Path

from fault_rig.books import balance
from fault_rig.outcome import Outcome, scored
from fault_rig.sender import Sender, requests_of
from fault_rig.service import Service, configuration
from fault_rig.sink import Sink
from fault_rig.traffic import run_of

__all__ = ["trouble"]


def trouble(folder: Path, *, kind: str, times: int, seconds: float, runs: int) -> Outcome:
    """The endpoint is in trouble and out of it again, while runs arrive."""
    sent = [run_of(number) for number in range(runs)]
    with Sink() as sink:
        exporters = {"otlp": {"endpoint": sink.endpoint, "signals": ["logs"], "timeout": "2s"}}
        config = configuration(folder, storage={"directory": str(folder / "kept")}, exporters=exporters)
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))
            requests = requests_of(sent)
            pace_s = times * 2 * seconds * 4 / len(requests)
            load = threading.Thread(target=sender.send, args=(requests,), kwargs={"within_s": 600, "pace_s": pace_s})
            load.start()
            for _ in range(times):
                time.sleep(seconds)
                sink.down() if kind == "down" else setattr(sink, "trouble", kind)
                time.sleep(seconds)
                sink.up() if kind == "down" else setattr(sink, "trouble", "")
            load.join()
            assert len(sender.acknowledged) == runs
            scored(service, sender.acknowledged, 60 + runs * 0.01, sink.rows)
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, sink.rows())
    figures = f"{sink.refused} events refused, {sender.told['refused']} requests refused, {books.repeated} events delivered twice"
    return Outcome(f"endpoint {kind} for {seconds:g} s while {runs} runs arrive", times, books, figures)
