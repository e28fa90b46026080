"""Receivers, exporters and telemetry: addresses, protocols, TLS files and limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Discriminator, Field, Tag, WithJsonSchema, field_validator, model_validator

from otel_eval.config.annotations import DatadogTarget, LangfuseTarget, LangsmithTarget, MlflowTarget, PhoenixTarget
from otel_eval.config.kafka import KafkaExporter, KafkaReceiver
from otel_eval.config.tls import TlsFiles, tls_without_https
from otel_eval.config.units import Count, Seconds, Size, Target
from otel_eval.config.validation import LIST, MAPPING, Shape, did_you_mean, joined, twice
from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.exporters.interface import create_exporter, installed_exporters
from otel_eval.otlp.tls import ClientTls

__all__ = [
    "Address",
    "Auth",
    "Exporters",
    "ForwardExporter",
    "GrpcServer",
    "HttpServer",
    "JsonlExporter",
    "MetricsOtlp",
    "OtlpExporter",
    "OtlpReceiver",
    "Protocols",
    "Receivers",
    "ServerTls",
    "Signals",
    "Telemetry",
    "client_tls",
]

_MODE: Final = re.compile(r"0?6[0246][0246]", re.ASCII)
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}", re.ASCII)
_ADDRESS: Final = re.compile(r"(?P<host>\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5})", re.ASCII)


def _address(text: str) -> str:
    found = _ADDRESS.fullmatch(text)
    if not found or int(found["port"]) > 65535:
        raise ValueError(f"{redacted_repr(text)} is not host:port; write e.g. 127.0.0.1:4317 (port 0 takes a free one)")
    return text


def _distinct(signals: tuple[str, ...]) -> tuple[str, ...]:
    if not signals or len(set(signals)) != len(signals):
        raise ValueError(f"{redacted_repr(list(signals))} names no signal or one twice; write any of logs, metrics, spans")
    return signals


def _passed(signals: tuple[str, ...]) -> tuple[str, ...]:
    if not signals or len(set(signals)) != len(signals):
        raise ValueError(f"{redacted_repr(list(signals))} names no signal or one twice; write any of traces, logs, metrics")
    return signals


def _mode(text: str) -> str:
    if not _MODE.fullmatch(text):
        raise ValueError(f"{redacted_repr(text)} is not the permissions of a file its owner writes; write e.g. '0600' or '0640'")
    return text


def _exporter_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise ValueError(f"{redacted_repr(text)} is no name of an exporter; write letters, digits, _ and -")
    return text


Address = Annotated[str, AfterValidator(_address)]
Mode = Annotated[str, AfterValidator(_mode), WithJsonSchema({"type": "string", "pattern": f"^{_MODE.pattern}$"})]
Signals = Annotated[tuple[Literal["logs", "metrics", "spans"], ...], AfterValidator(_distinct)]


Passed = Annotated[tuple[Literal["traces", "logs", "metrics"], ...], AfterValidator(_passed)]


class ServerTls(Shape):
    """PEM files for speaking TLS, read again when they change."""

    cert_file: str = Field(min_length=1)
    """The server's certificate, with its chain."""
    key_file: str = Field(min_length=1)
    """Its key, without a password."""
    client_ca_file: str | None = Field(default=None, min_length=1)
    """Authorities for clients, which must then show a certificate of theirs."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The lowest version of TLS."""
    reload_interval: Seconds = 60.0
    """How often the files are checked for changes, at a new connection. 0: never."""


