"""Where scores go and what they carry: exporters, forwarding, telemetry, and the sliding window of
metrics.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    WithJsonSchema,
    WrapValidator,
)

from otel_eval.config.receivers import Address, KafkaClient
from otel_eval.config.units import (
    Distinct,
    Seconds,
    Size,
    Target,
    TlsFiles,
    Variable,
    tls_without_https,
)
from otel_eval.errors import ConfigError, redacted_repr
from otel_eval.exporters.registry import create_exporter, installed_exporters
from otel_eval.validation import (
    LIST,
    MAPPING,
    Count,
    Deferred,
    Part,
    Shape,
    Share,
    Some,
    Whole,
    duplicates,
    joined,
)

# What clients need is imported when there is one: these modules load HTTP and TLS.
if TYPE_CHECKING:
    from otel_eval.otlp.endpoint import Endpoint
    from otel_eval.otlp.tls import ClientTls

_MODE: Final = "^0?6[0246][0246]$"  # these are compiled when they are first used


def _check_mode(text: str) -> str:
    if not re.fullmatch(_MODE, text):
        raise ValueError(
            f"{redacted_repr(text)} must let the owner read and write, and no one execute; write"
            ' e.g. "0640"'
        )
    return text


Mode = Annotated[
    str, AfterValidator(_check_mode), WithJsonSchema({"type": "string", "pattern": _MODE})
]
"""Permissions of a file that its owner writes, in octal digits."""
ExporterName = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,100}$")]
_OF_ONE_SIGNAL: Final = "/v1/(?:traces|logs|metrics)/?$"
_HEADER_NAME: Final = r"(?a:[\w.-]+)"
Signals = Distinct[Literal["logs", "metrics", "spans"]]
ForwardedSignals = Distinct[Literal["traces", "logs", "metrics"]]


def client_tls(tls: TlsFiles | None, where: str) -> "ClientTls":
    """The files of a `tls` block; errors name its place in the configuration, `where`."""
    from otel_eval.otlp.tls import ClientTls

    return ClientTls.from_config(where, tls.model_dump() if tls else {})


class ExportEndpoint(Shape):
    """A server that the configuration names, and how requests are sent to it."""

    endpoint: Target
    """http:// or https:// URL."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Sent with each request, for keys and tenants."""
    tls: TlsFiles | None = None
    """Files for an https:// endpoint; the system's authorities when left out."""
    timeout: Seconds = Field(default=10.0, gt=0)
    """How long one request may take."""

    def contradictions(self) -> Iterator[str]:
        """TLS files need an https:// URL, and headers must be ones that HTTP and gRPC can send."""
        yield from tls_without_https(self.tls, self.endpoint)
        for name, value in self.headers.items():
            if not (re.fullmatch(_HEADER_NAME, name) and value.isascii() and value.isprintable()):
                yield (
                    f"headers.{redacted_repr(name)[1:-1]}: is no header; write printable ASCII"
                    " text, without blanks in the name"
                )

    def address(self, key: str) -> "Endpoint":
        """The endpoint for a client; errors in its TLS files name `key`, its key in the
        configuration.
        """
        from otel_eval.otlp.endpoint import Endpoint

        further_keys = {"protocol", "compression"} & type(self).model_fields.keys()
        return Endpoint(
            endpoint=self.endpoint,
            headers=self.headers,
            timeout_s=self.timeout,
            tls=client_tls(self.tls, f"{key}.tls"),
            **{name: getattr(self, name) for name in further_keys},
        )


class OtlpEndpoint(ExportEndpoint):
    """A server that takes OTLP."""

    endpoint: Target
    """http:// or https:// URL. With http/protobuf the signal's path is added to it, e.g.
    `/v1/metrics`.
    """
    protocol: Literal["grpc", "http/protobuf"] = "grpc"
    """The protocol of the endpoint."""

    def contradictions(self) -> Iterator[str]:
        """A URL that ends in the path of one signal, because the path is added for each signal."""
        yield from super().contradictions()
        if self.protocol != "grpc" and (match := re.search(_OF_ONE_SIGNAL, self.endpoint)):
            yield (
                f"endpoint: '{match[0]}' at its end is the path of one signal, which is added for"
                " each; leave it out"
            )


class OtlpExporter(OtlpEndpoint):
    """Sends scores to an OTLP endpoint, usually a Collector."""

    name: ExporterName = "otlp"
    """Its name in counters, log lines and the journal, before the signal; unique in a list of
    endpoints.
    """
    tls: TlsFiles | None = None
    """Files for an https:// endpoint; left out, those of OTEL_EXPORTER_OTLP_CERTIFICATE, else the
    system's authorities.
    """
    signals: Signals = ("logs", "metrics", "spans")
    """Which signals are sent."""
    compression: Literal["none", "gzip"] = "gzip"
    """How requests are compressed."""


