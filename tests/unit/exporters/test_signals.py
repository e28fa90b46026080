"""What leaves as log events, metrics and span events: through the real SDK into memory."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry._logs import SeverityNumber
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval.counters import Counters
from otel_eval.exporters import attributes as names
from otel_eval.exporters.global_providers import LogEventExporter, SpanExporter
from otel_eval.exporters.metrics import MetricsExporter
from otel_eval.exporters.otlp import OtlpMetricsExporter
from otel_eval.interfaces import RunSource
from otel_eval.model import Evidence, Report, Scored, Stamp
from otel_eval.native import VERSION
from otel_eval.scorers.counts import ToolErrors
from otel_eval.testing import call
from tests.support.waiting import LIMIT_S

TRACE, SPAN = 0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331
Reports = Callable[..., Report]


class Kept:
    """A log exporter that keeps its records."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def export(self, batch: Any) -> None:
        self.records.extend(getattr(each, "log_record", each) for each in batch)

    def shutdown(self) -> None:
        return


def logged(*reports: Report, form: names.ResultFormat = names.PLAIN) -> list[Any]:
    kept, provider = Kept(), LoggerProvider(shutdown_on_exit=False)
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    sink = LogEventExporter(provider, form)
    for each in reports:
        sink.export([each])
    assert sink.flush(LIMIT_S)
    return kept.records


# ------------------------------------------------------------------ log events


def test_a_log_event_belongs_to_the_span_of_the_run(report: Reports):
    """Trace, span and the sampled flag are the run's; the record has its name and its time."""
    (record,) = logged(report("scored"))
    assert (record.trace_id, record.span_id, int(record.trace_flags)) == (TRACE, SPAN, 1)
    name = getattr(record, "event_name", None) or record.attributes["event.name"]
    assert name == "gen_ai.evaluation.result"
    assert record.timestamp > 0
    assert (record.severity_number, record.severity_text) == (SeverityNumber.INFO, "INFO")


def test_a_log_event_is_a_line_for_people_where_asked(report: Reports):
    """Who, which scorer, what and why; the severity tells what needs a look."""
    form = names.ResultFormat("http://localhost:4319", log_body=True)
    made = report("scored", "below", "skipped", "failed")
    records = logged(made, form=form)
    assert [(str(each.body).split(":")[:2], each.severity_text) for each in records] == [
        (["helpdesk", " scored passed (0.750)"], "INFO"),
        (["helpdesk", " below did not pass (0.250)"], "WARN"),
        (["helpdesk", " skipped was skipped"], "INFO"),
        (["helpdesk", " failed failed"], "ERROR"),
    ]
    assert all(
        each.attributes["otel_eval.page"]
        == f"http://localhost:4319/#/runs/{TRACE:032x}/{SPAN:016x}"
        for each in records
    )
    (plain,) = logged(report("scored"))
    assert plain.body is None
    assert "otel_eval.page" not in plain.attributes


def test_events_and_spans_carry_the_version_and_the_schema_of_their_names(report: Reports):
    """Of the instrumentation scope."""
    provider = LoggerProvider(shutdown_on_exit=False)
    seen: list[Any] = []
    real, provider.get_logger = (
        provider.get_logger,
        lambda *scope: (seen.append(scope), real(*scope))[1],
    )  # type: ignore[method-assign]
    LogEventExporter(provider).export([report("scored")])
    (span,) = made_spans(report("scored"))
    scope = span.instrumentation_scope
    assert seen == [("otel_eval", VERSION, "https://opentelemetry.io/schemas/1.38.0")]
    assert [(scope.name, scope.version, scope.schema_url)] == seen


@pytest.mark.parametrize(
    ("facts", "target", "response"),
    [
        ({"response_id": "resp-1"}, "helpdesk", "resp-1"),
        ({"agent": "", "name": "POST /chat"}, "POST /chat", None),
        ({"agent": ""}, None, None),
    ],
)
def test_an_event_names_what_was_evaluated(
    report: Reports, facts: dict[str, str], target: str | None, response: str | None
):
    """The agent, or else the run's span; and the response, if the run's own span has its id."""
    (record,) = logged(report("scored", **facts))
    assert (
        record.attributes.get("gen_ai.evaluation.target"),
        record.attributes.get("gen_ai.response.id"),
    ) == (target, response)


