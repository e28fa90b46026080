"""OTLP/JSON as senders write it, and as they should not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1.metrics_pb2 import AGGREGATION_TEMPORALITY_DELTA, MetricsData

from otel_eval.errors import InputError
from otel_eval.interfaces import Wanted
from otel_eval.otlp.otlp_json import read_document, read_json, rewrite
from otel_eval.otlp.protobuf import SpanBatch
from tests.support.made_spans import json_document

TRACE, SPAN = "0123456789abcdef0123456789abcdef", "0123456789abcdef"
ALL = Wanted(frozenset(), ("",))


def document(*spans: Any) -> dict[str, Any]:
    """An OTLP/JSON document of one scope."""
    return json_document(spans)


def span(**fields: Any) -> dict[str, Any]:
    """A span with sound ids."""
    return {"traceId": TRACE, "spanId": SPAN} | fields


def read(framed: SpanBatch) -> Any:
    """The view of the only span."""
    [(_, _, (_, payload, resource_scope), _)] = framed.spans
    return resource_scope.reader(payload)


def attribute(value: Any) -> Any:
    """An attribute's value after its way through."""
    return read(
        read_document(document(span(attributes=[{"key": "k", "value": value}])))
    ).attributes(ALL)["k"]


def one_line(error: Exception) -> None:
    """A message is one line."""
    assert "\n" not in str(error)


def test_ids_are_hexadecimal_of_either_case() -> None:
    """Not base64, as in other JSON of protobuf."""
    framed = read_document(document(span(traceId=TRACE.upper(), parentSpanId="FEdcba9876543210")))
    [(trace_id, span_id, (parent_id, _, _), _)] = framed.spans
    assert (trace_id.hex(), span_id.hex(), parent_id.hex()) == (TRACE, SPAN, "fedcba9876543210")


@pytest.mark.parametrize(
    "fields",
    [
        {"traceId": "ab"},
        {"traceId": "0" * 32},
        {"traceId": "AAAAAAAAAAAAAAAAAAAAAQ=="},
        {"traceId": 5},
        {"spanId": "xyz"},
        {"spanId": None},
        {"parentSpanId": "12"},
        {"name": 5},
        {"startTimeUnixNano": "soon"},
        {"endTimeUnixNano": -1},
        {"startTimeUnixNano": 1.5},
        {"startTimeUnixNano": True},
        {"kind": {}},
        {"flags": 2**32},
        {"attributes": {"k": "v"}},
        {"attributes": ["k"]},
        {"attributes": [{"key": "k", "value": "bare"}]},
        {"attributes": [{"key": "k", "value": {"stringValue": 5}}]},
        {"attributes": [{"key": "k", "value": {"boolValue": "yes"}}]},
        {"attributes": [{"key": "k", "value": {"intValue": "99999999999999999999"}}]},
        {"attributes": [{"key": "k", "value": {"doubleValue": "much"}}]},
        {"attributes": [{"key": "k", "value": {"arrayValue": [1]}}]},
        {"attributes": [{"key": "k", "value": {"bytesValue": "*"}}]},
        {"events": [5]},
        {"status": "OK"},
    ],
)
def test_a_span_with_an_unusable_field_is_rejected_alone(fields: dict[str, Any]) -> None:
    """The reason names the field and not the value; the other span is taken."""
    framed = read_document(document(span(**fields), span()))
    assert (len(framed.spans), framed.rejected) == (1, 1)
    assert framed.reason
    assert "bare" not in framed.reason


@pytest.mark.parametrize(
    ("given_value", "value"),
    [
        ({"stringValue": ""}, ""),
        ({"string_value": "snake"}, "snake"),
        ({"boolValue": False}, False),
        ({"intValue": "-5"}, -5),
        ({"intValue": 7}, 7),
        ({"intValue": 0}, 0),
        ({"doubleValue": 2}, 2.0),
        ({"doubleValue": "Infinity"}, float("inf")),
        ({"bytesValue": "AP8="}, "AP8="),
        ({"arrayValue": {"values": [{"intValue": 1}, {}, None]}}, [1, None, None]),
        ({"arrayValue": {}}, []),
        (
            {
                "kvlistValue": {
                    "values": [{"key": "a", "value": {"stringValue": "b"}}, {"key": "c"}]
                }
            },
            {"a": "b", "c": None},
        ),
        ({}, None),
        (None, None),
        ({"stringValue": None, "intValue": 3}, 3),
        ({"stringValue": "lone \ud800 surrogate"}, "lone ? surrogate"),
    ],
)
def test_values_keep_their_kind(given_value: Any, value: Any) -> None:
    """Every kind of AnyValue, with the liberties that senders take."""
    assert attribute(given_value) == value
    assert type(attribute(given_value)) is type(value)


