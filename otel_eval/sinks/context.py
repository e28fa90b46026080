"""The context of a run that is over: what is emitted in it belongs to the run's span.

Knows trace and span ids as hexadecimal text and the OpenTelemetry API.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import opentelemetry.context as api
from opentelemetry.context import Context, attach, detach, set_value
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_eval.model import Trajectory

__all__ = ["quiet", "run_context"]

# What instrumentations look at before they trace a call. The API's keys are private and made unique at import.
_SUPPRESS = (
    "suppress_instrumentation",
    getattr(api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    getattr(api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"),
)


def run_context(run: Trajectory) -> Context:
    """A context whose current span is the run's: remote, since it has ended, and sampled, since we saw it.

    A run without ids (one built by hand) gives the empty context.
    """
    if not run.trace_id or not run.span_id:
        return Context()
    context = SpanContext(int(run.trace_id, 16), int(run.span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(context), Context())


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
