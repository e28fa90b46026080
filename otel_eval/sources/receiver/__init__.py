"""A standalone OTLP receiver: gRPC and HTTP in front of one intake.

Knows sockets, threads and the OTLP protocol's answers. Knows nothing of traces beyond what `sources.otlp` frames.
"""

from __future__ import annotations

from otel_eval.sources.receiver.auth import Tokens
from otel_eval.sources.receiver.export_handler import Consumer, Relay
from otel_eval.sources.receiver.process_memory import resident
from otel_eval.sources.receiver.server import Bound, OtlpReceiver
from otel_eval.sources.receiver.tls import Certificates, Tls
from otel_eval.sources.receiver.process_memory import trim_malloc, tune_gc, tune_malloc

__all__ = [
    "Bound",
    "Certificates",
    "Consumer",
    "OtlpReceiver",
    "Relay",
    "Tls",
    "Tokens",
    "resident",
    "trim_malloc",
    "tune_gc",
    "tune_malloc",
]
