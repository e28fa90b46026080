"""Events that are appended to spans in protobuf's bytes are read by protobuf as what was written."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.exporters.attributes import event_attributes
from otel_eval.forwarding.splice import attributes_of, event, events_of
from otel_eval.model import Report, Result, Scored, Skipped, Stamp
from otel_eval.testing import trajectory

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(["x" * 127, "x" * 128, "é" * 20_000])
DETAILS = st.lists(TEXT | st.integers() | st.none(), max_size=3) | st.dictionaries(TEXT, st.booleans(), min_size=1, max_size=3)
VALUES = TEXT | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans()


def read(raw: bytes) -> dict[str, Any]:
    """The attributes of the one event."""
    (found,) = Span.FromString(raw).events
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found.attributes}


@given(st.dictionaries(TEXT, VALUES, max_size=5), TEXT)
def test_attributes_keep_their_kind_and_value(own: dict[str, Any], name: str) -> None:
    """Texts, whole numbers of 64 bits, doubles and booleans, of any length."""
    head = Span.Event(attributes=[KeyValue(key=name, value=AnyValue(bool_value=True))]).SerializeToString()
    found = read(event(b"", head, own))
    assert found == {name: True} | own
    assert [type(each) for each in found.values()] == [type(each) for each in ({name: True} | own).values()]


@given(DETAILS)
def test_details_are_sent_as_json(details: Any) -> None:
    """Lists and mappings."""
    assert json.loads(read(event(b"", b"", {"otel_eval.details": details}))["otel_eval.details"]) == details


def test_values_without_an_encoding_of_their_own_are_replaced() -> None:
    """Half of a surrogate pair is a question mark; NaN is a double as any other."""
    found = read(event(b"", b"", {"half": "a\ud800", "nan": math.nan}))
    assert found["half"] == "a?"
    assert math.isnan(found["nan"])


def test_events_are_at_the_end_of_the_run_with_the_attributes_of_other_exporters() -> None:
    """Of two runs that differ in nothing but the span's name, each has its own."""
    result = Result(
        evaluation="e",
        scorer="s",
        type="t",
        version="1",
        outcome=Scored(1.0, True),
        revision=0,
        result_id="a" * 32,
        threshold=0.5,
    )
    for name in ("GET /a", "GET /b"):
        run = trajectory(trace_id="1" * 32, span_id="2" * 16, name=name, response_id="resp-1", start_ns=10, end_ns=30)
        report = Report(run, "e", 0, (result,), stamp=Stamp("", 77))
        (found,) = Span.FromString(events_of(report)).events
        assert found.time_unix_nano == 30
        assert read(events_of(report)) == event_attributes(report, result)


def test_scores_are_attributes_of_the_span_where_asked() -> None:
    """Under the names that they have elsewhere; there is none for what has no score."""
    shared: dict[str, Any] = {"evaluation": "e", "type": "t", "version": "1", "revision": 0, "result_id": "a" * 32}
    results = (
        Result(scorer="s", outcome=Scored(0.5, True), **shared),
        Result(scorer="none", outcome=Skipped("unknown"), **shared),
    )
    report = Report(trajectory(trace_id="1" * 32, span_id="2" * 16), "e", 0, results)
    span = Span.FromString(attributes_of(report, lambda result: f"e.{result.scorer}"))
    assert [(each.key, each.value.double_value) for each in span.attributes] == [("otel_eval.score.e.s", 0.5)]
