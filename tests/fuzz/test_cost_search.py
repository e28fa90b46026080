"""Inputs are grown from elements of small ones, and a cost that grows faster than they do is
found.
"""

from __future__ import annotations

import json
import random
from contextlib import suppress
from itertools import islice

import pytest
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.fuzz.fuzzing.costing import LIMIT, Costly, growing_cost, search
from tests.fuzz.fuzzing.growing import growth_of
from tests.fuzz.fuzzing.seeds import seeds

SEEDS = seeds()
SIZE = 100_000


@pytest.mark.parametrize("target", SEEDS)
def test_inputs_of_any_kind_grow_to_the_size_that_is_asked_for(target: str) -> None:
    """Most of the ways; the same way gives the same input each time."""
    rng = random.Random(1)
    ways = [growth_of(data, rng) for data in islice(SEEDS[target], 3) for _ in range(20)]
    assert (
        sum(SIZE / 2 < len(grow(SIZE)) < 2 * SIZE + len(grow(0)) for grow in ways) > len(ways) * 0.9
    )
    assert all(grow(SIZE) == grow(SIZE) for grow in ways[:10])


def test_grown_requests_are_requests() -> None:
    """So that what costs much lies behind the parser, where it is looked for."""
    rng = random.Random(2)
    sound = 0
    for _ in range(100):
        with suppress(DecodeError):
            ExportTraceServiceRequest.FromString(growth_of(SEEDS["traces-protobuf"][1], rng)(5_000))
            sound += 1
        with suppress(ValueError):
            json.loads(growth_of(SEEDS["traces-json"][0], rng)(5_000))
            sound += 1
    assert sound > 120


def test_copies_are_equal_numbered_or_linked() -> None:
    """Ids can be distinct, and parents can form chains."""
    rng = random.Random(3)
    chained = 0
    for _ in range(400):
        grown = growth_of(SEEDS["traces-protobuf"][1], rng)(5_000)
        try:
            request = ExportTraceServiceRequest.FromString(grown)
        except DecodeError:
            continue
        spans = [
            span
            for group in request.resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]
        ids = {span.span_id for span in spans}
        chained += (
            len(ids) > 5 and sum(span.parent_span_id in ids - {span.span_id} for span in spans) > 5
        )
    assert chained


SIZE_N = 16_000
FLOOR_S = 1e-3


def square(data: bytes) -> None:
    """Quadratic in the number of copies of one byte: 3 ms for 16 kB of it, and four times as long
    for twice as much.
    """
    for _ in range((data.count(b"e") // 1000) ** 2):
        sum(range(1000))


def test_a_cost_that_grows_with_the_size_is_found() -> None:
    """Here it grows fourfold."""
    assert growing_cost(square, lambda size: b"e" * size, SIZE_N, FLOOR_S) > 2
    with pytest.raises(Costly, match="times the CPU time for each byte"):
        list(search(square, [b"eeee"], 1, 60, SIZE_N, FLOOR_S))


def test_a_cost_in_proportion_to_the_size_is_none() -> None:
    """However great it is."""
    assert (
        growing_cost(
            lambda data: [data.count(b"z") for _ in range(400)],
            lambda size: b"e" * size,
            SIZE_N,
            FLOOR_S,
        )
        < LIMIT
    )


def test_a_cost_that_jumps_at_a_limit_and_does_not_grow_is_none() -> None:
    """Where a shortcut ends, everything beyond costs more, but no more for each byte."""

    def jumping(data: bytes) -> None:
        for _ in range(1600 if len(data) > 2 * SIZE_N else 400):
            data.count(b"z")

    assert growing_cost(jumping, lambda size: b"e" * size, SIZE_N, FLOOR_S) == 1.0
