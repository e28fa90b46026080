"""Spans of this process: counted while they are open, read when their trace is complete."""

from __future__ import annotations

from otel_eval.sources.inprocess.live_traces import InProcessLimits
from otel_eval.sources.inprocess.processor import InProcessSource
from otel_eval.sources.inprocess.sdk_spans import HeldSpans, event_of, frames_of, neighbours

__all__ = ["HeldSpans", "InProcessLimits", "InProcessSource", "event_of", "frames_of", "neighbours"]
