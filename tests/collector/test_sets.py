"""Each set of collector_config, started with the real Collector, loses nothing of recorded traces
from the SDK's own exporter.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from otel_eval.app import stored_traces
from otel_eval.config import load
from otel_eval.exporters.result_rows import NO_RUN, rows_of
from tests.faults.fault_rig.service import Service
from tests.kafka.kafka_rig.broker import Broker, missing
from tests.support.collector_process import CollectorProcess
from tests.support.collector_sets import CollectorSet
from tests.support.listeners import NO_PROBLEMS
from tests.support.recorded_sdk_spans import whole_traces
from tests.support.waiting import LIMIT_S, wait_until

SETTLED_S = LIMIT_S
SPANS_PER_REQUEST = 64


class Stage(CollectorSet):
    """One set whose processes end with the test."""

    def __init__(self, name: str, folder: Path, stack: ExitStack) -> None:
        super().__init__(name, folder)
        self._stack = stack

    def collector(
        self, name: str = "collector.yaml", instead: Mapping[str, str] | None = None
    ) -> CollectorProcess:
        """Start it."""
        return self._stack.enter_context(CollectorProcess(self.copy(name, instead=instead)))

    def member(self, number: int = 0, *, endpoint: int = 5317, file: str = "eval.yaml") -> Service:
        """Start an otel-eval of the set."""
        env = {
            "OTEL_EVAL_MEMBER": str(number),
            "OTEL_EVAL_ENDPOINT": f"127.0.0.1:{self.ports[endpoint]}",
            "OTEL_EVAL_TELEMETRY": "127.0.0.1:0",
        }
        return self._stack.enter_context(
            Service(self.copy(file, self.folder / f"member{number}"), env=env)
        )


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Callable[[str], Stage]]:
    """Sets by name; whatever they started is ended."""
    with ExitStack() as stack:
        yield lambda name: Stage(name, tmp_path, stack)


SPANS = [span for spans in whole_traces() for span in spans]


def send(port: int, spans: list[ReadableSpan]) -> None:
    """By the SDK's own exporter."""
    exporter = OTLPSpanExporter(endpoint=f"127.0.0.1:{port}", insecure=True)
    for first in range(0, len(spans), SPANS_PER_REQUEST):
        assert exporter.export(spans[first : first + SPANS_PER_REQUEST]) is SpanExportResult.SUCCESS
    exporter.shutdown()


def replayed(config: Path, folder: Path) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """What `replay` gives for the same spans."""
    stored = folder / "stored.bin"
    stored.write_bytes(encode_spans(SPANS).SerializeToString())
    rows = [
        row
        for report in stored_traces.replay([stored], load(config), listener=NO_PROBLEMS)
        for row in rows_of(report)
        if row["outcome"] != NO_RUN
    ]
    assert rows
    return {
        (row["trace_id"], row["span_id"], row["scorer"]): (row["outcome"], row["value"])
        for row in rows
    }


def total(members: list[Service], name: str) -> int:
    """One metric, of all members."""
    return sum(member.metric(name) for member in members)


def balanced(collector: CollectorProcess, members: list[Service], results: int) -> None:
    """What the Collector accepted, the members accepted; what they exported, the Collector
    accepted; nothing went round.
    """
    wait_until(lambda: total(members, "receiver_accepted_spans") == len(SPANS), SETTLED_S)
    wait_until(
        lambda: (
            collector.metric("receiver_accepted_log_records", receiver="otlp/scores") >= results
        ),
        SETTLED_S,
    )
    assert collector.metric("receiver_accepted_spans", receiver="otlp") == len(SPANS)
    # a front knows what its workers did a second later
    wait_until(lambda: total(members, "scorer_results") == results)
    assert collector.metric("receiver_accepted_log_records", receiver="otlp/scores") == results
    assert total(members, "receiver_own_spans") == total(members, "receiver_own_log_records") == 0
    for lost in (
        "exporter_send_failed_spans",
        "exporter_enqueue_failed_spans",
        "receiver_refused_spans",
    ):
        assert collector.metric(lost) == 0


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("collector-side", "eval.yaml"),
        ("collector-side", "eval-workers.yaml"),
        ("sidecar", "eval.yaml"),
    ],
)
def test_one_collector_and_one_evaluator(
    name: str, file: str, stage: Callable[[str], Stage], tmp_path: Path
) -> None:
    """Scores return as events, metrics and spans."""
    this = stage(name)
    member, collector = this.member(file=file), this.collector()
    send(this.ports[4317], SPANS)
    balanced(collector, [member], len(replayed(this.copy("eval.yaml"), tmp_path)))
    wait_until(lambda: collector.metric("receiver_accepted_metric_points") > 0, SETTLED_S)


