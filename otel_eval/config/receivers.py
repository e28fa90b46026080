"""Where spans come from and how long they are kept: receivers with their servers, Kafka, assembly
of traces, storage.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from otel_eval.config.units import Plain, Seconds, Size, TlsFiles, Variable, size_text
from otel_eval.errors import redacted, redacted_repr
from otel_eval.validation import Count, Part, Shape, Some, part

_ADDRESS: Final = r"(?a:(?P<host>\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):(?P<port>[0-9]{1,5}))"


def _check_address(text: str) -> str:
    match = re.fullmatch(_ADDRESS, text)
    if not match or int(match["port"]) > 65535:
        raise ValueError(
            f"{redacted_repr(redacted(text))} is not host:port; write e.g. 127.0.0.1:4317"
        )
    return text


Address = Annotated[str, AfterValidator(_check_address)]
Broker = Annotated[Address, Field(pattern=":0*[1-9]")]


class ServerTls(Shape):
    """PEM files for TLS, read again when they change."""

    cert_file: str = Field(min_length=1)
    """The server's certificate, with its chain."""
    key_file: str = Field(min_length=1)
    """Its key, without a password."""
    client_ca_file: str | None = Field(default=None, min_length=1)
    """Authorities for clients, which must then show a certificate of theirs."""
    reload_interval: Seconds = 60.0
    """How often the files are checked for changes, at a new connection. 0: never."""


class Auth(Shape):
    """Authentication: clients need one of these bearer tokens."""

    token_files: tuple[str, ...] = ()
    """Files with one token a line, read again when they change."""
    token_env: tuple[Variable, ...] = ()
    """Names of environment variables, each with one token."""

    def contradictions(self) -> Iterator[str]:
        """At least one source of tokens is required."""
        if not (self.token_files or self.token_env):
            yield (
                "no token is named; write token_files or token_env, or leave auth out to accept"
                " every client"
            )


class HttpServer(Shape):
    """OTLP over HTTP, protobuf or JSON."""

    endpoint: Address = "127.0.0.1:4318"
    """Where to listen, host:port. Port 0 selects a free one. The default accepts connections from
    this machine only.
    """
    max_message_size: Size = 64 * 2**20
    """The largest request taken, before and after decompression."""
    tls: ServerTls | None = None
    """PEM files for TLS; left out, nothing is encrypted."""


class GrpcServer(HttpServer):
    """OTLP over gRPC."""

    endpoint: Address = "127.0.0.1:4317"
    """Where to listen, host:port. Port 0 selects a free one. The default accepts connections from
    this machine only.
    """


# `grpc:` without a value is null in YAML.
_NULL_AS_DEFAULTS: Final = BeforeValidator(lambda value: {} if value is None else value)


class Protocols(Shape):
    """The protocols that are served: those that are named."""

    grpc: Annotated[GrpcServer | None, _NULL_AS_DEFAULTS] = None
    """OTLP over gRPC; `grpc:` alone takes the defaults."""
    http: Annotated[HttpServer | None, _NULL_AS_DEFAULTS] = None
    """OTLP over HTTP; `http:` alone takes the defaults."""

    def contradictions(self) -> Iterator[str]:
        """At least one protocol is required."""
        if self.grpc is None and self.http is None:
            yield "no protocol is named; write grpc, http or both"


class OtlpReceiver(Shape):
    """The OTLP receiver of `otel-eval serve`."""

    protocols: Protocols = Field(
        default_factory=lambda: Protocols.model_construct(
            grpc=GrpcServer.model_construct(), http=HttpServer.model_construct()
        )
    )
    """Which protocols are served; both when left out."""
    max_inflight_size: Size = 256 * 2**20
    """Bytes of requests in memory at one time, decoded parts included. Beyond it clients get a
    retryable error.
    """
    max_attributes: Count = 4096
    """Attributes of one span, event, link, log record, resource or scope. Items with more are
    rejected (partial success).
    """
    auth: Auth | None = None
    """Authentication for both protocols; left out, every client is accepted."""


_OWN: Final = (
    "bootstrap.",
    "security.",
    "sasl.",
    "ssl.ca",
    "ssl.certificate",
    "ssl.key",
    "enable.",
    "auto.",
    "group.id",
    "acks",
)
"""Prefixes of settings that other keys set, or on which guarantees depend."""


class Sasl(Shape):
    """Authentication by SASL."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """The mechanism."""
    username: str = Field(min_length=1)
    """The user."""
    password: str = Field(min_length=1, repr=False)
    """The user's password; write `${env:NAME}`."""


class KafkaClient(Shape):
    """A connection to a Kafka cluster."""

    brokers: Some[Broker]
    """Addresses, host:port, of some brokers of the cluster."""
    tls: TlsFiles | None = None
    """Use TLS with these files; `tls: {}` trusts the system's authorities. Left out, nothing is
    encrypted.
    """
    sasl: Sasl | None = None
    """Authentication; left out, none."""
    options: Mapping[str, Plain] = Field(default_factory=dict)
    """Further settings of librdkafka, such as `session.timeout.ms` or `linger.ms`."""

    def contradictions(self) -> Iterator[str]:
        """Settings that only otel-eval may set, and a missing package."""
        for name in self.options:
            if name.startswith(_OWN):
                yield f"options.{name}: is set by otel-eval; leave it out"
        if find_spec("confluent_kafka") is None:
            yield (
                "brokers: Kafka needs the package confluent-kafka; install it with pip install"
                " 'otel-eval[kafka]'"
            )

    def settings(self) -> dict[str, Any]:
        """The settings of librdkafka for a client of this cluster."""
        protocol = ("SASL_" if self.sasl else "") + ("SSL" if self.tls is not None else "PLAINTEXT")
        settings: dict[str, Any] = {
            "bootstrap.servers": ",".join(self.brokers),
            "security.protocol": protocol,
        }
        if self.tls is not None:
            files = {
                "ca": self.tls.ca_file,
                "certificate": self.tls.cert_file,
                "key": self.tls.key_file,
            }
            settings |= {f"ssl.{name}.location": path for name, path in files.items() if path}
        if self.sasl is not None:
            settings |= {f"sasl.{name}": value for name, value in self.sasl}
        return settings | dict(self.options)


