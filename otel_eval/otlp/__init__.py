"""Reads and writes OTLP 1.x requests of traces and logs, in protobuf and JSON, for receiver,
storage and exporters.

The modules are not imported here: `protobuf` loads Protocol Buffers, `client` gRPC.
"""

from __future__ import annotations

from enum import StrEnum


class Signal(StrEnum):
    """The signal of a request."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"

    @property
    def path(self) -> str:
        """The path of its requests over HTTP."""
        return f"/v1/{self}"

    @property
    def service(self) -> str:
        """The name of its service over gRPC."""
        kind = "Trace" if self is Signal.TRACES else self.capitalize()
        return f"opentelemetry.proto.collector.{kind.lower()}.v1.{kind}Service"


class Encoding(StrEnum):
    """The encoding of a request."""

    PROTOBUF = "protobuf"
    JSON = "json"
