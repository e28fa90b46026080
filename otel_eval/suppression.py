"""Keeps the spans of our own requests (exports, judges) out of the traces that are evaluated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import opentelemetry.context as api
from opentelemetry.context import attach, detach, set_value
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

__all__ = ["suppress_instrumentation", "suppress_tracing"]

# The API's keys are private and made unique at import.
_SUPPRESS = (
    "suppress_instrumentation",
    getattr(api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    getattr(api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"),
)
_UNSAMPLED = NonRecordingSpan(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.DEFAULT)))


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Within this context no instrumentation creates spans, as OpenTelemetry's own exporters do it."""
    context = api.get_current()
    for key in _SUPPRESS:
        context = set_value(key, True, context)
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def suppress_tracing() -> Iterator[None]:
    """As `suppress_instrumentation`; spans that code creates itself get an unsampled parent, so that they are not recorded."""
    token = attach(set_span_in_context(_UNSAMPLED))
    try:
        with suppress_instrumentation():
            yield
    finally:
        detach(token)
