"""Scorers that fail in every way; named in configurations as `fault_rig.broken:raises` and so
on.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any, Final

__all__ = [
    "DEATHS",
    "allocates",
    "dies",
    "ends_the_process",
    "hangs",
    "leaks",
    "raises",
    "recurses",
    "returns_junk",
    "sleeps",
]

_LEAKED: list[int] = []


def raises(trajectory: Any) -> float:
    """Always."""
    raise RuntimeError(f"no idea what {trajectory.trace_id} is")


def returns_junk(trajectory: Any) -> Any:
    """Nothing that is an outcome."""
    return {"value": trajectory}


def recurses(trajectory: Any) -> float:
    """Without end."""
    return recurses(trajectory)


def ends_the_process(trajectory: Any) -> float:
    """As a script would."""
    sys.exit(f"cannot score {trajectory.trace_id}")


def allocates(trajectory: Any) -> float:
    """More than there is, whatever there is."""
    held: list[bytes] = []
    while True:
        held.append(bytes(2**28))


def leaks(trajectory: Any) -> float:
    """Files, as many as the process may have open."""
    try:
        while True:
            _LEAKED.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return 1.0


def hangs(trajectory: Any) -> float:
    """For one run in eight; scores the others."""
    if trajectory.trace_id[0] in "01":
        while True:
            time.sleep(1)
    return 1.0


def sleeps(trajectory: Any) -> float:
    """Slower than runs arrive."""
    time.sleep(0.005)
    return 1.0


def dies(trajectory: Any) -> float:
    """Ends the process for the runs in the file that `LETHAL` names, in the way that it says;
    scores the others.
    """
    way = _lethal().get(trajectory.trace_id)
    if way == "SIGKILL":
        os.kill(os.getpid(), signal.SIGKILL)
    elif way == "_exit":
        os._exit(3)
    elif way == "segmentation fault":
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)
    elif way == "abort":
        os.abort()
    return 1.0


DEATHS: Final = ("SIGKILL", "_exit", "segmentation fault", "abort")


@cache
def _lethal() -> dict[str, str]:
    found: dict[str, str] = json.loads(Path(os.environ["LETHAL"]).read_text())
    return found
