"""Splits OTLP requests by trace id, without decoding spans, and hands each worker its part.

Every byte goes somewhere: what stands around spans to each part that gets some of them, what belongs to no trace to the first.
A request is acknowledged when every part was.
Source: opentelemetry-proto: resource_spans = 1, scope_spans = 2, spans = 2, trace_id = 1; logs alike, with trace_id = 9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from otel_eval.app.workers.supervisor import SupervisedWorker
from otel_eval.app.workers.worker import PARTS
from otel_eval.errors import InputError, Overloaded, RequestTooLarge
from otel_eval.native import extension
from otel_eval.otlp import Encoding, Signal, load_json
from otel_eval.otlp.decoded_size import json_decoded_size
from otel_eval.otlp.otlp_json import logs_request, metrics_request, traces_request
from otel_eval.sources.receiver.export_handler import INTERNAL_ERROR, ExportHandler, ExportResponse, ExportStatus, add_counts
from otel_eval.sources.receiver.memory import Reservation
from otel_eval.wire import fields, sized

__all__ = ["SplittingHandler", "part_of", "split_request", "split_request_python"]

_ID_FIELDS: Final = {Signal.TRACES: 1, Signal.LOGS: 9}
_ID_BYTES: Final = 8
_REQUEST: Final = 2  # levels: members of a scope, of a group, of the request
_MEMBERS: Final = (2, 2, 1)  # their field numbers

_native: Final = extension("_native")


def part_of(trace_id: bytes, count: int) -> int:
    """Which of the parts gets the spans of a trace, by the end of its id, which is random where anything in it is."""
    return int.from_bytes(trace_id[-_ID_BYTES:]) % count


def split_request(body: bytes, signal: Signal, count: int) -> list[bytes]:
    """As many requests, b"" where there is nothing for one.

    Args:
        body: a request of traces or logs in protobuf.

    Raises:
        ValueError: it cannot be read.
    """
    found: list[bytes] | None = None if _native is None else _native.split(body, count, _ID_FIELDS[signal])
    return split_request_python(body, signal, count) if found is None else found


def split_request_python(body: bytes, signal: Signal, count: int) -> list[bytes]:
    """The same in Python."""
    around, parts = _split(body, 0, len(body), _REQUEST, _ID_FIELDS[signal], count)
    return [parts[0] + around, *parts[1:]]


def _split(body: bytes, start: int, stop: int, level: int, id_field: int, count: int) -> tuple[bytes, list[bytes]]:
    """What stands around the members, and the members of each part."""
    around: list[bytes] = []
    parts: list[list[bytes]] = [[] for _ in range(count)]
    for field in fields(body, start, stop):
        if field.number != _MEMBERS[level]:
            around.append(body[field.start : field.stop])
        elif level:
            outer, members = _split(body, field.content, field.stop, level - 1, id_field, count)
            for number, each in enumerate(members):
                if each or (number == 0 and not any(members)):
                    parts[number].append(sized(_MEMBERS[level], outer + each))
        else:
            ids = [body[each.content : each.stop] for each in fields(body, field.content, field.stop) if each.number == id_field]
            parts[part_of(ids[-1] if ids else b"", count)].append(body[field.start : field.stop])
    return b"".join(around), [b"".join(each) for each in parts]


_REQUESTS: Final = {Signal.TRACES: traces_request, Signal.LOGS: logs_request}
_REJECTED: Final = {Signal.TRACES: "rejected_spans", Signal.LOGS: "rejected_logs"}
_ACCEPTED: Final = ExportResponse(ExportStatus.ACCEPTED)
_REFUSALS: Final[dict[ExportStatus, Callable[[ExportResponse], Exception]]] = {
    ExportStatus.INVALID: lambda answer: InputError(answer.message),
    ExportStatus.TOO_LARGE: lambda answer: RequestTooLarge(answer.message),
    ExportStatus.RETRYABLE: lambda answer: (
        Overloaded(answer.message, retry_after_s=answer.retry_after_s)
        if answer.message != INTERNAL_ERROR
        else RuntimeError(INTERNAL_ERROR)  # counted as one of the front's: once for each request
    ),
}


class SplittingHandler(ExportHandler):
    """Splits requests by trace id for workers, which count what is in them.

    What some workers took of a request that another one refused comes to them again: they know the spans by their ids.

    Args:
        workers: of each trace always the same one gets the spans.
    """

    def __init__(self, workers: Sequence[SupervisedWorker], **given: object) -> None:
        super().__init__(**given)  # type: ignore[arg-type]
        self._workers: Final = workers

    def _reserve(self, signal: Signal, encoding: Encoding, body: bytes, reservation: Reservation) -> None:
        """Parts take what the request takes; workers reserve what reading them takes."""
        reservation.grow(json_decoded_size(body) if encoding is Encoding.JSON else len(body))

    def _hand_over(self, transport: str, signal: Signal, encoding: Encoding, body: bytes) -> ExportResponse:
        lost, why = 0, ""
        if signal is Signal.METRICS:
            parts = [metrics_request(load_json(body)) if encoding is Encoding.JSON else body]
        else:
            if encoding is Encoding.JSON:
                body, lost, why = _REQUESTS[signal](load_json(body))
            parts = self._split(signal, body)
            add_counts(self._counters, transport, **{_REJECTED[signal]: lost})
        answers = self._send(PARTS.index((transport, signal)), parts)
        if lost:
            answers.append(ExportResponse(ExportStatus.ACCEPTED, f"{lost} rejected, the first: {why}", lost))
        return _merged(answers)

    def _split(self, signal: Signal, body: bytes) -> list[bytes]:
        try:
            return split_request(body, signal, len(self._workers))
        except ValueError:
            raise InputError(f"not OTLP {signal} in protobuf: the bytes are corrupt or cut") from None

    def _send(self, kind: int, parts: Sequence[bytes]) -> list[ExportResponse]:
        """Send every part, then wait for every answer.

        Raises:
            Overloaded: a worker does not take its part now.
            InputError: a worker finds its part invalid.
            RequestTooLarge: a worker cannot ever take its part.
        """
        refusals: list[Exception] = []
        under_way, answers = [], []
        used = [(worker, body) for worker, body in zip(self._workers, parts, strict=False) if body]
        for worker, body in used or [(self._workers[0], b"")]:
            try:
                under_way.append((worker, worker.begin_part(kind, body)))
            except Overloaded as error:
                refusals.append(error)
        for worker, pending in under_way:
            try:
                answers.append(worker.finish_part(pending))
            except Overloaded as error:
                refusals.append(error)
        refusals += [_REFUSALS[each.status](each) for each in answers if each.status in _REFUSALS]
        if refusals:
            raise next((each for each in refusals if not isinstance(each, Overloaded)), refusals[0])
        return answers


def _merged(answers: Sequence[ExportResponse]) -> ExportResponse:
    """Partial successes add up; the reason is the first worker's that has one."""
    told = [each for each in answers if each.message]
    if not told:
        return _ACCEPTED
    return ExportResponse(ExportStatus.ACCEPTED, told[0].message, sum(each.rejected for each in answers))
