"""Acknowledged requests that were not forwarded are forwarded after a crash, with the scores of
their runs.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.storage.record_types import RecordKind
from tests.support.free_port import free_port
from tests.support.receiver_process import ENVIRONMENT, Served, request, whole
from tests.support.waiting import LIMIT_S, STAYS_OPEN, wait_until

Make = Callable[..., Served]
EVENT = "gen_ai.evaluation.result"


class Endpoint:
    """A backend that can be down, at an address that stays the same."""

    def __init__(self) -> None:
        self.port = free_port()
        self.got: dict[str, list[bytes]] = {"traces": [], "logs": [], "metrics": []}

    @contextmanager
    def up(self) -> Iterator[None]:
        """Accept requests in the block."""
        got = self.got

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                got[self.path.rsplit("/", 1)[1]].append(
                    self.rfile.read(int(self.headers["Content-Length"]))
                )
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join(300)

    def spans(self) -> list[tuple[int, int, int]]:
        """Return trace, span and number of scores of each span that was accepted."""
        return [
            (
                int.from_bytes(span.trace_id),
                int.from_bytes(span.span_id),
                sum(event.name == EVENT for event in span.events),
            )
            for body in tuple(self.got["traces"])
            for group in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint()


def forwarding(
    served: Make, endpoint: Endpoint, environment: Mapping[str, str] | None = None, **config: Any
) -> Served:
    forward = {
        "endpoint": f"http://127.0.0.1:{endpoint.port}",
        "protocol": "http/protobuf",
        "timeout": "5m",
    }
    receiver = served(exporters={"forward": forward}, **config)
    receiver.environment |= environment or {}
    receiver.start()
    return receiver


def all_of(*traces: int) -> Counter[tuple[int, int, int]]:
    """Return every span of complete runs once, with one score on each root."""
    return Counter((trace, span, int(span == 1)) for trace in traces for span in range(1, 5))


@pytest.mark.parametrize("is_evaluated", [True, False])
def test_what_waited_for_the_endpoint_arrives_after_a_kill(
    served: Make, endpoint: Endpoint, is_evaluated: bool
) -> None:
    """Evaluated before the kill or after it: every span arrives, with the score on its root."""
    traces = {"decision_wait": "50ms"} if is_evaluated else STAYS_OPEN
    receiver = forwarding(served, endpoint, traces=traces)
    for trace in (1, 2, 3):
        assert receiver.post(whole(trace)) == 200
    if is_evaluated:
        wait_until(lambda: receiver.recorded(RecordKind.EVALUATED))
    receiver.end()
    receiver.config["traces"] = {"decision_wait": "50ms"}
    receiver.start()
    assert receiver.post(whole(4)) == 200
    with endpoint.up():
        wait_until(lambda: len(endpoint.spans()) >= 16)
        assert receiver.end(signal.SIGTERM) == 0
    assert Counter(endpoint.spans()) == all_of(1, 2, 3, 4)


@pytest.mark.slow
def test_what_was_taken_is_not_sent_again(served: Make, endpoint: Endpoint) -> None:
    """Even if the root of a run still waits for its score: then the root arrives alone."""
    receiver = forwarding(served, endpoint, traces=STAYS_OPEN)
    with endpoint.up():
        assert receiver.post(whole(1)) == 200
        wait_until(lambda: len(endpoint.spans()) == 3)
        wait_until(lambda: len(receiver.recorded(RecordKind.FORWARDED)) >= 1)
        receiver.end()
        receiver.config["traces"] = {"decision_wait": "50ms"}
        receiver.start()
        wait_until(lambda: len(endpoint.spans()) == 4)
        wait_until(lambda: len(receiver.recorded(RecordKind.FORWARDED)) >= 2)
        receiver.end()
        receiver.start()
        receiver.insist(whole(2))
        wait_until(lambda: len(endpoint.spans()) >= 8)
    assert Counter(endpoint.spans()) == all_of(1, 2)


def test_a_stop_leaves_what_the_endpoint_did_not_take_for_the_next_start(
    served: Make, endpoint: Endpoint
) -> None:
    """No loss is logged, and roots of undecided runs are not forwarded without scores."""
    receiver = forwarding(served, endpoint, traces={"decision_wait": "1s"})
    assert receiver.post(whole(1)) == 200
    assert receiver.end(signal.SIGTERM) == 0
    assert "were not forwarded" not in receiver.said()
    receiver.start()
    with endpoint.up():
        wait_until(lambda: len(endpoint.spans()) == 4)
        assert receiver.end(signal.SIGTERM) == 0
    assert Counter(endpoint.spans()) == all_of(1)


@pytest.mark.slow
def test_a_last_stop_passes_everything_on(served: Make, endpoint: Endpoint) -> None:
    """`--drain` evaluates undecided traces, and ends when everything is forwarded."""
    receiver = forwarding(served, endpoint, traces={"decision_wait": "5s"})
    assert receiver.post(whole(1)) == 200
    receiver.end()
    with endpoint.up():
        assert drained(receiver) == 0
        assert Counter(endpoint.spans()) == all_of(1)
        assert drained(receiver) == 0
    assert Counter(endpoint.spans()) == all_of(1)


def drained(receiver: Served) -> int:
    """Run `serve --drain` to its end and return the exit code."""
    command = [
        sys.executable,
        "-m",
        "otel_eval",
        "serve",
        "--config",
        str(receiver.folder / "eval.json"),
        "--drain",
    ]
    return subprocess.run(command, timeout=300, env=ENVIRONMENT, check=False).returncode


@pytest.mark.slow
def test_logs_metrics_and_spans_that_are_not_evaluated_survive_too(
    served: Make, endpoint: Endpoint
) -> None:
    """They are acknowledged like evaluated spans."""
    logs, metrics, odd = (
        ExportLogsServiceRequest(),
        ExportMetricsServiceRequest(),
        ExportTraceServiceRequest(),
    )
    logs.resource_logs.add().scope_logs.add().log_records.add().body.string_value = "hello"
    metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m").gauge.data_points.add(
        as_int=3
    )
    odd.resource_spans.add().scope_spans.add().spans.add(trace_id=b"short", name="odd")
    receiver = forwarding(served, endpoint)
    sent = {"traces": odd, "logs": logs, "metrics": metrics}
    for signal_, message in sent.items():
        assert receiver.post(message.SerializeToString(), signal_) == 200
    for _ in range(2):
        receiver.end()
        receiver.start()
    with endpoint.up():
        wait_until(lambda: all(endpoint.got.values()))
        wait_until(lambda: len(receiver.recorded(RecordKind.FORWARDED)) >= len(sent))
        receiver.end()
        receiver.start()
        receiver.insist(whole(1))
        wait_until(lambda: len(endpoint.spans()) >= 5)
    bodies = {name: [*bodies] for name, bodies in endpoint.got.items()}
    assert bodies["traces"].pop(0) == odd.SerializeToString()
    assert Counter(endpoint.spans()[1:]) == all_of(1)
    assert (bodies["logs"], bodies["metrics"]) == (
        [logs.SerializeToString()],
        [metrics.SerializeToString()],
    )


def test_segments_go_when_what_is_in_them_was_passed_on(
    served: Make, endpoint: Endpoint, tmp_path: Path
) -> None:
    """They stay until then, even if their runs were evaluated and are no longer held."""
    storage = {"directory": str(tmp_path / "kept"), "max_size": "64KiB"}
    receiver = forwarding(
        served, endpoint, traces={"decision_wait": "50ms", "grace_period": "0s"}, storage=storage
    )
    assert receiver.post(whole(1)) == 200
    wait_until(lambda: receiver.recorded(RecordKind.EVALUATED))
    sent = 1
    while receiver.post(whole(sent + 1)) == 200:
        sent += 1
    assert (tmp_path / "kept" / "0000000001.journal").exists()
    assert receiver.post(whole(sent + 1)) == 503
    with endpoint.up():
        receiver.insist(whole(sent + 1))
        wait_until(lambda: len(endpoint.spans()) == 4 * (sent + 1))
        wait_until(lambda: not (tmp_path / "kept" / "0000000001.journal").exists())
    assert Counter(endpoint.spans()) == all_of(*range(1, sent + 2))


def test_spans_of_a_trace_that_is_given_up_are_passed_on(
    served: Make, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Its spans arrive once, without scores. Those of other traces arrive with scores, at least
    once, because of the crash.
    """
    paths = os.pathsep.join((ENVIRONMENT["PYTHONPATH"], str(Path(__file__).parent)))
    environment = {"PYTHONPATH": paths, "LETHAL_NOTES": str(tmp_path / "asked")}
    evaluations = [{"name": "e", "scorers": [{"type": "lethal:dies", "name": "dies"}]}]
    receiver = forwarding(served, endpoint, environment, traces=STAYS_OPEN, evaluations=evaluations)
    for body in (whole(1), request((2, 1, 0, ""), (2, 2, 1, "exit")), whole(3)):
        assert receiver.post(body) == 200
    assert receiver.end(signal.SIGTERM) == 0
    receiver.config["traces"] = {"decision_wait": "100ms"}
    with endpoint.up():
        for _ in range(2):
            receiver.start(awaited=False)
            assert receiver.process is not None
            assert receiver.process.wait(LIMIT_S) == 3
        receiver.start()
        wait_until(lambda: len(endpoint.spans()) >= 10)
        assert receiver.end(signal.SIGTERM) == 0
    sent, given_up = Counter(endpoint.spans()), Counter([(2, 1, 0), (2, 2, 0)])
    assert sent.keys() == (all_of(1, 3) + given_up).keys()
    assert {span: sent[span] for span in given_up} == given_up


