"""The keys of exporters that send scores to a product's own API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field

from otel_eval.config.tls import TlsFiles, tls_without_https
from otel_eval.config.units import Seconds, Target
from otel_eval.config.validation import Shape
from otel_eval.errors import redacted_repr

__all__ = ["AnnotationEndpoint", "DatadogTarget", "LangfuseTarget", "LangsmithTarget", "MlflowTarget", "PhoenixTarget"]


class AnnotationEndpoint(Shape):
    """Where scores are sent, and which of them."""

    endpoint: Target
    """http:// or https:// URL of the product, to which the paths of its API are added."""
    headers: Mapping[str, str] = Field(default_factory=dict)
    """Sent with each request, for keys and tenants."""
    tls: TlsFiles | None = None
    """Files for an https:// endpoint; the system's authorities when left out."""
    timeout: Seconds = Field(default=10.0, gt=0)
    """How long one request may take."""
    unscored: bool = False
    """Whether skipped and failed results are always sent. If not, only where they replace a score of an earlier revision."""

    def contradictions(self) -> Iterator[str]:
        """Files for TLS are for an endpoint that speaks it, and a path is not the API's."""
        yield from tls_without_https(self.tls, self.endpoint)
        for name, value in self.headers.items():
            if not (name and f"{name}{value}".isascii() and f"{name}{value}".isprintable()):
                yield f"headers.{redacted_repr(name)[1:-1]}: is no header; write printable ASCII text"


class PhoenixTarget(AnnotationEndpoint):
    """Sends scores to Phoenix as annotations of the runs' spans."""

    trace_annotations: bool = False
    """Whether scores of outermost runs are annotations of their trace, too."""


class DatadogTarget(AnnotationEndpoint):
    """Sends scores to Datadog as external evaluations. Written from its documentation; not tried against the live service."""

    ml_app: str = Field(min_length=1, max_length=193)
    """The name of the LLM application to which the spans belong."""

    def contradictions(self) -> Iterator[str]:
        """Datadog cannot replace a score by none."""
        yield from super().contradictions()
        if self.unscored:
            yield "unscored: true is not possible for Datadog, which takes values and labels only; leave it out"


class LangfuseTarget(AnnotationEndpoint):
    """Sends scores to Langfuse. Written from its documentation; not tried against the live service."""


class LangsmithTarget(AnnotationEndpoint):
    """Sends scores to LangSmith as feedback. Written from its documentation; not tried against the live service."""

    max_wait: Seconds = 600.0
    """How long a score waits for a run that LangSmith does not have yet. Then it goes to the dead-letter file."""


class MlflowTarget(AnnotationEndpoint):
    """Sends scores to MLflow as assessments of the runs' spans."""

    experiment: str | None = Field(default=None, min_length=1)
    """Id of the experiment, sent as `x-mlflow-experiment-id` for servers that route by it."""
    max_wait: Seconds = 600.0
    """How long a score waits for a trace that MLflow does not have yet. Then it goes to the dead-letter file."""
    evaluation_passed: bool = False
    """Whether each evaluation has an assessment of its own, yes or no. Not for evaluations with judges, which answer later."""

    def contradictions(self) -> Iterator[str]:
        """One value for the header of the experiment."""
        yield from super().contradictions()
        if self.experiment and not (self.experiment.isascii() and self.experiment.isprintable()):
            yield f"experiment: {redacted_repr(self.experiment)} is no id; write the experiment's number, e.g. '1'"
