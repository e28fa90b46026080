"""Results of judges on every way through: exported after the others, with the ids that they would
have had at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.app import stored_traces
from otel_eval.app.server import Server
from otel_eval.cli import main
from otel_eval.config import load
from otel_eval.exporters.result_rows import rows_of
from otel_eval.sources.files import CollectedMessages
from tests.support import scripted_judge as scripted
from tests.support.waiting import LIMIT_S, wait_until

ROOT = Path(__file__).parents[3]
TOOLS = ("search", "search", "book")


def config_of(url: str, path: Path | None = None, **more: Any) -> dict[str, Any]:
    """A scorer that is there at once, and two that a judge is asked for."""
    judged = [
        {
            "type": "llm_judge",
            "name": "careful",
            "judge": "main",
            "criteria": "It looks things up.",
            "threshold": 0.9,
        },
        {
            "type": "tool_correctness",
            "expected": ["search"],
            "available_tools": list(TOOLS),
            "judge": "main",
        },
    ]
    return {
        "traces": {"decision_wait": "100ms", "decision_wait_partial": "100ms"},
        "judges": {"main": {"base_url": url, "model": "m", "retries": 0, "timeout": "5m"}},
        "evaluations": [{"name": "e", "scorers": [judged[0], {"type": "tool_errors"}, judged[1]]}],
        "receivers": {"otlp": {"protocols": {"grpc": {"endpoint": "127.0.0.1:0"}}}},
        "exporters": {"jsonl": {"path": str(path)}} if path else {},
        **more,
    }


def reading(may_answer: threading.Event | None = None) -> Callable[[dict[str, Any]], Any]:
    """A judge whose score is a function of what it is asked about: a tenth for each search. It
    answers once it may.
    """

    def script(request: dict[str, Any]) -> Any:
        if may_answer is not None:
            assert may_answer.wait(LIMIT_S)
        return scripted.score(request["messages"][0]["content"].count('"search"') / 10, "SECRET")

    return script


def agent(provider: TracerProvider, runs: int = 1) -> None:
    tracer = provider.get_tracer("program")
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.input.messages": "Book it."}
    for _ in range(runs):
        with tracer.start_as_current_span("invoke_agent", attributes=attributes):
            for name in TOOLS:
                summary = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
                with tracer.start_as_current_span(f"execute_tool {name}", attributes=summary):
                    pass


@contextmanager
def traced(*processors: Any) -> Iterator[TracerProvider]:
    provider = TracerProvider(shutdown_on_exit=False)
    for each in processors:
        provider.add_span_processor(each)
    try:
        yield provider
    finally:
        provider.shutdown()


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def summary(row: dict[str, Any]) -> tuple[Any, ...]:
    return (
        row["scorer"],
        row["outcome"],
        row["value"],
        row["passed"],
        row["revision"],
        row["completeness"],
        row["result_id"],
    )


def run(program: str, *words: str) -> None:
    """A program beside this file, in a process of its own, without a word of complaint."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name(program)), *words]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def replayed(
    spans: list[ReadableSpan], config: dict[str, Any], tmp_path: Path
) -> list[dict[str, Any]]:
    path = tmp_path / "stored.pb"
    path.write_bytes(encode_spans(spans).SerializeToString())
    problems: list[str] = []
    reports = list(stored_traces.replay([path], load(config), listener=CollectedMessages(problems)))
    assert problems == []
    return [row for report in reports for row in rows_of(report)]


def test_a_judge_comes_after_the_others_and_replay_says_the_same(
    serve: Callable[..., Any], tmp_path: Path
):
    """In the process: the deterministic score is written while the judge still reads; ids and
    values are those of a replay.
    """
    may_answer = threading.Event()
    endpoint, path, memory = (
        serve(reading(may_answer)),
        tmp_path / "live.jsonl",
        InMemorySpanExporter(),
    )
    with traced(
        EvalSpanProcessor(config_of(endpoint.url, path)), SimpleSpanProcessor(memory)
    ) as provider:
        agent(provider)
        wait_until(lambda: rows(path))
        assert [row["scorer"] for row in rows(path)] == ["tool_errors"]
        may_answer.set()
        assert provider.force_flush(300_000)
        live = rows(path)
    assert sorted((row["scorer"], row["value"]) for row in live) == [
        ("careful", 0.2),
        ("tool_correctness", 0.4),
        ("tool_errors", 1.0),
    ]
    spans = [span for span in memory.get_finished_spans() if span.name != "evaluate e"]
    again = replayed(list(spans), config_of(endpoint.url), tmp_path)
    assert sorted(map(summary, live)) == sorted(map(summary, again))
    assert [row["scorer"] for row in again] == ["tool_errors", "careful", "tool_correctness"]
    assert "SECRET" not in path.read_text(encoding="utf-8")


