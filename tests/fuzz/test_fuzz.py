"""Whatever bytes come: a value or a refusal, in time and memory that their size bounds."""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable
from itertools import islice
from typing import Final

import pytest

from tests.fuzz.fuzzing.hostile import SHAPES
from tests.fuzz.fuzzing.mutation import spoilt
from tests.fuzz.fuzzing.seeds import seeds
from tests.fuzz.fuzzing.targets import TARGETS

TRIES: Final = 600
SEED: Final = 20
SEEDS: Final = seeds()
FOUND: Final = [("metrics-json", b'{"resourceMetrics": [{"scopeMetrics": [{"\\ud800": 1}]}]}')]
HOSTILE: Final = [
    pytest.param(target, shape, id=f"{target}-{shape.__name__}")
    for target, each in SHAPES.items()
    for shape in each
]


@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_break_a_decoder(target: str) -> None:
    """Sound inputs, and the same spoilt in a few hundred ways that are the same in every run."""
    for data in islice(spoilt(SEEDS[target], SEED), TRIES):
        TARGETS[target](data)


@pytest.mark.parametrize(("target", "data"), FOUND)
def test_what_once_broke_a_decoder_does_not(target: str, data: bytes) -> None:
    """Inputs that a longer search came upon."""
    TARGETS[target](data)


def test_spoiling_is_the_same_for_the_same_seed() -> None:
    """So that a failure can be seen again; and most of what it gives is new."""
    first, second = (list(islice(spoilt(SEEDS["span"], SEED), 200)) for _ in range(2))
    assert first == second
    assert len(set(first)) > 150


def _cpu_s(target: str, data: bytes) -> float:
    began = time.process_time()
    TARGETS[target](data)
    return time.process_time() - began


@pytest.mark.parametrize(("target", "shape"), HOSTILE)
def test_hostile_bytes_cost_time_by_their_size(target: str, shape: Callable[[int], bytes]) -> None:
    """Eight times the bytes take about eight times as long; 64 times would be quadratic."""
    small, large = (_cpu_s(target, shape(size)) for size in (50_000, 400_000))
    assert large < 24 * small + 0.3


@pytest.mark.parametrize(("target", "shape"), HOSTILE)
def test_hostile_bytes_cost_memory_by_their_size(
    target: str, shape: Callable[[int], bytes]
) -> None:
    """No more than a small object for every two bytes, and what is always allowed to unpack."""
    data = shape(20_000)
    tracemalloc.start()
    try:
        TARGETS[target](data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100 * len(data) + 10 * 2**20