@pytest.mark.parametrize("kind", [3, "3", "SPAN_KIND_CLIENT"])
def test_an_enum_is_a_number_or_its_name(kind: Any) -> None:
    """The specification wants numbers; real payloads have names."""
    assert read(read_document(document(span(kind=kind)))).span_kind == 3


@pytest.mark.parametrize(
    ("code", "number"),
    [(2, 2), ("STATUS_CODE_ERROR", 2), ("STATUS_CODE_UNHEARD_OF", 0), (99, 99), (None, 0)],
)
def test_an_unknown_status_is_no_error(code: Any, number: int) -> None:
    """Future values pass through, names without a number are unset."""
    assert (
        read(read_document(document(span(status={"code": code, "message": "m"})))).status_code
        == number
    )


@pytest.mark.parametrize("time", ["1700000000000000001", 1700000000000000001])
def test_times_are_text_or_numbers(time: Any) -> None:
    """64-bit integers keep every digit."""
    assert (
        read(read_document(document(span(startTimeUnixNano=time)))).start_ns == 1700000000000000001
    )


def test_unknown_fields_and_nulls_are_ignored() -> None:
    """At every level."""
    body = document(span(colour="red", name=None, attributes=None, links=[None], events=None), None)
    body["resourceSpans"][0] |= {"resource": None, "extra": {"deep": []}}
    assert read(read_document(body)).name == ""


def test_snake_case_is_understood() -> None:
    """As printers of protobuf's own names write it."""
    body = {
        "resource_spans": [
            {
                "scope_spans": [
                    {"spans": [{"trace_id": TRACE, "span_id": SPAN, "start_time_unix_nano": 5}]}
                ]
            }
        ]
    }
    assert read(read_document(body)).start_ns == 5


def test_the_last_of_equal_keys_wins() -> None:
    """The order is undefined by the specification, and the same here for both encodings."""
    pairs = [{"key": "k", "value": {"intValue": number}} for number in (1, 2)]
    assert read(read_document(document(span(attributes=pairs)))).attributes(ALL) == {"k": 2}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"text"',
        b"\xff{}",
        b"\xef\xbb\xbf{}",
        b'{"resourceSpans": 5}',
        b'{"resourceSpans": {"a": 1}}',
        b'{"resourceSpans": ["x"]}',
        b'{"resourceSpans": [{"resource": 5, "scopeSpans": [{}]}]}',
        b'{"resourceSpans": [{"scopeSpans": [{"spans": "x"}]}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'{"resourceSpans": [], "n": ' + b"9" * 5000 + b"}",
    ],
)
def test_an_invalid_document_is_refused_in_one_line(body: bytes) -> None:
    """Also with a byte order mark, without UTF-8, and nested to exhaust a stack."""
    with pytest.raises(InputError) as caught:
        read_json("traces", body)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "body",
    [b"{}", b'{"resourceSpans": []}', b'{"resourceSpans": [{}]}', b'{"resourceSpans": null}'],
)
def test_an_empty_document_holds_nothing(body: bytes) -> None:
    """And is no error."""
    assert read_json("traces", body) == SpanBatch()


def test_logs_are_joined_by_their_ids() -> None:
    """Events that carry content, and only those."""
    records = [
        {
            "traceId": TRACE,
            "spanId": SPAN,
            "eventName": "gen_ai.choice",
            "body": {"stringValue": "hello"},
        },
        {"body": {"stringValue": "an application's own line"}},
        {"traceId": TRACE, "spanId": SPAN, "eventName": 5},
    ]
    body = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()
    framed = read_json("logs", body)
    [(trace_id, span_id, (payload, resource_scope), _)] = framed.logs
    assert (trace_id.hex(), span_id.hex(), resource_scope.event(payload).body) == (
        TRACE,
        SPAN,
        "hello",
    )
    assert (framed.ignored, framed.rejected) == (1, 1)


