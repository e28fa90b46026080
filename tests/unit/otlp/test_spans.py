"""Views: what is read from raw span bytes, held against protobuf's own parse; and JSON against
protobuf.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from otel_eval.interfaces import SpanEvent, SpanReader, Wanted
from otel_eval.otlp.otlp_json import read_document
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces
from otel_eval.otlp.spans import MAX_DEPTH, TOO_DEEP
from otel_eval.wire import sized

TRACE, SPAN = b"t" * 16, b"s" * 8
ALL = Wanted(frozenset(), ("",))


def framed_span(span: Span) -> tuple[bytes, Any]:
    """Payload, resource and scope of a span as it is framed."""
    span.trace_id, span.span_id = span.trace_id or TRACE, span.span_id or SPAN
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.append(span)
    [(_, _, (_, payload, resource_scope), _)] = read_traces(message.SerializeToString()).spans
    return payload, resource_scope


def view(span: Span) -> SpanReader:
    """A span as it is read."""
    payload, resource_scope = framed_span(span)
    read: SpanReader = resource_scope.reader(payload)
    return read


def plain(value: AnyValue) -> Any:
    """The oracle: protobuf's parse, written out."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return {pair.key: plain(pair.value) for pair in value.kvlist_value.values}
    if kind == "bytes_value":
        return b64encode(value.bytes_value).decode()
    return getattr(value, kind) if kind else None


def plain_all(pairs: Any) -> dict[str, Any]:
    return {pair.key: plain(pair.value) for pair in pairs}


TEXT = st.text(max_size=200)
SCALARS = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"string_value": TEXT}),
    st.fixed_dictionaries({"bool_value": st.booleans()}),
    st.fixed_dictionaries({"int_value": st.integers(-(2**63), 2**63 - 1)}),
    st.fixed_dictionaries({"double_value": st.floats(allow_nan=False)}),
    st.fixed_dictionaries({"bytes_value": st.binary(max_size=40)}),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.builds(lambda items: {"array_value": {"values": items}}, st.lists(inner, max_size=3)),
        st.builds(
            lambda pairs: {
                "kvlist_value": {"values": [{"key": key, "value": value} for key, value in pairs]}
            },
            st.lists(st.tuples(TEXT, inner), max_size=3),
        ),
    ),
    max_leaves=8,
).map(lambda fields: AnyValue(**fields))
KEYS = st.one_of(
    st.sampled_from(["gen_ai.tool.name", "input.value", "k" * 127, "k" * 128, "k" * 300, ""]),
    st.text(max_size=12),
)
PAIRS = st.lists(
    st.builds(lambda key, value: KeyValue(key=key, value=value), KEYS, VALUES), max_size=6
)
TIMES = st.integers(0, 2**64 - 1)
EVENTS = st.lists(
    st.builds(
        lambda n, t, a: Span.Event(name=n, time_unix_nano=t, attributes=a), TEXT, TIMES, PAIRS
    ),
    max_size=3,
)
LINKS = st.lists(
    st.builds(lambda a: Span.Link(trace_id=TRACE, span_id=SPAN, attributes=a), PAIRS), max_size=2
)
SPANS = st.builds(
    Span,
    trace_id=st.binary(min_size=16, max_size=16).filter(any),
    span_id=st.binary(min_size=8, max_size=8).filter(any),
    parent_span_id=st.one_of(st.just(b""), st.binary(min_size=8, max_size=8).filter(any)),
    trace_state=TEXT,
    name=TEXT,
    kind=st.integers(0, 5),
    start_time_unix_nano=TIMES,
    end_time_unix_nano=TIMES,
    attributes=PAIRS,
    dropped_attributes_count=st.integers(0, 9),
    events=EVENTS,
    links=LINKS,
    status=st.builds(Status, code=st.integers(0, 2), message=TEXT),
    flags=st.sampled_from([0, 1, 0x100, 0x300, 0xFFFFFFFF]),
)


