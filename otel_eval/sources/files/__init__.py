"""Stored traces: files of OTLP, Tempo and Jaeger, plain or gzipped, read into the same batches as live ones."""

from __future__ import annotations

from otel_eval.sources.files.reader import read_file
from otel_eval.sources.files.translation import NO_SCOPES, lacks_scopes
from otel_eval.sources.files.whole_traces import TraceIndex, read_whole_traces

__all__ = ["NO_SCOPES", "TraceIndex", "lacks_scopes", "read_file", "read_whole_traces"]
