"""`otel-eval serve` with several workers: the results of one process, one admin address, and
workers that end.
"""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.app.server import Server
from otel_eval.app.workers import worker
from otel_eval.app.workers.front import FrontServer
from otel_eval.config import load
from otel_eval.counters import count_name
from otel_eval.errors import ConfigError
from otel_eval.otlp import Signal
from tests.support.otlp_backend import Backend, grpc_backend
from tests.support.receiver_process import ENVIRONMENT, request, twice, whole
from tests.support.waiting import LIMIT_S, STAYS_OPEN, wait_until

Serving = Callable[..., Any]
METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
BOTH = {
    "otlp": {
        "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    }
}


def values(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Outcome and value of each trace."""
    return {row["trace_id"]: (row["outcome"], row["value"]) for row in rows}


def test_results_are_those_of_one_process(served: Serving, tmp_path: Path):
    """Runs over several requests, many traces in one request, by gRPC, HTTP and JSON."""
    several = served(receivers=BOTH)
    several.start()
    parts = [
        request(*((trace, span, parent, tool) for trace in range(1, 21)))
        for span, parent, tool in tree()
    ]
    for number, body in enumerate(parts):
        send(several, body, "grpc" if number % 2 else "json")
    several.insist(whole(100, tools=5))
    rows = several.wait_for(21)
    assert several.end(signal.SIGTERM) == 0, several.said()
    assert twice(rows) == {}
    assert values(rows) == {f"{n:032x}": ("scored", 1.0) for n in range(1, 21)} | {
        f"{100:032x}": ("scored", 0.0)
    }
    assert len({row["evaluator"] for row in rows}) == 2


def tree() -> list[tuple[int, int, str]]:
    """(span, parent, tool) of a run; the run's own span is the last."""
    return [(2, 1, "search"), (3, 1, "search"), (4, 1, "search"), (1, 0, "")]


def send(served: Any, body: bytes, way: str) -> None:
    """By gRPC, or as JSON over HTTP."""
    if way == "grpc":
        address = served.said().split("grpc=")[1].split()[0]
        with grpc.insecure_channel(address) as channel:
            channel.unary_unary(METHOD)(body, timeout=300)
        return
    document = json_format.MessageToDict(ExportTraceServiceRequest.FromString(body))
    for group in document["resourceSpans"]:
        for span in (span for scope in group["scopeSpans"] for span in scope["spans"]):
            for key in {"traceId", "spanId", "parentSpanId"} & span.keys():
                span[key] = bytes_of(span[key]).hex()
    assert served.post(json.dumps(document).encode(), kind="application/json") == 200


def bytes_of(text: str) -> bytes:
    """The bytes of an id, which the library writes in base64."""
    import base64

    return base64.b64decode(text)


def test_one_admin_address_adds_up(served: Serving, until: Callable[[Callable[[], bool]], None]):
    """Spans, results and scores of both workers; workers by number; ready while both are."""
    one = served()
    one.start()
    for trace in range(1, 11):
        one.insist(whole(trace))
    one.wait_for(10)
    until(lambda: one.metric("exporter_sent_results_total") == 10)
    assert one.metric("receiver_accepted_spans_total") == 40
    assert one.metric("receiver_requests_total") == 10
    assert one.metric("workers_up") == 2
    assert one.metric("score_count") == 10
    assert one.page("/readyz") == "ready\n"
    status = json.loads(one.page("/status"))
    assert status["evaluation"]["workers_ready"] == "2 of 2"
    assert status["counts"]["accepted_spans"] == {"http": 40}
    assert one.end(signal.SIGTERM) == 0, one.said()
    assert "nothing was evaluated" not in one.said()  # as when no worker got a span


def test_unusable_spans_are_rejected_in_one_partial_success(served: Serving):
    """Each worker rejects some; the numbers add up, and the others are accepted."""
    one = served(receivers=BOTH)
    one.start()
    message = ExportTraceServiceRequest.FromString(
        request(*((trace, 1, 0, "") for trace in range(1, 9)))
    )
    for span in message.resource_spans[0].scope_spans[0].spans[:4]:
        span.span_id = b""
    address = one.said().split("grpc=")[1].split()[0]
    with grpc.insecure_channel(address) as channel:
        answer = channel.unary_unary(METHOD)(message.SerializeToString(), timeout=300)
    partial = ExportTraceServiceResponse.FromString(answer).partial_success
    assert (partial.rejected_spans, "span id" in partial.error_message) == (4, True)
    assert one.post(b"\x0a\xff") == 400
    one.wait_for(4)


def test_a_killed_worker_is_started_again_and_loses_nothing(
    served: Serving, until: Callable[[Callable[[], bool]], None]
):
    """Acknowledged spans are in its storage; while it is down, its part of a request is refused and
    counted once.
    """
    one = served(traces=STAYS_OPEN | {"decision_wait": "1s", "grace_period": "1h"})
    one.start()
    before = one.workers()
    assert len(before) == 2
    for trace in range(1, 21):
        one.insist(request(*((trace, span, 1, "search") for span in (2, 3))))
    os.kill(before[0], signal.SIGKILL)
    for trace in range(1, 21):
        one.insist(request((trace, 1, 0, "")))
    rows = one.wait_for(20)
    assert values(rows) == {f"{n:032x}": ("scored", 1.0) for n in range(1, 21)}
    until(lambda: len(one.workers()) == 2)
    assert set(before) & set(one.workers()) == {before[1]}
    until(lambda: one.metric("workers_restarts_total") == 1)
    until(lambda: one.page("/readyz") == "ready\n")
    assert one.end(signal.SIGTERM) == 0
    # which number has the lower process id is open
    assert "ended (exit code -9) and is started again" in one.said()
    assert "did not stop in time" not in one.said()
    assert twice(one.rows()) == {}


@pytest.mark.slow
def test_workers_end_when_the_front_is_killed(
    served: Serving, until: Callable[[Callable[[], bool]], None]
):
    """The next start recovers what they held."""
    one = served(traces=STAYS_OPEN | {"decision_wait": "1s", "grace_period": "1h"})
    one.start()
    workers = one.workers()
    for trace in range(1, 11):
        one.insist(request((trace, 2, 1, "search")))
    one.end(signal.SIGKILL)
    until(lambda: not any(map(is_alive, workers)))
    one.start()
    for trace in range(1, 11):
        one.insist(request((trace, 1, 0, "")))
    assert values(one.wait_for(10)) == {f"{n:032x}": ("scored", 1.0) for n in range(1, 11)}


def is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.slow
def test_another_number_of_workers_needs_a_drain(served: Serving):
    """Traces in flight belong to the old number."""
    one = served(traces=STAYS_OPEN | {"decision_wait": "1s", "grace_period": "1h"})
    one.start()
    for trace in range(1, 11):
        one.insist(whole(trace))
    assert one.end(signal.SIGTERM) == 0
    one.start("--workers", "3", awaited=False)
    assert one.process.wait(300) == 2
    assert "workers: 3, but storage.directory" in one.said()
    one.start("--drain", awaited=False)
    assert one.process.wait(300) == 0, one.said()
    assert len(one.wait_for(10)) == 10
    one.start("--workers", "3")
    assert len(one.workers()) == 3
    assert one.end(signal.SIGTERM) == 0


def test_a_reload_reaches_every_worker(
    served: Serving, until: Callable[[Callable[[], bool]], None]
):
    """A worker that is started again has the new evaluations, too."""
    one = served()
    one.start()
    one.config["evaluations"] = [{"name": "new", "scorers": [{"type": "tool_errors"}]}]
    (one.folder / "eval.json").write_text(json.dumps(one.config))
    one.process.send_signal(signal.SIGHUP)
    until(lambda: "reload: done" in one.said())
    os.kill(one.workers()[1], signal.SIGKILL)
    until(lambda: one.metric("workers_restarts_total") == 1)
    for trace in range(1, 11):
        one.insist(whole(trace))
    assert {row["evaluation"] for row in one.wait_for(10)} == {"new"}


@pytest.mark.slow
def test_a_reload_that_cannot_be_used_changes_no_worker(
    served: Serving, until: Callable[[Callable[[], bool]], None]
):
    """One line names the problem."""
    one = served()
    one.start()
    config = {
        **one.config,
        "evaluations": [{"name": "new", "scorers": [{"type": "no_such_scorer"}]}],
    }
    (one.folder / "eval.json").write_text(json.dumps(config))
    one.process.send_signal(signal.SIGHUP)
    until(lambda: "the running configuration is kept" in one.said())
    one.insist(whole(1))
    assert {row["evaluation"] for row in one.wait_for(1)} == {"e"}


@pytest.mark.slow
def test_every_span_is_forwarded_once(
    served: Serving, until: Callable[[Callable[[], bool]], None], tmp_path: Path
):
    """With scores on the runs' own spans; spans that cannot be evaluated too."""
    with grpc_backend() as backend:
        jsonl = {"path": str(tmp_path / "results.jsonl")}
        one = served(
            exporters={"forward": {"endpoint": backend.url, "protocol": "grpc"}, "jsonl": jsonl}
        )
        one.start()
        body = b"".join(whole(trace) for trace in range(1, 21)) + request((50, 0, 0, "search"))
        assert one.post(body) == 200
        until(lambda: len(forwarded(backend)) == 81)
        assert one.end(signal.SIGTERM) == 0
        spans = forwarded(backend)
    assert len(spans) == 81
    scored = [
        span
        for span in spans
        if any(event.name == "gen_ai.evaluation.result" for event in span.events)
    ]
    assert {span.trace_id for span in scored} == {trace.to_bytes(16) for trace in range(1, 21)}


def forwarded(backend: Backend) -> list[Span]:
    """The spans that arrived."""
    with backend.changed:
        requests = [ExportTraceServiceRequest.FromString(body) for body in backend.got["traces"]]
    groups = [group for each in requests for group in each.resource_spans]
    return [span for group in groups for scope in group.scope_spans for span in scope.spans]


def test_what_cannot_be_shared_is_refused(tmp_path: Path):
    """Standard output, and functions that no other process can load."""
    with pytest.raises(
        ConfigError,
        match="2 workers cannot share standard output; name a file, or set workers to 1",
    ):
        FrontServer(load({"workers": 2}))
    jsonl = {"jsonl": {"path": str(tmp_path / "results.jsonl")}}
    judges = {"house": local_function()}
    with pytest.raises(
        ConfigError, match="workers: 2 processes need a configuration that can be pickled"
    ):
        FrontServer(load({"workers": 2, "exporters": jsonl, "judges": judges}))


def local_function() -> Any:
    """A coroutine function that cannot be pickled."""

    async def judge(prompt: str) -> str:
        return "1"

    return judge


def test_a_worker_that_cannot_start_ends_the_start(tmp_path: Path):
    """With its own message; nothing is left running."""
    storage = {"directory": str(tmp_path / "kept")}
    receivers = {"otlp": {"protocols": {"http": {"endpoint": "127.0.0.1:0"}}}}
    given = {
        "exporters": {"jsonl": {"path": str(tmp_path / "results.jsonl")}},
        "receivers": receivers,
    }
    other = Server(load({**given, "storage": {"directory": str(tmp_path / "kept" / "worker-2")}}))
    front = FrontServer(load({**given, "storage": storage, "workers": 2}))
    with pytest.raises(ConfigError, match="worker-2' is in use by another process"):
        front.start()
    other.stop(1.0)


STUCK_MODULE = """
import multiprocessing, pathlib, threading

if multiprocessing.parent_process():
    pathlib.Path(__file__).with_name("begun").touch()
    threading.Event().wait()

def score(trajectory):
    return 1.0
"""


def test_a_stop_signal_ends_a_start_that_waits_for_a_worker(served: Serving) -> None:
    """Here for a scorer whose module does not come to an end; what the workers began is given
    up.
    """
    one = served(evaluations=[{"name": "e", "scorers": [{"type": "stuck:score"}]}])
    (one.folder / "stuck.py").write_text(STUCK_MODULE)
    one.environment = {"PYTHONPATH": os.pathsep.join((ENVIRONMENT["PYTHONPATH"], str(one.folder)))}
    one.start(awaited=False)
    wait_until((one.folder / "begun").exists)
    assert one.end(signal.SIGTERM) == 0
    assert "ready " not in one.said()


def test_a_warning_when_no_span_arrived(served: Serving):
    """Once, by the process that has the addresses."""
    one = served()
    one.start()
    assert one.end(signal.SIGTERM) == 0, one.said()
    assert one.said().count("nothing was evaluated") == 1, one.said()
    assert (
        "nothing was evaluated before the end: no span arrived; the receiver listens on http"
        in one.said()
    )


def test_a_stopped_worker_stops_only_its_part_of_the_service(
    served: Serving, until: Callable[[Callable[[], bool]], None]
) -> None:
    """Requests for it are refused as retryable, those that wait for it, too; others go on. When it
    goes on, nothing is lost.
    """
    one = served()
    one.start()
    stopped = one.workers()[0]
    os.kill(stopped, signal.SIGSTOP)
    with ThreadPoolExecutor(8) as pool:
        early = [pool.submit(one.post, whole(trace)) for trace in range(1, 9)]
        statuses = sorted({each.result() for each in early})
    assert statuses == [200, 503]
    until(lambda: one.said().count("does not answer") == 1)
    later = {one.post(whole(trace)) for trace in range(9, 17)}
    assert later == {200, 503}
    assert one.metric("workers_up") == 1
    os.kill(stopped, signal.SIGCONT)
    until(lambda: "answers again" in one.said())
    for trace in range(1, 17):
        one.insist(whole(trace))
    assert twice(one.wait_for(16)) == {}
    assert one.end(signal.SIGTERM) == 0
    assert one.said().count("does not answer") == 1


def test_a_worker_that_stays_stopped_is_killed_and_what_it_held_is_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Without storage that is lost; the service stops within its promise."""
    monkeypatch.setattr(worker, "_HANGS_S", 0.0)
    jsonl = {"path": str(tmp_path / "results.jsonl")}
    config = load({"receivers": BOTH, "exporters": {"jsonl": jsonl}, "traces": STAYS_OPEN})
    supervised = worker.SupervisedWorker(1, config, "one", _prepare_nothing)
    supervised.start()
    supervised.await_ready()
    supervised.begin_part("http", Signal.TRACES, whole(1))()
    wait_until(lambda: supervised.counts().get("open_traces") == 1)
    assert supervised._process is not None
    pid = supervised._process.process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: supervised.counts()[count_name("workers.restarts", worker="1")] == 1)
    assert supervised.counts()[count_name("workers.lost_traces", worker="1")] == 1
    wait_until(lambda: supervised.counts()[count_name("workers.up", worker="1")] == 1)
    supervised.stop(LIMIT_S)
    assert supervised.finished
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith("worker 1 does not answer")
    assert "is started again; without storage, 1 open trace and 0 queued results" in said[1], said


def test_a_worker_that_is_killed_while_it_starts_is_started_again(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Also at the very first start; it is said once, like any restart."""
    supervised = started(tmp_path, _kill_unless_exists, at_restart=(tmp_path / "go").touch)
    supervised.await_ready()
    assert supervised.counts()[count_name("workers.restarts", worker="1")] == 1
    supervised.stop(LIMIT_S)
    assert supervised.finished
    assert [record.getMessage() for record in caplog.records] == [
        "worker 1 ended (exit code -9) and is started again"
    ]


@pytest.mark.slow
def test_a_worker_that_is_stopped_while_it_starts_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """It shows no sign of life."""
    monkeypatch.setattr(worker, "_SILENT_START_S", 1.0)

    def go_on() -> None:
        monkeypatch.setattr(worker, "_SILENT_START_S", LIMIT_S)
        (tmp_path / "go").touch()

    supervised = started(tmp_path, _stop_unless_exists, at_restart=go_on)
    wait_until(lambda: supervised.counts()[count_name("workers.up", worker="1")] == 1)
    supervised.stop(LIMIT_S)
    assert supervised.finished
    assert [record.getMessage() for record in caplog.records] == [
        "worker 1 ended (exit code -9) and is started again"
    ]


@pytest.mark.slow
def test_a_worker_that_ends_at_every_start_ends_the_start(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """After three attempts."""
    supervised = started(tmp_path, _kill_unless_exists, at_restart=lambda: None)
    with pytest.raises(ConfigError, match="worker 1 ended 3 times while it started"):
        supervised.await_ready()
    supervised.stop(LIMIT_S)
    assert len(caplog.records) == 2


def started(
    folder: Path, prepare: Callable[[Path, int], None], at_restart: Callable[[], None]
) -> worker.SupervisedWorker:
    """A worker whose processes call `prepare` with the path of a file; `at_restart` is called when
    a restart is logged, before it.
    """

    class Handler(logging.Handler):
        def emit(self, _: logging.LogRecord) -> None:
            logging.getLogger("otel_eval").removeHandler(self)
            at_restart()

    logging.getLogger("otel_eval").addHandler(Handler())
    config = load({"exporters": {"jsonl": {"path": str(folder / "results.jsonl")}}})
    supervised = worker.SupervisedWorker(1, config, "one", partial(prepare, folder / "go"))
    supervised.start()
    return supervised


def _kill_unless_exists(path: Path, _: int) -> None:
    if not path.exists():
        os.kill(os.getpid(), signal.SIGKILL)


def _stop_unless_exists(path: Path, _: int) -> None:
    if not path.exists():
        os.kill(os.getpid(), signal.SIGSTOP)


def _prepare_nothing(_: int) -> None:
    """Leave the logging of the process unchanged."""
