"""A run is too large by what it recorded, whether its spans come from the SDK or over the wire."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.interfaces import SpanFrame
from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import read_traces
from otel_eval.sources.inprocess.sdk_spans import frames_of
from otel_eval.trajectory import limits
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan


def recorded() -> list[ReadableSpan]:
    """A run with content of all kinds."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("agents")
    messages = [{"role": "user", "parts": [{"type": "text", "content": "Grüße 你好" * 40}]}]
    with tracer.start_as_current_span("run", attributes={"gen_ai.operation.name": "invoke_agent"}):
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "search",
            "gen_ai.tool.call.arguments": json.dumps({"q": list(range(300))}),
            "numbers": list(range(50)),
            "raw": b"\xff" * 100,
            "share": 0.5,
        }
        with tracer.start_as_current_span("execute_tool search", attributes=attributes) as span:
            span.add_event("found", {"text": "x" * 500})
            span.add_event("exception", {"exception.message": json.dumps(messages)})
    return list(exporter.get_finished_spans())


def too_large(frames: list[SpanFrame]) -> str:
    """Why the run is not read, or ""."""
    buffer = TraceBuffer(Limits())
    buffer.push_many(frames, 0.0)
    (trace,) = buffer.drain(0.0)
    assert trace.bytes_at_most  # measured on arrival; it must not hide that the run is too large
    (run,) = build(trace, Plan())
    return run.trajectory.too_large


def test_the_limit_of_bytes_is_the_same_on_every_way_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """To the byte."""
    spans = recorded()
    request = encode_spans(spans)
    as_json = MessageToDict(request)
    for group in as_json["resourceSpans"]:
        for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
            for key in ("traceId", "spanId", "parentSpanId"):
                if key in span:
                    span[key] = b64decode(span[key]).hex()  # as OTLP writes ids in JSON
    ways = {
        "SDK": frames_of(spans),
        "protobuf": read_traces(request.SerializeToString()).spans,
        "JSON": read_json("traces", json.dumps(as_json).encode()).spans,
    }
    fits, does_not = 1 << 20, 0
    while fits - does_not > 1:  # the least limit within which the run is read
        monkeypatch.setattr(limits, "MOST_BYTES", middle := (fits + does_not) // 2)
        if too_large(ways["protobuf"]):
            does_not = middle
        else:
            fits = middle
    assert fits > 5_000
    for frames in ways.values():
        monkeypatch.setattr(limits, "MOST_BYTES", fits)
        assert too_large(frames) == ""
        monkeypatch.setattr(limits, "MOST_BYTES", fits - 1)
        assert too_large(frames) == "the run recorded more than 64 MiB"
