"""Search for inputs whose CPU time for each byte grows with their size.

Candidates are elements of sound and of spoilt inputs, repeated. Those that cost the most for a
byte, or grow the most, at a small size are looked at up to 4 MB, and are what further candidates
are made of.
"""

from __future__ import annotations

import gc
import heapq
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Final

from tests.fuzz.fuzzing.growing import Grow, growth_of
from tests.fuzz.fuzzing.mutation import spoilt

__all__ = ["LIMIT", "Cost", "Costly", "growing_cost", "per_byte", "search"]

LIMIT: Final = 1.5
"""Of CPU time for each byte, between n and four times n."""

GREAT: Final = 1024 * 1024  # n; four times as much is looked at too
_FLOOR_S: Final = 0.02  # below it other processes on the machine decide
# From four times n to sixteen times n. Where a quadratic part makes a cost grow by half, it then
# makes it grow by 2.3; what outgrew the processor's caches or a shortcut grows less.
_FURTHER: Final = 1.9
# for a byte at sixteen times n; an object of JSON with many keys takes half of it, once no cache
# holds it
_CHEAP_S: Final = 2e-7
_ROUNDS: Final = 5
_LONG_S: Final = 30.0  # of CPU time, for one input: then it is not measured again
_KEPT: Final = 12

Target = Callable[[bytes], None]


class Costly(Exception):
    """An input costs more for each byte the greater it is."""


@dataclass(order=True)
class Cost:
    """What one way of growing costs."""

    score: float
    number: int
    grow: Grow = field(compare=False)
    element: bytes = field(compare=False)


def per_byte(target: Target, data: bytes, floor_s: float = _FLOOR_S) -> float:
    """CPU seconds for each byte, without garbage collection; those of the floor if it takes
    less.
    """
    gc.disable()
    began = time.process_time()
    try:
        target(data)
    finally:
        gc.enable()
    return max(time.process_time() - began, floor_s) / len(data)


def growing_cost(target: Target, grow: Grow, size: int = GREAT, floor_s: float = _FLOOR_S) -> float:
    """By how much CPU time for each byte grows from `size` to four times as much; 1 or less where
    it is in proportion.

    Measured once, and again and again, the best of it, where that is above the limit. A cost that
    hardly grows further at sixteen times the size counts as 1: it jumped.
    """
    small, great = grow(size), grow(4 * size)
    least, most = per_byte(target, small, floor_s), per_byte(target, great, floor_s)
    for _ in range(_ROUNDS):
        if most / least <= LIMIT or most * len(great) > _LONG_S:
            break
        least, most = (
            min(least, per_byte(target, small, floor_s)),
            min(most, per_byte(target, great, floor_s)),
        )
    if most / least <= LIMIT:
        return most / least
    if 4 * most * len(great) > _LONG_S:
        return most / least
    greatest = grow(16 * size)
    beyond = min(per_byte(target, greatest, floor_s) for _ in range(2))
    return most / least if beyond / most > _FURTHER and beyond > _CHEAP_S else 1.0


def search(
    target: Target,
    given: Sequence[bytes],
    seed: int,
    seconds: float,
    size: int = GREAT,
    floor_s: float = _FLOOR_S,
) -> Iterator[tuple[Cost, float]]:
    """Each way of growing that was looked at up to four times `size`, and how its cost grew, until
    the time is over.

    Raises:
        Costly: one grew beyond the limit; the second argument is an input.
    """
    small = size // 16
    rng, numbers, end = random.Random(seed), count(), time.monotonic() + seconds
    kept: list[Cost] = []
    for data in spoilt(given, seed):
        if time.monotonic() > end:
            return
        if kept and rng.random() < 0.3:
            data = rng.choice(kept).element
        cost = _screened(target, data, rng, next(numbers), small)
        if cost is None or (len(kept) == _KEPT and cost.score <= kept[0].score):
            continue
        heapq.heappushpop(kept, cost) if len(kept) == _KEPT else heapq.heappush(kept, cost)
        grown = 0.0
        for each in (size // 4, size):
            grown = max(grown, growing_cost(target, cost.grow, each, floor_s))
            if grown > LIMIT:
                raise Costly(
                    f"{grown:.1f} times the CPU time for each byte at {4 * each} bytes",
                    cost.grow(each),
                )
        yield cost, grown


def _screened(
    target: Target, data: bytes, rng: random.Random, number: int, size: int
) -> Cost | None:
    """A way of growing with what it costs at small sizes; None if it gives nothing that is
    greater.
    """
    grow = growth_of(data, rng) if data else None
    if grow is None or len(grow(size)) < size // 4:
        return None
    small, great = grow(size), grow(4 * size)
    least, most = per_byte(target, small), per_byte(target, great)
    return Cost(most * 1e6 * (most / least), number, grow, grow(4096))
