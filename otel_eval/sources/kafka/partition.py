"""One partition: its records become spans of a pipeline of its own, and what is finished moves its watermark."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from otel_eval.assembly import Limits
from otel_eval.counters import Counters, Warnings
from otel_eval.engine import Engine
from otel_eval.errors import Overloaded
from otel_eval.model import Completeness
from otel_eval.pipeline_ports import AsyncResults
from otel_eval.sources.kafka.dead_letters import DeadRecords
from otel_eval.sources.kafka.record_clock import RecordClock
from otel_eval.sources.kafka.records import RecordReader, TopicRecord
from otel_eval.sources.kafka.watermark import Margin, Watermark

__all__ = ["Partition", "PartitionPipeline", "Services", "Start"]

_TICK_S: Final = 0.1  # of record time, after which due traces are closed before more is read
_MOST_RECORDS: Final = 500  # that are read together
_MOST_ROUNDS: Final = 4  # of evaluation, before the consumer is polled again

_WHY: Final = {
    "unkeyed": "records of %s have no key that is the trace id of all their spans: their traces may be split between partitions; "
    "set partition_traces_by_id in the Collector's kafka exporter, or unkeyed: accept for a topic of one partition",
    "malformed": "records of %s hold no OTLP traces in the encoding that is configured; %s",
    "oversized": "records of %s exceed max_message_size; %s",
}


class PartitionPipeline(Protocol):
    """What a partition needs of a pipeline; nothing else calls it, but for `use_engine`."""

    def spans(self, spans: Sequence[Any], origin: Any = None) -> None:
        """Take spans. Overloaded: there is no room now."""
        ...

    def step(self) -> bool:
        """Evaluate what is due; True if there may be more at once."""
        ...

    def undecided(self, trace_ids: Collection[bytes]) -> set[bytes]:
        """Those of the traces that are not evaluated yet."""
        ...

    def drain(self, reason: Completeness | None = None, deadline: float | None = None) -> bool:
        """Evaluate everything that is held."""
        ...

    def use_engine(self, engine: Engine, later: AsyncResults | None) -> None:
        """Evaluate with another engine from now on."""
        ...

    def use_limits(self, limits: Limits) -> None:
        """Hold no more than these allow from now on."""
        ...

    def counts(self, *, late: bool = True) -> dict[str, Any]:
        """What it counted and holds."""
        ...


@dataclass(frozen=True, slots=True)
class Start:
    """Where the reading of a partition begins.

    Attributes:
        low: the first offset whose spans are evaluated.
        margin: the first offset that is read, for its trace ids.
        since_s: since when all spans of the topic are read, in Unix seconds; 0: always.
    """

    low: int
    margin: int
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Services:
    """What all partitions of a topic share."""

    topic: str
    reader: RecordReader
    counters: Counters
    dead_records: DeadRecords | None
    margin_s: float
    keep_s: float  # how long ids of finished traces are kept, in record time
    most_ids: int
    is_undelivered: Callable[[str, str], bool]  # results of an evaluator on a trace, both in hexadecimal
    note: Callable[[Sequence[Any]], None] = lambda _: None  # called with spans that were taken
    warnings: Warnings = field(default_factory=Warnings)


class Partition:
    """A partition that this process owns. For one thread.

    Args:
        number: of the partition.
        evaluator: the id that its results carry; the same for every owner.
        start: where its reading begins.
        pipeline: makes the pipeline of its spans, given its clock and what takes the ids of evaluated traces.
    """

    def __init__(
        self,
        number: int,
        evaluator: str,
        start: Start,
        services: Services,
        pipeline: Callable[[RecordClock, Callable[[bytes], None]], PartitionPipeline],
    ) -> None:
        self.number: Final = number
        self.evaluator: Final = evaluator
        self.clock: Final = RecordClock()
        self.watermark: Final = Watermark(start.low)
        self.margin: Final = Margin(services.margin_s, start.margin)
        self.pipeline: Final = pipeline(self.clock, self._evaluated)
        self.waiting: Final[deque[TopicRecord]] = deque()  # read from the topic and not taken
        self.expected = start.margin  # the offset of the next record that comes, unless offsets are left out
        self.is_at_end = self.is_paused = False
        self.is_refused = self.is_blocked = False  # for want of room; because a dead letter cannot be written
        self.committed: tuple[int, int] | None = None
        self._start, self._services = start, services
        self._finished: dict[bytes, float] = {}  # before the start, by time of the last record
        self._undelivered: set[bytes] = set()

    # ------------------------------------------------------------------ in

    def take(self, records: Sequence[TopicRecord] = ()) -> None:
        """Take records in their order; from the first for which there is no room on, they wait."""
        self.hold(records)
        self.is_refused = self.is_blocked = False
        while self.waiting and not (self.is_refused or self.is_blocked):
            self._take_some(self._next())

    def hold(self, records: Sequence[TopicRecord]) -> None:
        """Have records wait."""
        self.waiting.extend(records)
        if records:
            self.is_at_end, self.expected = False, records[-1].offset + 1

    def _next(self) -> list[TopicRecord]:
        """The records that are read together: those of a tenth of a second, all before the start or all behind it."""
        first, records = self.waiting[0], list[TopicRecord]()
        is_known = first.offset < self._start.low
        for record in self.waiting:
            is_apart = record.time_s - first.time_s >= _TICK_S or (record.offset < self._start.low) is not is_known
            if len(records) >= _MOST_RECORDS or is_apart:
                break
            records.append(record)
        return records

    def _take_some(self, records: list[TopicRecord]) -> None:
        before_s, time_s = self.clock(), self.clock.record(records[0].time_s)
        if records[0].offset < self._start.low:
            self._learn(records)
        else:
            if time_s - before_s >= _TICK_S:
                self.evaluate()  # what is due before these records must not get their spans
            if not self._push(records):
                return
        for record in records:
            self.margin.read(record.offset, self.clock.record(record.time_s))
        for _ in records:
            self.waiting.popleft()

    def _learn(self, records: Sequence[TopicRecord]) -> None:
        """Remember which traces are finished: records before the start belong to no other."""
        self._services.counters.add("kafka.records_reread", len(records))
        for record in records:
            for trace_id in self._services.reader.trace_ids(record):
                self._remember(trace_id, record.time_s)

    def _remember(self, trace_id: bytes, time_s: float) -> None:
        self._finished.pop(trace_id, None)
        self._finished[trace_id] = time_s
        if len(self._finished) > self._services.most_ids:
            del self._finished[next(iter(self._finished))]

    def _push(self, records: Sequence[TopicRecord]) -> bool:
        """Give the spans of records to the pipeline; False if there is no room for them now."""
        services, kept = self._services, records
        if self._finished:
            kept = [record for record in records if not self._is_finished(record)]
        found = services.reader.read(kept)
        try:
            if found.batch.spans:
                self.pipeline.spans(found.batch.spans)
                services.note(found.batch.spans)
        except Overloaded:
            self.is_refused = True
            return False
        if not all(self._refuse(kept[place], why) for place, why in found.refused.items()):
            self.is_blocked = True  # the spans of the others are duplicates when they are taken again
            return False
        self._count(len(kept) - len(found.refused), found.batch)
        for record, ids in zip(kept, found.trace_ids, strict=True):
            self.watermark.read(record.offset, record.time_s, ids)
        self._drop_finished(records, kept)
        self.watermark.position = records[-1].offset + 1
        self._settle_at_once({trace_id for ids in found.trace_ids for trace_id in ids})
        return True

    def _is_finished(self, record: TopicRecord) -> bool:
        ids = self._services.reader.trace_ids(record)
        return bool(ids) and all(trace_id in self._finished for trace_id in ids)

    def _drop_finished(self, records: Sequence[TopicRecord], kept: Sequence[TopicRecord]) -> None:
        """Count the spans of traces that an owner before this one finished, and remember the traces for the next owner."""
        oldest_s = self.clock() - self._services.keep_s
        while self._finished and (first := next(iter(self._finished.items())))[1] < oldest_s:
            del self._finished[first[0]]
        if len(kept) == len(records):
            return
        offsets = {record.offset for record in kept}
        for record in records:
            if record.offset not in offsets:
                self._services.counters.add("kafka.spans", self._services.reader.spans(record), outcome="decided")
                for trace_id in self._services.reader.trace_ids(record):
                    self._remember(trace_id, record.time_s)

    def _refuse(self, record: TopicRecord, why: str) -> bool:
        """Count a record that cannot be used and write it to the dead letters; False if that is not possible now."""
        services, dead = self._services, self._services.dead_records
        if why != "unkeyed" and dead is not None and not dead.add(services.topic, self.number, record, why):
            services.warnings.say("dead", "records of %s cannot be written to the dead letters; reading waits", services.topic)
            return False
        fate = "they are written to the dead letters" if dead is not None else "they are dropped; name a dead_letter to keep them"
        services.warnings.say(why, _WHY[why], *((services.topic,) if why == "unkeyed" else (services.topic, fate)))
        services.counters.add("kafka.records", outcome=why)
        return True

    def _count(self, records: int, batch: Any) -> None:
        add = self._services.counters.add
        for name, amount in (("accepted", len(batch.spans)), ("rejected", batch.rejected), ("own", batch.own)):
            if amount:
                add("kafka.spans", amount, outcome=name)
        if records:
            add("kafka.records", records, outcome="accepted")

    # ------------------------------------------------------------------ out

    def evaluate(self) -> None:
        """Evaluate what is due."""
        for _ in range(_MOST_ROUNDS):
            if not self.pipeline.step():
                return

    def _evaluated(self, trace_id: bytes) -> None:
        """Every result of a trace that does not come later was made."""
        if self._services.is_undelivered(self.evaluator, trace_id.hex()):
            self._undelivered.add(trace_id)
        else:
            self.watermark.finish(trace_id)

    def _settle_at_once(self, trace_ids: set[bytes]) -> None:
        """Finish traces of which the pipeline took nothing: their spans came too late, or a limit had closed them."""
        self._undelivered -= trace_ids  # with new spans they are evaluated again
        for trace_id in trace_ids - self.pipeline.undecided(trace_ids):
            self._evaluated(trace_id)

    def delivered(self, trace_id: bytes) -> None:
        """All results of a trace that were made so far are delivered."""
        if trace_id in self._undelivered and not self._services.is_undelivered(self.evaluator, trace_id.hex()):
            self._undelivered.discard(trace_id)
            self.watermark.finish(trace_id)

    def idle(self, elapsed_s: float) -> None:
        """Nothing arrived: time goes on at the end of the partition, and where only time makes room."""
        if self.is_refused or (self.is_at_end and not self.waiting):
            self.clock.idle(elapsed_s)

    @property
    def commit(self) -> tuple[int, int]:
        """The offset to commit and where its margin begins."""
        low = self.watermark.low
        return low, self.margin.start(low)

    def counts(self) -> Mapping[str, Any]:
        """What its pipeline counted and holds."""
        return self.pipeline.counts(late=False)
