"""Process one partition: pass the spans of its records to a pipeline, measure record time, and
advance its watermark.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Any, Final, Protocol

from otel_eval.counters import Counters, Warnings
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.errors import Overloaded
from otel_eval.model import Completeness
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.pipeline import Pipeline
from otel_eval.sources.kafka.offsets import Margin, Start, Watermark
from otel_eval.sources.kafka.records import DeadRecords, RecordReader, Refusal, TopicRecord

_TICK_S: Final = 0.1  # of record time, after which due traces are closed before more is read
_MOST_RECORDS: Final = 500  # that are read together
_MOST_ROUNDS: Final = 4  # of evaluation, before the consumer is polled again

_LONGEST_IDLE_S: Final = 0.5

_WARNINGS: Final = {
    "unkeyed": (
        "records of %s have no key that is the trace id of all their spans: their traces may be"
        " split between partitions; set partition_traces_by_id in the Collector's kafka exporter,"
        " or unkeyed: accept for a topic of one partition"
    ),
    "malformed": "records of %s hold no OTLP traces in the encoding that is configured; %s",
    "oversized": "records of %s exceed max_message_size; %s",
}


class RecordClock:
    """A monotonic clock: the greatest record time, plus the time since then in which no record
    could be read.

    A reader that lags, was paused or was restarted closes traces at the same records as the reader
    before it, however fast it reads. At the end of a partition wall time counts, so that its last
    traces are closed if no more records arrive. At most half a second counts between two polls: a
    process that was suspended does not know what arrived meanwhile.

    Args:
        wall: returns Unix seconds. Record times after it are wrong and count as now.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall: Final = wall
        self._now_s = 0.0

    def record(self, time_s: float) -> float:
        """Advance to the time of a record; return that time, or a plausible one if it is missing or
        in the future.
        """
        time_s = min(time_s, self._wall()) if time_s > 0 else self._now_s or self._wall()
        self._now_s = max(self._now_s, time_s)
        return time_s

    def idle(self, elapsed_s: float) -> None:
        """Advance by a time in which no record could be read: by half a second at most, and never
        beyond wall time.
        """
        if self._now_s:
            self._now_s = max(
                self._now_s, min(self._now_s + min(elapsed_s, _LONGEST_IDLE_S), self._wall())
            )

    def __call__(self) -> float:
        """Return the time in Unix seconds; 0 before the first record."""
        return self._now_s


@dataclass(frozen=True, slots=True)
class Services:
    """Settings and objects that all partitions of a topic share."""

    topic: str
    reader: RecordReader
    counters: Counters
    dead_records: DeadRecords | None
    margin_s: float
    keep_s: float  # how long ids of finished traces are kept, in record time
    most_ids: int
    undelivered: Undelivered
    warnings: Warnings = field(default_factory=Warnings)


class PartitionEvaluation(Protocol):
    """Evaluates the traces of all partitions of a topic."""

    def build_pipeline(self, partition: Partition, since_s: float) -> Pipeline:
        """Return the pipeline of a partition. Its results name the evaluator of the partition, its
        waits are measured by the clock of the partition, and the partition is told which traces
        are decided.

        Args:
            partition: the partition; it has no pipeline yet.
            since_s: the time since which all its spans are read, in Unix seconds.
        """

    def backpressure(self) -> str:
        """Return why evaluation must pause, or ""."""


