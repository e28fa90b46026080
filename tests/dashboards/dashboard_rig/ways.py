"""The four ways in which the same runs are evaluated while their spans go to a product."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.app.server import Server
from otel_eval.config import load
from tests.support.otlp_backend import ANYWHERE

from .recorded_runs import exporting, flushed, send

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 120
SCORERS: tuple[dict[str, Any], ...] = (
    {"type": "tool_errors"},
    {"type": "redundant_calls"},
    {
        "type": "tool_call_order",
        "name": "order",
        "expected": ["get_weather", "get_weather", "book_flight"],
    },
    {"type": "label_distribution", "name": "service", "label": "service.name"},
)
Play = Callable[[Sequence[SpanProcessor]], object]


@dataclass(frozen=True)
class Evaluation:
    """Evaluates what `play` plays, sends the spans to `spans_to` and the scores where `exporters`
    say; `rows` are the results.
    """

    play: Play
    spans_to: str
    exporters: Mapping[str, Any]
    folder: Path
    headers: Mapping[str, str] | None = None

    @property
    def config(self) -> dict[str, Any]:
        """The same for every way; it also writes the results to a file."""
        return {
            "evaluations": [{"name": "policy", "scorers": list(SCORERS)}],
            "traces": {"decision_wait": "300ms", "decision_wait_partial": "500ms"},
            "exporters": {**self.exporters, "jsonl": {"path": str(self.folder / "results.jsonl")}},
        }

    def rows(self) -> list[dict[str, Any]]:
        """The results, as JSON Lines have them."""
        lines = (self.folder / "results.jsonl").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def by_processor(self) -> None:
        """In the process of the agents; its spans are flushed before the scores."""
        processor = EvalSpanProcessor(self.config)
        self.play([exporting(self.spans_to, self.headers), processor])
        flushed(processor.force_flush)
        processor.shutdown()

    def by_wrapper(self) -> None:
        """With the scores also on the runs' own spans."""
        exporter = EvalSpanExporter(
            OTLPSpanExporter(self.spans_to, headers=self.headers, timeout=TIMEOUT_S), self.config
        )
        self.play([batches := BatchSpanProcessor(exporter)])
        flushed(exporter.force_flush)
        batches.shutdown()

    def by_serve(self) -> None:
        """In a receiver to which the spans go, too."""
        spans = self._sent()
        server = Server(load({**self.config, "receivers": ANYWHERE}))
        try:
            send(spans, f"http://{server.start().http}/v1/traces")
        finally:
            server.stop(TIMEOUT_S)

    def by_replay(self) -> None:
        """From a file of the spans."""
        (self.folder / "traces.pb").write_bytes(encode_spans(self._sent()).SerializeToString())
        (self.folder / "eval.json").write_text(json.dumps(self.config), encoding="utf-8")
        self.replay_again()

    def replay_again(self) -> None:
        """The same file once more."""
        stored, config = self.folder / "traces.pb", self.folder / "eval.json"
        command = [
            sys.executable,
            "-m",
            "otel_eval",
            "replay",
            str(stored),
            "--config",
            str(config),
            "--export",
        ]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        assert done.returncode == 1, done.stderr  # some scores did not pass

    def _sent(self) -> Sequence[ReadableSpan]:
        memory = InMemorySpanExporter()
        self.play([SimpleSpanProcessor(memory)])
        spans = memory.get_finished_spans()
        send(spans, self.spans_to, dict(self.headers or {}))
        return spans


WAYS: dict[str, Callable[[Evaluation], None]] = {
    "processor": Evaluation.by_processor,
    "wrapper": Evaluation.by_wrapper,
    "serve": Evaluation.by_serve,
    "replay": Evaluation.by_replay,
}
