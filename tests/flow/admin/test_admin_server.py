"""Health, readiness, status and self-metrics of a running receiver."""

from __future__ import annotations

import http.client
import json
import logging
import platform
import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from otel_eval import __version__
from otel_eval.app.server import Server
from otel_eval.config import load
from otel_eval.counters import count_name
from otel_eval.errors import ConfigError
from otel_eval.model import Trajectory
from otel_eval.native import extension
from otel_eval.scorers import scorer
from otel_eval.sources.receiver.export_handler import DecodingHandler, ReceiverLimits
from otel_eval.sources.receiver.server import Bound, OtlpServer
from tests.support.otlp_backend import http_backend
from tests.support.receiver_process import request
from tests.support.waiting import LIMIT_S, STAYS_OPEN, wait_until

OPEN = {
    "otlp": {
        "protocols": {"grpc": {"endpoint": "127.0.0.1:0"}, "http": {"endpoint": "127.0.0.1:0"}}
    }
}
Begin = Callable[..., tuple[Server, Bound]]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Begin]:
    """Starts receivers and stops them."""
    running: list[Server] = []

    def start(**more: Any) -> tuple[Server, Bound]:
        given = {"receivers": OPEN, "exporters": {"jsonl": {"path": str(tmp_path / "out.jsonl")}}}
        server = Server(load(given | {"telemetry": {"endpoint": "127.0.0.1:0"}} | more))
        running.append(server)
        return server, server.start()

    yield start
    for each in running:
        each.stop(1.0)


def got(server: Server, path: str, **headers: str) -> tuple[int, str, str]:
    """Status, type and body of a page."""
    assert server.admin.address is not None
    connection = http.client.HTTPConnection(server.admin.address, timeout=300)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_health_is_answered_while_silent_clients_hold_every_connection(begin: Begin) -> None:
    """A probe without an answer ends the process, so the connection that is idle the longest is
    closed.
    """
    server, _ = begin()
    assert server.admin.address is not None
    host, port = server.admin.address.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(20)]
    for each in silent:
        each.sendall(b"GET /healthz HTTP/1.0\r\nX: ")
    try:
        assert [got(server, "/healthz")[0] for _ in range(20)] == [200] * 20
    finally:
        for each in silent:
            each.close()


