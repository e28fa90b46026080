"""Stored traces: files of OTLP, Tempo and Jaeger, plain or gzipped, read into the same batches as live ones."""

from __future__ import annotations

from otel_eval.sources.files.binary import Gap
from otel_eval.sources.files.console import NO_SCOPES, lacks_scopes
from otel_eval.sources.files.reader import Input, read_file, read_pieces, trace_ids
from otel_eval.sources.files.trace_index import LastPositions

__all__ = ["NO_SCOPES", "Gap", "Input", "LastPositions", "lacks_scopes", "read_file", "read_pieces", "trace_ids"]
