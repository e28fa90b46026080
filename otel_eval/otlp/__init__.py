"""OTLP, protobuf and JSON: from the bytes of a request to frames, and from a frame's payload to a readable view.

Knows the wire format of OTLP 1.x traces and logs. Knows no socket, no file, no convention for agents.
"""

from __future__ import annotations

from otel_eval.otlp.attribute_limits import UNLIMITED
from otel_eval.otlp.decoded_size import content_weight, json_weight, protobuf_weight
from otel_eval.otlp.native import NATIVE
from otel_eval.otlp.otlp_json import frame_json, frame_logs_json, frame_traces_json, load_json
from otel_eval.otlp.protobuf import Framed, frame_logs, frame_traces, logs_again, traces_again

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