@pytest.mark.parametrize("name", ["collector.yaml", "collector-dns.yaml"])
def test_a_ring_of_evaluators(name: str, stage: Callable[[str], Stage], tmp_path: Path) -> None:
    """Each trace is evaluated by one member, and with static members each has some."""
    this = stage("gateway")
    endpoints = [5317, 5327, 5337] if name == "collector.yaml" else [5317]
    members = [this.member(number, endpoint=port) for number, port in enumerate(endpoints)]
    collector = this.collector(name, {"otel-eval.monitoring.svc.cluster.local": "localhost"})
    send(this.ports[4317], SPANS)
    balanced(collector, members, len(replayed(this.copy("eval.yaml"), tmp_path)))
    assert all(member.metric("receiver_accepted_spans") for member in members)


def test_scores_for_prometheus_and_in_a_file(stage: Callable[[str], Stage], tmp_path: Path) -> None:
    """Every event of the file has the value that `replay` gives, and Prometheus finds the
    metrics.
    """
    this = stage("scores")
    member, collector = this.member(), this.collector()
    expected = replayed(this.copy("eval.yaml"), tmp_path)
    send(this.ports[4317], SPANS)
    balanced(collector, [member], len(expected))
    wait_until(
        lambda: collector.metric("exporter_sent_log_records", exporter="file") == len(expected),
        SETTLED_S,
    )
    assert collector.terminate() == 0
    assert events(tmp_path / "otelcol" / "scores.jsonl") == expected


def events(path: Path) -> dict[tuple[str, str, str], tuple[Any, ...]]:
    """The results in the file of the Collector's exporter."""
    found = {}
    for line in path.read_text().splitlines():
        for group in json.loads(line)["resourceLogs"]:
            for record in (
                record for scope in group["scopeLogs"] for record in scope["logRecords"]
            ):
                values = {
                    each["key"]: next(iter(each["value"].values())) for each in record["attributes"]
                }
                key = (record["traceId"], record["spanId"], values["gen_ai.evaluation.name"])
                found[key] = (
                    values["otel_eval.outcome"],
                    values.get("gen_ai.evaluation.score.value"),
                )
    return found


def test_an_inline_stage(stage: Callable[[str], Stage], tmp_path: Path) -> None:
    """All spans arrive behind otel-eval, with every score on them."""
    this = stage("inline")
    collector, member = this.collector(), this.member()
    send(this.ports[4317], SPANS)
    wait_until(lambda: collector.metric("receiver_accepted_spans") == len(SPANS), SETTLED_S)
    results = len(replayed(this.copy("eval.yaml"), tmp_path))
    wait_until(
        lambda: collector.log.read_text().count("Name: gen_ai.evaluation.result") == results,
        SETTLED_S,
    )
    assert member.metric("receiver_accepted_spans") == len(SPANS)
    assert member.metric("receiver_own_spans") == 0


@pytest.mark.timeout(180)  # a broker on a busy machine
def test_kafka(stage: Callable[[str], Stage], tmp_path: Path) -> None:
    """Two processes share the partitions; each trace is evaluated by one of them."""
    if why := missing():  # Java, Maven or the jars
        pytest.skip(f"not run: {why}")
    this = stage("kafka")
    with Broker(tmp_path / "broker") as broker:
        this.ports[9092] = int(broker.address.rsplit(":", 1)[1])
        broker.create("otlp_spans")
        members = [this.member(number) for number in range(2)]
        wait_until(
            lambda: [member.metric("kafka_partitions", absent=0) for member in members] == [3, 3],
            SETTLED_S,
        )
        collector, results = this.collector(), len(replayed(this.copy("eval.yaml"), tmp_path))
        send(this.ports[4317], SPANS)
        wait_until(
            lambda: (
                collector.metric("receiver_accepted_log_records", receiver="otlp/scores") >= results
            ),
            SETTLED_S,
        )
        assert total(members, "kafka_spans") == len(SPANS)
        assert total(members, "scorer_results") == results
        assert collector.metric("receiver_accepted_log_records", receiver="otlp/scores") == results
