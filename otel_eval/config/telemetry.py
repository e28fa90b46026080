"""What the receiver tells of itself: the address of its pages, metrics by OTLP, how its log lines look."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

from pydantic import Field

from otel_eval.config.door import Shape
from otel_eval.config.places import Address, Seconds, Target, TlsFiles, tls_without_https

__all__ = ["MetricsOtlp", "Telemetry"]


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
    """How often."""

    def contradictions(self) -> Iterator[str]:
        """Files for TLS are for an endpoint that speaks it."""
        yield from tls_without_https(self.tls, self.endpoint)


class Telemetry(Shape):
    """What `otel-eval serve` tells of itself."""

    endpoint: Address | None = None
    """Where /healthz, /readyz, /metrics (Prometheus) and /status are served, host:port; nowhere when left out."""
    allowed_hosts: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    """Names that requests to it may carry in `Host`, besides IP addresses, localhost and the name in `endpoint`."""
    otlp: MetricsOtlp | None = None
    """Where the same metrics are sent."""
    log_format: Literal["text", "json"] = "text"
    """How log lines look on stderr: for people, or one JSON object a line."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """From which level on lines are written: `debug` writes one line per run."""
