"""Whoever takes the scores is down, slow, or refuses them; with `storage`, they wait."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from fault_rig.books import balance, rows_of
from fault_rig.outcome import Outcome, scored
from fault_rig.sender import Sender, requests_of
from fault_rig.service import Service, configuration
from fault_rig.sink import Sink
from fault_rig.traffic import run_of

__all__ = ["refusal", "trouble"]


def trouble(folder: Path, *, kind: str, times: int, seconds: float, runs: int, kills: int = 0) -> Outcome:
    """The endpoint is in trouble and out of it again, while runs arrive; meanwhile the receiver is killed so many times."""
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
                for _ in range(kills):
                    time.sleep(seconds / (kills + 1))
                    service.kill()
                    service.start()
                time.sleep(seconds / (kills + 1))
                sink.up() if kind == "down" else setattr(sink, "trouble", "")
            load.join()
            assert len(sender.acknowledged) == runs
            scored(service, sender.acknowledged, 60 + runs * 0.01, sink.rows)
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, sink.rows())
    figures = f"{times * kills} kills meanwhile, " if kills else ""
    figures += (
        f"{sink.refused} events refused, {sender.told['refused']} requests refused, {books.repeated} events delivered twice"
    )
    return Outcome(f"endpoint {kind} for {seconds:g} s while {runs} runs arrive", times, books, figures)


def refusal(folder: Path, *, runs: int) -> Outcome:
    """The endpoint refuses half of the scores for good: none is tried again, and each is in the dead-letter file."""
    sent = [run_of(number) for number in range(runs)]
    dead = folder / "kept" / "dead_letter.jsonl"
    with Sink() as sink:
        exporters = {"otlp": {"endpoint": sink.endpoint, "signals": ["logs"], "timeout": "2s"}}
        config = configuration(folder, storage={"directory": str(folder / "kept")}, exporters=exporters)
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))

            def told() -> list[dict[str, Any]]:
                return [*sink.rows(), *rows_of(dead)]

            for kind, part in (("", sent[: runs // 2]), ("INVALID_ARGUMENT", sent[runs // 2 :])):
                sink.trouble = kind
                sender.send(requests_of(part), within_s=60)
                assert scored(service, {run.number for run in part}, 60, told), service.said()
            time.sleep(1.0)
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, [*sink.rows(), *rows_of(dead)])
    buried = len(rows_of(dead))
    assert buried == 4 * (runs - runs // 2), f"{buried} in the dead-letter file"
    figures = f"each of {buried} events is in the dead-letter file, once"
    return Outcome("endpoint answers INVALID_ARGUMENT", buried, books, figures)
