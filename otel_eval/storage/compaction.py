"""Journals a long-open trace again, so that it does not keep the segments that follow its first span.

Without this a single run that waits for a person would keep the whole journal after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from otel_eval.interfaces import ClosedTrace, Part, Released
from otel_eval.model import Completeness
from otel_eval.otlp import reserialize_logs, reserialize_traces
from otel_eval.storage.record_types import EvaluatedTrace, RecordKind, pack_closings, pack_evaluated, pack_parts, pack_released
from otel_eval.storage.request_format import form_of

__all__ = ["records_of", "weight_of"]

_TRACES: Final = form_of("traces", "protobuf")
_LOGS: Final = form_of("logs", "protobuf")


def weight_of(trace: ClosedTrace) -> int:
    """Its payloads in bytes."""
    return sum(len(frame[1]) for frame in trace.frames.values()) + sum(
        len(payload) for records in trace.logs.values() for payload, _ in records
    )


def records_of(trace: ClosedTrace, *, is_open: bool) -> list[tuple[RecordKind, bytes]] | None:
    """Records that restore the trace: evaluated spans, results, later spans. None if they cannot be told apart."""
    if trace.part is not None and trace.released is not None:
        return _records_of_parts(trace, trace.part, trace.released)
    evaluated = not is_open or trace.changed is not None
    since = (trace.changed or frozenset()) if evaluated and is_open else frozenset()
    if evaluated and not trace.frames.keys() - since:
        return None  # every span was replaced after the evaluation: rare, and over with the next one
    records = list(_bodies(trace, lambda span_id: span_id not in since))
    if evaluated:
        records.append((RecordKind.CLOSED, pack_closings([(trace.trace_id, Completeness.COMPLETE)])))
        records.append((RecordKind.EVALUATED, pack_evaluated([EvaluatedTrace(trace.trace_id, trace.last_evaluations)])))
        records += _bodies(trace, lambda span_id: span_id in since)
    return records


def _records_of_parts(trace: ClosedTrace, part: Part, released: Released) -> list[tuple[RecordKind, bytes]]:
    """The same of a trace that is open and of which trees were closed on their own."""
    records = list(_bodies(trace, lambda span_id: span_id in part.spans))
    records.append((RecordKind.PART, pack_parts([(trace.trace_id, Completeness.DETACHED, part.tops)])))
    records.append((RecordKind.EVALUATED, pack_evaluated([EvaluatedTrace(trace.trace_id, trace.last_evaluations)])))
    records.append((RecordKind.RELEASED, pack_released(trace.trace_id, released)))
    return [*records, *_bodies(trace, lambda span_id: span_id not in part.spans)]


def _bodies(trace: ClosedTrace, wanted: Callable[[bytes], bool]) -> Iterator[tuple[RecordKind, bytes]]:
    frames = [frame for span_id, frame in trace.frames.items() if wanted(span_id)]
    logs = [record for span_id, records in trace.logs.items() if wanted(span_id) for record in records]
    if frames:
        yield RecordKind.BODY, _TRACES + reserialize_traces(frames)
    if logs:
        yield RecordKind.BODY, _LOGS + reserialize_logs(logs)
