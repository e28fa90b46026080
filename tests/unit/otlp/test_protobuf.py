"""Framing: which spans and log records of a protobuf request are taken, and with which ids."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.errors import InputError
from otel_eval.otlp.decoded_size import excess_size
from otel_eval.otlp.otlp_json import read_json
from otel_eval.otlp.protobuf import read_logs, read_traces

TRACE, SPAN, PARENT = b"t" * 16, b"s" * 8, b"p" * 8


def request(*spans: Span, scope: str = "agent") -> bytes:
    """A request of one resource and scope."""
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add(spans=spans).scope.name = scope
    return message.SerializeToString()


def in_request(span: bytes) -> bytes:
    """A request around span bytes that protobuf itself would not write."""
    for tag in (b"\x12", b"\x12", b"\x0a"):
        assert len(span) < 0x80
        span = tag + bytes([len(span)]) + span
    return span


def logs(scope: str = "agent", **fields: Any) -> bytes:
    """A request of one log record."""
    message = ExportLogsServiceRequest()
    scope_logs = message.resource_logs.add().scope_logs.add()
    scope_logs.scope.name = scope
    scope_logs.log_records.add(**fields)
    return message.SerializeToString()


def one_line(error: Exception) -> None:
    """A message is one line."""
    assert "\n" not in str(error)


def test_a_span_keeps_its_ids_its_bytes_and_its_size() -> None:
    """What is framed is what was sent."""
    span = Span(trace_id=TRACE, span_id=SPAN, parent_span_id=PARENT, name="chat")
    [(trace_id, span_id, (parent_id, payload, _), size)] = read_traces(request(span)).spans
    assert (trace_id, span_id, parent_id) == (TRACE, SPAN, PARENT)
    assert payload == span.SerializeToString()
    assert size == len(payload)


@pytest.mark.parametrize(
    "body", [b"", ExportTraceServiceRequest(resource_spans=[{}]).SerializeToString()]
)
def test_an_empty_request_holds_nothing(body: bytes) -> None:
    """No spans, or only empty resources and scopes, is no error."""
    framed = read_traces(body)
    assert (framed.spans, framed.rejected) == ([], 0)


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        ({"trace_id": b""}, "trace id"),
        ({"trace_id": bytes(16)}, "trace id"),
        ({"trace_id": b"t" * 15}, "trace id"),
        ({"span_id": b""}, "span id"),
        ({"span_id": bytes(8)}, "span id"),
        ({"span_id": b"s" * 9}, "span id"),
        ({"parent_span_id": b"p" * 7}, "parent span id"),
    ],
)
def test_a_span_with_unsound_ids_is_rejected_alone(ids: dict[str, bytes], says: str) -> None:
    """The others of its request are taken."""
    sound = {"trace_id": TRACE, "span_id": SPAN}
    framed = read_traces(request(Span(**sound | ids), Span(**sound)))
    assert (len(framed.spans), framed.rejected) == (1, 1)
    assert says in framed.reason


def test_a_parent_id_of_zeros_means_no_parent() -> None:
    """Some senders write a root so."""
    [(_, _, (parent_id, _, _), _)] = read_traces(
        request(Span(trace_id=TRACE, span_id=SPAN, parent_span_id=bytes(8)))
    ).spans
    assert parent_id == b""


def test_our_own_spans_are_dropped_and_counted() -> None:
    """Scores that come back through a Collector are not scored."""
    framed = read_traces(request(Span(trace_id=TRACE, span_id=SPAN), scope="otel_eval"))
    assert (framed.spans, framed.own, framed.rejected) == ([], 1, 0)


def test_spans_of_one_resource_and_scope_share_a_resource_scope_from_batch_to_batch() -> None:
    """So a buffer of many spans holds few of them."""
    span = Span(trace_id=TRACE, span_id=SPAN)
    first, second = (read_traces(request(span)).spans[0][2][2] for _ in range(2))
    assert first is second


def test_a_resource_that_is_too_large_for_the_cache_is_read() -> None:
    """The cache of resources and scopes is bounded in bytes."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "x" * 20_000
    group.scope_spans.add().spans.add(trace_id=TRACE, span_id=SPAN)
    first, second = (read_traces(message.SerializeToString()).spans[0][2][2] for _ in range(2))
    assert first is not second
    assert first.service == "x" * 20_000


@pytest.mark.parametrize(
    "frame",
    [read_traces, lambda body: read_json("traces", as_json(body))],
    ids=["protobuf", "json"],
)
def test_the_size_of_a_large_resource_counts_with_its_first_span(frame: Any) -> None:
    """What is kept because of a span is counted; a resource of ordinary size is not, since many
    spans share it.
    """
    message = ExportTraceServiceRequest()
    for size in (500, 100_000):
        group = message.resource_spans.add()
        group.resource.attributes.add(key="process.command_line").value.string_value = "x" * size
        group.scope_spans.add().spans.extend([Span(trace_id=TRACE, span_id=SPAN)] * 2)
    sizes = [size for _, _, _, size in frame(message.SerializeToString()).spans]
    assert sizes[0] == sizes[1] == sizes[3] == 28
    assert 99_000 < sizes[2] < 101_000


def as_json(body: bytes) -> bytes:
    """The same request in OTLP/JSON."""
    whole = json_format.MessageToDict(ExportTraceServiceRequest.FromString(body))
    for group in whole["resourceSpans"]:
        for span in group["scopeSpans"][0]["spans"]:
            span.update(traceId=TRACE.hex(), spanId=SPAN.hex())
    return json.dumps(whole).encode()


IDS = b"\x0a\x10" + TRACE + b"\x12\x08" + SPAN
OTHER = b"\x0a\x10" + b"T" * 16


