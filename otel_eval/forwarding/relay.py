"""Connects receiver, pipeline and forwarding stage: a request goes to assembly and to the backend, or to neither."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from otel_eval.forwarding import Ack, Forwarder
from otel_eval.interfaces import Frame
from otel_eval.otlp import SpanBatch
from otel_eval.otlp.requests import RawRequest
from otel_eval.pipeline import Pipeline
from otel_eval.storage.durable import Durable
from otel_eval.storage.forwarded_requests import AcknowledgedRequest

__all__ = ["ForwardingRelay"]

Spans = Sequence[tuple[bytes, bytes, Frame, int]]


class ForwardingRelay:
    """Takes complete requests from the receiver; each goes to assembly and to the backend, or to neither."""

    def __init__(self, forward: Forwarder, pipeline: Pipeline, durable: Durable | None) -> None:
        self._forward, self._pipeline, self._durable = forward, pipeline, durable

    def traces(self, body: bytes, framed: SpanBatch) -> None:
        """To assembly and to the backend."""
        items: Final = len(framed.spans) + framed.own + framed.rejected
        self._forward.traces(body, items, framed.spans, _Assembly(self._pipeline, framed))

    def logs(self, body: bytes, framed: SpanBatch) -> None:
        """To assembly, as far as they belong to runs, and to the backend."""
        items: Final = len(framed.logs) + framed.own + framed.ignored + framed.rejected
        self._forward.pass_on("logs", body, items, lambda ack: self._pipeline.logs(framed.logs, _kept(framed.origin, ack)))

    def metrics(self, body: bytes) -> bool:
        """To the backend, if metrics are forwarded."""
        self._forward.pass_on("metrics", body, 1, lambda ack: self._keep("metrics", body, ack))
        return self._forward.takes("metrics")

    def _keep(self, signal: str, body: bytes, ack: Ack | None) -> None:
        """Journal a request that assembly does not take."""
        if self._durable is not None and ack is not None:
            self._durable.safe(self._durable.taken(AcknowledgedRequest(RawRequest(signal, "protobuf", body), ack), ()))


def _kept(origin: Any, ack: Ack | None) -> Any:
    return origin if ack is None else AcknowledgedRequest(origin, ack)


class _Assembly:
    """Assembly as the forwarding stage sees it, with the request that spans came in."""

    def __init__(self, pipeline: Pipeline, framed: SpanBatch) -> None:
        self._pipeline, self._framed = pipeline, framed

    def spans(self, spans: Spans, ack: Ack | None) -> None:
        """Take spans."""
        self._pipeline.spans(spans, _kept(self._framed.origin, ack))

    def undecided(self, trace_ids: Collection[bytes]) -> set[bytes]:
        """The traces among these that are not evaluated yet."""
        return self._pipeline.undecided(trace_ids)