def send(bound: Bound, *names: str) -> None:
    """A span for each name, each a trace of its own."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"http://{bound.grpc}", insecure=True))
    )
    for name in names:
        agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
        provider.get_tracer("t").start_span(name, attributes=agent).end()
    provider.shutdown()


def test_health_follows_the_receiver(begin: Begin) -> None:
    """Alive and ready while requests are taken."""
    server, _ = begin()
    assert [got(server, path)[0] for path in ("/healthz", "/readyz", "/elsewhere")] == [
        200,
        200,
        404,
    ]


@pytest.mark.parametrize("page", ["/healthz", "/readyz", "/metrics", "/status", "/elsewhere"])
def test_a_site_that_names_itself_as_us_is_answered_nothing(begin: Begin, page: str) -> None:
    """With DNS rebinding a browser sends the name of the other site as `Host`."""
    server, _ = begin()
    for host in (
        "rebound.example",
        "rebound.example:8888",
        "127.0.0.1.rebound.example",
        "localhost.example",
        "",
        "[::1",
    ):
        assert got(server, page, Host=host)[0] == 421, host


def test_addresses_and_names_that_are_configured_are_answered(begin: Begin) -> None:
    """Probes and scrapers ask for the address of a pod or of the machine before it, whichever port
    is mapped.
    """
    server, _ = begin(
        telemetry={"endpoint": "127.0.0.1:0", "allowed_hosts": ["otel-eval.Monitoring.svc"]}
    )
    hosts = [
        "localhost",
        "LocalHost:80",
        "127.0.0.1:1",
        "10.1.2.3:8888",
        "[::1]:8888",
        "[::1]",
        "otel-eval.monitoring.svc.:8888",
    ]
    assert [got(server, "/healthz", Host=host)[0] for host in hosts] == [200] * len(hosts)


def test_a_request_without_a_host_is_answered(begin: Begin) -> None:
    """Simple probes speak HTTP/1.0."""
    server, _ = begin()
    assert server.admin.address is not None
    host, _, port = server.admin.address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=300) as connection:
        connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
        assert b" 200 " in connection.recv(4096)


def test_it_is_alive_and_not_ready_before_requests_are_taken(begin: Begin) -> None:
    """As while a journal is read."""
    server, _ = begin()
    server._receiver.stop(0.5)
    assert [got(server, path)[0] for path in ("/healthz", "/readyz")] == [200, 503]


def wait_for(server: Server, body: str) -> tuple[int, str]:
    """The answer of /readyz once it holds a text."""
    answers: list[tuple[int, str, str]] = []

    def holds_it() -> bool:
        answers.append(got(server, "/readyz"))
        return body in answers[-1][2]

    wait_until(holds_it)
    return answers[-1][0], answers[-1][2]


SERVING, NOT_SERVING = b"\x08\x01", b"\x08\x02"


def grpc_health(bound: Bound) -> bytes:
    """The answer to a check of grpc.health.v1."""
    assert bound.grpc is not None
    with grpc.insecure_channel(bound.grpc) as channel:
        answer: bytes = channel.unary_unary("/grpc.health.v1.Health/Check")(b"", timeout=300)
    return answer


_released = threading.Event()


@scorer("readiness_waits")
def waits(trajectory: Trajectory) -> float:
    """Until it is released."""
    _released.wait(300)
    return 1.0


def test_it_is_not_ready_while_an_evaluation_hangs(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """The body and the page tell why; it is ready again when the evaluation ends."""
    _released.clear()
    evaluations = [{"name": "e", "scorers": [{"type": "readiness_waits"}]}]
    server, bound = begin(
        traces={"decision_wait": 0},
        evaluations=evaluations,
        conventions={"records_tool_spans": ["t"]},
    )
    server._pipeline.progress.stalled_after_s = 0.5
    assert wait_for(server, "ready") == (200, "ready\n")
    send(bound, "a")
    try:
        status, body = wait_for(server, "not ready")
        assert status == 503
        assert re.fullmatch(r"not ready: evaluation has made no progress for \d+ s\n", body)
        assert got(server, "/healthz")[0] == 200
        assert grpc_health(bound) == NOT_SERVING
        status_values = json.loads(got(server, "/status")[2])
        assert (
            status_values["ready"],
            status_values["evaluation"]["state"],
            len(status_values["evaluation"]["trace_id"]),
        ) == (
            False,
            "stalled",
            32,
        )
        assert status_values["evaluation"]["trace_id"] in caplog.text
        assert metrics(server)["otel_eval_processor_current_evaluation_duration_seconds"] > 0
    finally:
        _released.set()
    assert wait_for(server, "ready\n") == (200, "ready\n")
    assert grpc_health(bound) == SERVING


def test_it_stays_ready_while_an_exporter_holds_evaluation_up(begin: Begin) -> None:
    """A pod that is taken out of DNS changes which receiver gets which trace."""
    with socket.socket() as unserved:
        unserved.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{unserved.getsockname()[1]}"
        server, bound = begin(
            traces={"decision_wait": 0},
            exporters={"otlp": {"endpoint": endpoint, "signals": ["logs"]}, "max_queue": 1},
        )
        server._pipeline.progress.stalled_after_s = 0.0
        send(bound, "a")
        status, body = wait_for(server, "paused")
        assert (status, wait_for(server, "paused")[0]) == (200, 200)
        assert body.startswith(
            "ready: evaluation is paused: the queue of results for otlp.logs is full"
        )
        assert json.loads(got(server, "/status")[2])["evaluation"]["state"] == "paused"


def metrics(server: Server) -> dict[str, float]:
    """The samples of /metrics, each line of which has to be in the text format."""
    status, kind, text = got(server, "/metrics")
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found: dict[str, float] = {}
    for line in text.removesuffix("\n").split("\n"):
        sample = re.fullmatch(
            r'([a-z_]+(?:\{[a-z_]+="(?:[^"\\]|\\.)*"(?:,[a-z_]+="(?:[^"\\]|\\.)*")*\})?) (\S+)',
            line,
        )
        assert sample or re.fullmatch(
            r"# (TYPE [a-z_]+ (counter|gauge|histogram)|HELP [a-z_]+ .+)", line
        ), line
        if sample:
            assert sample[1] not in found
            found[sample[1]] = float(sample[2])
    assert re.findall(r"(?m)^# HELP (\S+) \S", text) == re.findall(r"(?m)^# TYPE (\S+)", text)
    return found


def test_metrics_have_the_collectors_stems(begin: Begin) -> None:
    """Received, refused and open spans and traces, and exported results."""
    server, bound = begin(traces={"decision_wait": 5, "decision_wait_partial": 6})
    send(bound, "a", "b")
    status_values = metrics(server)
    assert (
        status_values['otel_eval_receiver_accepted_spans_total{receiver="otlp",transport="grpc"}']
        == 2
    )
    assert (
        status_values['otel_eval_receiver_accepted_spans_total{receiver="otlp",transport="http"}']
        == 0
    )
    assert (
        status_values['otel_eval_receiver_refused_spans_total{receiver="otlp",transport="grpc"}']
        == 0
    )
    assert (
        status_values[
            'otel_eval_receiver_requests_total{receiver="otlp",transport="grpc",outcome="success"}'
        ]
        == 2
    )
    assert status_values["otel_eval_processor_traces_on_memory"] == 2
    assert status_values["otel_eval_processor_oldest_trace_age_seconds"] > 0
    assert status_values["otel_eval_process_uptime_seconds_total"] > 0


def test_version_and_extension_are_shown(begin: Begin) -> None:
    """In the metrics and the status; of the package as it is installed or without its extension."""
    server, _ = begin()
    kind = "pure" if extension("_native") is None else "compiled"
    python = platform.python_version()
    assert (
        metrics(server)[
            f'otel_eval_build_info{{extension="{kind}",python="{python}",version="{__version__}"}}'
        ]
        == 1
    )
    assert json.loads(got(server, "/status")[2])["build"] == {
        "version": __version__,
        "extension": kind,
        "python": python,
    }


def delivered(server: Server, runs: int) -> dict[str, float]:
    """The metrics once the results of so many runs have left."""
    sent = 'otel_eval_exporter_sent_results_total{exporter="jsonl"}'
    wait_until(lambda: metrics(server).get(sent, 0) >= runs)
    return metrics(server)


def agents_in(status_values: dict[str, float]) -> set[str]:
    """The agents that metrics name."""
    return {
        found[1]
        for each in status_values
        if (found := re.search(r'gen_ai_agent_name="((?:[^"\\]|\\.)*)"', each))
    }


def test_names_from_spans_are_labels_of_score_metrics_alone(begin: Begin, capfd: Any) -> None:
    """Escaped and truncated, whatever a reader might take them for, and nothing of them is
    logged.
    """
    server, bound = begin(traces={"decision_wait": 0.05, "decision_wait_partial": 0.1})
    send(bound, "first")
    before = {each for each in delivered(server, 1) if "gen_ai_agent_name" not in each}
    send(
        bound,
        'x"} 1\n# TYPE x counter\r\n\x1b[31m</script>',
        "a" * 100_000,
        *(f"agent {number}" for number in range(30)),
    )
    # results are counted beside their metrics
    wait_until(lambda: len(agents_in(metrics(server))) >= 33)
    agents = agents_in(status_values := metrics(server))
    assert {each for each in status_values if "gen_ai_agent_name" not in each} == before
    assert len(agents) == 33
    assert max(map(len, agents)) == 200
    assert 'x\\"} 1\\n# TYPE x counter\r\\n\x1b[31m</script>' in agents
    assert capfd.readouterr().err == ""


def test_names_of_metrics_are_each_of_one_type(begin: Begin) -> None:
    """As the format asks."""
    server, _ = begin()
    typed = re.findall(r"# TYPE (\S+)", got(server, "/metrics")[2])
    assert len(typed) == len(set(typed))


def test_the_status_tells_what_was_lost_and_why(begin: Begin) -> None:
    """With counts and reasons; nothing that a span said is in it."""
    server, bound = begin(
        traces={"max_spans_per_trace": 1, "decision_wait": 5, "decision_wait_partial": 6}
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"http://{bound.grpc}", insecure=True))
    )
    with provider.get_tracer("t").start_as_current_span("<script>a"):
        provider.get_tracer("t").start_span("<script>b").end()
    provider.shutdown()
    send(bound, "c")
    status, kind, text = got(server, "/status")
    status_values = json.loads(text)
    assert (status, kind, status_values["ready"], status_values["traces"]["open"]) == (
        200,
        "application/json",
        True,
        1,
    )
    assert status_values["drops"]["spans_over_limit"]["count"] == 1
    assert "over max_spans_per_trace" in status_values["drops"]["spans_over_limit"]["why"]
    assert "script" not in text


@pytest.mark.parametrize(
    ("limits", "line"),
    [
        (
            {"max_spans_per_trace": 1},
            "a trace has more than 1 spans (traces.max_spans_per_trace): its runs are skipped as",
        ),
        (
            {"max_traces": 1},
            (
                "traces.max_traces or traces.max_bytes is reached: the oldest traces are evaluated"
                " on what"
            ),
        ),
    ],
)
def test_a_limit_that_is_reached_is_logged_once(
    begin: Begin, limits: dict[str, int], line: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator who does not look at this page sees it, too."""
    server, bound = begin(traces=limits)
    body = request(*((trace, span, 1, "search") for trace in range(1, 5) for span in (2, 3)))
    with grpc.insecure_channel(str(bound.grpc)) as channel:
        channel.unary_unary("/opentelemetry.proto.collector.trace.v1.TraceService/Export")(
            body, timeout=300
        )
    wait_until(lambda: server.counts()["traces_closed"] >= 3)
    server.stop(60.0)
    assert [
        each.getMessage().startswith(line)
        for each in caplog.records
        if "traces.max_" in each.getMessage()
    ] == [True]


