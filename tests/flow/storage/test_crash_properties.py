"""With any order of requests and crashes at any point, no result has two contents, and the last one
of each run is right.

The tests run the parts of the receiver without sockets, with a real journal. A countdown (`fuse`)
crashes the process at a write, even within a record, or at a report. Then the next process starts
with the files, and the client sends unacknowledged requests again.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict, deque
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.app.build import build_engine, build_limits
from otel_eval.config import load
from otel_eval.counters import Counters
from otel_eval.errors import Overloaded
from otel_eval.exporters.result_rows import rows_of
from otel_eval.forwarding.pending_spans import PendingSpans
from otel_eval.forwarding.relay import ForwardingRecovery, ForwardingRelay
from otel_eval.forwarding.stage import Forwarder
from otel_eval.otlp.endpoint import Endpoint
from otel_eval.otlp.protobuf import RawRequest, read_request, read_traces
from otel_eval.pipeline import Pipeline
from otel_eval.storage.durable import Durable
from otel_eval.storage.recovery import Recovery
from otel_eval.storage.segments import HEAD_BYTES
from tests.support.listening import Listener
from tests.support.named_exporter import NamedExporter
from tests.support.receiver_process import request
from tests.support.recovered_results import RecoveredReports

ALLOWED = 3
BACKEND = Endpoint(endpoint="http://127.0.0.1:9", protocol="http/protobuf")
Spans = tuple[tuple[int, int, int, str], ...]


class Crash(BaseException):
    """The simulated process crashed."""


class Lives:
    """One receiver over several processes (lives), with its own clock."""

    def __init__(self, folder: Path, rng: random.Random, late: str, max_size: int) -> None:
        self.rng, self.now, self.fuse, self.lives = rng, 1000.0, 0, 0
        self.results: defaultdict[str, set[str]] = defaultdict(set)
        self.last: dict[tuple[str, str], dict[str, Any]] = {}
        self.pushed: defaultdict[int, set[int]] = defaultdict(set)
        # at the backend: scores of each copy of a span
        self.arrived: defaultdict[tuple[int, int], list[int]] = defaultdict(list)
        self.config = load(
            {
                "traces": {
                    "decision_wait": "1s",
                    "decision_wait_partial": "2s",
                    "grace_period": late,
                    "idle_timeout": "20s",
                    "max_age": "1h",
                },
                "evaluations": [
                    {
                        "name": "e",
                        "scorers": [
                            {"type": "tool_call_count", "criteria": {"search": f"<= {ALLOWED}"}}
                        ],
                    }
                ],
                "storage": {"directory": str(folder), "max_size": max_size, "sync": False},
            }
        )
        self.begin()

    def begin(self) -> None:
        assert self.config.storage is not None
        self.lives += 1
        self.fuse = self.rng.choice((0, *range(1, 30)))
        engine = build_engine(self.config)
        held = PendingSpans()
        self.durable = Durable(
            self.config.storage,
            now=lambda: self.now,
            clock=lambda: self.now,
            segment_bytes=3000,
            exporters=[NamedExporter("all")],
            pending_spans=held,
        )
        self._append = self.durable.journal.append
        self.durable.journal.append = self.append  # type: ignore[method-assign]
        forwarded = self.durable.forwarded
        self.forward = Forwarder(BACKEND, engine, Counters(), pending_spans=held, journal=forwarded)
        self.pipeline = Pipeline(
            engine,
            Listener(self.export, decided=lambda trace_id: self.forward.release((trace_id,))),
            build_limits(self.config),
            clock=lambda: self.now,
            journal=self.durable,
        )
        self.relay = ForwardingRelay(self.forward, self.pipeline, self.durable)
        undelivered: list[Any] = []
        resuming = ForwardingRecovery(forwarded, self.forward)
        # 0: as if the scores were evicted after many runs
        resuming._reports = deque(maxlen=self.rng.choice((0, 100)))
        self.pipeline.recover(
            Recovery(self.durable, RecoveredReports(undelivered), forwarding=resuming)
        )
        for report, _ in undelivered:
            self.emit(report)

    def burn(self) -> bool:
        self.fuse -= 1
        return self.fuse == 0

    def append(self, kind: int, payload: Any, **options: Any) -> Any:
        """Append a record; when the fuse ends, only a part of it, and crash."""
        written = self._append(kind, payload, **options)
        if self.burn():
            segment, end = written.segment, written.end
            missing = self.rng.randint(0, min(end - HEAD_BYTES, sum(map(len, payload)) + 17))
            os.truncate(segment.path, end - missing)
            raise Crash
        return written

    def export(self, report: Any) -> None:
        """Export a report to the held spans and to an exporter."""
        self.forward.export([report])
        self.emit(report)

    def emit(self, report: Any) -> None:
        """Deliver a report, then journal that; the fuse may end in between."""
        for row in rows_of(report):
            self.results[row["result_id"]].add(
                repr({key: value for key, value in row.items() if key != "completeness"})
            )
            self.last[row["trace_id"], row["span_id"]] = row
        if self.burn():
            raise Crash
        self.durable.journal_delivery("all", [report])

    def deliver_queued(self) -> None:
        """Do the work of the queue's threads, which are not started: deliver batches to the
        backend, and journal each.
        """
        queue = self.forward._queues["traces"]
        while queue._queue:
            with queue._lock:
                entries = queue._pop(queue._queue, queue._batch_length())
                queue._land(entries)
            joined = [entry.item for entry in entries]
            for trace_id, span_id, frame, _ in read_traces(
                b"".join([each.body for each in joined])
            ).spans:
                scores = sum(
                    event.name == "gen_ai.evaluation.result"
                    for event in Span.FromString(frame[1]).events
                )
                self.arrived[int.from_bytes(trace_id), int.from_bytes(span_id)].append(scores)
            if self.burn():
                raise Crash
            requests, spans = [
                [ack for each in joined for ack in each.requests],
                [ack for each in joined for ack in each.spans],
            ]
            self.durable.forwarded.journal_forwarded(requests, spans)

    def die(self) -> None:
        self.durable.journal.close()
        self.durable._directory.release()

    def survive(self, act: Any) -> bool:
        """Call a function. If the process crashes in it, start the next one and return False."""
        try:
            act()
        except Crash:
            while True:
                self.die()
                with suppress(Crash):
                    self.begin()
                    return False
        return True

    def send(self, spans: Spans) -> None:
        """Send a request until it is acknowledged."""
        framed = read_request(RawRequest("traces", request(*spans)))

        def push() -> None:
            with suppress(Overloaded):
                self.relay.spans(framed)
                for trace, span, _, _ in spans:
                    self.pushed[trace].add(span)

        while not self.survive(push):
            pass

    def wait(self, seconds: float) -> None:
        self.now += seconds
        while not self.survive(lambda: self.pipeline.step()):
            pass
        if self.rng.random() < 0.25:
            while not self.survive(self.deliver_queued):
                pass


def play(folder: Path, seed: int, *, late: str, max_size: int, longest_s: float) -> Lives:
    """Send random requests with spans of several runs, repeated and out of order, with random waits
    between them.
    """
    rng = random.Random(seed)
    lives = Lives(folder, rng, late, max_size)
    stock = [
        (trace, span, int(span > 1), "search" if span > 1 else "")
        for trace in range(1, 6)
        for span in range(1, 7)
    ]
    rng.shuffle(stock)
    sent: list[tuple[int, int, int, str]] = []
    while stock:
        batch = [stock.pop() for _ in range(min(len(stock), rng.randrange(1, 5)))]
        lives.send((*batch, *rng.sample(sent, min(len(sent), rng.randrange(3)))))
        sent += batch
        lives.wait(rng.uniform(0, longest_s))
    lives.fuse = 0
    for _ in range(5):
        lives.wait(30)
    lives.deliver_queued()
    lives.die()
    return lives


def check_forwarded(lives: Lives) -> None:
    """Every span that was acknowledged is at the backend, and only runs' own spans have scores."""
    assert {
        (trace, span) for trace, spans in lives.pushed.items() for span in spans
    } <= lives.arrived.keys()
    assert not any(any(scores) for (_, span), scores in lives.arrived.items() if span != 1)


