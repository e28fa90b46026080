"""The long form: three members, one of them killed, added or paused every few seconds, and a row of Markdown at the end.

    python tests/kafka [--seconds 300] [--rate 700]

Exit 1 if a result is lost or wrong or a result id has two contents. Without Java or the jars it is reported as not run.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

if __name__ == "__main__":
    for folder in ("faults", "helpers", "fuzz"):
        sys.path.append(str(Path(__file__).parents[1] / folder))

from kafka_rig.broker import Broker, missing
from kafka_rig.group import Group, Ledger
from kafka_rig.traffic import Load


def chaos(folder: Path, seconds: float, rate: float) -> tuple[Ledger, dict[str, int]]:
    """The load with faults: what came of it, and how often each fault was done."""
    rng, done = random.Random(3), {"killed": 0, "added": 0, "paused": 0}
    with Broker(folder / "broker") as broker, Group(folder, broker.address, {"topic": "chaos"}) as group:
        broker.create("chaos")
        group.add(3)
        load = Load(broker.producer(), "chaos", rate).start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(rng.uniform(5.0, 10.0))
            members = group.alive
            kind = rng.choice(["killed", "paused"] if len(members) > 3 else ["added"] if len(members) < 3 else [*done])
            done[kind] += 1
            if kind == "added":
                group.add()
            elif kind == "killed":
                rng.choice(members).kill()
            else:
                group.pause(rng.choice(members), 5.0)
        return group.finish(load.stop(), within_s=600.0), done


def main() -> int:
    """Run it and print the row."""
    words = argparse.ArgumentParser()
    words.add_argument("--seconds", type=float, default=300.0)
    words.add_argument("--rate", type=float, default=700.0)
    given = words.parse_args()
    if reason := missing():
        print(f"tests/kafka: not run: {reason}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        ledger, done = chaos(Path(folder), given.seconds, given.rate)
    faults = ", ".join(f"{count} {kind}" for kind, count in done.items())
    books = ledger.books
    print("| members | runs | lost | wrong | ids with two contents | repeated | seconds |\n|---|---|---|---|---|---|---|")
    cells = (faults, ledger.runs, books.lost, books.wrong, ledger.contradicted, books.repeated, round(ledger.seconds))
    print(f"| {' | '.join(map(str, cells))} |")
    print(*books.examples, sep="\n")
    return 0 if ledger.balanced else 1


if __name__ == "__main__":
    sys.exit(main())
