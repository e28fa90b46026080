"""Requests split by trace id: whole spans, nothing lost, the same with and without the
extension.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.app.workers.front import part_of, split_request, split_request_python
from otel_eval.otlp import Signal
from otel_eval.otlp.otlp_json import rewrite

RECORDED = sorted((Path(__file__).parents[2] / "traces").glob("*.json"))


@cache
def requests() -> list[bytes]:
    """The recorded traces, one request each, and some of them in one."""
    found = [json.loads(path.read_text()) for path in RECORDED]
    each = [rewrite("traces", {"resourceSpans": groups_of(document)})[0] for document in found]
    rng = random.Random(5)
    return [*each, *(b"".join(rng.sample(each, min(4, len(each)))) for _ in range(10))]


def groups_of(document: Any) -> list[Any]:
    """The resourceSpans of a recorded trace, which is one request or a list of requests."""
    listed = document if isinstance(document, list) else [document]
    return [group for each in listed for group in each.get("resourceSpans", ())]


def spans_of(body: bytes) -> Counter[bytes]:
    """Each span with what stands around it."""
    found: Counter[bytes] = Counter()
    for group in ExportTraceServiceRequest.FromString(body).resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                around = (group.resource, group.schema_url, scope.scope, scope.schema_url)
                found[repr(around).encode() + span.SerializeToString(deterministic=True)] += 1
    return found


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("split", [split_request, split_request_python])
def test_every_span_is_in_the_part_of_its_trace(split, count: int):
    """With its resource, its scope and their schema URLs."""
    for body in requests():
        parts = split(body, Signal.TRACES, count)
        assert len(parts) == count
        assert sum(map(spans_of, parts), Counter()) == spans_of(body)
        for number, part in enumerate(parts):
            groups = ExportTraceServiceRequest.FromString(part).resource_spans
            ids = {
                span.trace_id
                for group in groups
                for scope in group.scope_spans
                for span in scope.spans
            }
            assert {part_of(each, count) for each in ids} <= {number}


def test_splitting_by_bytes_and_by_messages_give_the_same():
    """For recorded requests, and for those that are cut or have a byte changed."""
    rng = random.Random(9)
    for body in requests():
        assert split_request(body, Signal.TRACES, 3) == split_request_python(body, Signal.TRACES, 3)
    body = requests()[0]
    for _ in range(500):
        at = rng.randrange(len(body))
        spoilt = rng.choice((body[:at], body[:at] + rng.randbytes(1) + body[at + 1 :]))
        assert outcome(split_request, spoilt) == outcome(split_request_python, spoilt)


def outcome(split, body: bytes) -> object:
    """The parts, or that there are none."""
    try:
        return split(body, Signal.TRACES, 3)
    except ValueError:
        return ValueError


def test_parts_of_no_trace_are_in_the_first_part():
    """A scope without spans, a span without an id, and a field that OTLP does not have."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add(schema_url="of the group")
    group.scope_spans.add(schema_url="without spans")
    group.scope_spans.add().spans.add(name="without ids")
    unknown = b"\xfa\x01\x03abc"
    first, *others = split_request(request.SerializeToString() + unknown, Signal.TRACES, 3)
    assert others == [b"", b""]
    assert unknown in first
    assert ExportTraceServiceRequest.FromString(first).resource_spans == request.resource_spans


@pytest.mark.parametrize("split", [split_request, split_request_python])
def test_log_records_go_with_their_trace(split):
    """Their trace id has another field number."""
    request = ExportLogsServiceRequest()
    scope = request.resource_logs.add().scope_logs.add()
    for number in range(20):
        record = scope.log_records.add(
            trace_id=random.Random(number).randbytes(16), event_name=f"event {number}"
        )
        record.body.string_value = "x" * number
    parts = [
        ExportLogsServiceRequest.FromString(each)
        for each in split(request.SerializeToString(), Signal.LOGS, 2)
    ]
    for number, part in enumerate(parts):
        records = part.resource_logs[0].scope_logs[0].log_records
        assert records
        assert {part_of(each.trace_id, 2) for each in records} == {number}


def test_a_body_that_is_no_request_is_not_split():
    """The receiver then describes what is wrong."""
    with pytest.raises(ValueError, match="cut short"):
        split_request(b"\x0a\xff", Signal.TRACES, 2)