@pytest.mark.parametrize(
    "span",
    [
        IDS + OTHER,  # a later field wins
        b"\x12\x08" + SPAN + b"\x0a\x10" + TRACE,  # any order
        b"\x2a\x01x" + IDS,  # name first
        b"\x8a\x00\x90\x00" + TRACE + IDS,  # lengths and tags longer than need be
        IDS + b"\x08\x05",  # a varint where bytes belong is unknown
        IDS + b"\x22\x08" + PARENT + b"\x22\x00",  # a parent taken back
    ],
)
def test_odd_encodings_are_read_as_protobuf_reads_them(span: bytes) -> None:
    """Ids are never guessed from their usual place."""
    try:
        expected = Span.FromString(span)
    except DecodeError:
        with pytest.raises(InputError):
            read_traces(in_request(span))
        return
    [(trace_id, span_id, (parent_id, _, _), _)] = read_traces(in_request(span)).spans
    assert (trace_id, span_id, parent_id) == (
        expected.trace_id,
        expected.span_id,
        expected.parent_span_id,
    )


@given(
    st.lists(
        st.sampled_from(
            [
                IDS,
                OTHER,
                b"\x12\x08" + b"S" * 8,
                b"\x22\x08" + PARENT,
                b"\x22\x00",
                b"\x2a\x02ab",
                b"\x30\x01",
            ]
        )
    )
)
def test_any_row_of_fields_gives_the_ids_that_protobuf_gives(fields: list[bytes]) -> None:
    """Equality with a full parse, whatever comes twice and in whatever order."""
    span = b"".join(fields)[:120]
    message = b"\x12" + bytes([len(span)]) + span
    body = b"\x0a" + bytes([len(message) + 2]) + b"\x12" + bytes([len(message)]) + message
    try:
        expected = Span.FromString(span)
    except DecodeError:
        with pytest.raises(InputError):
            read_traces(body)
        return
    got = [(trace_id, span_id, frame[0]) for trace_id, span_id, frame, _ in read_traces(body).spans]
    usable = len(expected.trace_id) == 16 and len(expected.span_id) == 8
    assert got == (
        [(expected.trace_id, expected.span_id, expected.parent_span_id)] if usable else []
    )


@given(st.binary(max_size=200))
@example(b"\xff")
@example(request(Span(trace_id=TRACE, span_id=SPAN))[:-3])
@example(in_request(b"\x0a\x7f"))
def test_any_bytes_give_frames_or_an_input_error(body: bytes) -> None:
    """And nothing else, for traces and for logs; what is framed can be read."""
    for frame in (read_traces, read_logs):
        try:
            framed = frame(body)
        except InputError as error:
            one_line(error)
            continue
        for _, _, (_, payload, resource_scope), _ in framed.spans:
            view = resource_scope.reader(payload)
            assert isinstance(view.name, str)
            assert isinstance(list(view.events()), list)


@given(st.binary(max_size=60))
def test_any_bytes_in_a_span_give_a_readable_view_or_an_input_error(tail: bytes) -> None:
    """A span whose inside is malformed loses what cannot be read, and never raises later."""
    try:
        framed = read_traces(in_request(IDS + b"\x4a" + bytes([len(tail)]) + tail))
    except InputError:
        return
    for _, _, (_, payload, resource_scope), _ in framed.spans:
        view = resource_scope.reader(payload)
        assert (view.status_code, view.status_message, list(view.events())) == (0, "", [])
        assert isinstance(resource_scope.rank(payload), tuple)


def a_map(key: str, value: dict[str, Any]) -> dict[str, Any]:
    """An AnyValue that is a map of one key."""
    return {"kvlist_value": {"values": [{"key": key, "value": value}]}}


@pytest.mark.parametrize(
    "fields",
    [
        {"event_name": "gen_ai.client.inference.operation.details"},
        {"attributes": [{"key": "event.name", "value": {"string_value": "gen_ai.choice"}}]},
        {"attributes": [{"key": "event.name", "value": {"string_value": "tool_result"}}]},
        {"body": a_map("output", a_map("messages", {"array_value": {}}))},
    ],
)
def test_a_log_record_that_may_carry_content_is_framed(fields: dict[str, Any]) -> None:
    """By its event name, by the attribute older senders use, or by messages in its body."""
    framed = read_logs(logs(trace_id=TRACE, span_id=SPAN, **fields))
    [(trace_id, span_id, (payload, resource_scope), size)] = framed.logs
    assert (trace_id, span_id, size) == (TRACE, SPAN, len(payload) + excess_size(payload))
    named = [each["value"]["string_value"] for each in fields.get("attributes", ())]
    assert resource_scope.event(payload).name == fields.get("event_name", "".join(named))


@pytest.mark.parametrize(
    "fields",
    [
        {
            "trace_id": TRACE,
            "span_id": SPAN,
            "body": {"string_value": "user input and output messages"},
        },
        {"trace_id": TRACE, "span_id": SPAN, "event_name": "device.app.lifecycle"},
        {"event_name": "gen_ai.choice"},
        {"trace_id": TRACE, "event_name": "gen_ai.choice"},
        {"trace_id": b"short", "span_id": SPAN, "event_name": "gen_ai.choice"},
    ],
)
def test_other_log_records_are_ignored(fields: dict[str, Any]) -> None:
    """An application's own log lines, and events of no span."""
    framed = read_logs(logs(**fields))
    assert (framed.logs, framed.ignored, framed.rejected) == ([], 1, 0)


def test_our_own_results_are_not_taken_for_content() -> None:
    """They are gen_ai events too."""
    framed = read_logs(
        logs("otel_eval", trace_id=TRACE, span_id=SPAN, event_name="gen_ai.evaluation.result")
    )
    assert (framed.logs, framed.own) == ([], 1)
