"""Scorers as nobody should write them; named in configurations as `fault_rig.broken:raises` and so on."""

from __future__ import annotations

import sys
import time
from typing import Any

__all__ = ["allocates", "ends_the_process", "hangs", "raises", "recurses", "returns_junk", "sleeps"]


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