@given(SPANS)
def test_a_view_reads_what_protobuf_reads(span: Span) -> None:
    """Every field, every attribute, every event."""
    read = view(span)
    assert (read.name, read.span_kind, read.start_ns, read.end_ns) == (
        span.name,
        span.kind,
        span.start_time_unix_nano,
        span.end_time_unix_nano,
    )
    assert (read.status_code, read.status_message) == (span.status.code, span.status.message)
    assert read.attributes(ALL) == plain_all(span.attributes)
    assert list(read.events()) == [
        SpanEvent(event.name, plain_all(event.attributes)) for event in span.events
    ]


@given(
    SPANS,
    st.sets(KEYS, max_size=20),
    st.lists(st.sampled_from(["gen_ai.", "k", "input"]), max_size=2),
)
def test_only_the_wanted_attributes_are_given(
    span: Span, keys: set[str], prefixes: list[str]
) -> None:
    """By exact key or by prefix, for few wanted keys and for many."""
    expected = {
        k: v
        for k, v in plain_all(span.attributes).items()
        if k in keys or k.startswith(tuple(prefixes))
    }
    assert view(span).attributes(Wanted(frozenset(keys), tuple(prefixes))) == expected


def without_nulls(message: Any) -> dict[str, Any]:
    """The message as OTLP/JSON: protobuf's mapping, with ids in hexadecimal."""
    document: dict[str, Any] = json_format.MessageToDict(message, use_integers_for_enums=True)
    for group in document.get("resourceSpans", []):
        for scope in group.get("scopeSpans", []):
            for span in scope.get("spans", []):
                _hex_ids(span)
                for link in span.get("links", []):
                    _hex_ids(link)
    return document


def _hex_ids(holder: dict[str, Any]) -> None:
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in holder:
            holder[key] = b64decode(holder[key]).hex().upper()


@given(st.lists(SPANS, max_size=3), PAIRS)
def test_json_and_protobuf_of_one_message_are_framed_alike(
    spans: list[Span], resource: list[KeyValue]
) -> None:
    """To the byte, so nothing downstream can tell which it was."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.extend(resource)
    group.scope_spans.add(spans=spans).scope.name = "agent"
    from_json, from_protobuf = (
        read_document(without_nulls(message)),
        read_traces(message.SerializeToString()),
    )
    assert comparable(from_json) == comparable(from_protobuf)


def comparable(framed: SpanBatch) -> list[Any]:
    """Frames without the identity of their resources and scopes."""
    return [
        (
            trace,
            span,
            parent,
            view_facts(resource_scope.reader(payload)),
            resource_scope.shared(ALL),
            resource_scope.scope_name,
        )
        for trace, span, (parent, payload, resource_scope), _ in framed.spans
    ]


def view_facts(read: SpanReader) -> tuple[Any, ...]:
    return (
        read.name,
        read.span_kind,
        read.start_ns,
        read.end_ns,
        read.status_code,
        read.status_message,
        read.attributes(ALL),
        list(read.events()),
    )


def test_equal_spans_have_equal_bytes_in_either_encoding() -> None:
    """A span that came twice, once in each, is one span: neither outranks the other."""
    span = Span(
        trace_id=TRACE,
        span_id=SPAN,
        name="chat",
        kind=3,
        start_time_unix_nano=5,
        end_time_unix_nano=9,
        flags=0x100,
    )
    span.attributes.add(key="n").value.int_value = -1
    span.status.code = 2
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.append(span)
    [(_, _, (_, from_json, _), _)] = read_document(without_nulls(message)).spans
    assert from_json == framed_span(span)[0]


def nested(depth: int, kind: str) -> AnyValue:
    value = AnyValue(string_value="bottom")
    for _ in range(depth):
        outer = AnyValue()
        if kind == "list":
            outer.array_value.values.add().CopyFrom(value)
        else:
            outer.kvlist_value.values.add(key="k").value.CopyFrom(value)
        value = outer
    return value


def depth_of(value: Any) -> tuple[int, Any]:
    depth = 0
    while isinstance(value, (list, dict)):
        value, depth = (value[0] if isinstance(value, list) else value["k"]), depth + 1
    return depth, value


def raw_nested(depth: int) -> bytes:
    """Lists in lists as bytes; protobuf's own encoder stops at a hundred messages."""
    value = b""
    for _ in range(depth):
        value = sized(5, sized(1, value))
    return value


