"""What topics can be: compacted, unknown, emptied, of more partitions than before, without keys."""

from __future__ import annotations

import base64
import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval import merge_results
from otel_eval.exporters.kafka import KafkaTopicExporter, key_of_row
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Evidence, Report, Result, Scored, Stamp, Trajectory
from tests.faults.fault_rig.books import until
from tests.faults.fault_rig.traffic import body, run_of, trace_id
from tests.kafka.kafka_rig.broker import Broker
from tests.kafka.kafka_rig.group import Group
from tests.kafka.kafka_rig.results import ResultsReader
from tests.kafka.kafka_rig.traffic import Load
from tests.support.waiting import LIMIT_S


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    name: str = request.node.name.split("[")[0]
    broker.create(name)
    yield name
    broker.delete(name)


def whole(broker: Broker, topic: str, numbers: range, **changes: Any) -> None:
    """Write runs, each in one record."""
    producer = broker.producer()
    for number in numbers:
        producer.produce(
            topic, body(run_of(number).spans()), **{"key": trace_id(number).hex(), **changes}
        )
    assert producer.flush(30) == 0


def report(trace: int, evaluator: str, spans: int, value: float, revision: int = 0) -> Report:
    outcome = Scored(value, passed=value >= 0.5)
    made_of = f"{trace:016x}{revision:016x}"
    result = Result(
        evaluation="e",
        scorer="s",
        type="t",
        version="1",
        outcome=outcome,
        revision=revision,
        result_id=made_of,
    )
    run = Trajectory(trace_id=f"{trace:032x}", span_id=f"{trace:016x}")
    return Report(
        run,
        "e",
        revision,
        (result,),
        evidence=Evidence(spans, f"{spans:016x}"),
        stamp=Stamp(evaluator, 1),
    )


def test_a_compacted_topic_merges_as_the_whole_one(broker: Broker, tmp_path: Path) -> None:
    """Two evaluators, of which one revised its results and both repeat them, saw different spans of
    every third trace.
    """
    name = "compacted"
    settings = {
        "cleanup_policy": "compact",
        "segment_ms": 200,
        "min_cleanable_dirty_ratio": 0.01,
        "max_compaction_lag_ms": 300,
    }
    broker.create(name, 3, delete_retention_ms=100, **settings)
    exporter = KafkaTopicExporter({"bootstrap.servers": broker.address}, name)
    reports = [report(trace, "a", 5, 0.25) for trace in range(60)]
    reports += [report(trace, "a", 6, 0.75, revision=1) for trace in range(0, 60, 2)]
    reports += [
        report(
            trace,
            "b",
            *((3, 0.5) if trace % 3 == 0 else (6, 0.75) if trace % 2 == 0 else (5, 0.25)),
        )
        for trace in range(60)
    ]
    with ResultsReader(broker.address, name) as everything:
        for _ in range(4):
            assert exporter.export(reports).status == "ok"
        assert until(lambda: len(everything.rows) >= 4 * len(reports), LIMIT_S)
        keys = {key_of_row(row) for each in reports for row in rows_of(each)}
        assert until(lambda: _compacted(broker, name, exporter, reports) <= 2 * len(keys), LIMIT_S)
    exporter.close(1.0)
    with ResultsReader(broker.address, name) as left:
        assert until(lambda: keys <= set(left.keys), LIMIT_S), (
            "compaction keeps the last write of every key"
        )
        merged = merge_results(left.rows)
    assert _values(merged) == _values(merge_results(everything.rows))
    split = {int(row["trace_id"], 16) for row in merged if row.get("split")}
    assert set(range(0, 60, 3)) <= split, "different evidence is kept"
    # A revision of one evaluator that another one repeats is one key: what it revised is left, and
    # looks like other evidence.
    assert split <= {trace for trace in range(60) if trace % 3 == 0 or trace % 2 == 0}
    broker.delete(name)