def test_what_was_not_evaluated_is_counted_with_the_reason(begin: Begin) -> None:
    """In the metrics and on the page: traces without a run by scope, unmatched runs, skips by
    reason, results by scorer.
    """
    scorers = [{"type": "error_recovery"}, {"type": f"{__name__}:broken", "name": "mine, too"}]
    match = {"name": "policy", "match": {"agent": "a"}, "scorers": scorers}
    server, bound = begin(
        traces={"decision_wait": 0.05, "decision_wait_partial": 0.1}, evaluations=[match]
    )
    send(bound, "b")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"http://{bound.grpc}", insecure=True))
    )
    provider.get_tracer('odd"\nscope').start_span("GET /").end()
    agent = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "a"}
    with provider.get_tracer("t").start_as_current_span("a", attributes=agent):
        tool = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}
        provider.get_tracer("t").start_span("search", attributes=tool).end()
    provider.shutdown()
    wait_until(lambda: server.counts()["traces_without_run"] >= 1)
    wait_until(
        lambda: server.counts().get(count_name("results.exported", exporter="jsonl"), 0) >= 2
    )
    status_values = metrics_text(server)
    assert 'otel_eval_processor_spans_without_run_total{scope="odd\\"?scope"} 1' in status_values
    assert "otel_eval_processor_traces_without_run_total 1" in status_values
    assert "otel_eval_processor_runs_unmatched_total 1" in status_values
    assert 'otel_eval_results_skipped_total{reason="not_applicable"} 1' in status_values
    assert (
        'otel_eval_scorer_results_total{error_type="ZeroDivisionError",outcome="failed",scorer="mine,'
        ' too"} 1' in status_values
    )
    assert 'otel_eval_exporter_queued_results{exporter="jsonl"} 0' in status_values
    page = json.loads(got(server, "/status")[2])
    assert page["unevaluated"] == {
        "runs_unmatched": 1,
        "traces_without_run": 1,
        'spans_without_run{scope=odd"?scope}': 1,
        "results.skipped{reason=not_applicable}": 1,
    }
    assert list(page["failures"].values()) == [1]