def test_the_receiver_sends_what_a_judge_says_later(serve: Callable[..., Any], tmp_path: Path):
    """And waits for it when it stops."""
    may_answer = threading.Event()
    endpoint, path = serve(reading(may_answer)), tmp_path / "received.jsonl"
    server = Server(load(config_of(endpoint.url, path)))
    bound = server.start()
    try:
        with traced(
            SimpleSpanProcessor(OTLPSpanExporter(endpoint=bound.grpc, insecure=True))
        ) as provider:
            agent(provider)
        wait_until(lambda: rows(path))
        assert [row["scorer"] for row in rows(path)] == ["tool_errors"]
        threading.Timer(0.5, may_answer.set).start()
    finally:
        assert server.stop(LIMIT_S)
    assert {row["scorer"]: row["value"] for row in rows(path)} == {
        "tool_errors": 1.0,
        "careful": 0.2,
        "tool_correctness": 0.4,
    }
    assert len({row["trace_id"] for row in rows(path)}) == 1


def test_a_runs_calls_are_counted_once(serve: Callable[..., Any]):
    """However many reports tell of the run, and however many runs came between."""
    endpoint, reader = serve(reading()), InMemoryMetricReader()
    config = config_of(endpoint.url, signals=["metrics"])
    with traced(
        EvalSpanProcessor(config, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
    ) as provider:
        agent(provider, runs=80)
        assert provider.force_flush(300_000)
        points = {
            metric.name: [point.value for point in metric.data.data_points]
            for resource in reader.get_metrics_data().resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name in ("otel_eval.tool.calls", "otel_eval.results")
        }
    assert sum(points["otel_eval.tool.calls"]) == 80 * len(TOOLS)
    # without the zeros of labels that did not occur
    assert sorted(filter(None, points["otel_eval.results"])) == [80, 80, 80]


def test_the_runs_span_does_not_wait_for_a_judge(serve: Callable[..., Any], tmp_path: Path):
    """It carries what is there; the judge's score leaves by the other signals and is counted."""
    may_answer = threading.Event()
    endpoint, path, memory = (
        serve(reading(may_answer)),
        tmp_path / "live.jsonl",
        InMemorySpanExporter(),
    )
    exporter = EvalSpanExporter(memory, config_of(endpoint.url, path))
    with traced(SimpleSpanProcessor(exporter)) as provider:
        agent(provider)
        wait_until(lambda: any(span.name == "invoke_agent" for span in memory.get_finished_spans()))
        (root,) = [span for span in memory.get_finished_spans() if span.name == "invoke_agent"]
        assert [event.attributes["gen_ai.evaluation.name"] for event in root.events] == [
            "tool_errors"
        ]
        may_answer.set()
        assert exporter.force_flush(300_000)
    assert sorted(row["scorer"] for row in rows(path)) == [
        "careful",
        "tool_correctness",
        "tool_errors",
    ]
    assert exporter.counts()["exporter.scores_unplaced"] == 2


def test_a_runs_span_without_another_way_for_judges_scores_is_warned_of(
    serve: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """At the start, with the remedy."""
    url = serve(scripted.score(1)).url
    EvalSpanExporter(InMemorySpanExporter(), config_of(url, tmp_path / "live.jsonl")).shutdown()
    assert "no other exporter" not in caplog.text
    EvalSpanExporter(InMemorySpanExporter(), config_of(url)).shutdown()
    assert "and no other exporter takes them; name exporters: otlp or jsonl as well" in caplog.text


def test_a_judge_that_hangs_fails_when_the_process_ends(serve: Callable[..., Any], tmp_path: Path):
    """Within the time that stopping may take, and with the other scores untouched."""
    may_answer = threading.Event()
    endpoint, path = serve(reading(may_answer)), tmp_path / "received.jsonl"
    server = Server(load(config_of(endpoint.url, path)))
    bound = server.start()
    try:
        with traced(
            SimpleSpanProcessor(OTLPSpanExporter(endpoint=bound.grpc, insecure=True))
        ) as provider:
            agent(provider)
        wait_until(lambda: rows(path))
    finally:
        assert not server.stop(2.0)
        may_answer.set()
    outcomes = {row["scorer"]: (row["outcome"], row["explanation"]) for row in rows(path)}
    assert (
        outcomes["careful"]
        == outcomes["tool_correctness"]
        == (
            "failed",
            "the scorer failed with timeout",
        )
    )
    assert outcomes["tool_errors"][0] == "scored"


def test_a_judge_that_is_down_costs_its_own_scores_only(
    serve: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The alignment stays in the details of the score that was to be the smaller of two; so does
    the HTTP status.
    """
    endpoint, path = serve(scripted.Reply(status=500)), tmp_path / "live.jsonl"
    with traced(EvalSpanProcessor(config_of(endpoint.url, path))) as provider:
        agent(provider)
        assert provider.force_flush(300_000)
    by_scorer = {row["scorer"]: row for row in rows(path)}
    assert by_scorer["tool_errors"]["value"] == 1.0
    assert by_scorer["careful"]["error_type"] == "judge_unavailable"
    assert by_scorer["tool_correctness"]["details"]["alignment"] == 1.0
    assert [row["value"] for row in rows(path) if row["outcome"] == "failed"] == [None, None]
    assert {row["details"]["http_status"] for row in rows(path) if row["outcome"] == "failed"} == {
        500
    }
    said = (
        "scorer careful failed: judge_unavailable (HTTP status 500); check base_url, and that the"
        " endpoint runs; 1 so far"
    )
    assert said in [record.getMessage() for record in caplog.records]


def test_a_program_that_just_ends_gets_its_scores(serve: Callable[..., Any], tmp_path: Path):
    """The name of the host has to be resolved while the interpreter is ending."""
    endpoint, path = serve(reading()), tmp_path / "live.jsonl"
    run("exit_program.py", endpoint.url.replace("127.0.0.1", "localhost"), str(path))
    assert [(row["scorer"], row["outcome"]) for row in rows(path)] == [
        ("tool_errors", "scored"),
        ("llm_judge", "scored"),
    ]


def test_a_child_process_asks_for_itself(serve: Callable[..., Any], tmp_path: Path):
    """After a fork nothing of the parent's thread is there."""
    endpoint, path = serve(reading()), tmp_path / "live.jsonl"
    run("fork_program.py", endpoint.url, str(path))
    assert sorted((row["agent"], row["outcome"]) for row in rows(path)) == [
        ("child", "scored"),
        ("parent", "scored"),
        ("parent again", "scored"),
    ]


def test_where_only_judges_are_asked_nothing_leaves_before_they_answer(
    serve: Callable[..., Any], tmp_path: Path
):
    """No empty line, no empty span; by the receiver and in the process."""
    endpoint, path, memory = (
        serve(reading()),
        tmp_path / "received.jsonl",
        InMemorySpanExporter(),
    )
    config = config_of(endpoint.url, path)
    config["evaluations"][0]["scorers"] = config["evaluations"][0]["scorers"][:1]
    server = Server(load(config))
    bound = server.start()
    try:
        here = EvalSpanProcessor(config | {"exporters": {}})
        there = SimpleSpanProcessor(OTLPSpanExporter(endpoint=bound.grpc, insecure=True))
        with traced(here, SimpleSpanProcessor(memory), there) as provider:
            agent(provider)
            assert provider.force_flush(300_000)
    finally:
        assert server.stop(LIMIT_S)
    assert [row["scorer"] for row in rows(path)] == ["careful"]
    (judged,) = [span for span in memory.get_finished_spans() if span.name == "evaluate e"]
    assert [event.attributes["gen_ai.evaluation.score.value"] for event in judged.events] == [0.2]


def test_a_share_of_traces_is_evaluated_and_it_is_the_same_share_everywhere(
    serve: Callable[..., Any], tmp_path: Path
):
    """About the others the judge's scorer says nothing at all."""
    endpoint, path, memory = serve(reading()), tmp_path / "live.jsonl", InMemorySpanExporter()
    config = config_of(endpoint.url, path)
    config["evaluations"][0]["scorers"][0]["sample"] = 0.3
    config["evaluations"][0]["scorers"].pop()
    with traced(EvalSpanProcessor(config), SimpleSpanProcessor(memory)) as provider:
        agent(provider, runs=60)
        assert provider.force_flush(300_000)
    live = rows(path)
    assert sum(row["scorer"] == "tool_errors" for row in live) == 60
    assert 0 < sum(row["scorer"] == "careful" for row in live) < 45
    spans = [span for span in memory.get_finished_spans() if span.name != "evaluate e"]
    assert sorted(map(summary, live)) == sorted(
        map(summary, replayed(list(spans), config | {"exporters": {}}, tmp_path))
    )


def test_replay_prints_a_runs_scores_together(
    serve: Callable[..., Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """One table for each run, and an exit code that counts the judge's result."""
    several = threading.Event()

    def answer_once_several_asked(request: dict[str, Any]) -> Any:
        if endpoint.most_at_once > 1:
            several.set()
        assert several.wait(LIMIT_S)
        return reading()(request)

    endpoint, memory = serve(answer_once_several_asked), InMemorySpanExporter()
    with traced(SimpleSpanProcessor(memory)) as provider:
        agent(provider, runs=10)
    (tmp_path / "stored.pb").write_bytes(
        encode_spans(memory.get_finished_spans()).SerializeToString()
    )
    (tmp_path / "eval.yaml").write_text(json.dumps(config_of(endpoint.url)), encoding="utf-8")
    assert (
        main(["replay", str(tmp_path / "stored.pb"), "--config", str(tmp_path / "eval.yaml")]) == 1
    )
    printed = capsys.readouterr().out
    assert printed.count("evaluation e") == 10
    assert "10 runs, 30 results: 10 passed, 20 did not pass" in printed
    assert endpoint.most_at_once > 1
