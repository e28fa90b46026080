"""Assemble spans into traces, and decide when each trace is closed."""

from otel_eval.assembly.evidence import evidence_of
from otel_eval.assembly.limits import BufferCounts, Limits
from otel_eval.assembly.trace import SPAN_OVERHEAD_BYTES, Closing, State
from otel_eval.assembly.trace_buffer import TraceBuffer

__all__ = [
    "SPAN_OVERHEAD_BYTES",
    "BufferCounts",
    "Closing",
    "Limits",
    "State",
    "TraceBuffer",
    "evidence_of",
]
