"""Reads and writes OTLP 1.x requests of traces and logs, in protobuf and JSON, for receiver,
storage and exporters.

`client` sends requests; it is not imported here, because it loads gRPC.
"""

from __future__ import annotations

from enum import StrEnum

from otel_eval.otlp.protobuf import RawRequest, read_request

__all__ = ["Encoding", "RawRequest", "Signal", "read_request"]


class Signal(StrEnum):
    """The signal of a request."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


class Encoding(StrEnum):
    """The encoding of a request."""

    PROTOBUF = "protobuf"
    JSON = "json"
