"""The configuration: one YAML file, or the same as Python objects, validated once at the start.

>>> load({"traces": {"decision_wait": "250ms"}}).traces.decision_wait
0.25
"""

from __future__ import annotations

from otel_eval.config.annotations import DatadogTarget, LangfuseTarget, LangsmithTarget, MlflowTarget, PhoenixTarget
from otel_eval.config.endpoints import (
    Auth,
    Exporters,
    ForwardExporter,
    GrpcServer,
    HttpServer,
    JsonlExporter,
    MetricsOtlp,
    OtlpExporter,
    OtlpReceiver,
    Protocols,
    Receivers,
    ServerTls,
    Telemetry,
    client_tls,
)
from otel_eval.config.judges import AsyncScoring, JudgeEndpoint
from otel_eval.config.kafka import KafkaExporter, KafkaReceiver, Sasl
from otel_eval.config.loader import exposed_credentials, load, refuse_credentials
from otel_eval.config.models import EvalConfig, Evaluation, Match, Results, Storage, Traces, Window
from otel_eval.config.tls import TlsFiles

__all__ = [
    "AsyncScoring",
    "Auth",
    "DatadogTarget",
    "EvalConfig",
    "Evaluation",
    "Exporters",
    "ForwardExporter",
    "GrpcServer",
    "HttpServer",
    "JsonlExporter",
    "JudgeEndpoint",
    "KafkaExporter",
    "KafkaReceiver",
    "LangfuseTarget",
    "LangsmithTarget",
    "Match",
    "MetricsOtlp",
    "MlflowTarget",
    "OtlpExporter",
    "OtlpReceiver",
    "PhoenixTarget",
    "Protocols",
    "Receivers",
    "Results",
    "Sasl",
    "ServerTls",
    "Storage",
    "Telemetry",
    "TlsFiles",
    "Traces",
    "Window",
    "client_tls",
    "exposed_credentials",
    "load",
    "refuse_credentials",
]