class Partition:
    """A partition that this process owns. Used by one thread.

    Args:
        number: the number of the partition.
        evaluator: the id in its results; the same for every owner.
        start: where its reading begins.
        evaluation: evaluates its traces.
    """

    def __init__(
        self,
        number: int,
        evaluator: str,
        start: Start,
        services: Services,
        evaluation: PartitionEvaluation,
    ) -> None:
        self.number: Final = number
        self.evaluator: Final = evaluator
        self.clock: Final = RecordClock()
        self.watermark: Final = Watermark(start.low)
        self.margin: Final = Margin(services.margin_s, start.margin)
        self.pipeline: Final = evaluation.build_pipeline(self, start.since_s)
        self.queue: Final[deque[TopicRecord]] = deque()  # fetched from the topic and not processed
        self.expected = start.margin  # the offset of the next record, unless the log has gaps
        self.is_at_end = self.is_paused = False
        # by a limit of the pipeline; by a dead letter that cannot be written
        self.is_refused = self.is_blocked = False
        self.committed: tuple[int, int] | None = None
        self._start, self._services = start, services
        # Traces that former owners finished: time of the last record, offset of the first.
        self._finished = OrderedDict[bytes, tuple[float, int]]()
        self._undelivered: set[bytes] = set()

    # ------------------------------------------------------------------ in

    def process(self, records: Sequence[TopicRecord] = ()) -> None:
        """Queue records, and process the queue in order up to the first record that is refused or
        blocked.
        """
        self.enqueue(records)
        self.is_refused = self.is_blocked = False
        while self.queue and not (self.is_refused or self.is_blocked):
            self._read_batch(self._next_batch())

    def enqueue(self, records: Sequence[TopicRecord]) -> None:
        """Queue records."""
        self.queue.extend(records)
        if records:
            self.is_at_end, self.expected = False, records[-1].offset + 1

    def _next_batch(self) -> list[TopicRecord]:
        """Return the next records to read together: at most a tenth of a second, and all before the
        start or none.
        """
        first, low = self.queue[0], self._start.low

        def belongs(record: TopicRecord) -> bool:
            return record.time_s - first.time_s < _TICK_S and (record.offset < low) is (
                first.offset < low
            )

        return list(takewhile(belongs, islice(self.queue, _MOST_RECORDS)))

    def _read_batch(self, records: list[TopicRecord]) -> None:
        """Push these records, or note their trace ids if they are before the start; they stay
        queued if the push is refused.
        """
        before_s, time_s = self.clock(), self.clock.record(records[0].time_s)
        if records[0].offset < self._start.low:  # these belong to finished traces
            self._services.counters.add("kafka.records_reread", len(records))
            trace_ids = self._services.reader.trace_ids
            firsts = {
                record.offset: self._note_finished(record, trace_ids(record)) for record in records
            }
        else:
            if time_s - before_s >= _TICK_S:
                self.evaluate()  # what is due before these records must not get their spans
            pushed = self._push(records)
            if pushed is None:
                return
            firsts = pushed
        for record in records:
            self.margin.add_record(
                record.offset, self.clock.record(record.time_s), firsts[record.offset]
            )
        for _ in records:
            self.queue.popleft()

    def _note_finished(self, record: TopicRecord, trace_ids: Iterable[bytes]) -> int:
        """Note that these traces of a record are finished; return the first offset of any of
        them.
        """
        first = record.offset
        for trace_id in trace_ids:
            _, first_of_trace = self._finished.pop(trace_id, (0.0, record.offset))
            self._finished[trace_id] = record.time_s, first_of_trace
            first = min(first, first_of_trace)
            if len(self._finished) > self._services.most_ids:
                self._finished.popitem(last=False)
        return first

    def _push(self, records: Sequence[TopicRecord]) -> dict[int, int] | None:
        """Push the spans of records to the pipeline; None if the pipeline or the dead letters do
        not accept them now.

        Returns for the offset of each record the first offset of any of its traces.
        """
        content = self._services.reader.read(records)
        trace_ids = {trace_id for ids in content.trace_ids for trace_id in ids}
        # Without keys, one record may hold spans of traces that a former owner finished and of
        # others.
        decided = trace_ids & self._finished.keys()
        spans = (
            [span for span in content.batch.spans if span[0] not in decided]
            if decided
            else content.batch.spans
        )
        try:
            if spans:
                self.pipeline.spans(spans)
        except Overloaded:
            self.is_refused = True
            return None
        if not all(
            self._refuse(records[position], refusal)
            for position, refusal in content.refused.items()
        ):
            # when the records are read again, the spans of the others are duplicates
            self.is_blocked = True
            return None
        self._count(len(records) - len(content.refused), len(spans), content.batch)
        firsts = {}
        for record, ids in zip(records, content.trace_ids, strict=True):
            first = self._note_finished(record, decided.intersection(ids))
            undecided = [trace_id for trace_id in ids if trace_id not in decided]
            firsts[record.offset] = min(
                first, self.watermark.add_record(record.offset, record.time_s, undecided)
            )
        # forget traces that former owners finished, once no spans of them are expected any more
        oldest_s = self.clock() - self._services.keep_s
        while self._finished and (oldest := next(iter(self._finished.items())))[1][0] < oldest_s:
            del self._finished[oldest[0]]
        self._finish_closed(trace_ids)
        return firsts

    def _refuse(self, record: TopicRecord, refusal: Refusal) -> bool:
        """Count a record that cannot be used, and write it to the dead letters unless only its key
        is wrong; False if it cannot be written now.
        """
        services, dead = self._services, self._services.dead_records
        if (
            refusal != "unkeyed"
            and dead is not None
            and not dead.add(services.topic, self.number, record, refusal)
        ):
            services.warnings.say(
                "dead",
                "records of %s cannot be written to the dead letters; reading waits",
                services.topic,
            )
            return False
        note = (
            "they are written to the dead letters"
            if dead is not None
            else "they are dropped; name a dead_letter to keep them"
        )
        services.warnings.say(
            refusal,
            _WARNINGS[refusal],
            *((services.topic,) if refusal == "unkeyed" else (services.topic, note)),
        )
        services.counters.add("kafka.records", outcome=refusal)
        return True

    def _count(self, records: int, accepted: int, batch: SpanBatch) -> None:
        """Count the records, and the spans by outcome."""
        add, decided = self._services.counters.add, len(batch.spans) - accepted
        for name, amount in (
            ("accepted", accepted),
            ("decided", decided),
            ("rejected", batch.rejected),
            ("own", batch.own),
        ):
            if amount:
                add("kafka.spans", amount, outcome=name)
        if records:
            add("kafka.records", records, outcome="accepted")

    # ------------------------------------------------------------------ out

    def evaluate(self) -> None:
        """Evaluate traces that are due, in a limited number of rounds."""
        for _ in range(_MOST_ROUNDS):
            if not self.pipeline.step():
                return

    def drain(self) -> None:
        """Evaluate all open traces as incomplete, those of queued records too: each round frees
        memory for more of these.
        """
        while True:
            self.process()
            self.pipeline.drain(Completeness.OVERFLOW)
            if not self.queue or self.is_blocked:
                return

    def _is_undelivered(self, trace_id: bytes) -> bool:
        return self._services.undelivered.waits((self.evaluator, trace_id.hex()))

    def on_decided(self, trace_id: bytes) -> None:
        """Finish a trace that the pipeline has evaluated, or note it as undelivered if results of
        it are not delivered yet.
        """
        if self._is_undelivered(trace_id):
            self._undelivered.add(trace_id)
        else:
            self.watermark.finish(trace_id)

    def _finish_closed(self, trace_ids: set[bytes]) -> None:
        """Finish traces that are not open in the pipeline: their spans came too late, or a limit
        had closed them.
        """
        self._undelivered -= trace_ids  # with new spans they are evaluated again
        for trace_id in trace_ids - self.pipeline.undecided(trace_ids):
            self.on_decided(trace_id)

    def on_delivered(self, trace_id: bytes) -> None:
        """Finish a trace whose results so far are all delivered."""
        if trace_id in self._undelivered and not self._is_undelivered(trace_id):
            self._undelivered.discard(trace_id)
            self.watermark.finish(trace_id)

    def idle(self, elapsed_s: float) -> None:
        """Advance the clock at the end of the partition, and if the pipeline refuses spans until
        traces close.
        """
        if self.is_refused or (self.is_at_end and not self.queue):
            self.clock.idle(elapsed_s)

    @property
    def commit(self) -> tuple[int, int]:
        """The offset to commit and where its margin begins."""
        low = self.watermark.low
        return low, self.margin.start(low)

    def counts(self) -> Mapping[str, Any]:
        """Return the counters and gauges of the pipeline."""
        return self.pipeline.counts(late=False)
