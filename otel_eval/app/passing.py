"""The receiver with a backend behind it: each request goes to assembly and on to the backend, or to neither.

Knows the receiver's relay, the pipeline and the forwarding stage; decides nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from otel_eval.config import EvalConfig
from otel_eval.engine import Engine
from otel_eval.pipeline import Pipeline
from otel_eval.ports import Frame
from otel_eval.sinks.forward import Forward, Target
from otel_eval.sinks.tally import Tally
from otel_eval.sources.otlp import Framed

__all__ = ["Passing", "forward_of"]

Spans = Sequence[tuple[bytes, bytes, Frame, int]]


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
        self._forward.traces(body, items, framed.spans, _Assembly(self._pipeline, framed))

    def logs(self, body: bytes, framed: Framed) -> None:
        """To assembly, as far as they tell of runs, and on."""
        items: Final = len(framed.logs) + framed.own + framed.ignored + framed.rejected
        self._forward.pass_on("logs", body, items, lambda: self._pipeline.logs(framed.logs, framed.origin))

    def metrics(self, body: bytes) -> bool:
        """On, if metrics are passed on."""
        self._forward.pass_on("metrics", body, 1)
        return self._forward.takes("metrics")


class _Assembly:
    """Assembly as the forwarding stage sees it, with the request that spans came in."""

    def __init__(self, pipeline: Pipeline, framed: Framed) -> None:
        self._pipeline, self._framed = pipeline, framed

    def spans(self, spans: Spans) -> None:
        """Take spans."""
        self._pipeline.spans(spans, self._framed.origin)

    def undecided(self, trace_ids: Collection[bytes]) -> set[bytes]:
        """Those of the traces that are still to be judged."""
        return self._pipeline.undecided(trace_ids)
