"""The context of a run that is over: what is emitted in it belongs to the run's span.

Knows trace and span ids as hexadecimal text and the OpenTelemetry API.
"""

from __future__ import annotations

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from otel_eval.model import Trajectory
from otel_eval.quiet import quiet

__all__ = ["quiet", "run_context"]


def run_context(run: Trajectory) -> Context:
    """A context whose current span is the run's: remote, since it has ended, and sampled, since we saw it.

    A run without ids (one built by hand) gives the empty context.
    """
    if not run.trace_id or not run.span_id:
        return Context()
    context = SpanContext(int(run.trace_id, 16), int(run.span_id, 16), is_remote=True, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    return set_span_in_context(NonRecordingSpan(context), Context())
