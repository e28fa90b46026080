"""The payloads of the journal's records: requests, decisions, deliveries, and reports as JSON.

A report holds the fields of a run that leave with its results. The calls, their arguments and results, input and output are not
among them: they are in the spans, and a report that is read again does not need them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import chain
from typing import Any, Final, NamedTuple

from otel_eval.assembly import Closing
from otel_eval.interfaces import ClosedTrace, LastEvaluation, Released
from otel_eval.model import Completeness, Evidence, Failed, NoRun, Outcome, Report, Result, Scored, Skipped, Stamp, Trajectory
from otel_eval.otlp import RawRequest
from otel_eval.otlp.protobuf import reserialize_logs, reserialize_traces

_RUN: Final = (
    *("trace_id", "span_id", "agent", "name", "service", "service_version", "environment", "resource", "conversation_id"),
    *("response_id", "start_ns", "end_ns", "last_end_ns", "incomplete"),
)
_RESULT: Final = ("scorer", "type", "version", "result_id", "threshold")
_PENDING: Final = 6  # place of the ids of results that are to come
_OUTCOMES: Final[dict[str, type[Scored] | type[Skipped] | type[Failed]]] = {"s": Scored, "k": Skipped, "f": Failed}


def key_of(report: Report) -> bytes | None:
    """16 bytes that name the report, the same wherever it is made; None if there is nothing to deliver."""
    named = report.results[0] if report.results else report.no_run
    return None if named is None else bytes.fromhex(named.result_id)


def report_to_json(report: Report) -> list[Any]:
    """The report as JSON values."""
    run, evidence, no_run = report.trajectory, report.evidence, report.no_run
    return [
        [getattr(run, name) for name in _RUN],
        run.completeness.value,
        report.evaluation,
        report.revision,
        [_result_to(result) for result in report.results],
        report.late,
        [each.result_id for each in report.pending],
        dict(report.attributes),
        [evidence.spans, evidence.digest] if evidence else None,
        [report.stamp.evaluator, report.stamp.at_ns],
        [no_run.why, no_run.result_id] if no_run else None,
    ]


def _result_to(result: Result) -> list[Any]:
    return [*[getattr(result, name) for name in _RESULT], *_outcome_to(result.outcome)]


def _outcome_to(outcome: Outcome) -> list[Any]:
    match outcome:
        case Scored():
            return ["s", outcome.value, outcome.passed, outcome.explanation, dict(outcome.details)]
        case Skipped():
            return ["k", outcome.text, dict(outcome.details), outcome.reason]
        case Failed():
            return ["f", outcome.error_type, "", dict(outcome.details)]  # its message may quote content


def report_from_json(values: list[Any]) -> Report:
    """The report again, its run with the facts alone and without what was pending."""
    facts, completeness, evaluation, revision, results, late, _, attributes, evidence, stamp, no_run = values
    return Report(
        Trajectory(**dict(zip(_RUN, facts, strict=True)), completeness=Completeness(completeness)),
        evaluation,
        revision,
        tuple([_result_from(each, evaluation, revision) for each in results]),
        late=late,
        attributes=attributes,
        evidence=Evidence(*evidence) if evidence else None,
        stamp=Stamp(*stamp),
        no_run=NoRun(*no_run) if no_run else None,
    )


def _result_from(values: list[Any], evaluation: str, revision: int) -> Result:
    known: dict[str, Any] = dict(zip(_RESULT, values, strict=False))
    kind, *fields = values[len(_RESULT) :]
    return Result(evaluation=evaluation, outcome=_OUTCOMES[kind](*fields), revision=revision, **known)


_REASONS: Final = tuple(map(Completeness, ("complete", "remote_parent", "idle", "aged", "overflow", "shutdown", "detached")))
"""By their place here they are on disks."""
_NESTED: Final = struct.Struct("<BI")
_TOMBSTONE: Final = struct.Struct("<16sd")
_CLOSED: Final = struct.Struct("<16sBI")
_SPAN_ID: Final = 8  # bytes
_FORWARDED: Final = struct.Struct("<QQI")
_ENCODER: Final = json.JSONEncoder(ensure_ascii=True, separators=(",", ":"), default=str)


class RecordKind(IntEnum):
    """What a record is. The numbers are on disks: none is ever used for something else."""

    BODY = 1
    """A request as it came: what it is in one byte, then its bytes."""
    CLOSED = 2
    """Traces that were closed, or trees of traces that stay open, to be evaluated on what came before."""
    EVALUATED = 3
    """The results of traces that were closed."""
    DELIVERED = 4
    """Reports that an exporter has delivered or permanently refused."""
    TOMBSTONES = 5
    """Every id of which only the id is remembered."""
    MOVED = 6
    """All there is of one trace, written again so that an old segment can go: its id, then records within this one."""
    PENDING_SPANS = 7
    """Within MOVED: a request of the trace's spans that wait to be passed on, in the place of those that came before."""
    FORWARDED = 8
    """Requests that were passed on, or all of them but the spans that wait for their scores."""
    RELEASED = 9
    """Within MOVED: what is no longer known of trees of the trace that were closed on their own."""