@pytest.mark.slow
def test_kills_at_random_instants_lose_nothing_at_the_endpoint(
    served: Make, endpoint: Endpoint
) -> None:
    """Every acknowledged span arrives, each root with its score; some spans twice."""
    receiver = forwarding(
        served,
        endpoint,
        traces={"decision_wait": "100ms", "decision_wait_partial": "100ms", "grace_period": "2s"},
    )
    rng = random.Random(11)
    acknowledged: list[int] = []
    over = threading.Event()

    def load(first: int) -> None:
        trace = first
        while not over.is_set():
            if receiver.post(whole(trace)) == 200:
                acknowledged.append(trace)
                trace += 2
            else:
                time.sleep(0.02)

    threads = [threading.Thread(target=load, args=(first,)) for first in (1, 2)]
    with endpoint.up():
        for thread in threads:
            thread.start()
        for _ in range(10):
            time.sleep(rng.uniform(0.05, 0.4))
            receiver.end()
            receiver.start()
        over.set()
        for thread in threads:
            thread.join()
        wanted = set(all_of(*acknowledged))
        wait_until(lambda: wanted <= set(endpoint.spans()))
    spans = Counter(endpoint.spans())
    print(f"{len(acknowledged)} runs, {sum(spans.values()) - len(spans)} spans twice")
    assert all(scores == (span == 1) for _, span, scores in spans)


def test_a_run_that_takes_long_keeps_no_segment_and_none_of_its_spans_is_lost(
    served: Make, endpoint: Endpoint, tmp_path: Path
) -> None:
    """Its held span is compacted with the rest of its trace, and arrives once."""
    storage = {"directory": str(tmp_path / "kept"), "max_size": "64KiB"}
    traces = STAYS_OPEN | {"decision_wait": "50ms", "grace_period": "0s"}
    receiver = forwarding(served, endpoint, traces=traces, storage=storage)
    assert receiver.post(request((1, 1, 99, ""))) == 200
    with endpoint.up():
        number = 1
        while (tmp_path / "kept" / "0000000001.journal").exists():
            number += 1
            receiver.insist(whole(number))
        for _ in range(2):
            receiver.end()
            receiver.start()
        receiver.insist(request((1, 99, 0, "")))
        wait_until(lambda: {(1, 1), (1, 99)} <= {span[:2] for span in endpoint.spans()})
    arrived = Counter(span[:2] for span in endpoint.spans())
    assert arrived[1, 1] == 1
    assert sum(scores for trace, _, scores in endpoint.spans() if trace == 1) == 1
