"""Where spans come from: the process itself, OTLP requests, Kafka, and files. The packages inside
do not import one another.

This module has the interface of sources that run: OTLP over gRPC and HTTP, and Kafka. They pass
batches of spans to a consumer or to pipelines. Stored files are read as batches of the same kind,
on demand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # what reads spans of the process needs no wire format
    from otel_eval.otlp.protobuf import SpanBatch


class Consumer(Protocol):
    """Takes requests, in protobuf whatever the client wrote. When a call returns, the request is
    acknowledged.

    Called from several threads at once. Either everything given is taken, or `Overloaded` is raised
    and nothing is: the client retries all of it.
    """

    @property
    def forwards(self) -> bool:
        """Whether requests are passed on as they are: then items that cannot be evaluated are not
        lost.
        """

    def spans(self, batch: SpanBatch) -> None:
        """Take a request of traces, `batch.origin`, and its spans.

        Raises:
            Overloaded: there is no room now.
        """

    def logs(self, batch: SpanBatch) -> None:
        """Take a request of logs and its records; raises as `spans` does."""

    def metrics(self, body: bytes) -> bool:
        """Take a request of metrics; False if it is discarded. Raises as `spans` does."""


class Source(Protocol):
    """Receives spans from outside, from `start` to `stop`, and passes them to the pipeline."""

    @property
    def is_open(self) -> bool:
        """Whether spans are accepted."""

    def start(self) -> object:
        """Begin to receive spans."""

    def stop(self, timeout_s: float) -> None:
        """Accept no more spans."""

    def close(self, timeout_s: float) -> None:
        """After the last results were delivered: acknowledge what is delivered, and release
        connections.
        """
