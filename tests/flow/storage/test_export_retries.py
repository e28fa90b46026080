"""Results wait for endpoints that are unreachable, over restarts too, and clients get backpressure
meanwhile.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.storage.record_types import RecordKind
from tests.support.otlp_backend import BACKENDS
from tests.support.receiver_process import Served, whole
from tests.support.waiting import wait_until

Make = Callable[..., Served]
AWAY = {"grpc": "UNAVAILABLE", "http/protobuf": 503}
NEVER = {"grpc": "INVALID_ARGUMENT", "http/protobuf": 400}
UNSUPPORTED = {"grpc": "UNIMPLEMENTED", "http/protobuf": 404}


@pytest.fixture(params=["grpc", "http/protobuf"])
def backend(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A backend of each protocol that is not running at first."""
    with BACKENDS[request.param]() as running:
        running.protocol = request.param
        running.status = AWAY[request.param]
        yield running


def exporter(backend: Any, *signals: str, **more: Any) -> dict[str, Any]:
    return {
        "otlp": {
            "endpoint": backend.url,
            "protocol": backend.protocol,
            "signals": signals or ("logs",),
            "compression": "none",
            **more,
        }
    }


def logged(backend: Any) -> list[str]:
    """The result ids of the log events that arrived."""
    found = []
    for body in backend.got["logs"]:
        for group in ExportLogsServiceRequest.FromString(body).resource_logs:
            for record in group.scope_logs[0].log_records:
                found += [
                    pair.value.string_value
                    for pair in record.attributes
                    if pair.key == "otel_eval.result_id"
                ]
    return found


@pytest.mark.slow
def test_what_was_scored_before_a_kill_is_delivered_after_it(served: Make, backend: Any) -> None:
    """Killed between scoring and delivery: the endpoint gets every result once."""
    receiver = served(exporters=exporter(backend))
    receiver.start()
    for trace in range(1, 21):
        assert receiver.post(whole(trace)) == 200
    assert backend.wait(lambda: backend.asked > 0)
    receiver.end()
    receiver.start()
    backend.status = ""
    assert backend.wait(lambda: len(logged(backend)) >= 20)
    assert len(set(logged(backend))) == len(logged(backend)) == 20


@pytest.mark.slow
def test_a_span_of_scores_that_is_sent_twice_is_the_same_span(served: Make, backend: Any) -> None:
    """Its id is computed from the ids of its results."""
    backend.status = ""
    receiver = served(
        exporters=exporter(backend, "spans"),
        evaluations=[{"name": "e", "scorers": [{"type": "tool_errors"}]}],
    )
    ids = []
    for _ in range(2):
        receiver.start()
        assert receiver.post(whole(5)) == 200
        assert backend.wait(lambda: backend.got["traces"])
        receiver.end()
        request = ExportTraceServiceRequest.FromString(backend.got["traces"].pop())
        ids.append(request.resource_spans[0].scope_spans[0].spans[0].span_id)
        for segment in receiver.storage.glob("*.journal"):
            segment.unlink()
    assert ids[0] == ids[1]


def test_clients_get_a_retryable_error_while_an_exporter_is_away_and_not_longer(
    served: Make, backend: Any
) -> None:
    """The queue is full: 503 with Retry-After below ten seconds. Nothing has to be restarted, and
    nothing is lost.
    """
    receiver = served(exporters={**exporter(backend), "max_queue": 3})
    receiver.start()
    taken = 0

    def is_refused() -> bool:
        nonlocal taken
        taken += (refused := receiver.post(whole(taken + 1)) != 200) is False
        return refused

    wait_until(is_refused, interval_s=0.1)
    assert 0 < receiver.retry_after < 10
    backend.status = ""
    assert backend.wait(lambda: len(set(logged(backend))) == taken)
    receiver.insist(whole(taken + 1))
    assert backend.wait(lambda: len(set(logged(backend))) == taken + 1)


def test_what_is_refused_for_good_is_a_dead_letter(served: Make, backend: Any) -> None:
    """One line with the result and the reason is written beside the journal, and there is no
    retry.
    """
    backend.status = NEVER[backend.protocol]
    receiver = served(exporters=exporter(backend))
    receiver.start()
    assert receiver.post(whole(1, tools=5)) == 200
    path = receiver.storage / "dead_letter.jsonl"
    wait_until(lambda: receiver.recorded(RecordKind.DELIVERED))
    (row,) = [json.loads(line) for line in path.read_text().splitlines()]
    assert (row["value"], row["exporter"], row["why"]) == (0.0, "otlp.logs", str(backend.status))
    receiver.end()
    backend.status = ""
    receiver.start()
    receiver.insist(whole(2))
    assert backend.wait(lambda: logged(backend))
    assert len(path.read_text().splitlines()) == len(logged(backend)) == 1


def test_one_404_costs_an_endpoint_that_worked_nothing(served: Make, backend: Any) -> None:
    """Every result arrives: a 404 between two successes comes from a rollout or a proxy."""
    backend.status = ""
    receiver = served(exporters=exporter(backend))
    receiver.start()
    for trace in range(1, 21):
        if trace == 10:
            assert backend.wait(lambda: logged(backend))
            backend.refuse_once = UNSUPPORTED[backend.protocol]
        assert receiver.post(whole(trace)) == 200
    assert backend.wait(lambda: len(set(logged(backend))) == 20)
    assert not backend.refuse_once
    assert not (receiver.storage / "dead_letter.jsonl").read_bytes()


def test_results_wait_for_an_endpoint_that_lost_the_signal_after_a_kill(
    served: Make, backend: Any
) -> None:
    """They are delivered when it has the signal again, also those that another kill stopped."""
    backend.status = ""
    receiver = served(exporters=exporter(backend), delivery={"recheck": "100ms"})
    receiver.start()
    assert receiver.post(whole(1)) == 200
    assert backend.wait(lambda: logged(backend))
    receiver.end()
    backend.status = UNSUPPORTED[backend.protocol]
    receiver.start()
    asked = backend.asked
    for trace in range(2, 12):
        assert receiver.post(whole(trace)) == 200
    assert backend.wait(lambda: backend.asked > asked + 1)
    receiver.end()
    receiver.start()
    backend.status = ""
    assert backend.wait(lambda: len(set(logged(backend))) == 11)
    assert not (receiver.storage / "dead_letter.jsonl").read_bytes()


def test_an_endpoint_that_never_supported_the_signal_stops_no_evaluation(
    served: Make, backend: Any
) -> None:
    """Its results wait beside the queue, as many as fit into it; the oldest go to the dead-letter
    file. One request a minute is tried.
    """
    backend.status = UNSUPPORTED[backend.protocol]
    receiver = served(exporters={**exporter(backend), "max_queue": 3})
    receiver.start()
    path = receiver.storage / "dead_letter.jsonl"
    for trace in range(1, 11):
        receiver.insist(whole(trace))
        wait_until(lambda trace=trace: len(path.read_text().splitlines()) >= trace - 3)
    assert backend.asked == 1
    assert (
        f"does not support logs ({backend.status}): results wait for 900 s, then they are written"
        " to the dead-letter file" in receiver.said()
    )
