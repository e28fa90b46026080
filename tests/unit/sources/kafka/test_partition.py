"""A partition with a real pipeline: what it finishes, refuses and commits; random crashes and
rebalances of owners.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits
from otel_eval.config import load
from otel_eval.counters import Counters
from otel_eval.delivery.undelivered import Undelivered
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Report
from otel_eval.otlp import Encoding
from otel_eval.sources.kafka.offsets import Start
from otel_eval.sources.kafka.partition import Partition, Services
from otel_eval.sources.kafka.records import RecordReader, TopicRecord
from tests.faults.fault_rig.reference import CONVENTIONS, EVALUATION
from tests.faults.fault_rig.traffic import body, run_of, trace_id
from tests.support.partition_evaluation import ReportingEvaluation

ENGINE = build_engine(load({"evaluations": [EVALUATION], "conventions": CONVENTIONS}))
WAITS = Limits(
    decision_wait_s=1.0,
    decision_wait_partial_s=1.5,
    grace_period_s=10.0,
    idle_s=60.0,
    max_age_s=300.0,
)
BEGINNING = Start(0, 0)
SOONER, LATER = 0.8, 1.4  # clearly before and after the decision wait
BEGUN_S = time.time() - 100_000


class Dead:
    """Dead letters in memory, which may be full."""

    def __init__(self) -> None:
        self.is_full = False
        self.records: list[tuple[int, str]] = []

    def add(self, topic: str, partition: int, record: TopicRecord, why: str) -> bool:
        if not self.is_full:
            self.records.append((record.offset, why))
        return not self.is_full

    def close(self) -> None: ...


class Owner:
    """A partition and the reports that it emitted."""

    def __init__(
        self,
        start: Start = BEGINNING,
        limits: Limits = WAITS,
        *,
        delivers: bool = True,
        most_ids: int = 1000,
        needs_key: bool = True,
    ) -> None:
        self.reports: list[Report] = []
        self.counters = Counters()
        self.dead = Dead()
        self.delivers = delivers
        self.undelivered = Undelivered()
        self.undelivered.evaluators.add("e")
        reader = RecordReader(Encoding.PROTOBUF, 100_000, 100, needs_key=needs_key)
        services = Services(
            "t",
            reader,
            self.counters,
            self.dead,
            30.0,
            300.0,
            most_ids,
            self.undelivered,
        )
        evaluation = ReportingEvaluation(ENGINE, self.emit, limits)
        self.partition = Partition(0, "e", start, services, evaluation)

    def emit(self, report: Report) -> None:
        self.undelivered.count_queued(report, 1)
        self.reports.append(report)
        if self.delivers:
            self.deliver([report])

    def deliver(self, reports: Sequence[Report]) -> None:
        self.undelivered.count_delivered(reports)
        while not self.undelivered.finished.empty():
            self.partition.on_delivered(bytes.fromhex(self.undelivered.finished.get()[1]))

    def idle(self, for_s: float) -> None:
        self.partition.is_at_end = True
        for _ in range(int(for_s / 0.1)):
            self.partition.idle(0.1)
            self.partition.evaluate()


def records(
    number: int, offset: int = 0, at_s: float = 0.0, gap_s: float = 0.1
) -> list[TopicRecord]:
    """A run, each span in a record of its own."""
    key, spans = trace_id(number).hex().encode(), run_of(number, calls=2).spans()
    return [
        TopicRecord(offset + place, BEGUN_S + at_s + place * gap_s, key, body([span]))
        for place, span in enumerate(spans)
    ]


def test_a_trace_is_finished_when_its_results_are_delivered() -> None:
    owner = Owner(delivers=False)
    owner.partition.process(records(1))
    assert owner.partition.watermark.low == 0
    owner.idle(2.0)
    assert owner.reports
    assert owner.partition.commit == (0, 0), "evaluated, not delivered"
    owner.deliver(owner.reports)
    assert owner.partition.commit == (3, 0)


def test_record_time_closes_a_trace_and_not_the_time_of_reading() -> None:
    owner = Owner()
    owner.partition.process(records(1, gap_s=SOONER))
    owner.partition.evaluate()
    assert not owner.reports, "it may go on"
    owner.partition.process(records(2, offset=3, at_s=10.0))
    assert {each.trajectory.trace_id for each in owner.reports} == {trace_id(1).hex()}


def test_nothing_is_closed_by_idle_time_while_records_wait() -> None:
    owner = Owner(limits=Limits(max_bytes=1, max_bytes_per_trace=1, max_traces=1))
    owner.partition.process(records(1)[:1])
    owner.partition.queue.append(records(1)[1])
    owner.partition.is_at_end, before = True, owner.partition.clock()
    owner.partition.idle(0.4)
    assert owner.partition.clock() == before


def test_finished_traces_of_an_owner_before_are_learned_and_their_records_dropped() -> None:
    late = TopicRecord(6, BEGUN_S + 5.0, *records(1)[2][2:])
    log = [*records(1), *records(2, offset=3, at_s=1.0), late, *records(3, offset=7, at_s=6.0)]
    owner = Owner(Start(low=4, margin=0))
    owner.partition.process(log)
    owner.idle(2.0)
    assert {each.trajectory.trace_id for each in owner.reports} == {trace_id(3).hex()}
    assert owner.counters.get("kafka.records_reread") == 4
    assert owner.counters.get("kafka.spans", outcome="decided") == 3
    assert owner.partition.commit == (10, 0)


def test_spans_of_a_finished_trace_are_dropped_from_records_that_they_share_with_an_open_one() -> (
    None
):
    """The Collector writes such records to a topic without keys; a score of the last spans alone
    would contradict the first.
    """
    first, second, third, fourth = (each.value or b"" for each in (*records(1), records(2)[0]))
    shared = [
        TopicRecord(0, BEGUN_S, None, first + second),
        TopicRecord(1, BEGUN_S + 0.1, None, third + fourth),
    ]
    log = [*shared, *(each._replace(key=None) for each in records(2, offset=2, at_s=5.0)[1:])]
    former = Owner(needs_key=False)
    former.partition.process([*log, TopicRecord(4, BEGUN_S + 5.2, None, records(3)[0].value)])
    former.partition.evaluate()
    commit = former.partition.commit
    assert (commit, {each.trajectory.trace_id for each in former.reports}) == (
        (1, 0),
        {trace_id(1).hex()},
    )
    owner = Owner(Start(*commit), needs_key=False)
    owner.partition.process(log)
    owner.idle(2.0)
    assert {each.trajectory.trace_id for each in owner.reports} == {trace_id(2).hex()}
    assert [
        owner.counters.get("kafka.spans", outcome=each) for each in ("accepted", "decided")
    ] == [3, 1]


def test_the_first_of_too_many_finished_traces_are_forgotten() -> None:
    """Records of theirs are the least likely."""
    log = [
        each._replace(offset=offset)
        for offset, each in enumerate(each for number in (1, 2, 3) for each in records(number))
    ]
    owner = Owner(Start(len(log), 0), most_ids=2)
    owner.partition.process(log)
    owner.partition.process([each._replace(offset=len(log) + each.offset) for each in log])
    owner.idle(2.0)
    assert {report.trajectory.trace_id for report in owner.reports} == {trace_id(1).hex()}


def test_a_poison_record_is_kept_and_the_offset_goes_on() -> None:
    owner = Owner()
    poison = TopicRecord(1, BEGUN_S + 0.1, records(1)[0].key, b"\xff\xff")
    other = TopicRecord(2, BEGUN_S + 0.2, None, records(1)[0].value)
    owner.partition.process([records(1)[2]._replace(offset=0, time_s=BEGUN_S), poison, other])
    owner.idle(2.0)
    assert owner.dead.records == [(1, "malformed")], "what has no key is only counted"
    assert owner.partition.commit == (3, 0)
    assert [
        owner.counters.get("kafka.records", outcome=each)
        for each in ("accepted", "malformed", "unkeyed")
    ] == [1, 1, 1]


def test_reading_waits_for_dead_letters_and_loses_nothing() -> None:
    owner = Owner()
    owner.dead.is_full = True
    log = [TopicRecord(0, BEGUN_S, records(1)[0].key, b"\xff"), *records(1, offset=1)]
    owner.partition.process(log)
    assert (owner.partition.is_blocked, owner.partition.commit, len(owner.partition.queue)) == (
        True,
        (0, 0),
        4,
    )
    owner.dead.is_full = False
    owner.partition.process()
    owner.idle(2.0)
    assert owner.dead.records == [(0, "malformed")]
    assert (len(owner.reports), owner.partition.commit[0]) == (1, 4)


def test_a_full_buffer_makes_room_by_closing_what_is_due() -> None:
    """Records stay queued, the clock advances, and everything is evaluated in the end."""
    limits = Limits(
        decision_wait_s=0.5, decision_wait_partial_s=0.6, grace_period_s=0.0, max_traces=2
    )
    owner, offset, log = Owner(limits=limits), 0, list[TopicRecord]()
    for number in range(12):
        log += records(number, offset=offset, gap_s=0.0)
        offset += 3
    for each in log:
        owner.partition.process([each])
    assert owner.partition.is_refused
    for _ in range(400):
        owner.partition.idle(0.1)
        owner.partition.process()
        owner.partition.evaluate()
        owner.partition.is_at_end = not owner.partition.queue
    assert {each.trajectory.trace_id for each in owner.reports} == {
        trace_id(number).hex() for number in range(12)
    }
    assert {each.trajectory.incomplete for each in owner.reports} == {""}
    assert owner.partition.commit[0] == offset


def test_max_age_bounds_the_watermark() -> None:
    """A trace whose root never comes, while others go on."""
    owner = Owner(
        limits=Limits(decision_wait_s=0.5, decision_wait_partial_s=0.6, idle_s=20.0, max_age_s=30.0)
    )
    root_less, log = records(1)[:1], list[TopicRecord]()
    for number in range(60):
        key = root_less[0].key
        held = body([run_of(1, calls=80).spans()[number]])
        log += [TopicRecord(len(log), BEGUN_S + number, key, held)]
        log += records(100 + number, offset=len(log), at_s=number + 0.1, gap_s=0.01)
    owner.partition.process(log)
    low = owner.partition.commit[0]
    assert low > 0
    assert log[-1].time_s - log[low].time_s <= 31.0


def test_a_long_trace_that_ends_behind_the_watermark_is_known_to_every_later_owner() -> None:
    """Its other records are further back than the margin; an owner that knew nothing of them would
    score the end alone.
    """
    limits = replace(WAITS, decision_wait_detached_s=250.0, idle_s=250.0)
    first, *rest = (
        each._replace(time_s=each.time_s + 100.0 * (place > 0))
        for place, each in enumerate(records(1))
    )
    open_too = [each._replace(time_s=each.time_s + 99.5) for each in records(2)[:1]]
    between = [each for number in range(3, 90) for each in records(number, at_s=number, gap_s=0.01)]
    log = [
        each._replace(offset=offset)
        for offset, each in enumerate([first, *between, *open_too, *rest])
    ]
    commit, found = (0, 0), list[str]()
    for at_s in (103.0, 120.0, 140.0):
        owner = Owner(Start(*commit), limits)
        log += [
            each._replace(offset=len(log) + place)
            for place, each in enumerate(records(int(at_s), at_s=at_s, gap_s=0.01))
        ]
        owner.partition.process(log[commit[1] :])
        owner.idle(2.0)
        found += [
            report.trajectory.trace_id for report in owner.reports if report.trajectory.outermost
        ]
        commit = owner.partition.commit
        assert commit[0] == log.index(open_too[0]._replace(offset=1 + len(between)))
    assert found.count(trace_id(1).hex()) == 1


def contents(reports: Sequence[Report]) -> list[tuple[str, Any]]:
    """Each result by its id, without evaluator and time."""
    return [
        (
            row["result_id"],
            {key: value for key, value in row.items() if key not in ("evaluated_at", "evaluator")},
        )
        for report in reports
        for row in rows_of(report)
    ]


def traffic(rng: random.Random, *, shared: bool) -> list[TopicRecord]:
    """Interleaved runs; the root of some comes late, after the trace was closed, but within the
    margin.

    With `shared`, records have no key and hold the spans of up to four traces.
    """
    found = []
    for number in range(rng.randrange(3, 25)):
        at_s, spans = rng.uniform(0, 40), run_of(number, calls=rng.randrange(1, 4)).spans()
        rng.shuffle(spans)
        for span in spans:
            found.append((at_s, number, span))
            at_s += rng.choice([0.0, SOONER, SOONER, LATER if rng.random() < 0.3 else 0.3])
    found.sort(key=lambda each: each[0])
    if shared:
        groups = [found[place : place + 4] for place in range(0, len(found), 4)]
        return [
            TopicRecord(place, BEGUN_S + group[-1][0], None, body([span for _, _, span in group]))
            for place, group in enumerate(groups)
        ]
    return [
        TopicRecord(place, BEGUN_S + at_s, trace_id(number).hex().encode(), body([span]))
        for place, (at_s, number, span) in enumerate(found)
    ]


@given(seed=st.integers(0, 2**32), shared=st.booleans())
def test_owners_that_crash_and_give_away_give_every_result_once_in_content(
    seed: int, shared: bool
) -> None:
    """Compared with one owner who reads everything: no trace is lost, and one id never has two
    contents.
    """
    rng = random.Random(seed)
    log = traffic(rng, shared=shared)
    alone = Owner(needs_key=not shared)
    alone.partition.process(log)
    alone.idle(70.0)
    reports: list[Report] = []
    commit = (0, 0)
    while True:
        owner = Owner(Start(*commit), needs_key=not shared)
        position, is_last = commit[1], rng.random() < 0.15
        until = len(log) if is_last else rng.randrange(commit[0], len(log) + 1)
        while position < until:
            count = rng.randrange(1, 8)
            owner.partition.process(log[position : min(position + count, until)])
            owner.partition.evaluate()
            position += count
            if rng.random() < 0.2 and position > commit[0]:
                commit = owner.partition.commit  # what was committed last counts if it crashes
        if is_last:
            owner.idle(70.0)
        elif rng.random() < 0.5 and position > commit[0]:
            commit = owner.partition.commit  # an orderly rebalance
        reports += owner.reports
        if is_last:
            break
    by_id: dict[str, Any] = {}
    for result_id, content in contents(reports):
        assert by_id.setdefault(result_id, content) == content
    results = {key: value for key, value in contents(alone.reports) if value["revision"] == 0}
    assert results.items() <= by_id.items()
