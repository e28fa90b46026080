"""OTLP 1.x traces and logs, protobuf and JSON: requests as a receiver takes them and storage keeps them, read and written.

`client` sends requests; it is not imported here, because it loads gRPC.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from otel_eval.otlp.protobuf import UNLIMITED, SpanBatch, read_logs, read_traces


class Signal(StrEnum):
    """What a request carries."""

    TRACES = "traces"
    LOGS = "logs"
    METRICS = "metrics"


class Encoding(StrEnum):
    """How it is written."""

    PROTOBUF = "protobuf"
    JSON = "json"


class RawRequest(NamedTuple):
    """A request in protobuf: what it carries, its bytes."""

    signal: str
    body: bytes


def read_request(origin: RawRequest, max_attributes: int = UNLIMITED) -> SpanBatch:
    """What a request of traces or logs holds; anything with more attributes than that is rejected.

    Raises:
        InputError: its body cannot be read.
    """
    read = read_logs if origin.signal == Signal.LOGS else read_traces
    batch = read(origin.body, max_attributes)
    batch.origin = origin
    return batch
