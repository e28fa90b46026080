"""A trace that compaction copied is the same trace after a restart."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_eval.assembly import Closing, Limits, TraceBuffer
from otel_eval.config import Storage
from otel_eval.interfaces import ClosedTrace, LastEvaluation
from otel_eval.model import Completeness, Report, Result, Skipped
from otel_eval.otlp.protobuf import RawRequest, read_logs, read_traces
from otel_eval.storage.durable import Durable
from otel_eval.storage.record_types import records_of
from otel_eval.storage.recovery import Recovery
from otel_eval.testing import trajectory
from tests.support.crashing_pipeline import Lives
from tests.support.named_exporter import NamedExporter
from tests.support.receiver_process import request
from tests.support.recovered_results import RecoveredReports

TRACE = (1).to_bytes(16)


def log(span: int, text: str) -> bytes:
    """A log record with the input of an agent's span."""
    message = ExportLogsServiceRequest()
    record = (
        message.resource_logs.add()
        .scope_logs.add()
        .log_records.add(trace_id=TRACE, span_id=span.to_bytes(8))
    )
    record.event_name, record.body.string_value = "gen_ai.user.message", text
    return message.SerializeToString()


def events(seed: int) -> list[tuple[str, bytes]]:
    """Requests and closings of one trace, in some order."""
    rng = random.Random(seed)
    made = []
    for _ in range(rng.randrange(1, 8)):
        span = rng.randrange(1, 6)
        spans = request(
            (1, span, int(span > 1), rng.choice(("search", "book")) if span > 1 else "")
        )
        made.append(
            rng.choice(
                (
                    ("traces", spans),
                    ("traces", spans),
                    ("logs", log(span, str(rng.random()))),
                    ("close", b""),
                )
            )
        )
    return made


def state(buffer: TraceBuffer) -> tuple[object, ...] | None:
    """Everything that determines the next evaluation of the trace."""
    held = buffer.held(TRACE)
    if held is None:
        return None
    # reopened by a duplicate: nothing to evaluate
    is_open = buffer.is_undecided(TRACE) and held.changed != frozenset()
    frames = {
        span_id: (parent, payload, resource_scope.raw)
        for span_id, (parent, payload, resource_scope) in held.frames.items()
    }
    logs = {span_id: [payload for payload, _ in records] for span_id, records in held.logs.items()}
    return is_open, frames, logs, held.changed if is_open else None, held.history


def lived(durable: Durable, seed: int) -> TraceBuffer:
    """Return a buffer after the events, which are also in the journal."""
    buffer = TraceBuffer(Limits())
    for number, (what, body) in enumerate(events(seed)):
        if what != "close":
            durable.journal_request(RawRequest(what, body), [TRACE])
            buffer.push_many(
                read_traces(body).spans, 0.0
            ) if what == "traces" else buffer.push_logs(read_logs(body).logs, 0.0)
        elif buffer.is_undecided(TRACE):
            durable.journal_closings([Closing(TRACE, Completeness.IDLE)])
            closed: ClosedTrace | None = buffer.reclose(TRACE, Completeness.IDLE, 0.0)
            if closed is not None:
                closed.history.record({(1).to_bytes(8): LastEvaluation(number, "why")})
                durable.record_evaluated([(closed, [])])
                durable.wait_until_journaled()
    return buffer


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), move=st.booleans())
def test_it_is_the_same_as_before(
    tmp_path_factory: pytest.TempPathFactory, seed: int, *, move: bool
):
    """Open or evaluated, with spans that arrived since, after a compaction and a replay or only a
    replay.
    """
    given_ = Storage(directory=str(tmp_path_factory.mktemp("kept")), sync=False)
    durable = Durable(given_)
    before = lived(durable, seed)
    trace = before.held(TRACE)
    if move and trace is not None:
        records = records_of(trace)
        if records is not None:
            durable._copy_trace(TRACE, records)
    durable.close()
    again, after = Durable(given_), TraceBuffer(Limits())
    assert Recovery(again, RecoveredReports()).replay(after, 0.0) == []
    again.close()
    assert state(after) == state(before)


@pytest.mark.parametrize("later", [((1, 7, 2, "search"),), ((1, 7, 2, "search"), (1, 2, 1, ""))])
@pytest.mark.parametrize("others", [(), ((1, 5, 4, ""), (1, 6, 5, "search"))])
def test_a_tree_that_opened_again_has_its_next_revision_after_a_restart(
    tmp_path: Path, others: tuple[Any, ...], later: tuple[Any, ...]
):
    """Also if no other tree of the trace is closed: what was evaluated before is known."""
    lives = Lives(tmp_path)
    lives.send((1, 2, 1, ""), (1, 3, 2, "search"), *others)
    lives.wait(15)
    lives.send(*later)
    trace = lives.pipeline._buffer.held(TRACE)
    assert trace is not None
    lives.durable._copy_trace(TRACE, records_of(trace) or [])
    lives.crash()
    lives.wait(15)
    assert lives.last() == {2: ("Scored", 1)} | ({5: ("Scored", 0)} if others else {})
    lives.durable.close()


def test_one_slow_trace_does_not_keep_the_others_on_disk(tmp_path: Path):
    """At half of the limit it is copied, and the old segments are removed."""
    now = [0.0]
    durable = Durable(
        Storage(directory=str(tmp_path), max_size=40_000), clock=lambda: now[0], segment_bytes=4000
    )
    buffer = TraceBuffer(Limits(grace_period_s=1.0, idle_s=1e6, max_age_s=1e6))
    for trace in range(1, 200):
        body = (
            request((1, 1000 + trace, 999, "search"))
            if trace % 50 == 1
            else request((trace, 1, 0, ""))
        )
        now[0] += 5.0
        durable.journal_request(
            RawRequest("traces", body), [span[0] for span in read_traces(body).spans]
        )
        buffer.push_many(read_traces(body).spans, now[0])
        durable.tidy(buffer)
        close_due = buffer.close_due(now[0])
        durable.journal_closings(close_due)
        durable.record_evaluated([(closed, []) for closed in buffer.pop_closed(now[0])])
        durable.wait_until_journaled()
        assert durable.journal.size < 30_000
    durable.close()
    again, after = Durable(Storage(directory=str(tmp_path))), TraceBuffer(Limits())
    Recovery(again, RecoveredReports()).replay(after, 0.0)
    again.close()
    held = after.held(TRACE)
    assert held is not None
    assert len(held.frames) == 4


def test_a_result_that_waits_for_its_exporter_keeps_its_segment(tmp_path: Path):
    """Even if the trace itself is no longer held."""
    exporters = [NamedExporter("away")]
    storage = Storage(directory=str(tmp_path))
    durable = Durable(storage, segment_bytes=300, exporters=exporters)
    report = _report()
    closed = ClosedTrace(TRACE, {}, Completeness.COMPLETE)
    durable.record_evaluated([(closed, [report])])
    durable.wait_until_journaled()
    for _ in range(8):
        durable.record_evaluated([(closed, [])] * 5)
        durable.wait_until_journaled()
    buffer = TraceBuffer(Limits())
    durable.tidy(buffer)
    assert durable.journal.finished[0].number == 1
    durable.journal_delivery("away", [report])
    durable.tidy(buffer)
    assert [segment.number for segment in durable.journal.finished if segment.number == 1] == []
    durable.close()


def _report() -> Report:
    result = Result(
        evaluation="e",
        scorer="s",
        type="t",
        version="1",
        outcome=Skipped("why"),
        revision=0,
        result_id="0" * 32,
    )
    return Report(trajectory(trace_id=TRACE.hex()), "e", 0, (result,))
