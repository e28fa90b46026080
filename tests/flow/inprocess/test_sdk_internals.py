"""The SDK has the private names that `sdk_internals` reads, each with the meaning it counts on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics.export import AggregationTemporality
from opentelemetry.sdk.trace import (
    ConcurrentMultiSpanProcessor,
    Event,
    ReadableSpan,
    SpanProcessor,
    TracerProvider,
)
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import sdk_internals


@pytest.fixture
def provider() -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    yield provider
    provider.shutdown()


def spans(provider: TracerProvider) -> tuple[Any, ReadableSpan]:
    """An open span, and one that ended below it."""
    exporter = InMemorySpanExporter()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("app")
    root = tracer.start_span("root", attributes={"key": "value"})
    context = trace.set_span_in_context(root)
    link = trace.Link(root.get_span_context())
    child = tracer.start_span("child", context=context, attributes={"n": 1}, links=[link])
    child.add_event("event")
    child.end()
    (ended,) = exporter.get_finished_spans()
    return root, ended


def kept_of(span: Any) -> sdk_internals.KeptSpan:
    kept_span = sdk_internals.KeptSpan()
    sdk_internals.read_into(kept_span, span)
    return kept_span


def fields(kept_span: sdk_internals.KeptSpan) -> dict[str, Any]:
    """What was read of a span."""
    names = set(sdk_internals.KeptSpan.__slots__) - {"held_bytes"}
    return {name: getattr(kept_span, name) for name in names}


def test_what_is_kept_of_a_span_is_read_without_its_properties(provider: TracerProvider):
    """Open and ended ones; the attributes are the mapping itself, so that redaction is seen."""
    for span in spans(provider):
        kept_span, by_properties = kept_of(span), sdk_internals.KeptSpan()
        sdk_internals._read_properties_into(by_properties, span)
        assert fields(kept_span) == fields(by_properties)
        assert kept_span.recorded_attributes is span._attributes._dict  # type: ignore[union-attr]
        assert kept_span.recorded_attributes == dict(span.attributes or {})
        assert kept_span.recorded_events == tuple(span.events)
        context = sdk_internals.read_context(span)
        assert context is span.context
        assert context[:4] == (
            context.trace_id,
            context.span_id,
            context.is_remote,
            context.trace_flags,
        )
        assert (kept_span.trace_id, kept_span.span_id) == (context.trace_id, context.span_id)
        assert kept_span.is_sampled == context.trace_flags.sampled


def test_spans_of_other_classes_are_read_by_their_properties(provider: TracerProvider):
    """The private names are a shortcut."""
    _, ended = spans(provider)

    class Other:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            return getattr(ended, name)

    other: Any = Other()
    with pytest.raises(AttributeError):
        sdk_internals.read_context(other)
    assert fields(kept_of(other)) == fields(kept_of(ended))


def test_a_span_made_by_hand_has_no_ids():
    """Neither has it a parent, attributes or a resource."""
    kept_span = kept_of(ReadableSpan("by hand"))
    assert (kept_span.trace_id, kept_span.span_id, kept_span.is_sampled, kept_span.parent_id) == (
        0,
        0,
        0,
        0,
    )
    assert (kept_span.name, kept_span.recorded_attributes, kept_span.recorded_events) == (
        "by hand",
        {},
        (),
    )


def test_scores_are_added_to_a_copy_of_a_span(provider: TracerProvider):
    """The span itself stays as it was, for other processors."""
    _, ended = spans(provider)
    scored = sdk_internals.with_scores(ended, [Event("score")], {"score": 1.0})
    assert [event.name for event in scored.events] == ["event", "score"]
    assert dict(scored.attributes or {}) == {"n": 1, "score": 1.0}
    assert [event.name for event in ended.events] == ["event"]
    assert dict(ended.attributes or {}) == {"n": 1}
    assert (scored.dropped_events, scored.dropped_attributes) == (0, 0)
    assert scored.to_json() != ended.to_json()


def test_processors_of_a_provider_are_seen_and_put_in_order(provider: TracerProvider):
    """By a span, and by the provider."""
    first, processor, other = SpanProcessor(), SpanProcessor(), SpanProcessor()
    provider.add_span_processor(processor)
    provider.add_span_processor(other)
    span = provider.get_tracer("app").start_span("span")
    pipeline = sdk_internals.pipeline_of(span)
    assert pipeline is sdk_internals.pipeline_of_provider(provider)
    assert sdk_internals.runs_on_callers(pipeline)
    assert sdk_internals.processors_in(pipeline) == (processor, other)
    assert sdk_internals.put_last(processor, first, pipeline)
    assert sdk_internals.processors_in(pipeline) == (first, other, processor)
    assert sdk_internals.put_last(processor, first, pipeline)
    assert sdk_internals.processors_in(pipeline) == (first, other, processor)
    assert not sdk_internals.put_last(SpanProcessor(), first, pipeline)


def test_callbacks_in_a_pool_are_not_put_in_order():
    """They run at the same time."""
    pipeline = ConcurrentMultiSpanProcessor(1)
    assert not sdk_internals.runs_on_callers(pipeline)
    assert not sdk_internals.put_last(SpanProcessor(), SpanProcessor(), pipeline)
    pipeline.shutdown()


def test_it_is_seen_that_providers_are_shut_down_and_empty():
    """Of spans and of log records."""
    tracers, loggers = (
        TracerProvider(shutdown_on_exit=False),
        LoggerProvider(shutdown_on_exit=False),
    )
    assert sdk_internals.has_no_processor(tracers)
    assert sdk_internals.has_no_processor(loggers)
    tracers.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
    exporter: Any = InMemorySpanExporter()
    loggers.add_log_record_processor(SimpleLogRecordProcessor(exporter))
    for provider in (tracers, loggers):
        assert not sdk_internals.has_no_processor(provider)
        assert not sdk_internals.is_shut_down(provider)
    tracers.shutdown()
    assert sdk_internals.is_shut_down(tracers)
    loggers.shutdown()


def test_metric_exporters_read_the_environment(monkeypatch: pytest.MonkeyPatch):
    """The temporality that the SDK's own exporters would use."""
    from opentelemetry.sdk.metrics import Counter

    monkeypatch.setenv("OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE", "delta")
    mixin: Any = sdk_internals.OTLPMetricExporterMixin()
    assert mixin._get_temporality({})[Counter] is AggregationTemporality.DELTA
