"""`python -m otel_eval.demo`: sends spans over OTLP to a receiver and prints trajectories and scores.

Every wait has a limit, and no process or file is left behind.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult

from otel_eval import app
from otel_eval.cli.render import run_block, score_table
from otel_eval.config import load
from otel_eval.demo.agent import travel
from otel_eval.errors import OtelEvalError
from otel_eval.model import Trajectory

__all__ = ["main"]

READY_S: Final = 30.0  # a cold machine loads grpc for a while
STOP_S: Final = 15.0
RESULTS_S: Final = 20.0
_HERE: Final = files("otel_eval.demo")


def main() -> int:
    """Run the demonstration; 0 if both runs were scored."""
    with tempfile.TemporaryDirectory(prefix="otel-eval-demo-") as folder:
        results, spans, recorded = (Path(folder, name) for name in ("results.jsonl", "agent.pb", "recorded.json"))
        config = Path(folder, "eval.yaml")
        config.write_bytes(_HERE.joinpath("eval.yaml").read_bytes())
        recorded.write_bytes(_HERE.joinpath("recorded_trace.json").read_bytes())
        with serving(config, {"OTEL_EVAL_DEMO_RESULTS": str(results)}) as places:
            print(f"receiver ready on {places['grpc']} (gRPC) and {places['http']} (HTTP)")
            print(f"answer of the agent: {run_agent(places['grpc'], spans)}")
            post(places["http"], recorded.read_bytes())
            print("a recorded trace of an agent framework was sent over OTLP/HTTP\n")
            runs = [run for run in app.understand([spans, recorded], load(), on_problem=print) if run.outermost]
            rows = awaited(results, {run.span_id for run in runs})
        show(runs, rows)
    return 0


@contextmanager
def serving(config: Path, environment: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Serve a configuration while the block runs; gives the addresses, e.g. `{"grpc": "127.0.0.1:40001", "http": ...}`.

    Raises:
        OtelEvalError: the receiver was not ready in time, or did not end well.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "otel_eval", "serve", "--config", str(config)],
        env={**os.environ, **environment},
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    try:
        yield _addresses(process)
        process.terminate()
        code = process.wait(STOP_S)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    if code:
        raise OtelEvalError(f"the receiver ended with exit code {code}")


def _addresses(process: subprocess.Popen[str]) -> dict[str, str]:
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_forward, args=(process, lines), daemon=True).start()
    try:
        first = lines.get(timeout=READY_S)
    except queue.Empty:
        first = ""
    if not first.startswith("ready "):
        raise OtelEvalError(f"the receiver was not ready: {first.strip() or 'it printed nothing'}")
    return dict(part.split("=", 1) for part in first.split()[1:])


def _forward(process: subprocess.Popen[str], lines: queue.SimpleQueue[str]) -> None:
    """Put the first line into the queue, write later ones to our own stderr."""
    assert process.stderr is not None
    with process.stderr:
        lines.put(process.stderr.readline())
        for line in process.stderr:
            sys.stderr.write(line)


def run_agent(endpoint: str, copy: Path) -> str:
    """Run the agent, traced to the receiver over OTLP/gRPC; its spans are kept in a file as well."""
    provider = TracerProvider(resource=Resource.create({"service.name": "travel-demo"}), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=10)))
    provider.add_span_processor(SimpleSpanProcessor(_Copy(copy)))
    try:
        return travel(provider.get_tracer("travel-demo"))
    finally:
        provider.shutdown()


class _Copy(SpanExporter):
    """Appends spans to a file as OTLP protobuf, whose messages may simply follow one another."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with self._path.open("ab") as file:
            file.write(encode_spans(spans).SerializeToString())
        return SpanExportResult.SUCCESS


def post(endpoint: str, body: bytes) -> None:
    """Send OTLP/JSON over HTTP."""
    request = urllib.request.Request(
        f"http://{endpoint}/v1/traces", data=body, headers={"Content-Type": "application/json"}, method="POST"
    )
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10):
        pass


def awaited(results: Path, wanted: set[str]) -> list[dict[str, Any]]:
    """The rows of the receiver's JSON Lines, once every wanted run has some.

    Raises:
        OtelEvalError: some run has none in time.
    """
    deadline = time.monotonic() + RESULTS_S
    while time.monotonic() < deadline:
        rows = [json.loads(line) for line in _lines(results)]
        if wanted <= {row["span_id"] for row in rows}:
            return rows
        time.sleep(0.1)
    raise OtelEvalError(f"not every run was scored within {RESULTS_S:g} s")


def _lines(results: Path) -> list[str]:
    if not results.exists():
        return []
    return [line for line in results.read_text(encoding="utf-8").splitlines(keepends=True) if line.endswith("\n")]


def show(runs: Iterable[Trajectory], rows: Iterable[dict[str, Any]]) -> None:
    """Print each run with its calls and its scores."""
    for run in runs:
        print("\n".join(run_block(run)))
        mine = [row for row in rows if row["span_id"] == run.span_id]
        print("\n".join(score_table([_cells(row) for row in mine])) + "\n")


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    if row["outcome"] != "scored":
        return row["scorer"], "-", row["outcome"], row["explanation"] or ""
    return row["scorer"], f"{row['value']:.3f}", "pass" if row["passed"] else "fail", row["explanation"] or ""


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OtelEvalError, OSError) as error:
        sys.exit(f"otel-eval demo: {error}")
