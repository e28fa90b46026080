"""Assembly: spans in, closed traces out. Knows no clock, no thread, no attribute name."""

from otel_eval.assembly.buffer import TraceBuffer
from otel_eval.assembly.digest import evidence_of
from otel_eval.assembly.limits import Limits, Tally
from otel_eval.assembly.store import Closing

__all__ = ["Closing", "Limits", "Tally", "TraceBuffer", "evidence_of"]
