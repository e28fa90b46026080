"""The endpoint that receives scores is down, slow, or refuses them; with `storage`, they stay
queued.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.endpoint import Endpoint, HttpEndpoint
from tests.faults.fault_rig.outcome import Outcome, scored
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of

__all__ = ["absent", "misdirected", "refusal", "trouble", "unsupported"]


def _configured(
    folder: Path,
    endpoint: Endpoint | HttpEndpoint,
    protocol: str = "grpc",
    give_up_after: str = "15m",
    **more: Any,
) -> Path:
    """A configuration with storage that exports log events to the endpoint."""
    otlp = {
        "endpoint": endpoint.url,
        "signals": ["logs"],
        "timeout": "2s",
        "protocol": protocol,
        "compression": "none",
    }
    exporters = {"otlp": otlp, **more}
    return configuration(
        folder,
        storage={"directory": str(folder / "kept")},
        exporters=exporters,
        delivery={"recheck": "1s", "give_up_after": give_up_after},
    )


def trouble(
    folder: Path, *, kind: str, times: int, seconds: float, runs: int, kills: int = 0
) -> Outcome:
    """The endpoint is in trouble and out of it again, while runs arrive; meanwhile the receiver is
    killed so many times.
    """
    sent = [run_of(number) for number in range(runs)]
    with Endpoint() as endpoint:
        config = _configured(folder, endpoint)
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))
            requests = requests_of(sent)
            pace_s = times * 2 * seconds * 4 / len(requests)
            load = threading.Thread(
                target=sender.send, args=(requests,), kwargs={"within_s": 600, "pace_s": pace_s}
            )
            load.start()
            for _ in range(times):
                time.sleep(seconds)
                endpoint.down() if kind == "down" else setattr(endpoint, "trouble", kind)
                for _ in range(kills):
                    time.sleep(seconds / (kills + 1))
                    service.kill()
                    service.start()
                time.sleep(seconds / (kills + 1))
                endpoint.up() if kind == "down" else setattr(endpoint, "trouble", "")
            load.join()
            assert len(sender.acknowledged) == runs
            scored(service, sender.acknowledged, 60 + runs * 0.01, endpoint.rows)
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, endpoint.rows())
    figures = f"{times * kills} kills meanwhile, " if kills else ""
    figures += f"{endpoint.refused} events refused, {sender.answers['refused']} requests refused, "
    figures += f"{books.repeated} events delivered twice"
    return Outcome(
        f"endpoint {kind} for {seconds:g} s while {runs} runs arrive", times, books, figures
    )


def refusal(folder: Path, *, runs: int) -> Outcome:
    """The endpoint refuses half of the scores for good: none is tried again, and each is in the
    dead-letter file.
    """
    sent = [run_of(number) for number in range(runs)]
    dead = folder / "kept" / "dead_letter.jsonl"
    with Endpoint() as endpoint:
        config = _configured(folder, endpoint)
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))

            def answered() -> list[dict[str, Any]]:
                return [*endpoint.rows(), *rows_of(dead)]

            for kind, part in (("", sent[: runs // 2]), ("INVALID_ARGUMENT", sent[runs // 2 :])):
                endpoint.trouble = kind
                sender.send(requests_of(part), within_s=60)
                assert scored(service, {run.number for run in part}, 60, answered), service.said()
            time.sleep(1.0)
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, [*endpoint.rows(), *rows_of(dead)])
    buried = len(rows_of(dead))
    assert buried == 4 * (runs - runs // 2), f"{buried} in the dead-letter file"
    figures = f"each of {buried} events is in the dead-letter file, once"
    return Outcome("endpoint answers INVALID_ARGUMENT", buried, books, figures)


def absent(folder: Path, *, runs: int, kills: int) -> Outcome:
    """An endpoint that has accepted scores answers UNIMPLEMENTED, as a proxy in front of nothing
    does; meanwhile kills.
    """
    sent = [run_of(number) for number in range(runs)]
    with Endpoint() as endpoint:
        config = _configured(folder, endpoint)
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))
            first, rest = sent[: runs // 2], sent[runs // 2 :]
            sender.send(requests_of(first), within_s=60)
            assert scored(service, {run.number for run in first}, 60, endpoint.rows), service.said()
            endpoint.trouble = "UNIMPLEMENTED"
            sender.send(requests_of(rest), within_s=60)
            for _ in range(kills):
                time.sleep(1.0)
                service.kill()
                service.start()
            before = endpoint.refused
            assert until(lambda: endpoint.refused > before, 120), service.said()
            refused = endpoint.refused
            endpoint.trouble = ""
            assert scored(service, {run.number for run in sent}, 60 + runs * 0.01, endpoint.rows), (
                service.said()
            )
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, endpoint.rows())
    assert not rows_of(folder / "kept" / "dead_letter.jsonl")
    figures = (
        f"{kills} kills meanwhile, {refused} events refused, none in the dead-letter file,"
        f" {books.repeated} delivered twice"
    )
    return Outcome(
        "endpoint that worked answers UNIMPLEMENTED for a while", refused, books, figures
    )


def misdirected(folder: Path, *, response: str, runs: int) -> Outcome:
    """An endpoint that has accepted scores answers for a while as a proxy that asks for a login."""
    sent = [run_of(number) for number in range(runs)]
    with HttpEndpoint() as endpoint:
        config = _configured(folder, endpoint, protocol="http/protobuf")
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))
            first, rest = sent[: runs // 2], sent[runs // 2 :]
            sender.send(requests_of(first), within_s=60)
            assert scored(service, {run.number for run in first}, 60, endpoint.rows), service.said()
            endpoint.answer(response)
            sender.send(requests_of(rest), within_s=60)
            assert until(lambda: service.metric("results_retries", absent=0) > 1, 60)
            asked = endpoint.asked
            endpoint.answer("")
            assert scored(service, sender.acknowledged, 60 + runs * 0.01, endpoint.rows), (
                service.said()
            )
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, endpoint.rows())
    assert not rows_of(folder / "kept" / "dead_letter.jsonl")
    return Outcome(
        f"endpoint that worked answers {response} for a while",
        asked,
        books,
        "none in the dead-letter file",
    )


def unsupported(folder: Path, *, runs: int) -> Outcome:
    """An endpoint that never supported the signal: evaluation goes on with a queue of 20, and every
    score is a dead letter.
    """
    sent = [run_of(number) for number in range(runs)]
    dead = folder / "kept" / "dead_letter.jsonl"
    with Endpoint() as endpoint:
        endpoint.trouble = "UNIMPLEMENTED"
        config = _configured(folder, endpoint, give_up_after="2s", max_queue=20)
        with Service(config) as service:
            sender = Sender(sent, lambda: (service.grpc, service.http))
            sender.send(requests_of(sent), within_s=60 + runs * 0.01)
            assert scored(
                service, {run.number for run in sent}, 60 + runs * 0.01, lambda: rows_of(dead)
            ), service.said()
            assert service.terminate() == 0
        books = balance(sent, sender.acknowledged, rows_of(dead))
    figures = (
        f"each of {len(rows_of(dead))} events is in the dead-letter file; {endpoint.refused} were"
        " sent"
    )
    return Outcome(
        "endpoint that always answers UNIMPLEMENTED, max_queue 20",
        len(rows_of(dead)),
        books,
        figures,
    )