@pytest.mark.parametrize(
    ("times", "at"),
    [
        ({"start_ns": 10, "end_ns": 30}, 30),
        ({"start_ns": 30, "end_ns": 10}, 30),
        ({"last_end_ns": 25}, 25),
        ({"start_ns": 0, "end_ns": 0}, 77),
        ({}, 77),
    ],
)
def test_an_event_is_at_the_end_of_the_run(report: Reports, times: dict[str, int], at: int):
    """Also of one whose own span never arrived; without any time it is when the run was evaluated.
    It never begins a trace.
    """
    made = replace(report("scored", **times), stamp=Stamp("", 77))
    (record,) = logged(made)
    (span,) = made_spans(made)
    assert (record.timestamp, record.observed_timestamp) == (at, 77)
    assert {span.start_time, span.end_time, span.events[0].timestamp} == {at}


def test_a_score_has_value_label_and_explanation(report: Reports):
    """And everything that tells where it came from, under one prefix."""
    (record,) = logged(report("scored"))
    attributes = dict(record.attributes)
    attributes.pop("event.name", None)  # how SDKs before 1.35 name an event
    assert json.loads(attributes.pop("otel_eval.details")) == {"missing": ["refund"]}
    assert attributes == {
        "gen_ai.evaluation.name": "scored",
        "gen_ai.evaluation.score.value": 0.75,
        "otel_eval.threshold": 0.5,
        "gen_ai.evaluation.score.label": "pass",
        "gen_ai.evaluation.explanation": "3 of 4 in order",
        "gen_ai.agent.name": "helpdesk",
        "gen_ai.evaluation.target": "helpdesk",
        "gen_ai.conversation.id": "c-1",
        "otel_eval.evaluation": "policy",
        "otel_eval.scorer.type": "tool_call_order",
        "otel_eval.scorer.version": "1",
        "otel_eval.policy": "0123456789abcdef",
        "otel_eval.severity": "error",
        "otel_eval.verdict": "pass",
        "otel_eval.outcome": "scored",
        "otel_eval.completeness": "remote_parent",
        "otel_eval.revision": 0,
        "otel_eval.result_id": "0" * 32,
        "otel_eval.service": "shop",
        "otel_eval.schema": 1,
    }


def test_a_score_has_when_where_and_which_case(report: Reports):
    """And from which spans, by whom; the record's time is the run's end, observed when it was
    evaluated, not when it is sent.
    """
    made = replace(
        report(
            "scored",
            service_version="1.2",
            environment="staging",
            start_ns=10**18,
            end_ns=10**18 + 250_000_000,
        ),
        attributes={"test.case.id": "c\ud800", "attempt": 2, "tags": ["a"], "unknown": None},
        evidence=Evidence(9, "0123456789abcdef"),
        stamp=Stamp("e" * 32, 10**18 + 1),
    )
    (record,) = logged(made)
    prefix = "otel_eval."
    got = {
        key.removeprefix(prefix): value
        for key, value in record.attributes.items()
        if key.startswith(prefix)
    }
    for key in (
        "evaluation",
        "scorer.type",
        "scorer.version",
        "policy",
        "severity",
        "outcome",
        "completeness",
        "revision",
        "result_id",
        "details",
        "threshold",
    ):
        del got[key]
    assert (record.timestamp, record.observed_timestamp) == (10**18 + 250_000_000, 10**18 + 1)
    assert got == {
        "start_time": "2001-09-09T01:46:40.000000000Z",
        "duration_ms": 250.0,
        "evaluated_at": "2001-09-09T01:46:40.000000001Z",
        "service": "shop",
        "service_version": "1.2",
        "environment": "staging",
        "attributes.test.case.id": "c?",
        "attributes.attempt": 2,
        "attributes.tags": '["a"]',
        "spans": 9,
        "spans_digest": "0123456789abcdef",
        "evaluator.id": "e" * 32,
        "verdict": "pass",
        "schema": 1,
    }


@pytest.mark.parametrize(
    ("kind", "label", "error", "explanation"),
    [
        ("below", "fail", None, "1 of 4 in order"),
        ("skipped", "not_evaluated", None, "arguments not recorded"),
        ("failed", "not_evaluated", "KeyError", "the scorer failed with KeyError"),
    ],
)
def test_a_skipped_result_has_no_value(
    report: Reports, kind: str, label: str, error: str | None, explanation: str
):
    """Unknown is never zero, and a failing scorer's message stays in the process."""
    (record,) = logged(report(kind))
    got = {
        key.removeprefix("gen_ai.evaluation."): value for key, value in record.attributes.items()
    }
    assert (got["score.label"], got.get("error.type"), got["explanation"]) == (
        label,
        error,
        explanation,
    )
    assert ("score.value" in got) == (kind == "below")
    assert "secret" not in str(dict(record.attributes))


