"""What another processor of the provider redacts in its `on_end` is evaluated redacted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider

from otel_eval import EvalSpanProcessor
from otel_eval.model import Trajectory
from otel_eval.scorers import scorer

SECRET, REDACTED = '{"card": "4111"}', '{"card": "***"}'
ARGUMENTS = "gen_ai.tool.call.arguments"
INPUT = "input.value"
seen: list[list[Any]] = []


@scorer("test.sees_content", needs=["arguments", "content"])
def sees_content(trajectory: Trajectory) -> float:
    seen.append([trajectory.input, *(call.arguments for call in trajectory.calls)])
    return 1.0


def in_place(span: Any) -> None:
    """Changes the attributes that the span has."""
    for key in (ARGUMENTS, INPUT):
        if key in span.attributes:
            span._attributes._dict[key] = REDACTED


def replaced(span: Any) -> None:
    """Gives the span other attributes."""
    attributes = dict(span.attributes)
    for key in (ARGUMENTS, INPUT):
        if key in attributes:
            attributes[key] = REDACTED
    span._attributes = BoundedAttributes(attributes=attributes)


class Redacting(SpanProcessor):
    def __init__(self, redact: Callable[[Any], None]) -> None:
        self.redact = redact

    def on_end(self, span: Any) -> None:
        self.redact(span)


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    seen.clear()
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider
    provider.shutdown()


def processor() -> EvalSpanProcessor:
    scorers = [{"type": "test.sees_content"}]
    return EvalSpanProcessor({"evaluations": [{"name": "e", "scorers": scorers}]})


def play(provider: TracerProvider) -> None:
    """One run with one call."""
    tracer = provider.get_tracer("app")
    agent = {"openinference.span.kind": "AGENT", INPUT: SECRET}
    tool = {"openinference.span.kind": "TOOL", "tool.name": "pay", ARGUMENTS: SECRET}
    with tracer.start_as_current_span("agent", attributes=agent):
        tracer.start_span("pay", attributes=tool | {INPUT: SECRET}).end()


def run(provider: TracerProvider) -> list[Any]:
    """What a scorer saw of the input and of the arguments of one run."""
    play(provider)
    provider.force_flush()
    return seen.pop()


@pytest.mark.parametrize("redact", [in_place, replaced])
@pytest.mark.parametrize("added", ["before", "after", "later"])
def test_a_processor_may_redact_wherever_it_was_added(
    provider: TracerProvider, added: str, redact: Callable[[Any], None]
):
    """Before otel-eval's, after it, and after it has evaluated a run; the run's own span too."""
    if added == "before":
        provider.add_span_processor(Redacting(redact))
    provider.add_span_processor(processor())
    if added == "later":
        assert "4111" in str(run(provider))
    if added != "before":
        provider.add_span_processor(Redacting(redact))
    saw = str(run(provider))
    assert "4111" not in saw
    assert saw.count("***") == 2


def test_results_are_delivered_before_processors_that_were_added_first_shut_down(
    provider: TracerProvider,
):
    """Although the processor is called last when a span ends."""
    scored: list[int] = []

    class Before(SpanProcessor):
        def shutdown(self) -> None:
            scored.append(len(seen))

    provider.add_span_processor(Before())
    provider.add_span_processor(processor())
    play(provider)
    provider.shutdown()
    assert scored == [1]
