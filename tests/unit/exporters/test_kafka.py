"""Results in a topic: keys, encodings, and records that the cluster refuses."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

from otel_eval.config import load
from otel_eval.counters import Counters
from otel_eval.delivery.export_queue import start_queue
from otel_eval.errors import ConfigError
from otel_eval.exporters.kafka import KafkaTopicExporter, key_of_row
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Evidence, NoRun, Report, Result, Scored, Trajectory
from tests.support.mock_kafka import consumed, mock_cluster
from tests.support.waiting import LIMIT_S


def report(
    trace: int = 1, digest: str = "0" * 16, scorer: str = "s", explanation: str = ""
) -> Report:
    outcome = Scored(1.0, passed=True, explanation=explanation)
    result = Result(
        evaluation="e",
        scorer=scorer,
        type="t",
        version="1",
        outcome=outcome,
        revision=0,
        result_id=f"{trace:032x}",
    )
    run = Trajectory(trace_id=f"{trace:032x}", span_id=f"{trace:016x}", agent="seller")
    return Report(run, "e", 0, (result,), evidence=Evidence(3, digest))


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with mock_cluster() as servers:
        yield servers


@pytest.fixture
def exporter(servers: str, request: pytest.FixtureRequest) -> Iterator[Any]:
    made: list[KafkaTopicExporter] = []

    def make(
        topic: str = request.node.name[:80].replace("[", "-").replace("]", ""), **options: Any
    ) -> KafkaTopicExporter:
        made.append(KafkaTopicExporter({"bootstrap.servers": servers}, topic, **options))
        return made[-1]

    yield make
    for each in made:
        each.close(1.0)


def test_a_record_has_the_row_of_a_result_and_its_key(exporter: Any, servers: str) -> None:
    batch = [report(1), report(2), replace(report(1), evidence=Evidence(4, "1" * 16))]
    assert exporter("rows").export(batch).status == "ok"
    records = consumed(servers, "rows", 3)
    rows = [row for each in batch for row in rows_of(each)]
    assert sorted((each.key(), json.loads(each.value())) for each in records) == sorted(
        (key_of_row(row), row) for row in rows
    )
    assert len({each.key() for each in records}) == 3


def test_a_trace_without_a_result_has_a_record_too(exporter: Any, servers: str) -> None:
    none = replace(
        report(),
        results=(),
        evaluation="",
        no_run=NoRun("no agent run was found in the trace", "a" * 32),
    )
    made = exporter("no-run")
    assert made.exports_no_run
    assert made.export([none]).status == "ok"
    assert json.loads(consumed(servers, "no-run", 1)[0].value())["outcome"] == "no_run"
    assert not exporter(encoding="otlp_proto").exports_no_run


def test_an_otlp_record_is_a_request_with_one_event(exporter: Any, servers: str) -> None:
    two = replace(
        report(1), results=(*report(1, scorer="a").results, *report(1, scorer="b").results)
    )
    assert exporter("events", encoding="otlp_proto").export([two]).status == "ok"
    names = []
    for record in consumed(servers, "events", 2):
        request = ExportLogsServiceRequest.FromString(record.value())
        [event] = request.resource_logs[0].scope_logs[0].log_records
        assert event.trace_id.hex() == json.loads(record.key())[0] == f"{1:032x}"
        names += [
            (each.value.string_value, json.loads(record.key())[3])
            for each in event.attributes
            if each.key.endswith(".name")
        ]
    assert {("a", "a"), ("b", "b")} <= set(names)


def test_a_record_that_is_too_large_costs_no_other_result(exporter: Any, servers: str) -> None:
    """Neither of its run nor of others."""
    large = report(2, explanation="x" * 2_000_000)
    two = replace(large, results=(*large.results, *report(2, scorer="other").results))
    result = exporter("large").export([report(1), two, report(3)])
    assert (result.status, result.failed, result.reason) == ("ok", ((1, 0),), "msg size too large")
    found = [json.loads(each.value()) for each in consumed(servers, "large", 3)]
    assert {each["trace_id"] for each in found} == {f"{number:032x}" for number in (1, 2, 3)}


def test_a_forked_child_exports_with_a_producer_of_its_own(exporter: Any, servers: str) -> None:
    """The parent's is not freed by it, which would wait for threads that are in the parent."""
    queue = start_queue(exporter("forked"), Counters(), None)
    queue.export([report(1)])
    assert queue.flush(LIMIT_S)
    child = os.fork()
    if child == 0:
        queue.export([report(2)])
        os._exit(not queue.flush(LIMIT_S))
    assert os.waitpid(child, 0)[1] == 0
    queue.export([report(3)])
    assert queue.flush(LIMIT_S)
    queue.close(5.0)
    found = {json.loads(each.value())["trace_id"] for each in consumed(servers, "forked", 3)}
    assert found == {f"{number:032x}" for number in (1, 2, 3)}


def test_a_cluster_that_is_away_is_a_reason_to_retry() -> None:
    exporter = KafkaTopicExporter({"bootstrap.servers": "127.0.0.1:1"}, "t", timeout_s=0.5)
    result = exporter.export([report()])
    exporter.close(1.0)
    assert (result.status, result.reason) == ("retryable", "msg timed out")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"brokers": []}, ["exporters.kafka.brokers", "name at least one"]),
        ({"brokers": ["kafka"]}, ["exporters.kafka.brokers", "'kafka'", "host:port"]),
        (
            {"brokers": ["k:9092"], "options": {"acks": 1}},
            ["exporters.kafka.options.acks", "leave it out"],
        ),
        ({"brokers": ["k:9092"], "tls": {"cert_file": "c"}}, ["exporters.kafka.tls", "key_file"]),
        (
            {"brokers": ["k:9092"], "sasl": {"username": "u", "password": ["geheim"]}},
            ["exporters.kafka.sasl.password"],
        ),
    ],
)
def test_a_mistake_in_the_configuration_is_named(given: Any, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load({"exporters": {"kafka": given}})
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "geheim" not in str(caught.value)


def test_tls_and_sasl_become_settings_of_librdkafka() -> None:
    sasl = {"mechanism": "SCRAM-SHA-512", "username": "u", "password": "p"}
    given = {
        "brokers": ["a:1", "b:2"],
        "tls": {"ca_file": "ca.pem"},
        "sasl": sasl,
        "options": {"linger.ms": 9},
    }
    kafka = load({"exporters": {"kafka": given}}).exporters.kafka
    assert kafka is not None
    assert kafka.settings() == {
        "bootstrap.servers": "a:1,b:2",
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": "ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "p",
        "linger.ms": 9,
    }
    assert "'p'" not in repr(kafka)
