"""Private names of the OpenTelemetry SDK and of its exporters; no other module uses any.

There is no public way to what stands here. Each access is guarded: if a version has another name,
what is lost is said with the function, and never a span. Checked with SDK 1.30 to 1.45 by
tests/flow/inprocess/test_sdk_internals.py, which `python -m tests.sdk_range` runs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SynchronousMultiSpanProcessor
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanKind

if TYPE_CHECKING:
    from opentelemetry.exporter.otlp.proto.common._internal.metrics_encoder import (
        OTLPMetricExporterMixin as OTLPMetricExporterMixin,
    )

# which of them the SDK uses depends on its version and on limits
_DICTIONARIES: Final = (dict, OrderedDict)

# ---------------------------------------------------------------------- spans


read_context: Final[Callable[[Any], Any]] = attrgetter("_context")
"""The span's context, a tuple (trace id, span id, is remote, flags, …), faster than by the
property.

Raises:
    AttributeError: the span is not of the SDK's own class, or that of another version.
"""

_SAMPLED: Final = 1


class KeptSpan:
    """What reading a span needs, without the SDK's object: that takes five times as much, for
    events, links and locks even where they are empty.

    An object with slots is made and read faster than a named tuple.

    Attributes:
        trace_id, span_id: its ids; 0 if it has none.
        is_sampled: 1 or 0, the flag of its context.
        parent_id: the id of its parent; 0 if it has none.
        parent_is_remote: whether that is in another process; None if it has no parent.
        name, kind: as the span has them.
        start_ns, end_ns: Unix nanoseconds; 0 if there is no such time.
        status_code, status_message: the number of the status (0 unset, 1 ok, 2 error), and its
            description or "".
        recorded_attributes: its attributes; not to be changed here, but others may change them.
        dropped_attributes: how many attributes did not fit.
        recorded_events: its events.
        resource, scope: the resource and the instrumentation scope.
        held_bytes: the bytes that this takes, once they were estimated; 0 before.
    """

    __slots__ = (
        "dropped_attributes",
        "end_ns",
        "held_bytes",
        "is_sampled",
        "kind",
        "name",
        "parent_id",
        "parent_is_remote",
        "recorded_attributes",
        "recorded_events",
        "resource",
        "scope",
        "span_id",
        "start_ns",
        "status_code",
        "status_message",
        "trace_id",
    )

    trace_id: int
    span_id: int
    is_sampled: int
    parent_id: int
    parent_is_remote: bool | None
    name: str
    kind: SpanKind
    start_ns: int
    end_ns: int
    status_code: int
    status_message: str
    recorded_attributes: dict[str, Any]
    dropped_attributes: int
    recorded_events: tuple[Event, ...]
    resource: Resource | None
    scope: InstrumentationScope | None
    held_bytes: int

    @property
    def local_parent_id(self) -> int:
        """The id of the parent if that is in this process, else 0."""
        return 0 if self.parent_is_remote else self.parent_id

    @property
    def scope_name(self) -> str:
        """The name of the instrumentation scope, or ""."""
        return (self.scope.name if self.scope is not None else "") or ""


def read_into(kept_span: KeptSpan, span: Any) -> None:
    """Set all attributes of `kept_span` to those of a span of the SDK, open or ended.

    Attributes and events are kept by reference, so that what another processor changes in them
    later is read changed.
    """
    kept_span.held_bytes = 0
    try:
        # Each access is one step of the interpreter; by the properties it would take three times
        # as long, on the thread that ends the span.
        context, parent, events = span._context, span._parent, span._events._dq
        attributes, status = span._attributes, span._status
        kept_span.trace_id, kept_span.span_id = context[0], context[1]
        kept_span.is_sampled = context[3] & _SAMPLED
        if parent is None:
            kept_span.parent_id, kept_span.parent_is_remote = 0, None
        else:
            kept_span.parent_id, kept_span.parent_is_remote = parent[1], parent[2]
        kept_span.name, kept_span.kind = span._name, span._kind
        kept_span.start_ns, kept_span.end_ns = span._start_time or 0, span._end_time or 0
        kept_span.status_code = status._status_code._value_
        kept_span.status_message = status._description or ""
        kept_span.recorded_attributes = attributes._dict
        kept_span.dropped_attributes = attributes.dropped
        kept_span.recorded_events = tuple(events) if events else ()
        kept_span.resource, kept_span.scope = span._resource, span._instrumentation_scope
    except (AttributeError, TypeError):  # of another class or version, or without a context
        _read_properties_into(kept_span, span)


def _read_properties_into(kept_span: KeptSpan, span: Any) -> None:
    context, parent = span.context, span.parent
    kept_span.trace_id, kept_span.span_id, kept_span.is_sampled = (
        (0, 0, 0)
        if context is None
        else (context.trace_id, context.span_id, context.trace_flags & _SAMPLED)
    )
    kept_span.parent_id = 0 if parent is None else parent.span_id
    kept_span.parent_is_remote = None if parent is None else parent.is_remote
    kept_span.name, kept_span.kind = span.name, span.kind
    kept_span.start_ns, kept_span.end_ns = span.start_time or 0, span.end_time or 0
    kept_span.status_code = span.status.status_code.value
    kept_span.status_message = span.status.description or ""
    kept_span.recorded_attributes = attributes_of(span.attributes)
    kept_span.dropped_attributes = span.dropped_attributes
    kept_span.recorded_events = tuple(span.events)
    kept_span.resource, kept_span.scope = span.resource, span.instrumentation_scope


def attributes_of(attributes: Any) -> dict[str, Any]:
    """Return attributes as a dictionary that must not be changed. The SDK's own mapping takes a
    lock for each key.
    """
    inner: Any = getattr(attributes, "_dict", None)
    return inner if type(inner) in _DICTIONARIES else dict(attributes or {})


def with_scores(
    span: ReadableSpan, events: Sequence[Event], attributes: Mapping[str, Any]
) -> ReadableSpan:
    """Return a span equal to `span` with the events and attributes added; the counts of what its
    limits dropped are kept. An ended span is read-only.
    """
    if not events:
        return span
    joined = [*span.events, *events]
    bounded: Any = BoundedList.from_seq(len(joined), joined)
    bounded.dropped = span.dropped_events
    scored: Any = copy(span)
    scored._events = bounded
    if attributes:
        own: Any = span.attributes or {}
        scored._attributes = BoundedAttributes(attributes={**own, **attributes}, immutable=True)
        scored._attributes.dropped = span.dropped_attributes
    return cast(ReadableSpan, scored)


# ---------------------------------------------------------------------- processors


def pipeline_of(span: Any) -> Any:
    """The processors of the span's provider. None if the SDK does not show them."""
    return getattr(span, "_span_processor", None)