class KafkaReceiver(KafkaClient):
    """Spans from a topic. Offsets are committed when the traces they belong to are scored and their
    results delivered.
    """

    topic: str = Field(default="otlp_spans", min_length=1)
    """The topic; each record's key is its trace id in 32 hexadecimal digits."""
    group_id: str = Field(default="otel-eval", min_length=1)
    """The consumer group: its members share the partitions."""
    encoding: Literal["otlp_proto", "otlp_json"] = "otlp_proto"
    """What a record holds: an OTLP trace request in protobuf or JSON."""
    initial_offset: Literal["latest", "earliest"] = "latest"
    """Where a group without committed offsets begins."""
    unkeyed: Literal["refuse", "accept"] = "refuse"
    """Records whose key is not the trace id of all their spans. `accept` is right only if the topic
    has one partition.
    """
    margin: Seconds = 60.0
    """How long before the committed offset a new owner reads trace ids, so that late spans of
    scored traces are recognised.
    """
    max_message_size: Size = 64 * 2**20
    """The largest record taken."""
    dead_letter: str | None = Field(default=None, min_length=1)
    """A file of JSON Lines to which records that cannot be read are appended, with their content in
    base64.
    """
    dead_letter_topic: str | None = Field(default=None, min_length=1)
    """A topic to which they are written unchanged."""

    def contradictions(self) -> Iterator[str]:
        """Two places for dead letters, or a place for them that is the topic that is read."""
        yield from super().contradictions()
        if self.dead_letter and self.dead_letter_topic:
            yield "dead_letter and dead_letter_topic are both given; leave one out"
        if self.dead_letter_topic == self.topic:
            yield (
                f"dead_letter_topic: {redacted_repr(self.topic)} is the topic that is read; name"
                " another one"
            )


class Receivers(Shape):
    """Where `otel-eval serve` takes spans from."""

    otlp: Part[OtlpReceiver] | None = part(OtlpReceiver)
    """The OTLP receiver; on unless another receiver is named without it."""
    kafka: Part[KafkaReceiver] | None = None
    """A topic of Kafka."""

    @model_validator(mode="before")
    @classmethod
    def _named_is_on(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        # `otlp:` without a value means its defaults; left out, it is on unless Kafka is named.
        if value.get("otlp", ...) is None:
            return {**value, "otlp": {}}
        return {"otlp": None, **value} if value.get("kafka") else value


class Traces(Shape):
    """When a trace is evaluated, and how much may be held."""

    decision_wait: Seconds = 1.0
    """Wait after the last span of a complete trace of one service before it is evaluated. 0:
    none.
    """
    decision_wait_partial: Seconds = 6.0
    """The same if a parent is missing or several services take part; and after the last span of an
    agent's, model's or tool's spans that another process called.
    """
    decision_wait_detached: Seconds = 60.0
    """How long after the last span of its subtree an agent's run is evaluated whose parent has not
    arrived.
    """
    grace_period: Seconds = 600.0
    """How long an evaluated trace is kept for late spans, which cause a new revision. 0: it is not
    kept.
    """
    idle_timeout: Seconds = 900.0
    """How long a trace may have no new span before calls of a run whose own span has not arrived
    are evaluated. Longer than any pause of a run.
    """
    max_age: Seconds = Field(default=3600.0, gt=0)
    """How long spans wait at most for the rest of their run."""
    max_traces: Count = 100_000
    """Traces held at one time."""
    max_spans_per_trace: Count = 10_000
    """Spans held of one trace."""
    max_bytes_per_trace: Size = 64 * 2**20
    """Bytes held of one trace."""
    max_bytes: Size = 512 * 2**20
    """Bytes held of all traces."""

    def contradictions(self) -> Iterator[str]:
        """Times and sizes that cannot be reached because of others."""
        times = ("decision_wait", "decision_wait_partial", "idle_timeout", "max_age")
        pairs = [*pairwise(times), ("max_bytes_per_trace", "max_bytes")]
        # its default is limited by the times that are given
        if "decision_wait_detached" in self.model_fields_set:
            pairs += [
                ("decision_wait_partial", "decision_wait_detached"),
                ("decision_wait_detached", "idle_timeout"),
            ]
        for lesser, greater in pairs:
            if getattr(self, lesser) > getattr(self, greater):
                limit = f"{greater} ({self._text(greater)})"
                yield (
                    f"{lesser}: {self._text(lesser)} is more than {limit}; lower it or raise"
                    f" {greater}"
                )

    def _text(self, key: str) -> str:
        """The value of a key as it is written, with its unit."""
        value = getattr(self, key)
        return size_text(value) if isinstance(value, int) else f"{value:g}s"


class Storage(Shape):
    """The journal of `otel-eval serve`: acknowledged requests until they are scored and
    delivered.
    """

    directory: str = Field(min_length=1)
    """A directory for this process alone; created if it does not exist."""
    max_size: Size = 10 * 2**30
    """Bytes on disk. Beyond it clients get a retryable error."""
    sync: bool = True
    """Whether a request is acknowledged after fsync. If not, it survives a crash of the process but
    not of the machine.
    """
