"""OTLP 1.x traces and logs, protobuf and JSON: requests read and written, spans read lazily, and the client that sends them."""

from __future__ import annotations

from otel_eval.otlp.attribute_limits import UNLIMITED
from otel_eval.otlp.decoded_size import content_size, json_decoded_size, protobuf_decoded_size
from otel_eval.otlp.otlp_json import load_json, read_document, read_logs_json, read_traces_json
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces, reserialize_logs, reserialize_traces
from otel_eval.otlp.spans import NATIVE

__all__ = [
    "NATIVE",
    "UNLIMITED",
    "SpanBatch",
    "content_size",
    "json_decoded_size",
    "load_json",
    "protobuf_decoded_size",
    "read_document",
    "read_logs",
    "read_logs_json",
    "read_traces",
    "read_traces_json",
    "reserialize_logs",
    "reserialize_traces",
]