def pipeline_of_provider(provider: Any) -> Any:
    """The span processors of a provider. None if the SDK does not show them."""
    return getattr(provider, "_active_span_processor", None)


def processors_in(pipeline: Any) -> tuple[Any, ...]:
    """The processors of a pipeline in order; none if the SDK does not show them."""
    processors = getattr(pipeline, "_span_processors", ())
    return processors if isinstance(processors, tuple) else ()


def runs_on_callers(pipeline: Any) -> bool:
    """Whether callbacks run on the thread on which the span starts or ends, and not in a pool of
    threads.
    """
    return isinstance(pipeline, SynchronousMultiSpanProcessor)


def put_last(processor: Any, first: Any, pipeline: Any) -> bool:
    """Have `processor` called after all others of the pipeline, and `first` before them if there
    are any; False if that cannot be ensured.

    The pipeline replaces its tuple of processors under its lock and iterates over the old one, so a
    callback that is under way is not disturbed.
    """
    if not runs_on_callers(pipeline):
        return False
    try:
        with pipeline._lock:
            before = pipeline._span_processors
            others = [other for other in before if other is not processor and other is not first]
            if not any(other is processor for other in before):
                return False  # it is inside another processor
            after = (first, *others, processor) if others else (processor,)
            if before != after:  # also if it was added twice
                pipeline._span_processors = after
    except (AttributeError, TypeError):
        return False
    return True


# ---------------------------------------------------------------------- providers of all signals


def is_shut_down(provider: Any) -> bool:
    """Whether a provider (or a pipeline of processors), or every processor in it, is known to be
    shut down.

    The SDK silently drops what is emitted afterwards. If its flags are not found, the result is
    False.
    """
    flag = getattr(provider, "_shutdown", None)
    if isinstance(flag, bool):
        return flag
    flags = [_shutdown_flag(processor) for processor in _others_in(provider) or ()]
    return bool(flags) and all(flags)


def has_no_processor(provider: Any) -> bool:
    """Whether a provider (or a pipeline of processors) is known to have no processor but ours, so
    that it drops everything.

    With `OTEL_LOGS_EXPORTER=none` there is such a `LoggerProvider`. If its lists are not found, the
    result is False.
    """
    return _others_in(provider) == []


def _others_in(provider: Any) -> list[Any] | None:
    """The processors of a provider that are not ours; None if no list of them was found."""
    pipeline = provider
    for name in ("_multi_log_record_processor", "_active_span_processor"):
        pipeline = getattr(provider, name, pipeline)
    lists: list[Iterable[Any]] = [
        getattr(pipeline, name)
        for name in ("_log_record_processors", "_span_processors")
        if hasattr(pipeline, name)
    ]
    others = [
        processor
        for processors in lists
        for processor in processors
        if not type(processor).__module__.startswith("otel_eval")
    ]
    return others if lists else None


def _shutdown_flag(processor: Any) -> bool | None:
    for holder in (processor, getattr(processor, "_batch_processor", None)):
        for name in ("_shutdown", "done"):  # `done`: the batch processors before 1.34
            flag = getattr(holder, name, None)
            if isinstance(flag, bool):
                return flag
    return None


# ---------------------------------------------------------------------- exporters


def __getattr__(name: str) -> Any:
    # What the metric exporters have in common: temporality and histograms by the environment.
    # Imported when it is used, because a program with a processor alone loads no protobuf.
    if name == "OTLPMetricExporterMixin":
        from opentelemetry.exporter.otlp.proto.common._internal import metrics_encoder

        return metrics_encoder.OTLPMetricExporterMixin
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
