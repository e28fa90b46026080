"""What every test shares: how property tests look for counterexamples."""

from __future__ import annotations

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fork_server import FORKS, ForkServer

# A slow machine is no counterexample. In CI the examples are the same each time, so that a run can
# be repeated; elsewhere they are new ones, so that other machines try what CI does not.
settings.register_profile(
    "here",
    # make test-integration tries more of them
    max_examples=int(os.environ.get("OTEL_EVAL_TEST_EXAMPLES", "30")),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=os.environ.get("CI") == "true",
)
settings.load_profile("here")

# A shell starts its background jobs with interrupts ignored, and programs inherit that: those that
# tests interrupt would go on for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection() -> None:
    """Collect tests without the garbage collector: they are kept to the end."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the garbage collector leave out the tests, which are most of all objects, and run less
    often.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


@pytest.fixture(scope="session")
def fork_server() -> ForkServer:
    """Runs commands and programs without the time for imports."""
    return FORKS
