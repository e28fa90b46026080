"""For every element that a request can repeat, CPU time and memory are in proportion to the
request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from otel_eval.engine import Engine
from tests.cost.costs.measuring import FORMS, FREE, cpu_of, engine
from tests.cost.costs.shapes import SHAPES, Shape

pytestmark = pytest.mark.slow

MOST = 20.0  # where a linear cost gives 8 and a quadratic one 64
MOST_MEMORY = 3.0  # times its estimate
ROOT = Path(__file__).parents[2]
SHAPE = pytest.mark.parametrize("shape", SHAPES, ids=[each.name for each in SHAPES])


@pytest.fixture(scope="module")
def made() -> Engine:
    return engine()


@pytest.mark.parametrize("form", ["protobuf", "json"])
@SHAPE
def test_cpu_time_is_in_proportion_to_the_number_of_elements(
    shape: Shape, form: str, made: Engine
) -> None:
    """Of intake and of evaluation: eight times as many take less than twenty times as long."""
    small, great = cpu_of(made, shape, form, MOST)
    assert great.grew(small) < MOST


@pytest.fixture(scope="module")
def memory() -> dict[str, dict[str, tuple[int, int]]]:
    """What each shape was estimated to take and took, each in a process that is forked for it."""
    program = [sys.executable, str(ROOT / "tests" / "cost"), "--json", "--memory-scale", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(program, env=environment, capture_output=True, check=True, timeout=300)
    found: dict[str, dict[str, tuple[int, int]]] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(300)
@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="the peak of a process's memory is Linux's to tell",
)
@SHAPE
def test_memory_is_within_three_times_its_estimate(
    shape: Shape, memory: dict[str, dict[str, tuple[int, int]]]
) -> None:
    """Resident memory at its peak while the requests are taken in and evaluated, beyond what the
    process took before.
    """
    for form in FORMS:
        estimated, took = memory[shape.name][form]
        assert took <= MOST_MEMORY * estimated + FREE, form