class JsonlExporter(Shape):
    """Writes one JSON object a line for each result."""

    path: str = Field(min_length=1)
    """The file to append to; `-` is stdout."""
    mode: Mode = "0600"
    """Permissions of the file if it is created, in quotes; `"0640"` lets a log shipper of the
    file's group read it.
    """


class CasesExporter(Shape):
    """Stores runs as test cases: their spans as OTLP/JSON, and beside them a record for a
    dataset.
    """

    directory: str = Field(min_length=1)
    """The directory, created if it does not exist."""
    when: Distinct[Literal["not_passed", "skipped", "failed"]] = ("not_passed", "skipped")
    """Which runs: those with a score that does not pass, with a skip that leaves them unevaluated,
    with a scorer that failed.
    """
    sample: Share = 0.01
    """The share of the runs that pass which is stored, too."""
    keep: Count = 500
    """How many cases the directory may hold; the oldest are removed."""
    content: bool = False
    """Whether messages, arguments and results are stored. If not, names, ids, times and errors
    are.
    """


class ConsoleOutput(Shape):
    """Prints a line for each run to stdout, and below it what did not pass, for people."""


def _read_console(value: Any, output: Any) -> object:
    """An exporter as it is, anything else validated as options."""
    if value is None or isinstance(value, Mapping | ConsoleOutput):
        return output(value)
    from otel_eval.exporters.console import ConsoleExporter

    return value if isinstance(value, ConsoleExporter) else output(value)


ConsoleSpec = Annotated[ConsoleOutput, WrapValidator(_read_console)]
"""`{}`, or from Python a `ConsoleExporter`, for another stream than standard output."""


class ForwardExporter(OtlpEndpoint):
    """Forwards everything that `otel-eval serve` receives, unchanged except for the scores on the
    runs' own spans.
    """

    signals: ForwardedSignals = ("traces", "logs", "metrics")
    """Which signals are forwarded."""
    compression: Literal["none", "gzip"] = "none"
    """How requests are compressed."""
    max_queue_size: Size = 64 * 2**20
    """Bytes of each signal that may be queued. Beyond it clients get a retryable error."""


class AnnotationEndpoint(ExportEndpoint):
    """Where scores are sent, and which of them."""

    endpoint: Target
    """http:// or https:// URL of the product, to which the paths of its API are added."""
    unscored: bool = False
    """Whether skipped and failed results are always sent. If not, only where they replace a score
    of an earlier revision.
    """

    @property
    def options(self) -> dict[str, Any]:
        """The values of keys that `ExportEndpoint` does not have: parameters of the exporter of the
        product.
        """
        return {
            key: getattr(self, key)
            for key in type(self).model_fields
            if key not in ExportEndpoint.model_fields
        }


class PhoenixTarget(AnnotationEndpoint):
    """Sends scores to Phoenix as annotations of the runs' spans."""

    verdict: bool = True
    """Whether the verdict of a run under each evaluation is an annotation, `#verdict`."""
    annotation_configs: bool = True
    """Whether annotations without a configuration in Phoenix get one, which gives them colours."""
    trace_annotations: bool = False
    """Whether scores of outermost runs are annotations of their trace, too."""


class _NoneReplaced(AnnotationEndpoint):
    """The endpoint of a product in which scores are not replaced, so that a result without a score
    has none to clear.
    """

    unscored: Literal[False] = False
    """Not possible for a product that takes values and labels only."""


class LogfireTarget(_NoneReplaced):
    """Sends scores to Logfire as feedback. Written from its documentation; not tried against the
    live service.
    """


class DatadogTarget(_NoneReplaced):
    """Sends scores to Datadog as external evaluations. Written from its documentation; not tried
    against the live service.
    """

    ml_app: str = Field(min_length=1, max_length=193)
    """The name of the LLM application to which the spans belong."""


class LangfuseTarget(AnnotationEndpoint):
    """Sends scores to Langfuse. Written from its documentation; not tried against the live
    service.
    """


class LangsmithTarget(AnnotationEndpoint):
    """Sends scores to LangSmith as feedback. Written from its documentation; not tried against the
    live service.
    """

    max_wait: Seconds = 600.0
    """How long a score waits for a run that LangSmith does not have yet. Then it goes to the
    dead-letter file.
    """


class MlflowTarget(AnnotationEndpoint):
    """Sends scores to MLflow as assessments of the runs' spans."""

    experiment: str | None = Field(default=None, pattern="^[ -~]+$")
    """Id of the experiment, sent as `x-mlflow-experiment-id` for servers that route by it."""
    max_wait: Seconds = 600.0
    """How long a score waits for a trace that MLflow does not have yet. Then it goes to the
    dead-letter file.
    """
    verdict: bool = True
    """Whether the verdict of a run under each evaluation is an assessment, `#verdict`."""


