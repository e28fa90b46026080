"""The receiver with a backend behind it: each request goes to assembly and on to the backend, or to neither.

Knows the receiver's relay, the pipeline and the forwarding stage; decides nothing.
"""

from __future__ import annotations

from typing import Final

from otel_eval.config import EvalConfig
from otel_eval.engine import Engine
from otel_eval.pipeline import Pipeline
from otel_eval.sinks.forward import Forward, Target
from otel_eval.sinks.tally import Tally
from otel_eval.sources.otlp import Framed

__all__ = ["Passing", "forward_of"]


def forward_of(config: EvalConfig, engine: Engine, counters: Tally) -> Forward | None:
    """The forwarding stage, if one is configured.

    Raises:
        ConfigError: a TLS file cannot be used.
    """
    given = config.exporters.forward
    if given is None:
        return None
    files = given.tls.model_dump() if given.tls else {}
    to = Target(
        endpoint=given.endpoint,
        protocol=given.protocol,
        headers=given.headers,
        timeout_s=given.timeout,
        compression=given.compression,
        **files,
    )
    return Forward(to, engine, counters, limit_bytes=given.max_queue_size, signals=given.signals)


class Passing:
    """Takes whole requests from the receiver."""

    def __init__(self, forward: Forward, pipeline: Pipeline) -> None:
        self._forward, self._pipeline = forward, pipeline

    def traces(self, body: bytes, framed: Framed) -> None:
        """To assembly and on."""
        items: Final = len(framed.spans) + framed.own + framed.rejected
        self._forward.traces(body, items, framed.spans, self._pipeline)

    def logs(self, body: bytes, framed: Framed) -> None:
        """To assembly, as far as they tell of runs, and on."""
        items: Final = len(framed.logs) + framed.own + framed.ignored + framed.rejected
        self._forward.pass_on("logs", body, items, lambda: self._pipeline.logs(framed.logs))

    def metrics(self, body: bytes) -> bool:
        """On, if metrics are passed on."""
        self._forward.pass_on("metrics", body, 1)
        return self._forward.takes("metrics")
