"""`evaluate` scores what another engine brought together, as `replay` scores stored traces."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import InputError, Scored, Trajectory, evaluate
from otel_eval.app import stored_traces
from otel_eval.config import load
from otel_eval.exporters.result_rows import rows_of
from otel_eval.otlp.otlp_json import read_document, rewrite
from otel_eval.sources.warehouse import read_rows
from tests.support.listeners import NO_PROBLEMS
from tests.support.made_spans import json_attributes, json_document, json_span

START = 1_700_000_000_000_000_000
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
CONFIG: dict[str, Any] = {
    "evaluations": [
        {
            "name": "refunds",
            "scorers": [
                {"type": "tool_call_count", "criteria": {"search": "<= 1"}},
                {"type": "forbidden_tools", "patterns": ["refund"]},
                {"type": "tool_errors"},
            ],
        }
    ]
}


def spans(number: int) -> list[dict[str, Any]]:
    """An agent, and one of its tools, as OTLP/JSON has them."""
    agent = 2 * number
    return [
        json_span(
            *(number, agent, 0, "invoke_agent shop"),
            start_ns=START,
            end_ns=START + 2_000_000_000,
            attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "shop"},
            kind=1,
            flags=0,  # rows have none
        ),
        json_span(
            *(number, agent + 1, agent, "execute_tool search"),
            start_ns=START,
            end_ns=START + 1_000_000_000,
            attributes=TOOL | {"gen_ai.tool.call.arguments": '{"q": "shoes"}'},
            kind=1,
            flags=0,  # rows have none
            status={"code": 2, "message": "no stock"} if number == 2 else {},
        ),
    ]


ALL = [span for number in (1, 2, 3) for span in spans(number)]


def document(group: Sequence[Mapping[str, Any]] = ALL) -> dict[str, Any]:
    """The spans as a document of OTLP/JSON."""
    return json_document(
        group, scope={"name": "agents", "version": "2"}, resource={"service.name": "shop"}
    )


def request(group: Sequence[Mapping[str, Any]] = ALL) -> bytes:
    """The spans as a request in protobuf."""
    return rewrite("traces", document(group)).body


def _values(span: Mapping[str, Any]) -> dict[str, Any]:
    return {
        each["key"]: value
        for each in span.get("attributes", ())
        for value in each["value"].values()
    }


def row(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span as a row with OTLP's names."""
    return {
        "trace_id": span["traceId"],
        "span_id": bytes.fromhex(span["spanId"]),
        "parent_span_id": span.get("parentSpanId"),
        "name": span["name"],
        "kind": "internal",
        "start_time_unix_nano": int(span["startTimeUnixNano"]),
        "end_time": datetime.fromtimestamp(int(span["endTimeUnixNano"]) / 1e9, UTC),
        "status_code": span.get("status", {}).get("code"),
        "status_message": span.get("status", {}).get("message"),
        "attributes": json.dumps(_values(span)),
        "resource_attributes": {"service.name": "shop"},
        "scope_name": "agents",
        "scope_version": "2",
        "unknown": object(),
    }


def clickhouse_row(span: Mapping[str, Any]) -> dict[str, Any]:
    """A span as the Collector writes it to ClickHouse."""
    return {
        "Timestamp": datetime.fromtimestamp(START / 1e9, UTC).replace(tzinfo=None),
        "TraceId": span["traceId"],
        "SpanId": span["spanId"],
        "ParentSpanId": span.get("parentSpanId", ""),
        "SpanName": span["name"],
        "SpanKind": "Internal",
        "ServiceName": "shop",
        "ResourceAttributes": {"service.name": "shop"},
        "ScopeName": "agents",
        "ScopeVersion": "2",
        "SpanAttributes": [*_values(span).items()],
        "Duration": int(span["endTimeUnixNano"]) - START,
        "StatusCode": "Error" if span.get("status") else "Unset",
        "StatusMessage": span.get("status", {}).get("message", ""),
        "Events.Timestamp": [],
        "Events.Name": [],
        "Events.Attributes": [],
    }


FORMS: dict[str, Any] = {
    "a request": request(),
    "requests": [request(ALL[:3]), memoryview(request(ALL[3:]))],
    "a document": document(),
    "documents": [document(ALL[3:]), document(ALL[:3])],
    "rows": [row(span) for span in ALL],
    "rows of ClickHouse": [clickhouse_row(span) for span in reversed(ALL)],
    "mixed": (each for each in (request(ALL[:2]), document(ALL[2:4]), *map(row, ALL[4:]))),
}