class KafkaExporter(KafkaClient):
    """Writes results to a topic, one record for each, with a key that suits compaction."""

    topic: str = Field(default="otel_eval_results", min_length=1)
    """The topic."""
    encoding: Literal["json", "otlp_proto"] = "json"
    """What a record holds: the JSON of a line of JSON Lines, or an OTLP logs request with one
    event.
    """
    timeout: Seconds = Field(default=10.0, gt=0)
    """How long one batch may take to be acknowledged by all replicas."""


class Delivery(Shape):
    """How results and forwarded requests are delivered."""

    give_up_after: Seconds = 900.0
    """How long data waits for an endpoint that lacks the signal (404, 405, 501, UNIMPLEMENTED, a
    redirect, a page) and has accepted none since the start. Then it goes to the dead-letter file,
    or is dropped.
    """
    recheck: Seconds = Field(default=60.0, gt=0)
    """How often such an endpoint is tried again."""


def _list_or_mapping(value: object) -> str:
    return LIST if isinstance(value, list | tuple) else MAPPING


# A union without a discriminator would report the problems of both forms for one mistake.
_ListOfOtlp = Annotated[Some[OtlpExporter], Tag(LIST)]
_WrittenOtlp = Annotated[
    Annotated[OtlpExporter, Tag(MAPPING)] | _ListOfOtlp, Discriminator(_list_or_mapping)
]
OtlpExporters = Annotated[OtlpExporter | tuple[OtlpExporter, ...], Deferred(_WrittenOtlp)]
"""One endpoint, or a list of them."""


_FOR_ALL: Final = frozenset({"dead_letter", "dead_letter_mode", "max_queue"})


class Exporters(Shape):
    """Where scores go. An exporter of an installed package is configured under its name, with its
    own options.
    """

    # Names of exporters that installed packages register are not known here; `known_keys` has them.
    model_config = ConfigDict(
        extra="allow", json_schema_extra={"additionalProperties": {"type": ["object", "null"]}}
    )

    otlp: OtlpExporters | None = None
    """An OTLP endpoint, or a list of them with a `name` each."""
    jsonl: Part[JsonlExporter] | None = None
    """A file of JSON Lines, or stdout."""
    console: ConsoleSpec | None = None
    """A line for each run on stdout, and below it what did not pass, for people: `console: {}`."""
    kafka: Part[KafkaExporter] | None = None
    """A topic of Kafka."""
    cases: Part[CasesExporter] | None = None
    """A directory of runs that become test cases."""
    phoenix: Part[PhoenixTarget] | None = None
    """Phoenix, as annotations."""
    mlflow: Part[MlflowTarget] | None = None
    """MLflow, as assessments."""
    langfuse: Part[LangfuseTarget] | None = None
    """Langfuse, as scores; not tried against the live service."""
    langsmith: Part[LangsmithTarget] | None = None
    """LangSmith, as feedback; not tried against the live service."""
    datadog: Part[DatadogTarget] | None = None
    """Datadog, as external evaluations; not tried against the live service."""
    logfire: Part[LogfireTarget] | None = None
    """Logfire, as feedback; not tried against the live service."""
    forward: Part[ForwardExporter] | None = None
    """A backend that receives everything `otel-eval serve` does, with scores on the runs' spans."""
    dead_letter: str | None = None
    """The file to which results are appended that an exporter's endpoint rejected permanently."""
    dead_letter_mode: Mode = "0600"
    """Permissions of that file if it is created, in quotes."""
    max_queue: Count = 10_000
    """Reports that may be queued for an exporter of `otel-eval serve`. Beyond it clients get a
    retryable error (backpressure).
    """

    @classmethod
    def known_keys(cls, written: object) -> Collection[str]:
        """The fields of the class, and the names of exporters of installed packages. They are
        looked for only where a key is no field, because that reads a file of each package.
        """
        fields = cls.model_fields
        if isinstance(written, Mapping) and all(key in fields for key in written):
            return fields
        return [*fields, *installed_exporters()]

    @property
    def configured(self) -> Mapping[str, Any]:
        """What is configured of each exporter, by its key; without the settings that all share."""
        fields = [name for name in type(self).model_fields if name not in _FOR_ALL]
        options = {name: getattr(self, name) for name in fields}
        return {
            **{name: value for name, value in options.items() if value is not None},
            **self.of_packages,
        }

    @property
    def otlp_endpoints(self) -> Mapping[str, OtlpExporter]:
        """The OTLP endpoints, each by its place in the configuration."""
        if isinstance(self.otlp, OtlpExporter):
            return {"exporters.otlp": self.otlp}
        return {
            f"exporters.otlp[{index}]": endpoint for index, endpoint in enumerate(self.otlp or ())
        }

    @property
    def score_products(self) -> Mapping[str, AnnotationEndpoint]:
        """The products that receive scores by an API of their own, by name."""
        return {
            name: options
            for name, options in self.configured.items()
            if isinstance(options, AnnotationEndpoint)
        }

    @property
    def has_no_run(self) -> bool:
        """Whether an exporter gets a row for each trace without a run: those that write JSON do,
        events always have a run.
        """
        return self.jsonl is not None or (self.kafka is not None and self.kafka.encoding == "json")

    @property
    def of_packages(self) -> Mapping[str, Any]:
        """The options of each exporter of an installed package, by its name."""
        return self.model_extra or {}

    def contradictions(self) -> Iterator[str]:
        """OTLP endpoints with the same name, two exporters that write to stdout, and invalid
        options of exporters of packages.
        """
        yield from duplicates(
            "otlp",
            [endpoint.name for endpoint in self.otlp_endpoints.values()],
            "give one of them another name",
        )
        if self.console and self.jsonl and self.jsonl.path == "-":
            yield "console: jsonl.path '-' writes to stdout as well; name a file there"
        for name, options in self.of_packages.items():
            if options is not None and not isinstance(options, Mapping):
                yield f"{name}: {redacted_repr(options)} is not a mapping; write key: value pairs"
                continue
            try:
                create_exporter(name, options)
            except ConfigError as error:
                yield from (joined(name, problem) for problem in error.problems)


