"""`OTEL_EVAL_CONFIG=eval.yaml opentelemetry-instrument python agent.py` scores an agent that never
mentions us.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

ROOT = Path(__file__).parents[3]
CONFIG = (
    "evaluations: [{name: support, scorers: [{type: tool_call_order, expected: [search,"
    " refund]}]}]\n"
)
HERE = [
    each for each in entry_points(group="opentelemetry_instrumentor") if each.name == "otel_eval"
]
by_the_loader = pytest.mark.skipif(
    find_spec("opentelemetry.instrumentation") is None or not HERE,
    reason="opentelemetry-instrument and the installed package are needed: make sdk-range",
)
BY_HAND = """
import os, runpy
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(ConsoleSpanExporter()))
if "NO_PROVIDER" not in os.environ:
    trace.set_tracer_provider(provider)
from otel_eval.zero_code import EvalInstrumentor
EvalInstrumentor().instrument(skip_dep_check=True)
EvalInstrumentor().instrument(skip_dep_check=True)
runpy.run_path("examples/zero_code.py")
"""


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("OTEL_")}
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=300,
        env={**kept, "PYTHONPATH": str(ROOT), **environment},
    )


def instrumented(**environment: str) -> subprocess.CompletedProcess[str]:
    console = {
        "OTEL_TRACES_EXPORTER": "console",
        "OTEL_LOGS_EXPORTER": "console",
        "OTEL_METRICS_EXPORTER": "none",
    }
    loader = (
        "-c",
        "from opentelemetry.instrumentation.auto_instrumentation import run; run()",
        sys.executable,
    )
    return run(*loader, "examples/zero_code.py", **(console | environment))


@pytest.fixture
def config(tmp_path: Path) -> str:
    path = tmp_path / "eval.yaml"
    path.write_text(CONFIG)
    return str(path)


def test_the_processor_is_added_once(config: str):
    """Asked twice, the run is scored once."""
    done = run("-c", BY_HAND, OTEL_EVAL_CONFIG=config)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count('"gen_ai.evaluation.result"') == 1


def test_nothing_is_done_unless_it_is_asked_for():
    """Being installed beside an agent is not enough."""
    done = run("-c", BY_HAND)
    assert (done.returncode, done.stderr) == (0, "")
    assert "gen_ai.evaluation" not in done.stdout


@pytest.mark.parametrize(
    ("content", "says"),
    [("evaluatoins: []\n", "evaluatoins"), (None, "eval.yaml"), ("a: [\n", "eval.yaml")],
    ids=["unknown key", "no file", "no YAML"],
)
def test_a_wrong_configuration_is_one_warning_and_the_agent_runs_on(
    content: str | None, says: str, tmp_path: Path
):
    """One line that says where."""
    path = tmp_path / "eval.yaml"
    if content is not None:
        path.write_text(content)
    done = run("-c", BY_HAND, OTEL_EVAL_CONFIG=str(path))
    lines = done.stderr.splitlines()
    assert done.returncode == 0
    assert "the agent is done" in done.stdout
    assert {line for line in lines if says in line} == set(lines)
    assert lines


def test_without_an_sdk_one_warning_says_so(config: str):
    """A program that has only the API."""
    done = run("-c", BY_HAND, OTEL_EVAL_CONFIG=config, NO_PROVIDER="1")
    assert (done.returncode, len(set(done.stderr.splitlines()))) == (0, 1)
    assert "no SDK tracer provider" in done.stderr


@by_the_loader
def test_an_agent_is_scored_by_the_loader(config: str):
    """The score leaves through the log pipeline that the loader set up."""
    done = instrumented(OTEL_EVAL_CONFIG=config)
    assert done.returncode == 0, done.stderr
    assert "the agent is done" in done.stdout
    assert done.stdout.count('"gen_ai.evaluation.result"') == 1


@by_the_loader
@pytest.mark.parametrize(
    "variables",
    [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_PYTHON_DISABLED_INSTRUMENTATIONS": "otel_eval"}],
    ids=lambda each: next(iter(each)),
)
def test_what_switches_telemetry_off_switches_scores_off(variables: dict[str, str], config: str):
    """And the agent runs."""
    done = instrumented(OTEL_EVAL_CONFIG=config, **variables)
    assert done.returncode == 0, done.stderr
    assert "the agent is done" in done.stdout
    assert "gen_ai.evaluation" not in done.stdout + done.stderr


@by_the_loader
def test_endpoint_headers_and_service_name_are_those_of_the_environment(config: str):
    """What a backend receives by HTTP."""
    received: list[tuple[str, str | None, bytes]] = []

    class Backend(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(
                (
                    self.path,
                    self.headers.get("x-team"),
                    self.rfile.read(int(self.headers["Content-Length"])),
                )
            )
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Backend)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        done = instrumented(
            OTEL_EVAL_CONFIG=config,
            OTEL_TRACES_EXPORTER="otlp",
            OTEL_LOGS_EXPORTER="otlp",
            OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf",
            OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{server.server_port}",
            OTEL_EXPORTER_OTLP_HEADERS="x-team=shop",
            OTEL_SERVICE_NAME="shop-agent",
            NO_PROXY="127.0.0.1",
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    assert {team for _, team, _ in received} == {"shop"}
    logs = [
        ExportLogsServiceRequest.FromString(body)
        for path, _, body in received
        if path == "/v1/logs"
    ]
    scores = [
        (attribute.value.string_value, record.event_name)
        for request in logs
        for group in request.resource_logs
        for attribute in group.resource.attributes
        for scope in group.scope_logs
        for record in scope.log_records
        if attribute.key == "service.name" and scope.scope.name == "otel_eval"
    ]
    assert scores == [("shop-agent", "gen_ai.evaluation.result")]
