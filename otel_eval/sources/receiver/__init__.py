"""A standalone OTLP receiver: gRPC and HTTP in front of one consumer."""

from __future__ import annotations

from otel_eval.sources.receiver.credentials import BearerTokens, Certificates, Tls
from otel_eval.sources.receiver.export_handler import DecodingHandler, ReceiverLimits
from otel_eval.sources.receiver.memory import resident, trim_malloc, tune_gc, tune_malloc
from otel_eval.sources.receiver.server import Bound, OtlpServer

__all__ = [
    "BearerTokens",
    "Bound",
    "Certificates",
    "DecodingHandler",
    "OtlpServer",
    "ReceiverLimits",
    "Tls",
    "resident",
    "trim_malloc",
    "tune_gc",
    "tune_malloc",
]