def pack_closings(closed: Iterable[Closing]) -> bytes:
    """The payload of CLOSED."""
    return b"".join(_CLOSED.pack(trace_id, _REASONS.index(why), len(roots)) + b"".join(roots) for trace_id, why, roots in closed)


def unpack_closings(payload: bytes) -> Iterator[Closing]:
    """The closings in a CLOSED record."""
    at = 0
    while at < len(payload):
        trace_id, reason, count = _CLOSED.unpack_from(payload, at)
        start, at = at + _CLOSED.size, at + _CLOSED.size + count * _SPAN_ID
        yield Closing(trace_id, _REASONS[reason], tuple([payload[root : root + _SPAN_ID] for root in range(start, at, _SPAN_ID)]))


def pack_released(trace_id: bytes, released: Released) -> bytes:
    """The payload of RELEASED."""
    parents = {parent.hex(): parent in released.lost for parent in released.parents}
    runs = {run.hex(): parent.hex() for run, parent in released.runs.items()}
    return _ENCODER.encode([trace_id.hex(), parents, runs]).encode()


def unpack_released(payload: bytes) -> tuple[bytes, dict[bytes, bool], dict[bytes, bytes]]:
    """The trace of a RELEASED record, its missing parents and whether spans of them are gone, and runs with their parents."""
    trace_id, parents, runs = json.loads(payload)
    decoded = bytes.fromhex
    return (
        decoded(trace_id),
        {decoded(parent): lost for parent, lost in parents.items()},
        {decoded(run): decoded(parent) for run, parent in runs.items()},
    )


@dataclass(frozen=True, slots=True)
class EvaluatedTrace:
    """The results of a trace: of which run under which revision, in which reports.

    Attributes:
        late: these are results that come later; the trace itself was evaluated before.
        pending: ids of results that are still to come.
    """

    trace_id: bytes
    last_evaluations: Mapping[bytes, LastEvaluation] = field(default_factory=dict)
    reports: Sequence[Report] = ()
    late: bool = False
    pending: frozenset[str] = frozenset()

    @classmethod
    def of(cls, trace: ClosedTrace, reports: Sequence[Report]) -> EvaluatedTrace:
        """The results of a closed trace that was evaluated just now."""
        last = trace.last_evaluations
        if trace.part is not None:
            runs = (*trace.part.spans, *[trace.frames[root][0] for root in trace.part.roots])
            last = {each: last[each] for each in runs if each in last}
        return cls(trace.trace_id, last, reports)


def pack_evaluated(traces: Iterable[EvaluatedTrace]) -> bytes:
    """The payload of EVALUATED."""
    rows = [
        (
            each.trace_id.hex(),
            {run.hex(): tuple(last) for run, last in each.last_evaluations.items()},
            [report_to_json(report) for report in each.reports],
            each.late,
        )
        for each in traces
    ]
    return _ENCODER.encode(rows).encode()


def unpack_evaluated(payload: bytes) -> Iterator[EvaluatedTrace]:
    """The results in an EVALUATED record."""
    rows: list[Any] = json.loads(payload)
    for trace_id, last_evaluations, reports, late in rows:
        evaluated = {bytes.fromhex(run): LastEvaluation(*last) for run, last in last_evaluations.items()}
        pending = frozenset(result_id for report in reports for result_id in report[_PENDING])
        yield EvaluatedTrace(bytes.fromhex(trace_id), evaluated, [report_from_json(report) for report in reports], late, pending)


def pack_delivered(exporter: str, keys: Iterable[bytes]) -> bytes:
    """The payload of DELIVERED."""
    name = exporter.encode()
    return bytes((len(name),)) + name + b"".join(keys)


def unpack_delivered(payload: bytes) -> tuple[str, list[bytes]]:
    """The exporter and the keys of a DELIVERED record."""
    start = 1 + payload[0]
    return payload[1:start].decode(), [payload[at : at + 16] for at in range(start, len(payload), 16)]


class ForwardedRequest(NamedTuple):
    """A request, by the number of its segment and the end of its record there, and what shows which of its spans still wait.

    `waiting` is 0 if none does, and then all of it was passed on.
    """

    segment: int
    end: int
    waiting: int


