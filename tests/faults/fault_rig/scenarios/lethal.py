"""Traces whose evaluation ends the process, in every way in which a process can end."""

from __future__ import annotations

import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

from tests.faults.fault_rig.books import balance, rows_of, until
from tests.faults.fault_rig.broken import DEATHS
from tests.faults.fault_rig.outcome import SCORERS, Outcome, scored
from tests.faults.fault_rig.sender import Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import run_of, trace_id

__all__ = ["lethal"]

DIES: Final = {"type": "fault_rig.broken:dies", "name": "dies"}


def lethal(folder: Path, *, traces: int, runs: int) -> Outcome:
    """A scorer ends the process for some runs among many; it is started again each time, as an
    orchestrator does.
    """
    sent = [run_of(number) for number in range(runs)]
    step = runs // traces
    ways = {
        step // 2 + place * step: way
        for place, way in zip(range(traces), DEATHS * traces, strict=False)
    }
    (folder / "lethal.json").write_text(
        json.dumps({trace_id(number).hex(): way for number, way in ways.items()})
    )
    storage = {"directory": str(folder / "kept")}
    service = Service(
        configuration(folder, scorers=(DIES,), storage=storage),
        env={"LETHAL": str(folder / "lethal.json")},
    )
    died = 0
    try:
        service.start()
        sender = Sender(sent, lambda: (service.grpc, service.http))
        load = threading.Thread(
            target=sender.send, args=(requests_of(sent),), kwargs={"within_s": 300, "pace_s": 0.002}
        )
        load.start()
        while load.is_alive() or len(_letters(folder)) < traces:
            if until(lambda: not service.alive, 0.2):
                died += 1
                assert died <= 2 * traces, f"died {died} times: {service.said()[-3:]}"
                service.start(may_die=True)
        load.join()
        assert len(sender.acknowledged) == runs, f"{len(sender.acknowledged)} of {runs} taken"
        others = sender.acknowledged - ways.keys()
        assert scored(service, others, 60), service.said()
        assert service.terminate() == 0
    finally:
        service.__exit__(None, None, None)
    letters = _letters(folder)
    assert letters == {trace_id(number).hex(): SCORERS + 1 for number in ways}, letters
    delivered = {row["trace_id"] for row in rows_of(service.results)}
    assert not delivered & letters.keys(), "what is in the dead-letter file was delivered as well"
    books = balance(sent, others, rows_of(service.results))
    figures = (
        f"{traces} of {runs} runs end the process ({', '.join(DEATHS)}): each twice, then its"
        f" {SCORERS + 1} results are dead "
    )
    figures += "letters, once, and failed"
    return Outcome("a scorer that ends the process, which is started again", died, books, figures)


def _letters(folder: Path) -> Counter[str]:
    """Failed results in the dead-letter file, by trace."""
    rows: list[dict[str, Any]] = rows_of(folder / "kept" / "dead_letter.jsonl")
    assert all(
        (row["outcome"], row["error_type"], row["exporter"]) == ("failed", "crashed", "evaluation")
        for row in rows
    ), rows
    return Counter(row["trace_id"] for row in rows)
