"""Spans and log records that are held, as requests that can be framed again.

Knows the levels of a request. Nothing is decoded: payloads and what stood around them are the bytes they came as.
"""

from __future__ import annotations

from collections.abc import Iterable

from otel_eval.interfaces import Frame, LogFrame
from otel_eval.sources.otlp.views import SpanEnvelope
from otel_eval.wire import sized

__all__ = ["logs_again", "traces_again"]


def traces_again(frames: Iterable[Frame]) -> bytes:
    """An ExportTraceServiceRequest of frames that came by OTLP."""
    groups: dict[tuple[bytes, bytes], list[bytes]] = {}
    for _, payload, envelope in frames:
        assert isinstance(envelope, SpanEnvelope)
        groups.setdefault(envelope.raw, []).append(sized(2, payload))
    return b"".join(
        sized(1, sized(1, resource) + sized(2, sized(1, scope) + b"".join(spans))) for (resource, scope), spans in groups.items()
    )


def logs_again(frames: Iterable[LogFrame]) -> bytes:
    """An ExportLogsServiceRequest of log records that came by OTLP; they need nothing of what stood around them."""
    records = b"".join(sized(2, payload) for payload, _ in frames)
    return sized(1, sized(2, records)) if records else b""