def pack_forwarded(requests: Iterable[ForwardedRequest]) -> bytes:
    """The payload of FORWARDED."""
    return b"".join([_FORWARDED.pack(*each) for each in requests])


def unpack_forwarded(payload: bytes) -> Iterator[ForwardedRequest]:
    """The requests in a FORWARDED record."""
    for fields in _FORWARDED.iter_unpack(payload):
        yield ForwardedRequest(*fields)


def pack_tombstones(ids: Iterable[tuple[bytes, float]]) -> bytes:
    """The payload of TOMBSTONES: ids and the Unix time at which each may be forgotten."""
    return b"".join(_TOMBSTONE.pack(trace_id, until) for trace_id, until in ids)


def unpack_tombstones(payload: bytes) -> Iterator[tuple[bytes, float]]:
    """The ids in a TOMBSTONES record."""
    yield from _TOMBSTONE.iter_unpack(payload)


def pack_nested(trace_id: bytes, records: Iterable[tuple[RecordKind, bytes]]) -> list[bytes]:
    """The payload of MOVED, in pieces."""
    pieces = [trace_id]
    for kind, payload in records:
        pieces += [_NESTED.pack(kind, len(payload)), payload]
    return pieces


def unpack_nested(payload: bytes) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The trace of a MOVED record, and the records within."""
    records, at = [], 16
    while at < len(payload):
        kind, size = _NESTED.unpack_from(payload, at)
        at += _NESTED.size
        records.append((kind, payload[at : at + size]))
        at += size
    return payload[:16], records


_FORMS: Final = {"traces": 0, "logs": 2, "metrics": 4}
"""As they are on disks."""
_SIGNALS: Final = {form: signal for signal, form in _FORMS.items()}
_IS_FORWARDED: Final = 0x80


def form_of(signal: str, *, forwarded: bool = False) -> bytes:
    """The byte before a request's own."""
    return bytes((_FORMS[signal] | _IS_FORWARDED * forwarded,))


def is_forwarded(payload: bytes) -> bool:
    """Whether the request of a record has to be forwarded."""
    return bool(payload[0] & _IS_FORWARDED)


def origin_of(payload: bytes) -> RawRequest:
    """The request of a record.

    Raises:
        KeyError: this version does not know such requests.
    """
    return RawRequest(_SIGNALS[payload[0] & ~_IS_FORWARDED], payload[1:])


_TRACES: Final = form_of("traces")
_LOGS: Final = form_of("logs")


def weight_of(trace: ClosedTrace) -> int:
    """Its payloads in bytes."""
    logs = chain.from_iterable(trace.logs.values())
    return sum(len(frame[1]) for frame in trace.frames.values()) + sum(len(payload) for payload, _ in logs)


def records_of(trace: ClosedTrace, *, is_open: bool) -> list[tuple[RecordKind, bytes]] | None:
    """Records that restore the trace: evaluated spans, results, later spans. None if they cannot be distinguished."""
    part = trace.part if trace.released is not None else None
    closing = Closing(trace.trace_id, Completeness.COMPLETE)
    is_since: Callable[[bytes], bool] = (trace.changed if is_open and trace.changed else frozenset[bytes]()).__contains__
    if part is not None:  # it is open, and trees of it were closed on their own
        closing, is_since = Closing(trace.trace_id, Completeness.DETACHED, part.roots), lambda span_id: span_id not in part.spans
    elif is_open and trace.changed is None:
        return list(_bodies(trace, lambda _: True))
    elif all(map(is_since, trace.frames)):
        return None  # every span was replaced after the evaluation: rare, and over with the next one
    records = list(_bodies(trace, lambda span_id: not is_since(span_id)))
    records.append((RecordKind.CLOSED, pack_closings([closing])))
    records.append((RecordKind.EVALUATED, pack_evaluated([EvaluatedTrace(trace.trace_id, trace.last_evaluations)])))
    if part is not None and trace.released is not None:
        records.append((RecordKind.RELEASED, pack_released(trace.trace_id, trace.released)))
    return [*records, *_bodies(trace, is_since)]


def _bodies(trace: ClosedTrace, wanted: Callable[[bytes], bool]) -> Iterator[tuple[RecordKind, bytes]]:
    frames = [frame for span_id, frame in trace.frames.items() if wanted(span_id)]
    logs = [record for span_id, records in trace.logs.items() if wanted(span_id) for record in records]
    if frames:
        yield RecordKind.BODY, _TRACES + reserialize_traces(frames)
    if logs:
        yield RecordKind.BODY, _LOGS + reserialize_logs(logs)