@pytest.mark.parametrize("kind", ["list", "map"])
def test_nesting_is_read_down_to_its_limit(kind: str) -> None:
    """Thirty levels are nothing special."""
    span = Span(attributes=[KeyValue(key="deep", value=nested(30, kind))])
    assert depth_of(view(span).attributes(ALL)["deep"]) == (30, "bottom")


def test_nesting_beyond_the_limit_is_cut_and_costs_nothing_else() -> None:
    """Five hundred levels in a request neither raise nor hide the other attributes."""
    pair = sized(1, b"deep") + sized(2, raw_nested(500))
    span = (
        sized(1, TRACE)
        + sized(2, SPAN)
        + sized(9, pair)
        + sized(9, KeyValue(key="k").SerializeToString())
    )
    [(_, _, (_, payload, resource_scope), _)] = read_traces(
        sized(1, sized(2, sized(2, span)))
    ).spans
    read = resource_scope.reader(payload).attributes(ALL)
    assert depth_of(read["deep"]) == (MAX_DEPTH, TOO_DEEP)
    assert read["k"] is None


def test_json_nested_too_deeply_reads_like_protobuf() -> None:
    """The same cut at the same place."""
    value: dict[str, Any] = {"stringValue": "bottom"}
    for _ in range(80):
        value = {"arrayValue": {"values": [value]}}
    span = {
        "traceId": TRACE.hex(),
        "spanId": SPAN.hex(),
        "attributes": [{"key": "deep", "value": value}],
    }
    [(_, _, (_, payload, resource_scope), _)] = read_document(
        {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    ).spans
    assert depth_of(resource_scope.reader(payload).attributes(ALL)["deep"]) == (MAX_DEPTH, TOO_DEEP)


def raw_span(*attributes: bytes) -> SpanReader:
    """A span whose attributes are given as the bytes of KeyValues."""
    span = sized(1, TRACE) + sized(2, SPAN) + b"".join(sized(9, pair) for pair in attributes)
    [(_, _, (_, payload, resource_scope), _)] = read_traces(
        sized(1, sized(2, sized(2, span)))
    ).spans
    read: SpanReader = resource_scope.reader(payload)
    return read


STRING_A, STRING_B = b"\x12\x03\x0a\x01a", b"\x12\x03\x0a\x01b"


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        # of equal keys the last wins
        ([b"\x0a\x01k" + STRING_A, b"\x0a\x01k" + STRING_B], {"k": "b"}),
        ([STRING_A + b"\x0a\x01k"], {"k": "a"}),  # value first
        ([b"\x0a\x01x\x0a\x01k" + STRING_A], {"k": "a"}),  # a later key wins
        ([b"\x0a\x01k" + STRING_A + STRING_B], {"k": "b"}),  # a later value wins
        ([b"\x0a\x81\x00k" + STRING_A], {"k": "a"}),  # a length longer than need be
        ([b"\x0a\x01k"], {"k": None}),  # no value
        ([STRING_A], {"": "a"}),  # no key
        ([b"\x0a\x01k\x12\x00"], {"k": None}),  # an empty value
        ([b"\x0a\x01k\x12\x05\x0a\x01a\x10\x01"], {"k": True}),  # the last member of a oneof wins
    ],
)
def test_odd_attributes_are_read_as_protobuf_reads_them(
    pairs: list[bytes], expected: dict[str, Any]
) -> None:
    """Also by protobuf itself, which this test asks too."""
    stock = Span.FromString(b"".join(sized(9, pair) for pair in pairs))
    assert plain_all(stock.attributes) == expected
    assert raw_span(*pairs).attributes(ALL) == expected


