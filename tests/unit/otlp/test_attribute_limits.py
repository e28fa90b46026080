"""A span with more attributes than the limit is rejected as a whole, with a reason; one with as
many as the limit is accepted.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import read_logs, read_traces
from otel_eval.wire import sized

MOST = 50
IDS = {"trace_id": b"t" * 16, "span_id": b"s" * 8}


def with_attributes(where: str, count: int, size: int = 1) -> ExportTraceServiceRequest:
    """A request of two spans, the first of which, or what belongs to it, has so many attributes."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    scope = group.scope_spans.add()
    span = scope.spans.add(**IDS, name="a", flags=0x100)
    request.resource_spans.add().scope_spans.add().spans.add(**IDS, name="b", flags=0x100)
    owner = {
        "a span": lambda: span,
        "an event": lambda: span.events.add(name="e"),
        "a link": lambda: span.links.add(**IDS),
        "a resource": lambda: group.resource,
        "a scope": lambda: scope.scope,
    }[where]()
    for number in range(count):
        owner.attributes.add(key=f"k{number}").value.string_value = "J" * size
    return request


WHERE = pytest.mark.parametrize("where", ["a span", "an event", "a link", "a resource", "a scope"])


@WHERE
@pytest.mark.parametrize("size", [0, 300])
def test_attributes_up_to_the_limit_are_accepted(where: str, size: int) -> None:
    """Whatever bytes are in them."""
    framed = read_traces(with_attributes(where, MOST, size).SerializeToString(), MOST)
    assert (len(framed.spans), framed.rejected) == (2, 0)


@WHERE
@pytest.mark.parametrize("size", [0, 300])
def test_one_attribute_above_the_limit_rejects_its_span(where: str, size: int) -> None:
    """The reason names the limit and its key; the span of another resource is accepted, and nothing
    is truncated.
    """
    framed = read_traces(with_attributes(where, MOST + 1, size).SerializeToString(), MOST)
    assert [
        resource_scope.reader(payload).name
        for _, _, (_, payload, resource_scope), _ in framed.spans
    ] == ["b"]
    assert framed.rejected == 1
    assert where in framed.reason
    assert "more than 50 attributes" in framed.reason
    assert "max_attributes" in framed.reason


def test_a_span_may_have_many_events_each_with_its_own() -> None:
    """The limit is for each."""
    span = Span(**IDS, name="a")
    for _ in range(MOST):
        event = span.events.add(name="e")
        event.attributes.add(key="j").value.int_value = 1
        event.attributes.add(key="k").value.int_value = 1
    body = sized(1, sized(2, sized(2, span.SerializeToString())))
    assert read_traces(body, MOST).rejected == 0


@pytest.mark.parametrize(
    ("what", "tag"), [("events", b"\x5a"), ("links", b"\x6a"), ("events", b"\xda\x00")]
)
@pytest.mark.parametrize("size", [0, 200])
def test_events_and_links_are_limited_as_attributes_are(what: str, tag: bytes, size: int) -> None:
    """One more than there may be costs the span."""
    one = tag + sized(1, sized(1, b"x" * size))[1:] if size else tag + b"\x00"
    span = sized(1, b"t" * 16) + sized(2, b"s" * 8)
    taken, rejected = (
        read_traces(sized(1, sized(2, sized(2, span + one * count))), MOST)
        for count in (MOST, MOST + 1)
    )
    assert (len(taken.spans), taken.rejected, len(rejected.spans), rejected.rejected) == (
        1,
        0,
        0,
        1,
    )
    assert f"a span has more than 50 {what}" in rejected.reason


GROWN = """
import re, sys
from otel_eval.otlp.protobuf import read_traces
body = sys.stdin.buffer.read()
held = int(open("/proc/self/statm").read().split()[1]) * 4096
open("/proc/self/clear_refs", "w").write("5")
framed = read_traces(body, 4096)
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1]) * 1024
print(framed.rejected, peak - held)
"""
MANY = 10_000_000
SPAN_IDS = sized(1, b"t" * 16) + sized(2, b"s" * 8)


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="the peak of a process's memory is Linux's to tell",
)
@pytest.mark.parametrize(
    "fields",
    [b"\x5a\x00" * MANY, b"\x6a\x00" * MANY, sized(11, b"\x1a\x00" * MANY)],
    ids=["events", "links", "one event's attributes"],
)
def test_ten_million_of_them_are_rejected_without_being_parsed(fields: bytes) -> None:
    """They are 20 kB when compressed and 20 MB when not, of which some copies are made; parsed,
    they would take tens of bytes each, which is hundreds of MB.
    """
    body = sized(1, sized(2, sized(2, SPAN_IDS + fields)))
    done = subprocess.run(
        [sys.executable, "-c", GROWN], input=body, capture_output=True, check=True
    )
    rejected, grown = map(int, done.stdout.split())
    assert rejected == 1
    assert grown < 10 * len(body)


