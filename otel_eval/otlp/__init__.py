"""OTLP 1.x traces and logs, protobuf and JSON: requests as a receiver takes them and storage keeps them, read and written.

`client` sends requests; it is not imported here, because it loads gRPC.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from otel_eval.otlp.decoded_size import content_size, json_decoded_size, protobuf_decoded_size
from otel_eval.otlp.otlp_json import load_json, read_document, read_logs_json, read_traces_json
from otel_eval.otlp.protobuf import UNLIMITED, SpanBatch, read_logs, read_traces, reserialize_logs, reserialize_traces
from otel_eval.otlp.spans import NATIVE

__all__ = [
    "NATIVE",
    "UNLIMITED",
    "Encoding",
    "RawRequest",
    "Signal",
    "SpanBatch",
    "content_size",
    "json_decoded_size",
    "load_json",
    "protobuf_decoded_size",
    "read_document",
    "read_logs",
    "read_logs_json",
    "read_request",
    "read_traces",
    "read_traces_json",
    "reserialize_logs",
    "reserialize_traces",
]


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
    """A request as it was decoded: what it carries, how it is written, its bytes."""

    signal: str
    encoding: str
    body: bytes


_DECODERS: Final[Mapping[tuple[Signal, Encoding], Callable[[bytes, int], SpanBatch]]] = {
    (Signal.TRACES, Encoding.PROTOBUF): read_traces,
    (Signal.TRACES, Encoding.JSON): read_traces_json,
    (Signal.LOGS, Encoding.PROTOBUF): read_logs,
    (Signal.LOGS, Encoding.JSON): read_logs_json,
}


def read_request(origin: RawRequest, max_attributes: int = UNLIMITED) -> SpanBatch:
    """What a request of traces or logs holds; anything with more attributes than that is rejected.

    Raises:
        InputError: its body cannot be read.
    """
    batch = _DECODERS[Signal(origin.signal), Encoding(origin.encoding)](origin.body, max_attributes)
    batch.origin = origin
    return batch
