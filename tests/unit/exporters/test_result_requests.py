"""What is written in protobuf's bytes is read by protobuf as what was written, and equals what the
SDK makes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON

from otel_eval.exporters.attributes import (
    INSTRUMENTATION_SCOPE,
    PLAIN,
    ResultFormat,
    event_attributes,
)
from otel_eval.exporters.global_providers import LogEventExporter, SpanExporter
from otel_eval.exporters.result_requests import (
    REQUESTS,
    attributes_of,
    events_of,
    spans_request,
)
from otel_eval.model import Evidence, Report, Result, Scored, Skipped, Stamp
from otel_eval.testing import trajectory

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["x" * 127, "x" * 128, "é" * 20_000]
)
DETAILS = st.lists(TEXT | st.integers() | st.none(), max_size=3) | st.dictionaries(
    TEXT, st.booleans(), min_size=1, max_size=3
)
VALUES = TEXT | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.booleans()


def read(raw: bytes) -> dict[str, Any]:
    """The attributes of the one event."""
    (found,) = Span.FromString(raw).events
    return {
        each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found.attributes
    }


def reported(attributes: dict[str, Any] | None = None, **outcome: Any) -> Report:
    """A report of one result on a run with these attributes."""
    scored = Scored(0.5, True, **outcome)
    result = Result(
        evaluation="e",
        scorer="s",
        type="t",
        version="1",
        outcome=scored,
        revision=0,
        result_id="a" * 32,
    )
    return Report(
        trajectory(trace_id="1" * 32, span_id="2" * 16),
        "e",
        0,
        (result,),
        attributes=attributes or {},
    )


@given(st.dictionaries(TEXT, VALUES, max_size=5))
def test_attributes_keep_their_kind_and_value(chosen: dict[str, Any]) -> None:
    """Texts, whole numbers of 64 bits, doubles and booleans, of any length."""
    found = {
        key: value
        for key, value in read(events_of(reported(chosen))).items()
        if key.startswith("otel_eval.attributes.")
    }
    assert found == {f"otel_eval.attributes.{key}": value for key, value in chosen.items()}
    assert [type(each) for each in found.values()] == [type(each) for each in chosen.values()]


@given(DETAILS)
def test_details_are_sent_as_json(details: Any) -> None:
    """Lists and mappings; nothing where there are none."""
    sent = read(events_of(reported(details=details))).get("otel_eval.details", "[]")
    assert json.loads(sent) == (details or [])


def test_values_without_an_encoding_of_their_own_are_replaced() -> None:
    """Half of a surrogate pair is a question mark; NaN is a double as any other."""
    found = read(events_of(reported({"half": "a\ud800", "nan": math.nan})))
    assert found["otel_eval.attributes.half"] == "a?"
    assert math.isnan(found["otel_eval.attributes.nan"])


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
        run = trajectory(
            trace_id="1" * 32,
            span_id="2" * 16,
            name=name,
            response_id="resp-1",
            start_ns=10,
            end_ns=30,
        )
        report = Report(run, "e", 0, (result,), stamp=Stamp("", 77))
        (found,) = Span.FromString(events_of(report)).events
        assert found.time_unix_nano == 30
        assert read(events_of(report)) == event_attributes(report, result)


def test_scores_are_attributes_of_the_span_where_asked() -> None:
    """Under the names that they have elsewhere; there is no value for what has no score."""
    shared: dict[str, Any] = {
        "evaluation": "e",
        "type": "t",
        "version": "1",
        "revision": 0,
        "result_id": "a" * 32,
    }
    results = (
        Result(scorer="s", outcome=Scored(0.5, True), **shared),
        Result(scorer="none", outcome=Skipped("unknown"), **shared),
    )
    report = Report(trajectory(trace_id="1" * 32, span_id="2" * 16), "e", 0, results)
    span = Span.FromString(attributes_of(report, lambda result: f"e.{result.scorer}"))
    assert {
        each.key: each.value.double_value or each.value.string_value for each in span.attributes
    } == {
        "otel_eval.score.e.s": 0.5,
        "otel_eval.label.e.s": "pass",
        "otel_eval.label.e.none": "not_evaluated",
        "otel_eval.explanation.e.none": "unknown",
    }


class Collected(SpanProcessor):
    """Keeps spans and log records."""

    def __init__(self) -> None:
        self.items: list[Any] = []

    def on_end(self, span: Any) -> None:
        self.items.append(span)

    on_emit = emit = on_end


def by_sdk(signal: str, reports: Sequence[Report], form: ResultFormat) -> Any:
    """The request that the SDK and its encoders make of the same records."""
    kept, resource = Collected(), Resource({"service.name": "shop"})
    if signal == "logs":
        from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs

        logs = LoggerProvider(resource=resource, shutdown_on_exit=False)
        logs.add_log_record_processor(kept)
        LogEventExporter(logs, form).export(reports)
        return encode_logs(kept.items)
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    spans = TracerProvider(resource=resource, sampler=ALWAYS_ON, shutdown_on_exit=False)
    spans.add_span_processor(kept)
    SpanExporter(spans.get_tracer(*INSTRUMENTATION_SCOPE), form=form).export(reports)
    return encode_spans(kept.items)


@pytest.mark.parametrize(("signal", "item"), [("logs", "log_records"), ("spans", "spans")])
@pytest.mark.parametrize("ids", [{}, {"trace_id": "", "span_id": ""}])
@pytest.mark.parametrize(
    "form",
    [PLAIN, ResultFormat("http://localhost:4319", log_body=True, name_of=lambda each: each.scorer)],
)
def test_a_request_is_what_the_sdk_makes_of_the_same_records(
    report: Callable[..., Report], signal: str, item: str, ids: dict[str, str], form: ResultFormat
) -> None:
    """But for the ids of spans, which are ours, and for what the encoders of older SDKs leave
    out.
    """
    made = report(
        "scored",
        "skipped",
        "failed",
        resource={"service.name": "shop"},
        start_ns=5,
        end_ns=9,
        **ids,
    )
    made = replace(
        made,
        stamp=Stamp("e" * 32, 77),
        attributes={"case": 2, "half": "a\ud800"},
        evidence=Evidence(3, "d" * 16),
    )
    expected = by_sdk(signal, [made], form)
    found = type(expected).FromString(REQUESTS[signal]([made], form))
    found.DiscardUnknownFields()  # the name of an event, for protobuf classes of before 1.31
    for request in (expected, found):
        (scope,) = (
            scope
            for group in getattr(request, f"resource_{signal}")
            for scope in getattr(group, f"scope_{signal}")
        )
        scope.schema_url = ""
        for each in getattr(scope, item):
            each.attributes.sort(key=lambda pair: pair.key)
            names = [pair.key for pair in each.attributes]
            if "event.name" in names:  # SDKs before 1.35
                del each.attributes[names.index("event.name")]
            without = ("event_name",) if form.log_body else ("event_name", "body")
            for cleared in without if signal == "logs" else ("status",):
                if cleared in each.DESCRIPTOR.fields_by_name and not (
                    cleared == "status" and each.status.code
                ):
                    each.ClearField(cleared)
            if signal == "spans":
                each.span_id = b""
                each.trace_id = each.trace_id if each.parent_span_id else b""
            for one in getattr(each, "events", ()):
                one.attributes.sort(key=lambda pair: pair.key)
    assert found == expected


def test_a_report_that_is_sent_again_is_the_same_span(report: Callable[..., Report]) -> None:
    """Its id is that of the first result."""
    made = report("scored")
    made = replace(made, results=(replace(made.results[0], result_id="ab" * 16),))
    sent = [ExportTraceServiceRequest.FromString(spans_request([made])) for _ in range(2)]
    assert [each.resource_spans[0].scope_spans[0].spans[0].span_id.hex() for each in sent] == [
        "ab" * 8
    ] * 2


def test_no_result_of_many_is_left_out(
    report: Callable[..., Report], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment limits spans of the program to."""
    monkeypatch.setenv("OTEL_SPAN_EVENT_COUNT_LIMIT", "5")
    (group,) = ExportTraceServiceRequest.FromString(
        spans_request([report(*["scored"] * 200)])
    ).resource_spans
    assert len(group.scope_spans[0].spans[0].events) == 200