def broken(run: Any) -> float:
    """A scorer that divides by zero."""
    return 1 / 0


def metrics_text(server: Server) -> list[str]:
    """The lines of /metrics."""
    return got(server, "/metrics")[2].splitlines()


def test_pages_answer_while_a_client_holds_connections(begin: Begin) -> None:
    """A silent client is disconnected."""
    server, _ = begin()
    assert server.admin.address is not None
    host, port = server.admin.address.rsplit(":", 1)
    silent = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(4)]
    assert got(server, "/healthz")[0] == 200
    for each in silent:
        each.close()


def test_an_address_that_is_taken_stops_the_start(begin: Begin, tmp_path: Path) -> None:
    """In one line that names the key."""
    server, _ = begin()
    with pytest.raises(ConfigError, match=r"^telemetry\.endpoint: .*cannot listen there") as caught:
        begin(
            telemetry={"endpoint": server.admin.address},
            exporters={"jsonl": {"path": str(tmp_path / "other")}},
        )
    assert "\n" not in str(caught.value)


class _Kept:
    """Keeps metrics, as a receiver that forwards them."""

    forwards = True

    def __init__(self) -> None:
        self.requests: list[ExportMetricsServiceRequest] = []

    def spans(self, framed: Any) -> None: ...

    def logs(self, framed: Any) -> None: ...

    def metrics(self, body: bytes) -> bool:
        self.requests.append(ExportMetricsServiceRequest.FromString(body))
        return True


