"""Scorers that end the process for one run: by signal, at once, by a fault in C. Named in configurations as `lethal:dies`."""

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
    "hang": lambda: time.sleep(60),
}


def dies(trajectory: Any) -> float:
    """In the way that the run's first tool is called after, with `once` only for the first time; other runs are scored."""
    way, _, once = (trajectory.calls[0].name if trajectory.calls else "").partition(" ")
    if way in ENDS:
        note = Path(os.environ["LETHAL_NOTES"])
        with note.open("a") as file:  # how often it was asked
            file.write(f"{trajectory.trace_id}\n")
        if not once or note.read_text().count(trajectory.trace_id) == 1:
            ENDS[way]()
    return 1.0


async def dies_later(trajectory: Any) -> float:
    """The same, of a scorer whose result comes later."""
    return dies(trajectory)