@pytest.mark.parametrize(
    "broken", [b"\x0a\x05k", b"\x0a\x01\xff" + STRING_A, b"\x0a\x01x\x12\x02\x0a\x09"]
)
def test_a_malformed_attribute_costs_no_other(broken: bytes) -> None:
    """Cut, with a key that is no UTF-8, or with a value that is none."""
    assert raw_span(b"\x0a\x01k" + STRING_A, broken).attributes(Wanted(frozenset({"k"}))) == {
        "k": "a"
    }


def test_text_that_is_no_utf8_is_replaced() -> None:
    """One bad byte in one attribute does not lose a batch."""
    assert raw_span(b"\x0a\x01k\x12\x03\x0a\x01\xff").attributes(ALL) == {"k": "\ufffd"}


def test_numbers_that_are_none_survive() -> None:
    """NaN and the infinities are values."""
    span = Span(
        attributes=[
            KeyValue(key=str(x), value=AnyValue(double_value=x))
            for x in (math.nan, math.inf, -math.inf)
        ]
    )
    read = view(span).attributes(ALL)
    assert math.isnan(read["nan"])
    assert (read["inf"], read["-inf"]) == (math.inf, -math.inf)


@pytest.mark.parametrize(
    ("flags", "remote"),
    [(0, None), (1, None), (0x100, False), (0x101, False), (0x300, True), (0x200, None)],
)
def test_flags_say_whether_the_parent_is_remote(flags: int, remote: bool | None) -> None:
    """Only if they say that they know; future bits do not matter."""
    payload, resource_scope = framed_span(Span(flags=flags | 0x80000000))
    assert resource_scope.reader(payload).parent_is_remote is remote


def test_a_later_end_then_more_attributes_outrank() -> None:
    """Of two spans with one id the greater rank counts, whichever came first."""
    spans = [
        Span(end_time_unix_nano=5),
        Span(end_time_unix_nano=5, attributes=[KeyValue(key="a")]),
        Span(end_time_unix_nano=6),
    ]
    ranks = [resource_scope.rank(payload) for payload, resource_scope in map(framed_span, spans)]
    assert ranks == sorted(ranks)
    assert len(set(ranks)) == 3


def test_the_resource_goes_before_the_scope() -> None:
    """Shared attributes, and the service's name."""
    message = ExportTraceServiceRequest()
    group = message.resource_spans.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    scope = group.scope_spans.add()
    scope.scope.name = "agent"
    for key in ("service.name", "team"):
        scope.scope.attributes.add(key=key).value.string_value = "scope's"
    scope.spans.add(trace_id=TRACE, span_id=SPAN)
    [(_, _, (_, _, resource_scope), _)] = read_traces(message.SerializeToString()).spans
    assert (resource_scope.service, resource_scope.scope_name) == ("shop", "agent")
    assert resource_scope.shared(Wanted(frozenset({"service.name", "team", "absent"}))) == {
        "service.name": "shop",
        "team": "scope's",
    }


def test_a_log_record_is_read_as_an_event() -> None:
    """Name, attributes and body."""
    message = ExportLogsServiceRequest()
    record = (
        message.resource_logs.add()
        .scope_logs.add()
        .log_records.add(trace_id=TRACE, span_id=SPAN, event_name="gen_ai.choice")
    )
    record.attributes.add(key="index").value.int_value = 0
    record.body.kvlist_value.values.add(key="role").value.string_value = "assistant"
    [(_, _, (payload, resource_scope), _)] = read_logs(message.SerializeToString()).logs
    assert resource_scope.event(payload) == SpanEvent(
        "gen_ai.choice", {"index": 0}, {"role": "assistant"}
    )