@pytest.mark.parametrize("protocol", ["grpc", "http/protobuf"])
def test_metrics_are_sent_by_otlp(begin: Begin, protocol: str) -> None:
    """The same numbers, with units and kinds, again and again and at the end."""
    kept = _Kept()
    backend = OtlpServer(
        DecodingHandler(kept, ReceiverLimits()), grpc="127.0.0.1:0", http="127.0.0.1:0"
    )
    there = backend.start()
    address = there.grpc if protocol == "grpc" else there.http
    _, bound = begin(
        telemetry={"otlp": {"endpoint": f"http://{address}", "protocol": protocol, "interval": 0.1}}
    )
    send(bound, "a")
    wait_until(lambda: 1 in _accepted(kept))
    backend.stop(1.0)
    by_name = {metric.name: metric for metric in _metrics(kept)}
    assert by_name["otel_eval_receiver_accepted_spans"].sum.is_monotonic
    assert by_name["otel_eval_receiver_accepted_spans"].unit == "{spans}"
    assert by_name["otel_eval_processor_traces_on_memory"].HasField("gauge")


def _metrics(kept: _Kept) -> list[Any]:
    scopes = [
        scope
        for each in kept.requests
        for group in each.resource_metrics
        for scope in group.scope_metrics
    ]
    return [metric for scope in scopes for metric in scope.metrics]


def _accepted(kept: _Kept) -> list[float]:
    metrics = [each for each in _metrics(kept) if each.name == "otel_eval_receiver_accepted_spans"]
    return [
        point.as_double or point.as_int for metric in metrics for point in metric.sum.data_points
    ]


def test_a_backend_that_is_down_is_logged_once(
    begin: Begin, caplog: pytest.LogCaptureFixture
) -> None:
    """And stops nothing."""
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
    with http_backend() as backend:
        backend.status = 400
        metrics = {"endpoint": backend.url, "protocol": "http/protobuf", "interval": 0.05}
        _, bound = begin(telemetry={"otlp": metrics})
        send(bound, "a")
        assert backend.wait(lambda: backend.asked >= 3)
        assert len([line for line in caplog.messages if "telemetry.otlp" in line]) == 1


def test_open_traces_are_evaluated_by_what_is_read_again(begin: Begin, tmp_path: Path) -> None:
    """A reload loses no trace."""
    server, bound = begin(traces=STAYS_OPEN)
    send(bound, "a")
    new = {"name": "new", "scorers": [{"type": "tool_errors"}]}
    again = load(
        {"evaluations": [new], "traces": {"decision_wait": 0.5, "decision_wait_partial": 1}}
    )
    assert server.reload(again) == ["traces", "receivers", "exporters", "telemetry"]
    server.stop(60.0)
    rows = [
        json.loads(line)
        for line in (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    assert {row["evaluation"] for row in rows} == {"new"}
