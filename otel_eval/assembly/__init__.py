"""Assemble spans into traces, and decide when each trace is closed."""

from otel_eval.assembly.closing import BufferCounts, Closing, Limits, evidence_of
from otel_eval.assembly.trace_buffer import TraceBuffer

__all__ = ["BufferCounts", "Closing", "Limits", "TraceBuffer", "evidence_of"]