def test_a_run_without_ids_is_sent_without_a_context(report: Reports):
    """As trajectories built by hand are."""
    (record,) = logged(report("scored", trace_id="", span_id=""))
    assert not record.trace_id


def test_half_a_surrogate_pair_costs_no_attribute(report: Reports):
    """JSON may spell one, in a tool's name or in what a judge wrote; an encoder would leave out all
    of the attribute.
    """
    half = report("scored", agent="a\ud800", conversation_id="é\udfff")
    counted = Scored(0.5, True, "extra: s\ud800", {"extra": ["s\ud800", "é"]})
    (record,) = logged(replace(half, results=(replace(half.results[0], outcome=counted),)))
    attributes = record.attributes
    assert [attributes[f"gen_ai.{name}"] for name in ("agent.name", "conversation.id")] == [
        "a?",
        "é?",
    ]
    assert attributes["gen_ai.evaluation.explanation"] == "extra: s?"
    assert json.loads(attributes["otel_eval.details"]) == {"extra": ["s?", "é"]}


# ------------------------------------------------------------------ metrics


def test_half_a_surrogate_pair_costs_no_label(report: Reports):
    """Points without it would be one series with others."""
    (point,) = measured(report("scored", calls=(call("s\ud800"),)))["otel_eval.tool.calls"]
    assert point.attributes["gen_ai.tool.name"] == "s?"


def measured(*reports: Report, **options: Any) -> dict[str, list[Any]]:
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    sink = MetricsExporter(provider, **options)
    for each in reports:
        sink.export([each])
    data = reader.get_metrics_data()
    scopes = [
        scope
        for resource in (data.resource_metrics if data else ())
        for scope in resource.scope_metrics
    ]
    described = {
        (scope.scope.name, scope.scope.version, scope.scope.schema_url) for scope in scopes
    }
    assert described <= {("otel_eval", VERSION, "https://opentelemetry.io/schemas/1.38.0")}
    assert all(metric.unit and metric.description for scope in scopes for metric in scope.metrics)
    return {
        metric.name: list(metric.data.data_points) for scope in scopes for metric in scope.metrics
    }


def test_scores_fall_into_tenths_with_the_run_as_exemplar(report: Reports):
    """Only what was scored; the exemplar leads from the chart to the trace."""
    (point, *others) = measured(report("scored", "skipped", "failed"))["otel_eval.score"]
    assert others == []
    assert (point.sum, point.count, point.explicit_bounds) == (
        0.75,
        1,
        (*(n / 10 for n in range(10)), 0.999, 1),
    )
    assert [(each.trace_id, each.span_id) for each in point.exemplars] == [(TRACE, SPAN)]


def test_results_are_counted_by_label_and_outcome(report: Reports):
    """Skipped and failed ones too."""
    points = measured(report("scored", "below", "skipped", "failed"))["otel_eval.results"]
    got = {
        (p.attributes["gen_ai.evaluation.score.label"], p.attributes["otel_eval.outcome"]): p.value
        for p in points
        if p.value
    }
    assert got == {
        ("pass", "scored"): 1,
        ("fail", "scored"): 1,
        ("not_evaluated", "skipped"): 1,
        ("not_evaluated", "failed"): 1,
    }


def test_a_run_is_counted_once_by_its_verdict(report: Reports):
    """However many scorers it has, and when its last result is there."""
    first = replace(report("scored", "below"), awaited=1)
    last = replace(report("scored"), late=True, standing=first.standing)
    metrics = measured(report("scored", "scored"), first, last, report("scored", revision=1))
    found = {
        point.attributes["otel_eval.verdict"]: point.value for point in metrics["otel_eval.runs"]
    }
    assert found == {"pass": 1, "not_passed": 1, "not_evaluated": 0}


def test_scores_have_environment_and_where_asked_at_most_twenty_versions(report: Reports):
    runs = [
        report("scored", environment="prod", service_version=f"1.{minor}") for minor in range(30)
    ]
    (plain,) = measured(*runs)["otel_eval.score"]
    assert plain.attributes["otel_eval.environment"] == "prod"
    assert "otel_eval.service_version" not in plain.attributes
    metrics = measured(*runs, by_version=True)
    for name in ("otel_eval.score", "otel_eval.runs", "otel_eval.results"):
        versions = {each.attributes["otel_eval.service_version"] for each in metrics[name]}
        assert versions == {*(f"1.{minor}" for minor in range(20)), "other"}


