"""The estimated sizes of ended spans are within a factor of two of their memory."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.trace import Link, SpanContext, Status, StatusCode, TraceFlags

from otel_eval.sources.inprocess.sdk_spans import keep, size_of

TRACER = TracerProvider(shutdown_on_exit=False).get_tracer("app")


def started(**attributes: Any) -> Any:
    return TRACER.start_span("span", attributes=attributes)


def with_events(n: int) -> Any:
    span = started()
    for k in range(10):
        span.add_event("event", {"text": f"{n} {k} " * 500})
    return span


def with_links(n: int) -> Any:
    contexts = [SpanContext(10 * n + k + 1, n + 1, True, TraceFlags(1)) for k in range(10)]
    return TRACER.start_span(
        "span", links=[Link(each, {"text": f"{n} " * 500}) for each in contexts]
    )


def failed(n: int) -> Any:
    span = started()
    span.set_status(Status(StatusCode.ERROR, f"{n} " * 5000))
    return span


SHAPES: dict[str, Callable[[int], Any]] = {
    "nothing": lambda n: started(),
    "short texts": lambda n: started(**{f"key.{k}": f"value {n}" for k in range(8)}),
    "numbers": lambda n: started(**{f"key.{k}": 1000 * n + k for k in range(8)}),
    "a long text": lambda n: started(key="x" * 60_000 + str(n)),
    "a long text of wide characters": lambda n: started(key="😀" * 60_000 + str(n)),
    "bytes": lambda n: started(key=b"x" * 60_000 + str(n).encode()),
    "a sequence of texts": lambda n: started(key=[f"{n} {k} " * 100 for k in range(100)]),
    "a sequence of numbers": lambda n: started(key=[n * 1000 + k for k in range(1000)]),
    "events": with_events,
    "links": with_links,
    "a long name": lambda n: TRACER.start_span(f"{n} " * 5000),
    "a long status": failed,
}


def ended(span: Any) -> Any:
    span.end()
    return keep(span._readable_span())


@pytest.mark.parametrize("shape", SHAPES)
def test_the_estimate_is_within_a_factor_of_two(shape: str):
    """Of what is kept of ended spans."""
    make, spans = SHAPES[shape], list[Any]()
    tracemalloc.start()
    begin = tracemalloc.get_traced_memory()[0]
    for n in range(20):
        spans.append(ended(make(n)))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - begin
    tracemalloc.stop()
    assert 0.5 <= taken / sum(map(size_of, spans)) <= 2


def test_a_collection_that_holds_itself_is_measured_once():
    """A span need not be made by the SDK's own tracer."""
    loop: list[Any] = ["text"]
    loop.append(loop)
    context = trace.INVALID_SPAN_CONTEXT
    span = ReadableSpan("span", context=context, attributes={"key": loop})
    assert size_of(keep(span)) < 10_000


def test_an_ended_span_takes_little_beside_its_values():
    """Of 8 attributes, as an instrumentation sets them: at most 0.6 kB, where the SDK's span takes
    almost 3 kB.
    """
    spans, values = [], 0
    keys = [f"key.{k}" for k in range(8)]
    tracemalloc.start()
    begin = tracemalloc.get_traced_memory()[0]
    for n in range(200):
        spans.append(ended(started(**{key: f"value {n} {key}" for key in keys})))
        values += sum(map(sys.getsizeof, spans[-1].recorded_attributes.values()))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - begin
    tracemalloc.stop()
    assert (taken - values) / len(spans) <= 600, (taken - values) / len(spans)
