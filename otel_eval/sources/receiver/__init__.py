"""A standalone OTLP receiver: gRPC and HTTP in front of one intake.

Knows sockets, threads and the OTLP protocol's answers. Knows nothing of traces beyond what `sources.otlp` frames.
"""

from __future__ import annotations

from otel_eval.sources.receiver.counters import Counters
from otel_eval.sources.receiver.exchange import framed_of
from otel_eval.sources.receiver.growth import resident
from otel_eval.sources.receiver.intake import Intake, Origin, Relay
from otel_eval.sources.receiver.server import Bound, OtlpReceiver
from otel_eval.sources.receiver.tls import Certificates, Tls
from otel_eval.sources.receiver.tokens import Tokens
from otel_eval.sources.receiver.tuning import trim_malloc, tune_gc, tune_malloc

__all__ = [
    "Bound",
    "Certificates",
    "Counters",
    "Intake",
    "Origin",
    "OtlpReceiver",
    "Relay",
    "Tls",
    "Tokens",
    "framed_of",
    "resident",
    "trim_malloc",
    "tune_gc",
    "tune_malloc",
]
