"""`make demo`: runs a traced agent and a receiver, sends spans over OTLP and prints trajectories
and scores.

The scripted travel agent is traced with the OpenTelemetry SDK by the GenAI conventions and calls no
model and no service. It looks up the weather of two cities at the same time, books a flight on a
date that does not exist, reads the error and books again. Every wait has a limit, and no file is
left behind.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from pathlib import Path
from typing import Any, Final

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Span, Status, StatusCode, Tracer

from otel_eval import trajectories
from otel_eval.app import stored_traces
from otel_eval.app.server import Server
from otel_eval.cli.render import OUTCOME_COLORS, run_block
from otel_eval.config import load
from otel_eval.errors import OtelEvalError
from otel_eval.exporters.text_table import columns, layout_of
from otel_eval.model import Trajectory
from otel_eval.sources.files import CollectedMessages
from otel_eval.sources.receiver.server import Bound

__all__ = ["main"]

RESULTS_S: Final = 20.0
_RECORDED: Final = Path(__file__).with_name("demo_trace.json")


def main() -> int:
    """Run the demonstration; 0 if both runs were scored."""
    with tempfile.TemporaryDirectory(prefix="otel-eval-demo-") as folder:
        results = Path(folder, "results.jsonl")
        with serving(results) as places:
            print(f"receiver ready on {places.grpc} (gRPC) and {places.http} (HTTP)")
            answer, spans = run_agent(str(places.grpc))
            print(f"answer of the agent: {answer}")
            post(str(places.http), _RECORDED.read_bytes())
            print("a recorded trace of an agent framework was sent over OTLP/HTTP\n")
            found = [
                *trajectories(spans),
                *stored_traces.understand([_RECORDED], load(), listener=CollectedMessages()),
            ]
            runs = [run for run in found if run.outermost]
            rows = awaited(results, {run.span_id for run in runs})
        show(runs, rows)
    print("The scores are those of examples/demo.yaml. Go on in this environment, for example with")
    print(f"why the recorded run has its scores:\n\n    {_explain()}\n")
    return 0


def _explain() -> str:
    """A command that goes on in the environment of this program."""
    command = Path(sys.executable).with_name("otel-eval")
    files = [_RECORDED, "--config", _RECORDED.with_name("demo.yaml")]
    words = [*([command] if command.exists() else [sys.executable, "-m", "otel_eval"]), "explain"]
    return " ".join([_near(word) if isinstance(word, Path) else word for word in [*words, *files]])


def _near(path: Path) -> str:
    """The path, relative where it is below the working directory."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


@contextmanager
def serving(results: Path) -> Iterator[Bound]:
    """Receive and score spans while the block runs, with results in a file; gives the addresses of
    the receiver.
    """
    # the configuration reads the path from there
    os.environ["OTEL_EVAL_DEMO_RESULTS"] = str(results)
    server = Server(load(Path(__file__).with_name("demo.yaml")))
    try:
        yield server.start()
    finally:
        server.stop()


def run_agent(endpoint: str) -> tuple[str, tuple[ReadableSpan, ...]]:
    """Run the agent, traced to the receiver over OTLP/gRPC; its answer and its spans."""
    kept = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource.create({"service.name": "travel-demo"}), shutdown_on_exit=False
    )
    provider.add_span_processor(
        BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint, insecure=True, timeout=10))
    )
    provider.add_span_processor(SimpleSpanProcessor(kept))
    try:
        return travel(provider.get_tracer("travel-demo")), kept.get_finished_spans()
    finally:
        provider.shutdown()


