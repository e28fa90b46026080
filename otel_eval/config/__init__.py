"""The configuration: one YAML file, or the same as Python objects, validated once at the start.

>>> load({"traces": {"decision_wait": "250ms"}}).traces.decision_wait
0.25
"""

from __future__ import annotations

from otel_eval.config.exporters import (
    DatadogTarget,
    Exporters,
    ForwardExporter,
    JsonlExporter,
    KafkaExporter,
    LangfuseTarget,
    LangsmithTarget,
    LogfireTarget,
    MetricsOtlp,
    MlflowTarget,
    OtlpExporter,
    PhoenixTarget,
    Results,
    Telemetry,
    Window,
    client_tls,
)
from otel_eval.config.loader import exposed_credentials, load, refuse_credentials
from otel_eval.config.models import AsyncScoring, EvalConfig, Evaluation, JudgeEndpoint, Match
from otel_eval.config.receivers import (
    Auth,
    GrpcServer,
    HttpServer,
    KafkaReceiver,
    OtlpReceiver,
    Protocols,
    Receivers,
    Sasl,
    ServerTls,
    Storage,
    Traces,
)
from otel_eval.config.units import TlsFiles

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
    "LogfireTarget",
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