class Auth(Shape):
    """Authentication: clients need one of these bearer tokens."""

    token_files: tuple[str, ...] = ()
    """Files with one token a line, read again when they change."""
    token_env: tuple[str, ...] = ()
    """Names of environment variables, each with one token."""

    @field_validator("token_env")
    @classmethod
    def _names(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for index, name in enumerate(given):
            if not _VARIABLE.fullmatch(name):  # which may be the token itself: it is not shown
                raise ValueError(f"item {index} is no name of a variable; write e.g. OTEL_EVAL_TOKEN")
        return given

    def contradictions(self) -> Iterator[str]:
        """At least one source of tokens is required."""
        if not (self.token_files or self.token_env):
            yield "no token is named; write token_files or token_env, or leave auth out to accept every client"


class GrpcServer(Shape):
    """OTLP over gRPC."""

    endpoint: Address = "127.0.0.1:4317"
    """Where to listen, host:port. Port 0 takes a free one. The default accepts connections from this machine only."""
    max_message_size: Size = 64 * 2**20
    """The largest request taken, before and after decompression."""
    tls: ServerTls | None = None
    """Files to speak TLS with; left out, nothing is encrypted."""

    def contradictions(self) -> Iterator[str]:
        """Options that the gRPC server does not support."""
        if self.tls is not None and self.tls.min_version != "1.2":
            yield "tls.min_version: '1.3' is not supported by the gRPC server, which accepts 1.2 and 1.3; leave it out"


class HttpServer(Shape):
    """OTLP over HTTP, protobuf or JSON."""

    endpoint: Address = "127.0.0.1:4318"
    """Where to listen, host:port. Port 0 takes a free one. The default accepts connections from this machine only."""
    max_message_size: Size = 64 * 2**20
    """The largest request taken, before and after decompression."""
    tls: ServerTls | None = None
    """Files to speak TLS with; left out, nothing is encrypted."""


class Protocols(Shape):
    """The protocols that are served: those that are named."""

    grpc: GrpcServer | None = None
    """OTLP over gRPC; `grpc:` alone takes the defaults."""
    http: HttpServer | None = None
    """OTLP over HTTP; `http:` alone takes the defaults."""

    @model_validator(mode="before")
    @classmethod
    def _named_is_on(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        return {key: {} if value is None and key in cls.model_fields else value for key, value in given.items()}

    def contradictions(self) -> Iterator[str]:
        """At least one protocol is required."""
        if self.grpc is None and self.http is None:
            yield "no protocol is named; write grpc, http or both"


class OtlpReceiver(Shape):
    """The OTLP receiver of `otel-eval serve`."""

    protocols: Protocols = Field(default_factory=lambda: Protocols(grpc=GrpcServer(), http=HttpServer()))
    """Which protocols are served; both when left out."""
    max_inflight_size: Size = 256 * 2**20
    """Bytes of requests in memory at one time, decoded parts included. Beyond it clients get a retryable error."""
    max_attributes: Count = 4096
    """Attributes of one span, event, link, log record, resource or scope. What has more is rejected (partial success)."""
    auth: Auth | None = None
    """Authentication for both protocols; left out, every client is accepted."""


class Receivers(Shape):
    """Where `otel-eval serve` takes spans from."""

    otlp: OtlpReceiver | None = OtlpReceiver()
    """The OTLP receiver; on unless another receiver is named without it."""
    kafka: KafkaReceiver | None = None
    """A topic of Kafka."""

    @model_validator(mode="before")
    @classmethod
    def _named_is_on(cls, given: Any) -> Any:
        if not isinstance(given, Mapping):
            return given
        if given.get("otlp", ...) is None:
            return {**given, "otlp": {}}
        return {"otlp": None, **given} if given.get("kafka") else given


def client_tls(tls: TlsFiles | None, where: str) -> ClientTls:
    """The files of a `tls` block, which errors name by its place in the configuration."""
    return ClientTls.from_config(where, tls.model_dump() if tls else {})


class OtlpExporter(Shape):
    """Sends scores to an OTLP endpoint, usually a Collector."""

    name: Annotated[str, AfterValidator(_exporter_name)] = "otlp"
    """Its name in counters, log lines and the journal, before the signal; unique in a list of endpoints."""
    endpoint: Target
    """http:// or https:// URL. With http/protobuf the signal's path is added to it."""
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    """The protocol that is spoken."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Sent with each request, for keys and tenants."""
    tls: TlsFiles | None = None
    """Files for an https:// endpoint; left out, those of OTEL_EXPORTER_OTLP_CERTIFICATE, else the system's authorities."""
    signals: Signals = ("logs", "metrics", "spans")
    """Which signals are sent."""
    timeout: Seconds = 10.0
    """How long one request may take."""
    compression: Literal["none", "gzip"] = "gzip"
    """How requests are compressed."""

    def contradictions(self) -> Iterator[str]:
        """Files for TLS are for an endpoint that speaks it."""
        yield from tls_without_https(self.tls, self.endpoint)


class JsonlExporter(Shape):
    """Writes one JSON object a line for each result."""

    path: str = Field(min_length=1)
    """The file to append to; `-` is stdout."""
    mode: Mode = "0600"
    """Permissions of the file if it is created, in quotes; `"0640"` lets a log shipper of the file's group read it."""


class ForwardExporter(Shape):
    """Forwards everything that `otel-eval serve` receives, unchanged except for the scores on the runs' own spans."""

    endpoint: Target
    """http:// or https:// URL of a backend or Collector. With http/protobuf the signal's path is added to it."""
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    """The protocol that is spoken."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Sent with each request, for keys and tenants."""
    tls: TlsFiles | None = None
    """Files for an https:// endpoint; the system's authorities when left out."""
    signals: Passed = ("traces", "logs", "metrics")
    """Which signals are forwarded."""
    timeout: Seconds = 10.0
    """How long one attempt may take."""
    compression: Literal["none", "gzip"] = "none"
    """How requests are compressed."""
    max_queue_size: Size = 64 * 2**20
    """Bytes of each signal that may be queued. Beyond it clients get a retryable error."""
    score_attributes: bool = False
    """Whether the runs' spans have an attribute `otel_eval.score.NAME` for each score, beside the events."""

    def contradictions(self) -> Iterator[str]:
        """Files for TLS are for an endpoint that speaks it."""
        yield from tls_without_https(self.tls, self.endpoint)


def _form(given: Any) -> str:
    return LIST if isinstance(given, list | tuple) else MAPPING


def _some(given: tuple[Any, ...]) -> tuple[Any, ...]:
    if not given:
        raise ValueError("the list is empty; name at least one endpoint or leave it out")
    return given


OtlpExporters = Annotated[
    Annotated[OtlpExporter, Tag(MAPPING)] | Annotated[tuple[OtlpExporter, ...], AfterValidator(_some), Tag(LIST)],
    Discriminator(_form),
]
"""One endpoint, or a list of them."""


class Exporters(Shape):
    """Where scores go. An exporter of an installed package is configured under its name, with its own options."""

    model_config = ConfigDict(extra="allow", json_schema_extra={"additionalProperties": {"type": ["object", "null"]}})

    otlp: OtlpExporters | None = None
    """An OTLP endpoint, or a list of them with a `name` each."""
    jsonl: JsonlExporter | None = None
    """A file of JSON Lines, or stdout."""
    kafka: KafkaExporter | None = None
    """A topic of Kafka."""
    phoenix: PhoenixTarget | None = None
    """Phoenix, as annotations."""
    mlflow: MlflowTarget | None = None
    """MLflow, as assessments."""
    langfuse: LangfuseTarget | None = None
    """Langfuse, as scores; not tried against the live service."""
    langsmith: LangsmithTarget | None = None
    """LangSmith, as feedback; not tried against the live service."""
    datadog: DatadogTarget | None = None
    """Datadog, as external evaluations; not tried against the live service."""
    forward: ForwardExporter | None = None
    """A backend that receives everything `otel-eval serve` does, with scores on the runs' spans."""
    dead_letter: str | None = None
    """The file to which results are appended that an exporter's endpoint rejected permanently."""
    dead_letter_mode: Mode = "0600"
    """Permissions of that file if it is created, in quotes."""
    max_queue: Count = 10_000
    """Reports that may be queued for an exporter of `otel-eval serve`. Beyond it clients get a retryable error (backpressure)."""

    @property
    def otlp_endpoints(self) -> Mapping[str, OtlpExporter]:
        """The OTLP endpoints, each by its place in the configuration."""
        if isinstance(self.otlp, OtlpExporter):
            return {"exporters.otlp": self.otlp}
        return {f"exporters.otlp[{index}]": each for index, each in enumerate(self.otlp or ())}

    @property
    def of_packages(self) -> Mapping[str, Any]:
        """The options of each exporter of an installed package, by its name."""
        return self.model_extra or {}

    def contradictions(self) -> Iterator[str]:
        """OTLP endpoints of one name, and what is wrong with exporters of packages."""
        yield from twice("otlp", [each.name for each in self.otlp_endpoints.values()], "give one of them another name")
        for name, options in self.of_packages.items():
            known = [*type(self).model_fields, *installed_exporters()]
            if name not in known:
                yield f"{name}: unknown key; {did_you_mean(name, known)}"
            elif options is not None and not isinstance(options, Mapping):
                yield f"{name}: {redacted_repr(options)} is not a mapping; write key: value pairs"
            else:
                try:
                    create_exporter(name, options)
                except ConfigError as error:
                    yield from (joined(name, problem) for problem in error.problems)


class MetricsOtlp(Shape):
    """Sends the receiver's own metrics to an OTLP endpoint."""

    endpoint: Target
    """http:// or https:// URL. With http/protobuf `/v1/metrics` is added to it."""
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    """The protocol that is spoken."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Sent with each request, for keys and tenants."""
    tls: TlsFiles | None = None
    """Files for an https:// endpoint; left out, those of OTEL_EXPORTER_OTLP_CERTIFICATE, else the system's authorities."""
    timeout: Seconds = 10.0
    """How long one request may take."""
    interval: Seconds = Field(default=60.0, gt=0)
    """Time between two exports."""

    def contradictions(self) -> Iterator[str]:
        """Files for TLS are for an endpoint that speaks it."""
        yield from tls_without_https(self.tls, self.endpoint)


class Telemetry(Shape):
    """Health, metrics and logs of `otel-eval serve`."""

    endpoint: Address | None = None
    """host:port of /healthz, /readyz, /metrics (Prometheus) and /status; left out, they are not served."""
    allowed_hosts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names that requests to it may carry in `Host`, besides IP addresses, localhost and the name in `endpoint`."""
    otlp: MetricsOtlp | None = None
    """Sends the metrics of the receiver itself by OTLP."""
    service_instance_id: str | None = Field(default=None, min_length=1)
    """`service.instance.id` of all metrics that are sent by OTLP, so that their series go on after a restart; unique."""
    log_format: Literal["text", "json"] = "text"
    """The format of log lines on stderr: text, or one JSON object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged; `debug` logs one line per run."""