def test_the_time_at_which_counters_began_is_known(report: Reports):
    """So that a rule can tell a new counter from one that is seen for the first time."""
    before = time.time()
    (point,) = measured(report("scored"))["otel_eval.start_time"]
    assert before <= point.value <= time.time()


def test_a_revision_is_counted_apart(report: Reports):
    """Neither its score nor its calls count a second time."""
    metrics = measured(report("scored", revision=1))
    assert [name for name in metrics if name != "otel_eval.start_time"] == [
        "otel_eval.results",
        "otel_eval.revisions",
    ]
    assert [point.value for point in metrics["otel_eval.results"]] == [0, 0, 0, 0]
    assert metrics["otel_eval.revisions"][0].value == 1


def test_the_calls_of_a_run_count_once_however_many_evaluations_report_it(report: Reports):
    """Calls, durations in seconds, and errors, by tool; a run within the run brings no call twice
    either.
    """
    inner = report(
        "scored", evaluation="inner", span_id="c" * 16, calls=[call("refund", span_id="2" * 16)]
    )
    metrics = measured(report("scored"), report("below", evaluation="other"), inner)
    calls = {
        point.attributes["gen_ai.tool.name"]: point.value
        for point in metrics["otel_eval.tool.calls"]
    }
    seconds = {
        point.attributes["gen_ai.tool.name"]: point.sum
        for point in metrics["otel_eval.tool.call.duration"]
    }
    errors = [
        (p.attributes["gen_ai.tool.name"], p.attributes["error.type"], p.value)
        for p in metrics["otel_eval.tool.errors"]
    ]
    assert (calls, seconds, errors) == (
        {"search": 1, "refund": 1},
        {"search": 0.2, "refund": 0.0},
        [("refund", "_OTHER", 1)],
    )


def test_a_call_counts_once_however_late_its_agent_arrives(report: Reports):
    """It was evaluated alone, and many other traces were evaluated in between."""
    of_others = [
        report("scored", trace_id=f"{n:032x}", calls=[call("search", span_id="3" * 16)])
        for n in range(1, 1001)
    ]
    calls = [call("search", span_id="2" * 16)]
    metrics = measured(
        report("scored", span_id="2" * 16, calls=calls), *of_others, report("scored", calls=calls)
    )
    assert sum(point.value for point in metrics["otel_eval.tool.calls"]) == 1001


def test_a_call_without_times_has_no_duration(report: Reports):
    """It is not one of 0 s: no time at all, 0 and 0, an end before the start."""
    times = ({}, {"start_ns": 0, "end_ns": 0}, {"start_ns": 9, "end_ns": 5})
    metrics = measured(
        report(
            "scored", calls=[call("a", span_id=f"{n:016x}", **each) for n, each in enumerate(times)]
        )
    )
    assert metrics["otel_eval.tool.calls"][0].value == 3
    assert "otel_eval.tool.call.duration" not in metrics


def test_made_up_tool_names_do_not_make_endless_series(report: Reports):
    """Beyond the limit a label's value is "other"."""
    calls = [call(f"tool {n}", span_id=f"{n:016x}") for n in range(10)]
    counters = Counters()
    points = measured(report("scored", calls=calls), max_values=3, counters=counters)[
        "otel_eval.tool.calls"
    ]
    assert counters.get("metrics.over_limit", limit="values") == 7
    assert {point.attributes["gen_ai.tool.name"]: point.value for point in points} == {
        "tool 0": 1,
        "tool 1": 1,
        "tool 2": 1,
        "other": 7,
    }


def test_made_up_names_that_go_together_do_not_make_endless_series(report: Reports):
    """Few values of each label are many of them together; what the configuration names stays as it
    is.
    """
    counters = Counters()
    reports = [report("scored", agent=f"agent {n}", trace_id=f"{n:032x}") for n in range(1, 10)]
    metrics = measured(*reports, max_sets=3, counters=counters)
    points = metrics["otel_eval.score"]
    counted = [
        (
            point.attributes["gen_ai.agent.name"],
            point.attributes["gen_ai.evaluation.name"],
            point.count,
        )
        for point in points
    ]
    assert len(counted) <= 4
    assert (counted[-1][0], sum(count for _, _, count in counted)) == ("other", 9)
    assert len({name for _, name, _ in counted}) == 1
    assert counters.get("metrics.over_limit", limit="sets") > 6