def check_ids(lives: Lives) -> None:
    """No result has two contents, and the revisions of a run are consecutive from 0."""
    assert [rows for rows in lives.results.values() if len(rows) > 1] == []
    revisions: defaultdict[str, set[int]] = defaultdict(set)
    for (written,) in lives.results.values():
        row = eval(written)
        revisions[row["trace_id"]].add(row["revision"])
    assert all(sorted(found) == list(range(len(found))) for found in revisions.values())


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32))
def test_the_last_score_of_each_run_is_that_of_all_its_spans(
    tmp_path_factory: pytest.TempPathFactory, seed: int
):
    """However often the process crashed."""
    lives = play(tmp_path_factory.mktemp("kept"), seed, late="1h", max_size=2**30, longest_s=4)
    check_ids(lives)
    found = {
        int(trace, 16): row["passed"]
        for (trace, _), row in lives.last.items()
        if row["outcome"] == "scored"
    }
    assert found == {trace: len(spans) - 1 <= ALLOWED for trace, spans in lives.pushed.items()}
    check_forwarded(lives)
    assert all(any(lives.arrived[trace, 1]) for trace, spans in lives.pushed.items() if 1 in spans)


def check_small_storage(folder: Path, seed: int) -> None:
    """Check a storage so small that traces expire, tombstones are journaled, and traces are
    compacted.
    """
    lives = play(folder, seed, late="5s", max_size=6000, longest_s=8)
    check_ids(lives)
    assert {int(trace, 16) for trace, _ in lives.last} == set(lives.pushed)
    assert sum(path.stat().st_size for path in folder.glob("*.journal")) < 12_000
    check_forwarded(lives)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32))
def test_no_result_differs_between_revisions_where_segments_are_compacted(
    tmp_path_factory: pytest.TempPathFactory, seed: int
):
    """A few examples; `test_many_small_storages` has more."""
    check_small_storage(tmp_path_factory.mktemp("kept"), seed)


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=100, deadline=None)
@given(st.integers(0, 2**32))
def test_many_small_storages(tmp_path_factory: pytest.TempPathFactory, seed: int):
    """Many examples."""
    check_small_storage(tmp_path_factory.mktemp("kept"), seed)
