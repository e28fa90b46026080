"""Scorers that end the process for one run: by signal, at once, by a fault in C. Named in
configurations as `lethal:dies`.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ENDS: dict[str, Callable[[], object]] = {
    "sigkill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(3),
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "freeze": lambda: re.match("(a+)+$", "a" * 64 + "b"),  # holds the interpreter's lock
    "hang": lambda: time.sleep(3600),
}


def dies(trajectory: Any) -> float:
    """End the process in the way named by the run's first tool; with `once` only the first time.
    Other runs are scored.
    """
    way, _, once = (trajectory.calls[0].name if trajectory.calls else "").partition(" ")
    if way in ENDS:
        note = Path(os.environ["LETHAL_NOTES"])
        with note.open("a") as file:  # counts the calls
            file.write(f"{trajectory.trace_id}\n")
        if not once or note.read_text().count(trajectory.trace_id) == 1:
            ENDS[way]()
    return 1.0


async def dies_later(trajectory: Any) -> float:
    """End the process as `dies` does, in an asynchronous scorer."""
    return dies(trajectory)
