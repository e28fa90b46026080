"""The configuration: one YAML file or the same as Python objects, validated once at the start.

Knows pydantic and YAML, which nothing below it does; starts nothing.

>>> load({"traces": {"decision_wait": "250ms"}}).traces.decision_wait
0.25
"""

from __future__ import annotations

from otel_eval.config.judges import AsyncScoring, JudgeEndpoint
from otel_eval.config.places import (
    Auth,
    Exporters,
    ForwardExporter,
    GrpcServer,
    HttpServer,
    JsonlExporter,
    OtlpExporter,
    OtlpReceiver,
    Protocols,
    Receivers,
    ServerTls,
    TlsFiles,
    client_tls,
)
from otel_eval.config.shapes import EvalConfig, Evaluation, Match, Results, Traces
from otel_eval.config.source import load
from otel_eval.config.storing import Storage
from otel_eval.config.telemetry import MetricsOtlp, Telemetry
from otel_eval.config.window import Window

__all__ = [
    "AsyncScoring",
    "Auth",
    "EvalConfig",
    "Evaluation",
    "Exporters",
    "ForwardExporter",
    "GrpcServer",
    "HttpServer",
    "JsonlExporter",
    "JudgeEndpoint",
    "Match",
    "MetricsOtlp",
    "OtlpExporter",
    "OtlpReceiver",
    "Protocols",
    "Receivers",
    "Results",
    "ServerTls",
    "Storage",
    "Telemetry",
    "TlsFiles",
    "Traces",
    "Window",
    "client_tls",
    "load",
]
