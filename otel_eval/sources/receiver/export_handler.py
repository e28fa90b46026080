"""Handles one export request of either transport: reserve memory, read, estimate, decode, pass to
the consumer, respond.

Transports read the body and write the response in their own form. The only error that a handler
raises to a transport is a connection that breaks while the body is read. The bodies of responses,
in protobuf and JSON, are Export…ServiceResponse, and google.rpc.Status with details. Source:
opentelemetry-proto docs/specification.md, "OTLP/gRPC" and "OTLP/HTTP".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Any, Final

from google.protobuf import duration_pb2, json_format
from google.protobuf.message import DecodeError, Message
from google.rpc import code_pb2, error_details_pb2, status_pb2
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from otel_eval.counters import Counters
from otel_eval.errors import InputError, Overloaded, RequestTooLarge
from otel_eval.otlp import Encoding, Signal
from otel_eval.otlp.decoded_size import json_decoded_size, protobuf_decoded_size
from otel_eval.otlp.otlp_json import Rewritten, load_json, rewrite
from otel_eval.otlp.protobuf import RawRequest, SpanBatch, read_request
from otel_eval.otlp.spans import parse_metrics
from otel_eval.sources import Consumer
from otel_eval.sources.receiver.credentials import BearerTokens
from otel_eval.sources.receiver.memory import MemoryLimiter, Reservation


class ExportStatus(Enum):
    """The outcome of a request, with its codes of google.rpc and HTTP; only after RETRYABLE may the
    client send it again.
    """

    ACCEPTED = code_pb2.OK, HTTPStatus.OK
    INVALID = code_pb2.INVALID_ARGUMENT, HTTPStatus.BAD_REQUEST
    TOO_LARGE = code_pb2.RESOURCE_EXHAUSTED, HTTPStatus.REQUEST_ENTITY_TOO_LARGE
    RETRYABLE = code_pb2.UNAVAILABLE, HTTPStatus.SERVICE_UNAVAILABLE

    def __init__(self, code: int, http: HTTPStatus) -> None:
        self.code, self.http = code, http


@dataclass(frozen=True, slots=True)
class ExportResponse:
    """The response. `rejected` counts the items of an accepted request that were not accepted;
    `message` is the reason.
    """

    status: ExportStatus
    message: str = ""
    rejected: int = 0

    def body(self, signal: Signal, encoding: Encoding) -> bytes:
        """The body of a successful response; `partial_success` is set only if items were rejected
        or there is a warning.
        """
        if not self.message:
            return b"{}" if encoding is Encoding.JSON else b""
        make, rejected = _RESPONSES[signal]
        response = make()
        response.partial_success.error_message = self.message
        setattr(response.partial_success, rejected, self.rejected)
        return serialize(encoding, response)

    def error(self) -> Any:
        """The google.rpc.Status of a failed request.

        RetryInfo is added only where a retry helps: with it on RESOURCE_EXHAUSTED, clients would
        send a body that is too large again and again.
        """
        message = status_pb2.Status(code=self.status.code, message=self.message)
        if self.status is ExportStatus.RETRYABLE:
            message.details.add().Pack(RETRY_INFO)
        if self.status is ExportStatus.INVALID:
            violation = error_details_pb2.BadRequest.FieldViolation(description=self.message)
            message.details.add().Pack(error_details_pb2.BadRequest(field_violations=[violation]))
        return message


_RESPONSES: Final[dict[Signal, tuple[Any, str]]] = {
    Signal.TRACES: (ExportTraceServiceResponse, "rejected_spans"),
    Signal.LOGS: (ExportLogsServiceResponse, "rejected_log_records"),
    Signal.METRICS: (ExportMetricsServiceResponse, "rejected_data_points"),
}
RETRY_S: Final = 1
"""How long a client should wait before it retries."""
RETRY_INFO: Final = error_details_pb2.RetryInfo(retry_delay=duration_pb2.Duration(seconds=RETRY_S))


_MEMORY_FACTOR: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverLimits:
    """Limits on the resources that clients use.

    Attributes:
        max_body_bytes: the size of one body, both as sent and decompressed. OTLP's specification
            recommends 64 MiB.
        max_inflight_bytes: the memory of all requests that are being received and decoded, decoding
            included; beyond it clients get a retryable error.
        max_attributes: the number of attributes of a span, an event, a link, a log record, a
            resource or a scope, and of events or links of a span; items with more are rejected.
        request_s: how long a request may take to arrive; over HTTP a sixth of it if less than 1 KiB
            a second arrives.
        grpc_threads: the calls that are decoded and passed on at one time; Python runs one thread
            at a time, so more of them would only wait for the consumer.
        grpc_connections: open at one time; further ones are closed.
        grpc_idle_s: how long a gRPC connection may have no call; then it is closed, and the client
            opens another for its next call. Exporters that send each minute keep their connection.
        http_connections: open at one time; a further one replaces one whose client is late, or gets
            503.
        http_idle_s: how long an HTTP connection may wait for the next request, its headers
            included.
    """

    max_body_bytes: int = 64 * 2**20
    max_inflight_bytes: int = 256 * 2**20
    max_attributes: int = 4096
    request_s: float = 60.0
    grpc_threads: int = 8
    grpc_connections: int = 1024
    grpc_idle_s: float = 120.0
    http_connections: int = 256
    http_idle_s: float = 60.0

    @property
    def most_bytes(self) -> int:
        """The memory that one request may take: at least what ordinary spans in a body of the
        maximum size take.
        """
        return max(self.max_inflight_bytes, _MEMORY_FACTOR * self.max_body_bytes)


class InternalError(Exception):
    """An error of the receiver itself prevented a request from being accepted."""


_REFUSALS: Final[dict[type[Exception], tuple[ExportStatus, str]]] = {
    InputError: (ExportStatus.INVALID, "bad_requests"),
    RequestTooLarge: (ExportStatus.TOO_LARGE, "oversized_requests"),
    Overloaded: (ExportStatus.RETRYABLE, "refused_requests"),
    InternalError: (ExportStatus.RETRYABLE, "internal_errors"),
}
"""The status of the response to a request that is refused because of such an error, and the
counter.
"""

# By transport ("grpc" or "http"). Of spans, received = accepted + rejected + own + refused; a
# refused span was not accepted and the sender keeps it to retry.
_COUNTERS: Final = (
    "requests",
    "bad_requests",
    "oversized_requests",
    "refused_requests",
    "unauthenticated_requests",
    "refused_connections",
    "failed_handshakes",  # HTTP only
    "internal_errors",
    "accepted_spans",
    "rejected_spans",
    "own_spans",
    "refused_spans",
    "accepted_logs",
    "rejected_logs",
    "own_logs",
    "ignored_logs",
    "refused_logs",
    "discarded_metrics",  # requests
)


class ExportHandler:
    """Reads requests and counts their outcomes. Subclasses decide what is done with a body.

    Args:
        limits: limits on the resources that clients use.
        tokens: bearer tokens, of which every request needs one; None: every client is accepted.

    Attributes:
        memory: the memory limiter of all requests in flight.
    """

    def __init__(self, limits: ReceiverLimits, tokens: BearerTokens | None = None) -> None:
        self.limits, self.counters = limits, Counters()
        self.memory: Final = MemoryLimiter(limits.max_inflight_bytes)
        self.tokens: Final = tokens

    def is_open(self) -> bool:
        """Whether requests are accepted."""
        return not self.memory.closed

    def admits(self, authorization: str | None) -> bool:
        """Whether a request with this `Authorization` header is accepted."""
        return self.tokens is None or self.tokens.allow(authorization)

    def count(self, transport: str, **amounts: int) -> None:
        """Increment the named counters of a transport."""
        for name, amount in amounts.items():
            if amount:
                self.counters.add(name, amount, transport=transport)

    def counts(self) -> dict[str, dict[str, int]]:
        """Every counter by name, then by transport; a counter that was never incremented is {}."""
        return {
            name: {
                transport: count
                for transport in ("grpc", "http")
                if (count := self.counters.get(name, transport=transport))
            }
            for name in _COUNTERS
        }

    def answer(
        self,
        transport: str,
        signal: Signal,
        encoding: Encoding,
        size: int,
        read: Callable[[Reservation], bytes],
    ) -> ExportResponse:
        """Handle one request, and return the response to it.

        Args:
            transport: "grpc" or "http".
            signal: what the request exports.
            encoding: the encoding of its body.
            size: the size of the body in bytes, 0 if it is not known yet.
            read: reads the body, and grows the reservation by what this takes beyond `size`.

        Raises:
            OSError: the connection broke in `read`; there is no client to respond to.
        """
        self.count(transport, requests=1)
        try:
            return self.take(transport, signal, encoding, size, read)
        except tuple(_REFUSALS) as error:
            return self.refuse(transport, error)

    def refuse(self, transport: str, error: Exception) -> ExportResponse:
        """Count an error because of which a request is refused, and return the response."""
        status, name = next(
            refusal for kind, refusal in _REFUSALS.items() if isinstance(error, kind)
        )
        self.count(transport, **{name: 1})
        return ExportResponse(
            status, "internal error, retry" if isinstance(error, InternalError) else str(error)
        )

    def take(
        self,
        transport: str,
        signal: Signal,
        encoding: Encoding,
        size: int,
        read: Callable[[Reservation], bytes],
    ) -> ExportResponse:
        """Handle one request like `answer`, but without counting it, and raise errors instead of
        responding to them.

        Raises:
            InputError: it is invalid.
            Overloaded: there is not enough memory, or the consumer refuses it for now; a retry can
                succeed.
            RequestTooLarge: it exceeds a limit for one request.
            InternalError: the receiver has an error of its own; the client keeps the data and
                retries.
            OSError: the connection broke in `read`.
        """
        with self.memory.enter(size) as reservation:
            body = read(reservation)
            self._reserve(signal, encoding, body, reservation)
            try:
                request = (
                    rewrite(signal, load_json(body))
                    if encoding is Encoding.JSON
                    else Rewritten(body)
                )
                return self._process(transport, signal, request, reservation)
            except (InputError, Overloaded, RequestTooLarge):
                raise
            except Exception as error:  # noqa: BLE001 - a defect here must not lose data
                raise InternalError(type(error).__name__) from None

    def _reserve(
        self, signal: Signal, encoding: Encoding, body: bytes, reservation: Reservation
    ) -> None:
        """Reserve the memory that decoding will take.

        Raises:
            Overloaded: the memory is not available now.
            RequestTooLarge: it is more than one request may take.
        """
        raise NotImplementedError

    def _process(
        self, transport: str, signal: Signal, request: Rewritten, reservation: Reservation
    ) -> ExportResponse:
        """Pass the request on, and return the response; raises as `take` does."""
        raise NotImplementedError


class DecodingHandler(ExportHandler):
    """Splits requests into spans and log records for a consumer."""

    def __init__(
        self, consumer: Consumer, limits: ReceiverLimits, tokens: BearerTokens | None = None
    ) -> None:
        super().__init__(limits, tokens)
        self._consumer = consumer

    def _reserve(
        self, signal: Signal, encoding: Encoding, body: bytes, reservation: Reservation
    ) -> None:
        """Reserve the memory that decoding the request will take, before it is decoded."""
        limit = self.limits.most_bytes
        size = (
            json_decoded_size(body)
            if encoding is Encoding.JSON
            else protobuf_decoded_size(signal, body, limit)
        )
        if size > limit:
            raise RequestTooLarge(
                f"decoding the request would take more than {limit} bytes of memory, which is the"
                " limit here (receivers.otlp.max_inflight_size); send less at once"
            )
        reservation.grow(size)

    def _process(
        self, transport: str, signal: Signal, request: Rewritten, reservation: Reservation
    ) -> ExportResponse:
        if signal is Signal.METRICS:
            return self._take_metrics(transport, request.body)
        batch = read_request(RawRequest(signal, request.body), self.limits.max_attributes)
        reservation.grow(batch.content_bytes)
        batch.reject(request.reason, request.rejected)
        # Items with unusable ids are forwarded, too: then the response warns of them but does not
        # count them as rejected.
        rejected = request.rejected if self._consumer.forwards else batch.rejected
        return self._acknowledge(transport, signal, batch, rejected)

    def _take_metrics(self, transport: str, body: bytes) -> ExportResponse:
        """Accept metrics, so that an agent that sends them logs no errors, and discard them unless
        they are forwarded.
        """
        try:
            parse_metrics(body)
        except DecodeError:
            raise InputError("not OTLP metrics in protobuf") from None
        if not self._consumer.metrics(body):
            self.count(transport, discarded_metrics=1)
        return ExportResponse(ExportStatus.ACCEPTED)

    def _acknowledge(
        self, transport: str, signal: Signal, batch: SpanBatch, rejected: int
    ) -> ExportResponse:
        is_traces = signal is Signal.TRACES
        kind, items = ("spans", batch.spans) if is_traces else ("logs", batch.logs)
        take = self._consumer.spans if is_traces else self._consumer.logs
        try:
            if items or self._consumer.forwards:
                # returns once everything that must survive a crash is on disk; the acknowledgement
                # follows
                take(batch)
        except Overloaded:
            self.count(transport, **{f"refused_{kind}": len(items)})
            raise
        amounts = {
            f"accepted_{kind}": len(items),
            f"rejected_{kind}": batch.rejected,
            f"own_{kind}": batch.own,
        }
        self.count(transport, ignored_logs=batch.ignored, **amounts)
        return ExportResponse(ExportStatus.ACCEPTED, _warning(batch, rejected), rejected)


def _warning(batch: SpanBatch, rejected: int) -> str:
    """The message of an accepted request of which some items were rejected; "" if none was."""
    outcome = (
        "rejected"
        if rejected == batch.rejected
        else "rejected or passed on without being evaluated"
    )
    return f"{batch.rejected} {outcome}, the first: {batch.reason}" if batch.rejected else ""


def serialize(encoding: Encoding, message: Message) -> bytes:
    """The message in the encoding that the request used."""
    if encoding is Encoding.JSON:
        return json_format.MessageToJson(message, indent=None).encode()
    return message.SerializeToString()
