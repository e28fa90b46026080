"""The number of connections that the limit of open files allows, and the descriptors held in
reserve.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from otel_eval import descriptors
from otel_eval.descriptors import Connections, Spare, accept, connections

USUAL = Connections(grpc=1024, http=256)


@pytest.mark.parametrize(
    ("limit", "per_http", "found"),
    [
        (None, 1, (1024, 256)),
        (65_536, 2, (1024, 256)),
        (1408, 1, (1024, 256)),  # the least that has room for all
        (1407, 1, (1023, 255)),
        (1024, 1, (716, 179)),
        (1024, 2, (597, 149)),
        (256, 1, (153, 38)),
        (64, 1, (38, 9)),
        (10, 1, (6, 4)),
        (0, 1, (4, 4)),
    ],
)
def test_connections_fit_the_limit(
    limit: int | None, per_http: int, found: tuple[int, int], caplog: pytest.LogCaptureFixture
):
    """They fit beside 128 files, or a quarter of a low limit; if fewer fit than wanted, that is
    logged with the remedy.
    """
    assert connections(limit, USUAL, per_http=per_http) == found
    assert [
        line.endswith(f"raise it to {1408 + 256 * (per_http - 1)} (ulimit -n)")
        for line in caplog.messages
    ] == [True] * (found != USUAL)


PROGRAM = """
import logging, resource, sys
from otel_eval import descriptors
from otel_eval.descriptors import raise_limit, soft_limit
logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
resource.setrlimit(resource.RLIMIT_NOFILE, (SOFT, HARD))
print(raise_limit(), soft_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[1])
"""


@pytest.mark.parametrize(
    ("soft", "hard", "said"),
    [
        (256, 512, "open files: soft limit raised from 256 to 512\n512 512 512\n"),
        (512, 512, "512 512 512\n"),
    ],
)
def test_the_soft_limit_is_raised(soft: int, hard: int, said: str) -> None:
    """It is raised to the hard limit, in a process of its own, and logged."""
    program = PROGRAM.replace("SOFT", str(soft)).replace("HARD", str(hard))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == said


def failing(number: int, times: int) -> Callable[[], str]:
    """A function that raises a given number of times, then succeeds."""
    left = [number] * times

    def call() -> str:
        if left:
            raise OSError(left.pop(), "no")
        return "accepted"

    return call


@pytest.mark.parametrize(
    ("number", "waits"), [(errno.EMFILE, True), (errno.ENFILE, True), (errno.ECONNABORTED, False)]
)
def test_an_exhausted_process_waits_before_it_accepts_again(
    number: int, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pending connection would wake the accepting loop again at once."""
    sleeps = list[float]()
    monkeypatch.setattr(descriptors, "time", SimpleNamespace(sleep=sleeps.append))
    with pytest.raises(OSError, match="no"):
        accept(failing(number, 1))
    assert (sum(sleeps) >= 0.1) == waits


def test_spare_descriptors_make_room() -> None:
    """Each is released for one connection, and reopened when descriptors are available again."""
    before = len(os.listdir("/proc/self/fd"))
    spare = Spare()
    try:
        assert len(os.listdir("/proc/self/fd")) == before + 4
        assert spare.accept(failing(errno.EMFILE, 3)) == "accepted"
        assert len(os.listdir("/proc/self/fd")) == before + 1
        spare.refill()
        assert len(os.listdir("/proc/self/fd")) == before + 4
        with pytest.raises(OSError, match="no"):
            spare.accept(failing(errno.EMFILE, 5))
        with pytest.raises(OSError, match="no"):
            spare.accept(failing(errno.ECONNABORTED, 1))
    finally:
        spare.close()
    assert len(os.listdir("/proc/self/fd")) == before
