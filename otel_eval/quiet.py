"""Work that must not show in the traces that are judged.

Knows what instrumentations look at before they trace a call; knows no exporter and no scorer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import opentelemetry.context as api
from opentelemetry.context import attach, detach, set_value
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

__all__ = ["quiet", "unseen"]

# The API's keys are private and made unique at import.
_SUPPRESS = (
    "suppress_instrumentation",
    getattr(api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    getattr(api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"),
)
_UNSAMPLED = NonRecordingSpan(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.DEFAULT)))


@contextmanager
def quiet() -> Iterator[None]:
    """Nothing that happens within is traced by an instrumentation."""
    context = api.get_current()
    for key in _SUPPRESS:
        context = set_value(key, True, context)
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def unseen() -> Iterator[None]:
    """As `quiet`; and what is traced by hand within belongs to no trace of the program and is not sampled."""
    token = attach(set_span_in_context(_UNSAMPLED))
    try:
        with quiet():
            yield
    finally:
        detach(token)