class MetricsOtlp(OtlpEndpoint):
    """Sends the receiver's own metrics to an OTLP endpoint."""

    tls: TlsFiles | None = None
    """Files for an https:// endpoint; left out, those of OTEL_EXPORTER_OTLP_CERTIFICATE, else the
    system's authorities.
    """
    interval: Seconds = Field(default=60.0, gt=0)
    """Time between two exports."""


class Telemetry(Shape):
    """Health, metrics and logs of `otel-eval serve`."""

    endpoint: Address | None = None
    """host:port of /healthz, /readyz, /metrics (Prometheus) and /status; left out, they are not
    served.
    """
    allowed_hosts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names that requests to it may carry in `Host`, besides IP addresses, localhost and the name
    in `endpoint`.
    """
    otlp: Part[MetricsOtlp] | None = None
    """Sends the metrics of the receiver itself by OTLP."""
    service_instance_id: str | None = Field(default=None, min_length=1)
    """`service.instance.id` of all metrics that are sent by OTLP, so that their series go on after
    a restart; unique.
    """
    log_format: Literal["text", "json"] = "text"
    """The format of log lines on stderr: text, or one JSON object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The lowest level that is logged; `debug` logs one line per run."""


class CaseOfRuns(Shape):
    """What tells the case of a run: an attribute, or a digest of agent and input."""

    attribute: str | None = Field(default=None, min_length=1)
    """The attribute of the run's span, its resource or scope that holds it."""
    digest_key_env: Variable | None = None
    """The environment variable with a secret of at least 16 characters, the key of the digest:
    whoever does not know it cannot test what an input was.
    """

    def contradictions(self) -> Iterator[str]:
        """Neither `attribute` nor `digest_key_env`, or both."""
        if (self.attribute is None) == (self.digest_key_env is None):
            yield "name an attribute or a digest_key_env, one of them"


class Results(Shape):
    """What results carry besides their scores."""

    attributes: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Attributes of the run's span, its resource or scope that every result carries, such as the id
    of a test case.
    """
    case: Part[CaseOfRuns] | None = None
    """By what `otel-eval compare` pairs runs."""
    log_body: bool = False
    """Whether log events have a body, one line for people, and the severity WARN where a run did
    not pass and ERROR where a scorer failed.
    """
    score_attributes: bool = False
    """Whether the runs' own spans (`exporters.forward`, `EvalSpanExporter`) and evaluation spans
    have attributes for the verdict and for each score, beside the events.
    """
    metrics_by_version: bool = False
    """Whether metrics of scores, results and runs have the version of the service as a label, at
    most 20 versions.
    """
    no_run: bool = True
    """Whether JSON Lines and Kafka get a row for each trace without a result, so that `merge` sees
    traces that were split.
    """


class Window(Shape):
    """The sliding window of the metrics `otel_eval.window.*`, for each evaluation and scorer. 0 for
    either: no such metrics.
    """

    time: Seconds = 3600.0
    """The age up to which results count."""
    results: Whole = 10_000
    """How many results are kept, the newest ones; each takes about 400 bytes."""
    max_size: Size = 256 * 2**20
    """Bytes of all windows together. Beyond it the oldest results of the largest windows are
    removed."""
