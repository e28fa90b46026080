"""The long form, with a row of Markdown for each fault.

    python -m tests.kafka [--seconds 300] [--rate 700] [--assignment cooperative|eager|broker]
    [members] [results-away]

`members`: three members, one of them killed, added or paused every few seconds. `results-away`: the
topic of results is away for a minute. Exit 1 if a result is lost or wrong or a result id has two
contents. Without Java or the jars it is reported as not run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.kafka.kafka_rig.broker import Broker, missing
from tests.kafka.kafka_rig.group import ASSIGNMENTS, Group, Ledger
from tests.kafka.kafka_rig.outage import results_away
from tests.kafka.kafka_rig.traffic import Load

AWAY_S = 60.0
AWAY_RATE = 100.0


def chaos(
    broker: Broker, folder: Path, seconds: float, rate: float, options: Mapping[str, object]
) -> tuple[str, Ledger]:
    """The load with faults: how often each fault was done, and what came of it."""
    rng, done = random.Random(3), {"killed": 0, "added": 0, "paused": 0}
    broker.create("chaos")
    with Group(folder, broker.address, {"topic": "chaos", "options": options}) as group:
        group.add(3)
        load = Load(broker.producer(), "chaos", rate).start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(rng.uniform(5.0, 10.0))
            members = group.alive
            kind = rng.choice(
                ["killed", "paused"]
                if len(members) > 3
                else ["added"]
                if len(members) < 3
                else [*done]
            )
            done[kind] += 1
            if kind == "added":
                group.add()
            elif kind == "killed":
                rng.choice(members).kill()
            else:
                group.pause(rng.choice(members), 5.0)
        ledger = group.finish(load.stop(), within_s=600.0)
    return ", ".join(f"{count} {kind}" for kind, count in done.items()), ledger


def away(broker: Broker, folder: Path) -> tuple[str, Ledger]:
    """Two members without the topic of results."""
    broker.create("away")
    return f"topic of results away {AWAY_S:.0f} s", results_away(
        broker, "away", folder, AWAY_RATE, away_s=AWAY_S
    )


def main() -> int:
    """Run the rows and print them."""
    words = argparse.ArgumentParser()
    words.add_argument("--seconds", type=float, default=300.0)
    words.add_argument("--rate", type=float, default=700.0)
    words.add_argument("--assignment", choices=ASSIGNMENTS, default="cooperative")
    words.add_argument("rows", nargs="*", help="members and results-away if none is given")
    given = words.parse_args()
    if reason := missing():
        print(f"tests/kafka: not run: {reason}")
        return 0
    rows = {
        "members": lambda *place: chaos(
            *place, given.seconds, given.rate, ASSIGNMENTS[given.assignment]
        ),
        "results-away": away,
    }
    print(
        "| fault | runs | lost | wrong | ids with two contents | repeated | seconds"
        " |\n|---|---|---|---|---|---|---|"
    )
    return max([_row(rows[name]) for name in given.rows or rows])


def _row(run: Callable[[Broker, Path], tuple[str, Ledger]]) -> int:
    with tempfile.TemporaryDirectory() as folder, Broker(Path(folder) / "broker") as broker:
        fault, ledger = run(broker, Path(folder))
    books = ledger.books
    cells = (
        fault,
        ledger.runs,
        books.lost,
        books.wrong,
        ledger.contradicted,
        books.repeated,
        round(ledger.seconds),
    )
    print(f"| {' | '.join(map(str, cells))} |", *books.examples, sep="\n", flush=True)
    return 0 if ledger.balanced else 1


if __name__ == "__main__":
    sys.exit(main())
