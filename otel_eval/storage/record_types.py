"""The payloads of the journal's records: requests, decisions, deliveries, and reports as JSON.

A report is stored with the fields of its run that are exported with results. Calls, their arguments
and results, input and output are not among them: they are in the spans, and a report that is
delivered after a restart does not need them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from otel_eval.assembly import Closing, State
from otel_eval.interfaces import NO_RUN, ClosedTrace, LastEvaluation, Released
from otel_eval.model import (
    Completeness,
    Evidence,
    Failed,
    NoRun,
    Outcome,
    Report,
    Result,
    Scored,
    Skipped,
    Stamp,
    Trajectory,
    Verdict,
)
from otel_eval.otlp.protobuf import RawRequest, reserialize_logs, reserialize_traces

_RUN_FIELDS: Final = (
    "trace_id",
    "span_id",
    "agent",
    "name",
    "service",
    "service_version",
    "environment",
    "resource",
    "conversation_id",
    "response_id",
    "start_ns",
    "end_ns",
    "last_end_ns",
    "incomplete",
)
_RESULT_FIELDS: Final = (
    "scorer",
    "type",
    "version",
    "result_id",
    "threshold",
    "policy",
    "severity",
)
_PENDING: Final = 6  # index of the ids of pending results
_OUTCOMES: Final[dict[str, type[Scored] | type[Skipped] | type[Failed]]] = {
    "s": Scored,
    "k": Skipped,
    "f": Failed,
}


def key_of(report: Report) -> bytes | None:
    """Return 16 bytes that identify a report, the same whenever it is built; None if there is
    nothing to deliver.
    """
    named = report.results[0] if report.results else report.no_run
    return None if named is None else bytes.fromhex(named.result_id)


def report_to_json(report: Report) -> list[Any]:
    """Return a report as JSON values."""
    run, evidence, no_run = report.trajectory, report.evidence, report.no_run
    return [
        [getattr(run, name) for name in _RUN_FIELDS],
        run.completeness.value,
        report.evaluation,
        report.revision,
        [_result_to_json(result) for result in report.results],
        report.late,
        [result.result_id for result in report.pending],
        dict(report.attributes),
        report.case,
        [evidence.spans, evidence.digest] if evidence else None,
        [report.stamp.evaluator, report.stamp.at_ns],
        list(astuple(no_run)) if no_run else None,
        report.standing,
        report.awaited,
    ]


def _result_to_json(result: Result) -> list[Any]:
    return [*[getattr(result, name) for name in _RESULT_FIELDS], *_outcome_to_json(result.outcome)]


def _outcome_to_json(outcome: Outcome) -> list[Any]:
    match outcome:
        case Scored():
            return ["s", outcome.value, outcome.passed, outcome.explanation, dict(outcome.details)]
        case Skipped():
            return ["k", outcome.explanation, outcome.reason, dict(outcome.details)]
        case Failed():
            # without the message, which may quote content
            return ["f", outcome.error_type, "", dict(outcome.details)]


def report_from_json(values: list[Any]) -> Report:
    """Return the report of JSON values: its run has only the fields of `_RUN_FIELDS`, and no result
    is pending.
    """
    (
        run_fields,
        completeness,
        evaluation,
        revision,
        results,
        late,
        _,
        attributes,
        case,
        evidence,
        stamp,
        no_run,
        standing,
        awaited,
    ) = values
    return Report(
        Trajectory(
            **dict(zip(_RUN_FIELDS, run_fields, strict=True)),
            completeness=Completeness(completeness),
        ),
        evaluation,
        revision,
        tuple([_result_from_json(result, evaluation, revision) for result in results]),
        late=late,
        attributes=attributes,
        case=case,
        evidence=Evidence(*evidence) if evidence else None,
        stamp=Stamp(*stamp),
        no_run=NoRun(*no_run) if no_run else None,
        standing=None if standing is None else Verdict(standing),
        awaited=awaited,
    )


def _result_from_json(values: list[Any], evaluation: str, revision: int) -> Result:
    common: dict[str, Any] = dict(zip(_RESULT_FIELDS, values, strict=False))
    kind, *fields = values[len(_RESULT_FIELDS) :]
    return Result(
        evaluation=evaluation, outcome=_OUTCOMES[kind](*fields), revision=revision, **common
    )


_REASONS: Final = (
    Completeness.COMPLETE,
    Completeness.REMOTE_PARENT,
    Completeness.IDLE,
    Completeness.AGED,
    Completeness.OVERFLOW,
    Completeness.SHUTDOWN,
    Completeness.DETACHED,
)
"""Records hold the index in this tuple: append only."""
_NESTED: Final = struct.Struct("<BI")
_TOMBSTONE: Final = struct.Struct("<16sdB")
_STATES: Final = (State.ENDED, State.LEFT, State.REPORTED)
"""Records hold the index in this tuple: append only."""
_CLOSED: Final = struct.Struct("<16sBI")
_SPAN_ID: Final = 8  # bytes
_FORWARDED: Final = struct.Struct("<QQI")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=str)


class RecordKind(IntEnum):
    """The kind of a record. The numbers are on disks: a number never gets another meaning."""

    BODY = 1
    """A request as it was received: one byte for its signal and whether it is forwarded, then its
    body.
    """
    CLOSED = 2
    """Traces that were closed, or trees of open traces: they are evaluated with the spans of the
    records before this one.
    """
    EVALUATED = 3
    """The reports of closed traces, and asynchronous results."""
    DELIVERED = 4
    """Reports that an exporter has delivered, or failed to deliver permanently."""
    TOMBSTONES = 5
    """All tombstones."""
    COMPACTED = 6
    """All records of one trace, copied so that an old segment can be removed: the trace id, then
    nested records.
    """
    PENDING_SPANS = 7
    """Within COMPACTED: a request with the held spans of the trace, still to be forwarded; it
    replaces their requests.
    """
    FORWARDED = 8
    """Requests that were forwarded completely, or except for their held spans."""
    RELEASED = 9
    """Within COMPACTED: the evaluated trees of a trace without a root (`interfaces.Released`)."""


def pack_closings(closed: Iterable[Closing]) -> bytes:
    """Return the payload of a CLOSED record."""
    return b"".join(
        _CLOSED.pack(trace_id, _REASONS.index(reason), len(roots)) + b"".join(roots)
        for trace_id, reason, roots in closed
    )


def unpack_closings(payload: bytes) -> Iterator[Closing]:
    """Yield the closings in the payload of a CLOSED record."""
    at = 0
    while at < len(payload):
        trace_id, reason, count = _CLOSED.unpack_from(payload, at)
        start, at = at + _CLOSED.size, at + _CLOSED.size + count * _SPAN_ID
        yield Closing(
            trace_id,
            _REASONS[reason],
            tuple([payload[root : root + _SPAN_ID] for root in range(start, at, _SPAN_ID)]),
        )


def pack_released(trace_id: bytes, released: Released) -> bytes:
    """Return the payload of a RELEASED record."""
    parents = {parent.hex(): parent in released.lost for parent in released.parents | released.lost}
    return _ENCODER.encode([trace_id.hex(), parents]).encode()


def unpack_released(payload: bytes) -> tuple[bytes, dict[bytes, bool]]:
    """Return the trace id of a RELEASED record, and missing parents → whether spans below them were
    forgotten.
    """
    trace_id, parents = json.loads(payload)
    decode = bytes.fromhex
    return decode(trace_id), {decode(parent): is_lost for parent, is_lost in parents.items()}


@dataclass(frozen=True, slots=True)
class EvaluatedTrace:
    """The results of an evaluated trace.

    Attributes:
        evaluations: run's span id → its evaluation.
        late: these are asynchronous results; the trace itself was evaluated before.
        pending: ids of asynchronous results that are not in `reports`.
    """

    trace_id: bytes
    evaluations: Mapping[bytes, LastEvaluation] = field(default_factory=dict)
    reports: Sequence[Report] = ()
    late: bool = False
    pending: frozenset[str] = frozenset()

    @classmethod
    def of(cls, trace: ClosedTrace, reports: Sequence[Report]) -> EvaluatedTrace:
        """Return the results of a closed trace after its evaluation; of a part only those of its
        own runs.
        """
        last = trace.history.evaluations
        if trace.part is not None:
            parents = [trace.frames[root][0] for root in trace.part.roots]
            runs = (*trace.part.spans, *parents, NO_RUN)
            last = {run: last[run] for run in runs if run in last}
        return cls(trace.trace_id, last, reports)


def pack_evaluated(traces: Iterable[EvaluatedTrace]) -> bytes:
    """Return the payload of an EVALUATED record."""
    rows = [
        (
            trace.trace_id.hex(),
            {run.hex(): tuple(last) for run, last in trace.evaluations.items()},
            [report_to_json(report) for report in trace.reports],
            trace.late,
        )
        for trace in traces
    ]
    return _ENCODER.encode(rows).encode()


def unpack_evaluated(payload: bytes) -> Iterator[EvaluatedTrace]:
    """Yield the evaluated traces in the payload of an EVALUATED record."""
    rows: list[Any] = json.loads(payload)
    for trace_id, evaluations, reports, late in rows:
        evaluated = {bytes.fromhex(run): LastEvaluation(*last) for run, last in evaluations.items()}
        pending = frozenset(result_id for report in reports for result_id in report[_PENDING])
        yield EvaluatedTrace(
            bytes.fromhex(trace_id),
            evaluated,
            [report_from_json(report) for report in reports],
            late,
            pending,
        )


def pack_delivered(exporter: str, keys: Iterable[bytes]) -> bytes:
    """Return the payload of a DELIVERED record."""
    name = exporter.encode()
    return bytes((len(name),)) + name + b"".join(keys)


def unpack_delivered(payload: bytes) -> tuple[str, list[bytes]]:
    """Return the exporter and the report keys in the payload of a DELIVERED record."""
    start = 1 + payload[0]
    return payload[1:start].decode(), [
        payload[at : at + 16] for at in range(start, len(payload), 16)
    ]


class ForwardedRequest(NamedTuple):
    """A request that was forwarded, completely or except for its held spans.

    Attributes:
        segment: the number of the segment that holds the request.
        end: the offset of the end of its record there.
        checksum: of the spans that are still held (`Ack.checksum`); 0 if the request was forwarded
            completely.
    """

    segment: int
    end: int
    checksum: int


def pack_forwarded(requests: Iterable[ForwardedRequest]) -> bytes:
    """Return the payload of a FORWARDED record."""
    return b"".join([_FORWARDED.pack(*request) for request in requests])


def unpack_forwarded(payload: bytes) -> Iterator[ForwardedRequest]:
    """Yield the requests in the payload of a FORWARDED record."""
    for fields in _FORWARDED.iter_unpack(payload):
        yield ForwardedRequest(*fields)


def pack_tombstones(ids: Iterable[tuple[bytes, float, State]]) -> bytes:
    """Return the payload of a TOMBSTONES record: trace ids, the Unix time at which each expires,
    and what is known of the trace.
    """
    return b"".join(
        _TOMBSTONE.pack(trace_id, until, _STATES.index(state)) for trace_id, until, state in ids
    )


def unpack_tombstones(payload: bytes) -> Iterator[tuple[bytes, float, State]]:
    """Yield what `pack_tombstones` packed."""
    for trace_id, until, state in _TOMBSTONE.iter_unpack(payload):
        yield trace_id, until, _STATES[state]


def pack_nested(trace_id: bytes, records: Iterable[tuple[RecordKind, bytes]]) -> list[bytes]:
    """Return the payload of a COMPACTED record, in pieces."""
    pieces = [trace_id]
    for kind, payload in records:
        pieces += [_NESTED.pack(kind, len(payload)), payload]
    return pieces


def unpack_nested(payload: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """Return the trace id of a COMPACTED record, and the nested records."""
    records, at = [], 16
    while at < len(payload):
        kind, size = _NESTED.unpack_from(payload, at)
        at += _NESTED.size
        records.append((kind, payload[at : at + size]))
        at += size
    return payload[:16], records


_SIGNAL_NUMBERS: Final = {"traces": 0, "logs": 2, "metrics": 4}
"""Signal → its number on disks, the low bits of the first byte of a BODY record."""
_SIGNALS: Final = {number: signal for signal, number in _SIGNAL_NUMBERS.items()}
_IS_FORWARDED: Final = 0x80


def signal_byte(signal: str, *, forwarded: bool = False) -> bytes:
    """Return the first byte of the record of a request."""
    return bytes((_SIGNAL_NUMBERS[signal] | _IS_FORWARDED * forwarded,))


def is_forwarded(payload: bytes) -> bool:
    """Whether the request in a BODY record has to be forwarded."""
    return bool(payload[0] & _IS_FORWARDED)


def request_of(payload: bytes) -> RawRequest:
    """Return the request in a BODY record.

    Raises:
        KeyError: this version does not know its signal.
    """
    return RawRequest(_SIGNALS[payload[0] & ~_IS_FORWARDED], payload[1:])


_TRACES: Final = signal_byte("traces")
_LOGS: Final = signal_byte("logs")


def payload_size(trace: ClosedTrace) -> int:
    """Return the size of the payloads of a trace in bytes."""
    logs = chain.from_iterable(trace.logs.values())
    return sum(len(frame[1]) for frame in trace.frames.values()) + sum(
        len(payload) for payload, _ in logs
    )


def records_of(trace: ClosedTrace) -> list[tuple[RecordKind, bytes]] | None:
    """Return the records that restore a trace: its evaluated spans, results, later spans. None if
    none of its spans is as it was evaluated, which is rare and lasts until the next evaluation.
    """
    if trace.changed is None:
        return list(_bodies(trace, lambda _: True))
    is_new = trace.changed.__contains__
    evaluated = [span_id for span_id in trace.frames if not is_new(span_id)]
    if not evaluated:
        return None
    roots = () if trace.reason is Completeness.COMPLETE else tuple(evaluated)
    results = EvaluatedTrace(trace.trace_id, trace.history.evaluations)
    records = [
        *_bodies(trace, lambda span_id: not is_new(span_id)),
        (RecordKind.CLOSED, pack_closings([Closing(trace.trace_id, trace.reason, roots)])),
        (RecordKind.EVALUATED, pack_evaluated([results])),
    ]
    if trace.released is not None:
        records.append((RecordKind.RELEASED, pack_released(trace.trace_id, trace.released)))
    return [*records, *_bodies(trace, is_new)]


def _bodies(
    trace: ClosedTrace, is_included: Callable[[bytes], bool]
) -> Iterator[tuple[RecordKind, bytes]]:
    frames = [frame for span_id, frame in trace.frames.items() if is_included(span_id)]
    logs = [
        record
        for span_id, records in trace.logs.items()
        if is_included(span_id)
        for record in records
    ]
    if frames:
        yield RecordKind.BODY, _TRACES + reserialize_traces(frames)
    if logs:
        yield RecordKind.BODY, _LOGS + reserialize_logs(logs)
