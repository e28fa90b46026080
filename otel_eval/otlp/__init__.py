"""OTLP 1.x traces and logs, protobuf and JSON: requests as a receiver takes them and storage keeps them, read and written.

`client` sends requests; it is not imported here, because it loads gRPC.
"""

from __future__ import annotations

from enum import StrEnum

from otel_eval.otlp.protobuf import RawRequest, read_request

__all__ = ["Encoding", "RawRequest", "Signal", "read_request"]


class Signal(StrEnum):
    """What a request carries."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


class Encoding(StrEnum):
    """How it is written."""

    PROTOBUF = "protobuf"
    JSON = "json"
