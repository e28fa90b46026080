"""Whether there is a Collector, and the folder with its configurations."""

from __future__ import annotations

import pytest

from tests.support.collector_process import program


@pytest.fixture(scope="session", autouse=True)
def collector_is_built() -> None:
    """Reports what needs the Collector as not run where there is none."""
    program()
