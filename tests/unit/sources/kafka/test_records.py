"""Records as spans: together and one by one, and those that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from otel_eval.otlp import Encoding
from otel_eval.sources.kafka.records import DeadRecordsFile, RecordReader, TopicRecord
from tests.faults.fault_rig.traffic import body, run_of, trace_id


def record(number: int, offset: int = 0, **changes: Any) -> TopicRecord:
    made = TopicRecord(
        offset, 100.0, trace_id(number).hex().encode(), body(run_of(number, calls=2).spans())
    )
    return made._replace(**changes)


def reader(
    encoding: Encoding = Encoding.PROTOBUF, max_bytes: int = 100_000, *, needs_key: bool = True
) -> RecordReader:
    return RecordReader(encoding, max_bytes, 100, needs_key=needs_key)


def test_records_that_can_be_used_are_read_together() -> None:
    found = reader().read([record(1), record(2), record(1)])
    assert [each[0] for each in found.batch.spans] == [
        trace_id(number) for number in (1, 1, 1, 2, 2, 2, 1, 1, 1)
    ]
    assert [list(ids) for ids in found.trace_ids] == [[trace_id(1)], [trace_id(2)], [trace_id(1)]]
    assert not found.refused


POISON = {
    "no key": ({"key": None}, "unkeyed"),
    "a key of 16 bytes": ({"key": trace_id(2)}, "unkeyed"),
    "a key of another trace": ({"key": trace_id(9).hex().encode()}, "unkeyed"),
    "no value": ({"value": None}, "malformed"),
    "other bytes": ({"value": b"\xff\xff not OTLP"}, "malformed"),
    "a message that is cut short": ({"value": body(run_of(2, calls=2).spans())[:-30]}, "malformed"),
    "too many bytes": ({"value": body(run_of(2, calls=2).spans()) + bytes(200_000)}, "oversized"),
}


@pytest.mark.parametrize(("changes", "why"), POISON.values(), ids=POISON)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_record_that_cannot_be_used_costs_no_other_its_spans(
    place: int, changes: dict[str, Any], why: str
) -> None:
    """Not even where the next record would complete what it lacks."""
    records = [record(1), record(3)]
    records.insert(place, record(2, **changes))
    found = reader().read(records)
    assert found.refused == {place: why}
    assert sorted(each[:2] for each in found.batch.spans) == sorted(
        each[:2] for number in (1, 3) for each in reader().read([record(number)]).batch.spans
    )
    assert [len(ids) for ids in found.trace_ids] == [0 if at == place else 1 for at in range(3)]


def test_without_keys_the_traces_are_read_from_the_spans() -> None:
    two = record(1, key=None, value=body([*run_of(1).spans(), *run_of(2).spans()]))
    found = reader(needs_key=False).read([two, record(3)])
    assert not found.refused
    assert [set(ids) for ids in found.trace_ids] == [{trace_id(1), trace_id(2)}, {trace_id(3)}]
    assert set(reader(needs_key=False).trace_ids(two)) == {trace_id(1), trace_id(2)}


def test_json_is_read_too() -> None:
    span = {"traceId": trace_id(1).hex(), "spanId": "00" * 7 + "01", "name": "agent"}
    value = json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
    found = reader(Encoding.JSON).read([record(1, value=value), record(2, value=b"{")])
    assert [each[:2] for each in found.batch.spans] == [(trace_id(1), bytes(7) + b"\x01")]
    assert found.refused == {1: "malformed"}


def test_a_record_of_no_span_is_no_error() -> None:
    found = reader().read([record(1, value=b""), record(2)])
    assert not found.refused


def test_a_dead_record_is_kept_in_full_or_not_at_all(tmp_path: Path) -> None:
    """On a full disk it waits."""
    path = tmp_path / "dead.jsonl"
    kept = DeadRecordsFile(str(path))
    assert kept.add("t", 2, TopicRecord(7, 1.0, None, b"\xff"), "malformed")
    kept.close()
    fields = {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "why": "malformed",
        "key": None,
        "value": "/w==",
    }
    assert json.loads(path.read_text()) == fields
    full = DeadRecordsFile("/dev/full")
    assert not full.add("t", 2, TopicRecord(7, 1.0, None, b"\xff"), "malformed")
    full.close()