def comparable(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows in the order of their results, without the time of evaluation."""
    kept = [{key: value for key, value in each.items() if key != "evaluated_at"} for each in rows]
    return sorted(kept, key=lambda each: each["result_id"])


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What `replay` gives for the same spans."""
    path = tmp_path_factory.mktemp("stored") / "traces.json"
    path.write_text(json.dumps(document()))
    reports = stored_traces.replay([path], load(CONFIG), listener=NO_PROBLEMS)
    return comparable([each for report in reports for each in rows_of(report)])


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_rows_are_those_of_replay_in_every_form(form: Any, replayed: list[dict[str, Any]]) -> None:
    rows = comparable(evaluate(form, CONFIG))
    assert {each["outcome"] for each in rows} == {"scored"}
    assert [each["passed"] for each in rows].count(False) == 1
    without_digest = [
        [{key: each[key] for key in each if key != "spans_digest"} for each in side]
        for side in (rows, replayed)
    ]
    assert without_digest[0] == without_digest[1]


def test_spans_of_the_sdk_are_taken() -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracer = provider.get_tracer("agents")
    with (
        tracer.start_as_current_span("invoke_agent", attributes=_values(ALL[0])),
        tracer.start_as_current_span("execute_tool", attributes=_values(ALL[1])),
    ):
        pass
    ended: Sequence[ReadableSpan] = exporter.get_finished_spans()
    assert [each["passed"] for each in evaluate(ended, CONFIG)] == [True, True, True]


def test_log_records_with_content_belong_to_their_spans() -> None:
    """The model span's log event has the arguments, which the tool's span lacks."""
    agent, tool = spans(1)
    chat = {
        **tool,
        "spanId": "f" * 16,
        "name": "chat",
        "attributes": json_attributes({"gen_ai.operation.name": "chat"}),
    }
    tool = {**tool, "attributes": json_attributes(TOOL | {"gen_ai.tool.call.id": "c1"})}
    call = {"type": "tool_call", "id": "c1", "name": "search", "arguments": {"q": "x"}}
    record = {
        "traceId": chat["traceId"],
        "spanId": chat["spanId"],
        "eventName": "gen_ai.client.inference.operation.details",
        "attributes": json_attributes(
            {"gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [call]}])}
        ),
    }
    logs = {"resourceLogs": [{"scopeLogs": [{"logRecords": [record]}]}]}
    expected = {"type": "tool_call_args", "expected": [{"name": "search", "arguments": {"q": "x"}}]}
    config = {"evaluations": [{"name": "content", "scorers": [expected]}]}
    for given in (
        [document([agent, chat, tool]), logs],
        [rewrite("logs", logs).body, request([agent, chat, tool])],
    ):
        assert [each["value"] for each in evaluate(given, config)] == [1.0]


def test_worker_processes_evaluate_shares(replayed: list[dict[str, Any]]) -> None:
    """Configuration, spans and rows are passed between processes."""
    config = load(CONFIG)
    shares = [[row(span) for span in spans(number)] for number in (1, 2, 3)]
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        futures = [pool.submit(evaluate, share, config) for share in shares]
        rows = comparable([each for future in futures for each in future.result()])
    assert [each["result_id"] for each in rows] == [each["result_id"] for each in replayed]


def test_a_group_without_its_root_is_incomplete() -> None:
    """As anywhere: no score says that the part of a run is a whole one."""
    rows = evaluate([row(span) for span in ALL if span.get("parentSpanId")], CONFIG)
    assert rows
    assert {each["outcome"] for each in rows} <= {"skipped", "no_run"}


def test_a_file_is_read_again_when_it_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "eval.json"
    path.write_text(json.dumps(CONFIG))
    assert {each["evaluation"] for each in evaluate(request(), path)} == {"refunds"}
    path.write_text(json.dumps({"evaluations": [{**CONFIG["evaluations"][0], "name": "changed"}]}))
    assert {each["evaluation"] for each in evaluate(request(), path)} == {"changed"}


def test_a_configuration_that_cannot_be_pickled_is_used_in_its_process() -> None:

    class HasCalls:
        name = type = "has_calls"
        version, needs = "1", frozenset[str]()

        def __call__(self, run: Trajectory) -> Scored:
            return Scored(float(bool(run.calls)), passed=bool(run.calls))

    config = load({"evaluations": [{"name": "mine", "scorers": [HasCalls()]}]})
    assert [each["passed"] for each in evaluate(request(), config)] == [True] * 3


def test_what_cannot_be_used_is_told(caplog: pytest.LogCaptureFixture) -> None:
    broken = {**row(ALL[2]), "attributes": "{"}
    with caplog.at_level(logging.WARNING, "otel_eval"):
        rows = evaluate([row(ALL[0]), row(ALL[1]), broken], CONFIG)
    assert len({each["trace_id"] for each in rows}) == 1
    assert "1 spans skipped" in caplog.text


@pytest.mark.parametrize(
    "thing",
    [b"\xff", {"hello": 1}, [{"trace_id": "1", "name": "x"}], [5], ["text"]],
    ids=["bytes", "mapping", "row", "number", "text"],
)
def test_what_is_nothing_of_all_is_refused(thing: Any) -> None:
    with pytest.raises(InputError):
        evaluate(thing, CONFIG)


def test_events_of_rows_are_those_of_otlp() -> None:
    """As structs, and as ClickHouse's lists."""
    event = {"name": "gen_ai.tool.message", "attributes": [{"key": "content", "value": "x"}]}
    otlp = {"name": "gen_ai.tool.message", "attributes": json_attributes({"content": "x"})}
    lists = {"Events.Name": [event["name"]], "Events.Attributes": [{"content": "x"}]}
    payloads = [
        batch.spans[0][2][1]
        for batch in (
            read_document(document([{**ALL[1], "events": [otlp]}])),
            read_rows([{**row(ALL[1]), "events": [event]}]),
            read_rows([{**row(ALL[1]), **lists}]),
        )
    ]
    assert payloads[0] == payloads[1] == payloads[2]
