"""The table that the rig prints: one fault, one row.

Knows Markdown and exit codes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Final

import pytest

from tests.faults.fault_rig import reference
from tests.faults.fault_rig.catalogue import SCENARIOS
from tests.faults.fault_rig.outcome import Scenario
from tests.faults.fault_rig.traffic import run_of

__all__ = ["main"]

COLUMNS: Final = ("fault", "what was done", "times", "lost / twice / different", "beside that")


def main() -> int:
    """Play the faults that are asked for; 1 if one costs a result or cannot be played."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "faults",
        nargs="*",
        metavar="FAULT",
        help="the beginning of a fault's name; all when left out",
    )
    parser.add_argument("--quick", action="store_true", help="the numbers of the tests")
    options = parser.parse_args()
    reference.agree([run_of(number) for number in range(3000)])
    print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    chosen = [
        each
        for each in SCENARIOS
        if not options.faults or each.fault.startswith(tuple(options.faults))
    ]
    good = [_row(each, full=not options.quick) for each in chosen]
    return 0 if all(good) else 1


def _row(scenario: Scenario, *, full: bool) -> bool:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="otel-eval-fault-") as folder:
        try:
            outcome = scenario.play(Path(folder), full=full)
        except pytest.skip.Exception as error:
            print(f"| {scenario.fault} | not done: {error} |  |  |  |", flush=True)
            return True
        except Exception:  # noqa: BLE001 - the other faults are still to be done
            print(f"| {scenario.fault} | broke |  |  |  |", flush=True)
            traceback.print_exc()
            return False
    books = outcome.books
    cells = (
        scenario.fault,
        outcome.done,
        outcome.times,
        f"{books.lost} / {books.duplicated} / {books.wrong}",
        outcome.other,
    )
    print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print(
        f"{scenario.fault}: {time.monotonic() - began:.0f} s",
        *books.examples,
        sep="\n  ",
        file=sys.stderr,
        flush=True,
    )
    return books.balanced