def of_results(metrics: Any, *keys: str) -> dict[tuple[Any, ...], int]:
    """The counters of results, by values of their labels."""
    points = metrics["otel_eval.results"]
    return {tuple(point.attributes.get(f"{key}") for key in keys): point.value for point in points}


LABELS = ("gen_ai.evaluation.score.label", "otel_eval.outcome")


def test_a_first_pass_shows_that_nothing_failed(report: Reports):
    """A series that begins with its first value has no rate."""
    assert of_results(measured(report("scored")), *LABELS) == {
        ("pass", "scored"): 1,
        ("fail", "scored"): 0,
        ("not_evaluated", "skipped"): 0,
        ("not_evaluated", "failed"): 0,
    }


def test_expected_results_are_0_before_the_first_one(report: Reports):
    reader = InMemoryMetricReader()
    exporter = MetricsExporter(MeterProvider(metric_readers=[reader], shutdown_on_exit=False))
    exporter.expect("policy", [ToolErrors()], RunSource("shop", "helpdesk"))
    metrics = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
    (metric,) = [each for each in metrics if each.name == "otel_eval.results"]
    found = of_results(
        {metric.name: metric.data.data_points},
        *LABELS[:1],
        "gen_ai.evaluation.name",
        "gen_ai.agent.name",
    )
    assert found == {
        (label, "tool_errors", "helpdesk"): 0 for label in ("pass", "fail", "not_evaluated")
    }


@pytest.mark.parametrize("own", [True, False], ids=["provider of ours", "provider of the program"])
def test_the_sdk_keeps_every_series_that_is_made(own: bool):
    """Newer ones put what is beyond a limit of theirs together, without labels."""
    reader = InMemoryMetricReader()
    provider = MeterProvider(metric_readers=[reader], shutdown_on_exit=False)
    exporter = OtlpMetricsExporter([], scraped=True) if own else MetricsExporter(provider)
    for agent in range(200):
        for service in range(15):
            source = RunSource(f"service {service}", f"agent {agent}")
            exporter.expect("policy", [ToolErrors()], source)
    data = (
        exporter.collect()
        if isinstance(exporter, OtlpMetricsExporter)
        else reader.get_metrics_data()
    )
    metrics = data.resource_metrics[0].scope_metrics[0].metrics
    (results,) = [each for each in metrics if each.name == "otel_eval.results"]
    points = results.data.data_points
    assert all("gen_ai.evaluation.name" in point.attributes for point in points)
    assert len(points) == 4 * (2000 if own else 450)
    exporter.close(1.0)


def test_a_name_of_a_megabyte_makes_no_series_of_a_megabyte(report: Reports):
    """Its beginning does."""
    points = measured(report("scored", calls=[call("é" * 2**20, span_id="1" * 16)]))[
        "otel_eval.tool.calls"
    ]
    assert [point.attributes["gen_ai.tool.name"] for point in points] == ["é" * 199 + "…"]


# ------------------------------------------------------------------ span events


def made_spans(*reports: Report) -> tuple[Any, ...]:
    exporter, provider = InMemorySpanExporter(), TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    sink = SpanExporter(provider.get_tracer(*names.INSTRUMENTATION_SCOPE), provider)
    sink.export(reports)
    assert sink.flush(LIMIT_S)
    return exporter.get_finished_spans()


def test_an_evaluation_span_has_one_link_to_the_run(report: Reports):
    """None, if the run has no ids."""
    (span,), (alone,) = (
        made_spans(report("scored")),
        made_spans(report("scored", trace_id="", span_id="")),
    )
    assert [(link.context.trace_id, link.context.span_id) for link in span.links] == [(TRACE, SPAN)]
    assert alone.links == ()


def test_a_report_is_one_span_with_an_event_per_result(report: Reports):
    """A child of the run's span, so it shows in the run's trace; an error of a scorer shows on
    it.
    """
    (span,) = made_spans(report("scored", "failed"))
    assert (span.name, span.context.trace_id, span.parent.span_id) == (
        "evaluate policy",
        TRACE,
        SPAN,
    )
    assert span.attributes["openinference.span.kind"] == "EVALUATOR"
    assert [event.attributes["gen_ai.evaluation.name"] for event in span.events] == [
        "scored",
        "failed",
    ]
    assert {event.name for event in span.events} == {"gen_ai.evaluation.result"}
    assert span.status.status_code.name == "ERROR"
