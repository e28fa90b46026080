"""The keys of the Kafka receiver and the Kafka exporter, and the settings of librdkafka that they mean."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from otel_eval.config.tls import TlsFiles
from otel_eval.config.units import Plain, Seconds, Size
from otel_eval.config.validation import Shape
from otel_eval.errors import redacted_repr

__all__ = ["KafkaClient", "KafkaExporter", "KafkaReceiver", "Sasl"]

_OWN: Final = ("bootstrap.", "security.", "sasl.", "ssl.ca", "ssl.certificate", "ssl.key", "enable.", "auto.", "group.id", "acks")
"""Beginnings of settings that other keys give, or on which the guarantees rest."""


class Sasl(Shape):
    """Authentication by SASL."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] = "PLAIN"
    """The mechanism."""
    username: str = Field(min_length=1)
    """The user."""
    password: str = Field(min_length=1, repr=False)
    """The user's password; write `${env:NAME}`."""


def _brokers(given: tuple[str, ...]) -> tuple[str, ...]:
    for each in given:
        host, _, port = each.rpartition(":")
        if not (host and port.isascii() and port.isdigit() and 0 < int(port) <= 65535):
            raise ValueError(f"{redacted_repr(each)} is not host:port; write e.g. kafka-1:9092")
    if not given:
        raise ValueError("the list is empty; name at least one broker, e.g. kafka-1:9092")
    return given


class KafkaClient(Shape):
    """A connection to a Kafka cluster."""

    brokers: Annotated[tuple[str, ...], AfterValidator(_brokers)]
    """Addresses, host:port, of some brokers of the cluster."""
    tls: TlsFiles | None = None
    """Speak TLS, with these files; `tls: {}` trusts the system's authorities. Left out, nothing is encrypted."""
    sasl: Sasl | None = None
    """Authentication; left out, none."""
    options: Mapping[str, Plain] = Field(default_factory=dict)
    """Further settings of librdkafka, such as `session.timeout.ms` or `linger.ms`."""

    def contradictions(self) -> Iterator[str]:
        """Settings that are not the user's to give, and a package that is missing."""
        for name in self.options:
            if name.startswith(_OWN):
                yield f"options.{name}: is set by otel-eval; leave it out"
        if find_spec("confluent_kafka") is None:
            yield "brokers: Kafka needs the package confluent-kafka; install otel-eval[kafka]"

    def settings(self) -> dict[str, Any]:
        """The settings of librdkafka for a client of this cluster."""
        protocol = ("SASL_" if self.sasl else "") + ("SSL" if self.tls is not None else "PLAINTEXT")
        settings: dict[str, Any] = {"bootstrap.servers": ",".join(self.brokers), "security.protocol": protocol}
        if self.tls is not None:
            files = {"ca": self.tls.ca_file, "certificate": self.tls.cert_file, "key": self.tls.key_file}
            settings |= {f"ssl.{name}.location": path for name, path in files.items() if path}
        if self.sasl is not None:
            settings |= {"sasl.mechanism": self.sasl.mechanism, "sasl.username": self.sasl.username}
            settings |= {"sasl.password": self.sasl.password}
        return settings | dict(self.options)


class KafkaReceiver(KafkaClient):
    """Spans from a topic. Offsets are committed when the traces they belong to are scored and their results delivered."""

    topic: str = Field(default="otlp_spans", min_length=1)
    """The topic; each record's key is its trace id in 32 hexadecimal digits."""
    group_id: str = Field(default="otel-eval", min_length=1)
    """The consumer group: its members share the partitions."""
    encoding: Literal["otlp_proto", "otlp_json"] = "otlp_proto"
    """What a record holds: an OTLP trace request in protobuf or JSON."""
    initial_offset: Literal["latest", "earliest"] = "latest"
    """Where a group without committed offsets begins."""
    unkeyed: Literal["refuse", "accept"] = "refuse"
    """Records whose key is not the trace id of all their spans. `accept` is right only if the topic has one partition."""
    margin: Seconds = 60.0
    """How long before the committed offset a new owner reads trace ids, so that late spans of scored traces are recognised."""
    max_message_size: Size = 64 * 2**20
    """The largest record taken."""
    dead_letter: str | None = Field(default=None, min_length=1)
    """A file of JSON Lines to which records that cannot be read are appended, with their content in base64."""
    dead_letter_topic: str | None = Field(default=None, min_length=1)
    """A topic to which they are written unchanged."""

    def contradictions(self) -> Iterator[str]:
        """One place for dead letters, and no loop."""
        yield from super().contradictions()
        if self.dead_letter and self.dead_letter_topic:
            yield "dead_letter and dead_letter_topic are both given; leave one out"
        if self.dead_letter_topic == self.topic:
            yield f"dead_letter_topic: {redacted_repr(self.topic)} is the topic that is read; name another one"


class KafkaExporter(KafkaClient):
    """Writes results to a topic, one record for each, with a key that suits compaction."""

    topic: str = Field(default="otel_eval_results", min_length=1)
    """The topic."""
    encoding: Literal["json", "otlp_proto"] = "json"
    """What a record holds: the JSON of a line of JSON Lines, or an OTLP logs request with one event."""
    timeout: Seconds = Field(default=10.0, gt=0)
    """How long one batch may take to be acknowledged by all replicas."""
