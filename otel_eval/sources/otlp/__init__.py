"""OTLP, protobuf and JSON: from the bytes of a request to frames, and from a frame's payload to a readable view.

Knows the wire format of OTLP 1.x traces and logs. Knows no socket, no file, no convention for agents.
"""

from __future__ import annotations

from otel_eval.sources.otlp.again import logs_again, traces_again
from otel_eval.sources.otlp.content import content_weight
from otel_eval.sources.otlp.crowding import UNLIMITED
from otel_eval.sources.otlp.framing import Framed, frame_logs, frame_traces
from otel_eval.sources.otlp.native import NATIVE
from otel_eval.sources.otlp.transcode import frame_json, frame_logs_json, frame_traces_json, load_json
from otel_eval.sources.otlp.weight import json_weight, protobuf_weight

__all__ = [
    "NATIVE",
    "UNLIMITED",
    "Framed",
    "content_weight",
    "frame_json",
    "frame_logs",
    "frame_logs_json",
    "frame_traces",
    "frame_traces_json",
    "json_weight",
    "load_json",
    "logs_again",
    "protobuf_weight",
    "traces_again",
]