def _compacted(
    broker: Broker, name: str, exporter: KafkaTopicExporter, reports: list[Report]
) -> int:
    """Records in the topic now; the active segment is never cleaned, so something is written to
    close it.
    """
    exporter.export(reports[:3])
    ends = {number: end for number, end in broker.ends(name).items() if end}
    with ResultsReader(broker.address, name) as reader:
        assert until(lambda: reader.ends == ends, LIMIT_S)
        return len(reader.rows)


def _values(merged: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The results that `merge_results` prefers."""
    return [(row["trace_id"], row["scorer"], row["value"], row["spans_digest"]) for row in merged]


def test_an_unknown_topic_is_named_and_read_once_it_is_there(
    broker: Broker, tmp_path: Path
) -> None:
    settings = {"topic": "later", "options": {"topic.metadata.refresh.interval.ms": 1000}}
    with Group(tmp_path, broker.address, settings) as group:
        member = group.add()
        assert until(
            lambda: any("later" in line and "nknown topic" in line for line in member.said()),
            LIMIT_S,
        ), member.said()
        assert member.metric("kafka_errors_total") > 0
        broker.create("later", 2)
        whole(broker, "later", range(40))
        assert until(lambda: len(group.rows()) == 160, LIMIT_S), member.said()
        assert group.finish([run_of(number) for number in range(40)]).balanced
    broker.delete("later")


def test_records_that_were_deleted_before_they_were_read(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """One line, a counter, and reading goes on with what is left."""
    whole(broker, topic, range(300))
    with Group(tmp_path, broker.address, {"topic": topic}) as group:
        group.add()
        assert until(lambda: group.lag() == 0, LIMIT_S)
        assert group.members[0].terminate() == 0
        whole(broker, topic, range(300, 400))
        ends = emptied(broker, topic)
        whole(broker, topic, range(400, 500))
        member = group.add()
        assert until(lambda: group.lag() == 0, LIMIT_S)
        assert member.metric("kafka_offsets_out_of_range_total") == len(
            [n for n in ends if ends[n] > 0]
        )
        assert any("out of range" in line and "retention" in line for line in member.said())
        found = {row["trace_id"]: row for row in group.rows()}
    assert {trace_id(number).hex() for number in [*range(300), *range(400, 500)]} == set(found)
    assert {found[trace_id(number).hex()]["completeness"] for number in range(400, 500)} == {
        "joined"
    }


def test_records_that_were_deleted_while_a_member_read(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """The member is stopped for a moment, so that retention overtakes it; what it had open is
    evaluated as incomplete.
    """
    with Group(
        tmp_path, broker.address, {"topic": topic, "options": {"session.timeout.ms": 10000}}
    ) as group:
        member = group.add()
        producer = broker.producer()
        for number in range(30):
            # without their root
            producer.produce(
                topic, body(run_of(number, calls=2).spans()[:2]), trace_id(number).hex()
            )
        producer.flush(20)
        assert until(lambda: member.metric("kafka_records_total", absent=0) == 30, LIMIT_S)
        member.running.send_signal(signal.SIGSTOP)
        whole(broker, topic, range(200, 250))  # the answer to requests that are under way
        time.sleep(1.0)  # twice as long as the broker waits for records before it answers
        whole(broker, topic, range(300, 400))
        ends = emptied(broker, topic)
        whole(broker, topic, range(400, 500))
        member.running.send_signal(signal.SIGCONT)
        assert until(lambda: group.lag() == 0, LIMIT_S), member.said()
        assert member.metric("kafka_offsets_out_of_range_total") == len(
            [n for n in ends if ends[n] > 0]
        )
        found = {row["trace_id"]: row["completeness"] for row in group.rows()}
    assert {found.get(trace_id(number).hex()) for number in range(30)} == {"overflow"}
    assert {found.get(trace_id(number).hex()) for number in range(400, 500)} == {"joined"}


def emptied(broker: Broker, topic: str) -> dict[int, int]:
    """Delete all records of a topic; the ends of its partitions."""
    ends = broker.ends(topic)
    admin = broker.admin()
    for future in admin.delete_records(
        [TopicPartition(topic, number, end) for number, end in ends.items()]
    ).values():
        future.result(20)
    return ends


def test_partitions_that_were_added_between_two_owners_are_noticed(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    whole(broker, topic, range(50))
    with Group(tmp_path, broker.address, {"topic": topic}) as group:
        group.add()
        assert until(lambda: group.lag() == 0, LIMIT_S)
        group.members[0].terminate()
        admin = broker.admin()
        admin.create_partitions([NewPartitions(topic, 8)])[topic].result(20)
        member = group.add()
        assert until(lambda: "8 partitions and had 6" in "".join(member.said()), LIMIT_S), (
            member.said()
        )
        assert member.metric("kafka_partition_count_changes_total") > 0


def test_records_without_keys_are_refused_or_accepted(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    whole(broker, topic, range(40), key=None)
    with Group(tmp_path, broker.address, {"topic": topic}) as group:
        member = group.add()
        assert until(lambda: group.lag() == 0, LIMIT_S)
        assert member.metric("kafka_records_total") == 40
        assert sum("partition_traces_by_id" in line for line in member.said()) == 1
        assert not group.rows()
        member.terminate()
        accepting = Group(
            tmp_path,
            broker.address,
            {"topic": topic, "unkeyed": "accept", "group_id": "otel-eval-2"},
        )
        accepting.members = group.members
        accepting.add()
        assert until(lambda: len(group.rows()) == 160, LIMIT_S)


def test_json_is_read_and_otlp_events_are_written(
    broker: Broker, topic: str, tmp_path: Path
) -> None:
    """With what the Collector calls `otlp_json` and `otlp_proto`."""
    producer = broker.producer()
    for number in range(20):
        request = MessageToDict(ExportTraceServiceRequest.FromString(body(run_of(number).spans())))
        for span in request["resourceSpans"][0]["scopeSpans"][0]["spans"]:
            for name in {"traceId", "spanId", "parentSpanId"} & span.keys():
                span[name] = base64.b64decode(span[name]).hex()
        producer.produce(topic, json.dumps(request), trace_id(number).hex())
    producer.flush(20)
    results = f"{topic}_results"
    broker.create(results, 2)
    exporters = {"kafka": {"brokers": [broker.address], "topic": results, "encoding": "otlp_proto"}}
    with Group(
        tmp_path, broker.address, {"topic": topic, "encoding": "otlp_json"}, exporters
    ) as group:
        group.add()
        with ResultsReader(broker.address, results, parsed=False) as reader:
            assert until(lambda: len(reader.rows) == 80, LIMIT_S), group.said()
            events = [ExportLogsServiceRequest.FromString(each) for each in reader.rows]
    ids = {event.resource_logs[0].scope_logs[0].log_records[0].trace_id for event in events}
    assert ids == {trace_id(number) for number in range(20)}
    broker.delete(results)


def test_a_load_stops_at_the_last_record_of_a_run(broker: Broker, topic: str) -> None:
    """The rig itself: as many records as it counts are in the topic."""
    load = Load(broker.producer(), topic, 50.0, poison=10, spread_s=(0.2, 0.5)).start()
    assert until(lambda: load.poisoned > 2, 120)
    assert load.stop()
    assert sum(broker.ends(topic).values()) == load.records + load.poisoned


def test_a_reader_reads_topics_that_were_just_created(broker: Broker) -> None:
    """The rig itself: a topic is not known to its broker at once."""
    for number in range(5):
        name = f"just_created_{number}"
        broker.create(name, 2)
        with ResultsReader(broker.address, name, parsed=False) as reader:
            whole(broker, name, range(10))
            assert until(lambda found=reader: len(found.rows) == 10, LIMIT_S)
        broker.delete(name)