def every_kind_of_metric() -> MetricsData:
    """With zeros that are recorded, which differ from numbers that are not."""
    message = MetricsData()
    metrics = message.resource_metrics.add(schema_url="r").scope_metrics.add(schema_url="s").metrics
    metrics.add(name="g").gauge.data_points.add(as_int=0, time_unix_nano=2**63, flags=1)
    of_sum = metrics.add(name="s", unit="1").sum
    of_sum.aggregation_temporality, of_sum.is_monotonic = AGGREGATION_TEMPORALITY_DELTA, True
    of_sum.data_points.add(as_double=0.0).exemplars.add(
        as_int=-5, trace_id=bytes.fromhex(TRACE), span_id=bytes.fromhex(SPAN)
    )
    of_sum.data_points.add(as_double=float("inf")).attributes.add(key="k").value.string_value = "v"
    metrics.add(name="h").histogram.data_points.add(
        count=3, sum=0.0, min=-1.5, bucket_counts=[0, 3, 0], explicit_bounds=[0.0, 1.0]
    )
    point = metrics.add(name="e").exponential_histogram.data_points.add(
        scale=-2, zero_count=1, zero_threshold=0.5
    )
    point.positive.offset = -3
    point.positive.bucket_counts.extend([0, 2**40])
    metrics.add(name="q").summary.data_points.add(sum=2.5).quantile_values.add(
        quantile=0.5, value=-1.0
    )
    return message


@pytest.mark.parametrize("in_snake_case", [False, True])
def test_metrics_become_the_bytes_of_the_same_metrics_in_protobuf(in_snake_case: bool) -> None:
    """Whatever kind they are of; ids of exemplars are hexadecimal."""
    message = every_kind_of_metric()
    written = json_format.MessageToDict(message, preserving_proto_field_name=in_snake_case)
    exemplar = (
        json.dumps(written).replace("ASNFZ4mrze8BI0VniavN7w==", TRACE).replace("ASNFZ4mrze8=", SPAN)
    )
    assert rewrite("metrics", json.loads(exemplar)) == (message.SerializeToString(), 0, "")


@pytest.mark.parametrize(
    "gauge",
    [
        5,
        {"dataPoints": {}},
        {"dataPoints": [{"asDouble": "much"}]},
        {"dataPoints": [{"flags": -1}]},
    ],
)
def test_a_metric_that_cannot_be_written_is_refused_in_one_line(gauge: Any) -> None:
    """With the whole request, because of its data points nothing counts how many were lost."""
    with pytest.raises(InputError) as caught:
        rewrite(
            "metrics",
            {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "m", "gauge": gauge}]}]}]},
        )
    one_line(caught.value)


NAMES = [
    "resourceSpans",
    "scopeSpans",
    "spans",
    "resource",
    "scope",
    "traceId",
    "spanId",
    "name",
    "kind",
    "status",
    "attributes",
    "events",
    "key",
    "value",
    "stringValue",
    "intValue",
    "arrayValue",
    "kvlistValue",
    "bytesValue",
    "values",
    "resourceLogs",
    "scopeLogs",
    "logRecords",
    "body",
]
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=5,
        ),
    ),
    max_leaves=25,
)


@given(st.dictionaries(st.sampled_from(["resourceSpans", "resourceLogs"]), JSON))
def test_any_json_gives_frames_or_an_input_error(body: dict[str, Any]) -> None:
    """And nothing else."""
    try:
        framed = read_document(body)
    except InputError as error:
        one_line(error)
    else:
        assert framed.spans == []


@given(JSON)
def test_any_json_as_a_span_gives_a_frame_or_a_rejection(fields: Any) -> None:
    """A hostile span costs itself."""
    framed = read_document(
        document(span() | fields if isinstance(fields, dict) else fields, span(name="good"))
    )
    names = [
        resource_scope.reader(payload).name
        for _, _, (_, payload, resource_scope), _ in framed.spans
    ]
    assert names[-1:] == ["good"]


@given(st.binary(max_size=100))
def test_any_bytes_give_frames_or_an_input_error(body: bytes) -> None:
    """As text they are mostly none."""
    for signal in ("traces", "logs"):
        try:
            read_json(signal, body)
        except InputError as error:
            one_line(error)