def post(endpoint: str, body: bytes) -> None:
    """Send OTLP/JSON over HTTP."""
    request = urllib.request.Request(
        f"http://{endpoint}/v1/traces",
        data=body,
        headers={"Content-Type": "application/json"},
        method="POST",
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
        rows = [
            json.loads(line)
            for line in results.read_bytes().splitlines(keepends=True)
            if line.endswith(b"\n")
        ]
        if wanted <= {row["span_id"] for row in rows}:
            return rows
        time.sleep(0.1)
    raise OtelEvalError(f"not every run was scored within {RESULTS_S:g} s")


def show(runs: Iterable[Trajectory], rows: Iterable[dict[str, Any]]) -> None:
    """Print each run with its calls and its scores, as wide as the terminal."""
    layout = layout_of(sys.stdout)
    for run in runs:
        print("\n".join(run_block(run, layout=layout)))
        mine = [row for row in rows if row["span_id"] == run.span_id]
        print(
            "\n".join(
                columns(
                    ("scorer", "value", "outcome", "reason"),
                    [_cells(row) for row in mine],
                    indent=2,
                    layout=layout,
                    colors=OUTCOME_COLORS,
                    colored=2,
                )
            )
            + "\n"
        )


def _cells(row: dict[str, Any]) -> tuple[str, str, str, str]:
    if row["outcome"] != "scored":
        return row["scorer"], "-", row["outcome"], row["explanation"] or ""
    return (
        row["scorer"],
        f"{row['value']:.3f}",
        "pass" if row["passed"] else "not passed",
        row["explanation"] or "",
    )


_WEATHER: Final = {"Paris": "rain, 9 degrees", "Oslo": "sun, 3 degrees"}


def get_weather(city: str) -> str:
    """The weather, after a moment of thought."""
    time.sleep(0.12)
    return _WEATHER[city]


def book_flight(destination: str, date: str) -> str:
    """The number of a booking.

    Raises:
        ValueError: there is no such date.
    """
    time.sleep(0.05)
    if int(date[5:7]) > 12:
        raise ValueError(f"no such date: {date}")
    return "booking 4711"


def travel(tracer: Tracer) -> str:
    """One run of the agent; its answer."""
    with _span(tracer, "invoke_agent travel", "invoke_agent", {"gen_ai.agent.name": "travel"}):
        _think(tracer)
        _side_by_side(
            lambda: _use(tracer, get_weather, city="Paris"),
            lambda: _use(tracer, get_weather, city="Oslo"),
        )
        _think(tracer)
        try:
            booked = _use(tracer, book_flight, destination="Oslo", date="2026-13-40")
        except ValueError:
            _think(tracer)
            booked = _use(tracer, book_flight, destination="Oslo", date="2026-12-01")
        return f"Oslo it is: {booked}"


def _side_by_side(*tasks: Callable[[], Any]) -> None:
    with ThreadPoolExecutor(len(tasks)) as pool:
        # Threads do not inherit the current span: without a copy of the context the calls would
        # begin traces of their own.
        for done in [pool.submit(copy_context().run, task) for task in tasks]:
            done.result()


def _think(tracer: Tracer) -> None:
    with _span(tracer, "chat scripted", "chat", {"gen_ai.request.model": "scripted"}):
        time.sleep(0.02)


def _use(tracer: Tracer, tool: Callable[..., str], **arguments: str) -> str:
    described = {
        "gen_ai.tool.name": tool.__name__,
        "gen_ai.tool.call.arguments": json.dumps(arguments),
    }
    with _span(tracer, f"execute_tool {tool.__name__}", "execute_tool", described) as span:
        result = tool(**arguments)
        span.set_attribute("gen_ai.tool.call.result", result)
        return result


@contextmanager
def _span(tracer: Tracer, name: str, operation: str, attributes: dict[str, str]) -> Iterator[Span]:
    described = {"gen_ai.operation.name": operation, **attributes}
    with tracer.start_as_current_span(
        name, attributes=described, set_status_on_exception=False
    ) as span:
        try:
            yield span
        except ValueError as error:
            span.set_attribute("error.type", type(error).__name__)
            span.set_status(Status(StatusCode.ERROR, str(error)))
            raise


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OtelEvalError, OSError) as error:
        sys.exit(f"otel-eval demo: {error}")