def test_tags_that_are_longer_than_need_be_are_counted() -> None:
    """What protobuf reads as an attribute is one."""
    span = sized(1, b"t" * 16) + sized(2, b"s" * 8) + b"\xca\x00\x00" * (MOST + 1)
    framed = read_traces(sized(1, sized(2, sized(2, span))), MOST)
    assert (len(framed.spans), framed.rejected) == (0, 1)


def in_json(where: str, count: int) -> bytes:
    """The same in JSON."""
    attributes = [{"key": f"k{number}", "value": {"intValue": number}} for number in range(count)]
    ids = {"traceId": "7" * 32, "spanId": "7" * 16}
    span = {
        "a span": {"attributes": attributes},
        "an event": {"events": [{"name": "e", "attributes": attributes}]},
        "a link": {"links": [{**ids, "attributes": attributes}]},
        "a resource": {},
        "a scope": {},
    }[where]
    scope = {
        "scope": {"attributes": attributes if where == "a scope" else []},
        "spans": [{**ids, **span}],
    }
    resource = {"attributes": attributes if where == "a resource" else []}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [scope]}]}).encode()


@WHERE
def test_the_same_holds_in_json(where: str) -> None:
    """One more than there may be, and as many."""
    assert [
        read_json("traces", in_json(where, count), MOST).rejected for count in (MOST, MOST + 1)
    ] == [0, 1]


def log(count: int) -> bytes:
    request = ExportLogsServiceRequest()
    record = (
        request.resource_logs.add()
        .scope_logs.add()
        .log_records.add(**IDS, event_name="gen_ai.choice")
    )
    for number in range(count):
        record.attributes.add(key=f"k{number}").value.int_value = number
    return request.SerializeToString()


def log_json(count: int) -> bytes:
    attributes = [{"key": f"k{number}", "value": {"intValue": number}} for number in range(count)]
    record = {
        "traceId": "7" * 32,
        "spanId": "7" * 16,
        "eventName": "gen_ai.choice",
        "attributes": attributes,
    }
    return json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}).encode()


@pytest.mark.parametrize(
    ("make", "frame"),
    [(log, read_logs), (log_json, partial(read_json, "logs"))],
    ids=["protobuf", "json"],
)
def test_a_record_with_too_many_is_rejected(
    make: Callable[[int], bytes], frame: Callable[..., object]
) -> None:
    """A record that would be joined to a span."""
    taken, rejected = (frame(make(count), MOST) for count in (MOST, MOST + 1))
    assert (len(taken.logs), taken.rejected) == (1, 0)
    assert (len(rejected.logs), rejected.rejected) == (0, 1)
    assert "a log record has more" in rejected.reason


FIELDS = st.lists(
    st.one_of(
        st.binary(max_size=4).map(lambda content: sized(9, content)),
        st.lists(
            st.sampled_from([sized(3, b""), sized(2, b"e"), b"\x9a\x00\x00", b"\x22"]), max_size=8
        ).map(lambda parts: sized(11, b"".join(parts))),
        st.lists(st.sampled_from([sized(4, b""), sized(1, b"e"), b"\xa2\x00\x00"]), max_size=8).map(
            lambda parts: sized(13, b"".join(parts))
        ),
        st.sampled_from(
            [sized(5, b"name"), b"\x30\x01", b"\x85\x01\x01\x00\x00\x00", b"\xca\x00\x00"]
        ),
    ),
    max_size=12,
).map(b"".join)


@given(FIELDS)
def test_the_count_of_attributes_is_that_of_a_full_parse(fields: bytes) -> None:
    """Over any row of fields, of spans that protobuf can read."""
    payload = sized(1, b"t" * 16) + sized(2, b"s" * 8) + fields
    try:
        span = Span.FromString(payload)
    except Exception:  # noqa: BLE001 - protobuf's own error: an event that is none; then it is read leniently
        return
    counts = [
        len(span.attributes),
        len(span.events),
        len(span.links),
        *(len(each.attributes) for each in (*span.events, *span.links)),
    ]
    framed = read_traces(sized(1, sized(2, sized(2, payload))), 3)
    assert framed.rejected == (max(counts) > 3)
