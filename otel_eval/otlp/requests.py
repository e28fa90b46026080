"""An OTLP request as a receiver takes it and storage keeps it: signal, encoding, bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from otel_eval.otlp.attribute_limits import UNLIMITED
from otel_eval.otlp.otlp_json import read_logs_json, read_traces_json
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces

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
    framed = _DECODERS[Signal(origin.signal), Encoding(origin.encoding)](origin.body, max_attributes)
    framed.origin = origin
    return framed
