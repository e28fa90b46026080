"""A pipeline with storage and a clock of its own, that can crash at any moment and start again."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

from otel_eval.app.build import build_engine, build_limits
from otel_eval.config import load
from otel_eval.model import Completeness, Report
from otel_eval.otlp.protobuf import RawRequest, read_traces
from otel_eval.pipeline import Pipeline
from otel_eval.storage.durable import Durable
from otel_eval.storage.recovery import Recovery
from tests.support.listening import Listener
from tests.support.named_exporter import NamedExporter
from tests.support.receiver_process import request
from tests.support.recovered_results import RecoveredReports


class Lives:
    """A pipeline with storage and a clock of its own, that can end at any moment and begin
    again.
    """

    def __init__(
        self, folder: Path, *, max_size: int = 2**30, segment_bytes: int = 3000, **traces: Any
    ) -> None:
        self.segment_bytes = segment_bytes
        waits = {
            "decision_wait": "1s",
            "decision_wait_partial": "2s",
            "decision_wait_detached": "10s",
            "idle_timeout": "60s",
            "max_age": "1h",
        }
        self.now = 1000.0
        self.config = load(
            {
                "traces": waits | traces,
                "evaluations": [
                    {
                        "name": "e",
                        "scorers": [{"type": "tool_call_count", "criteria": {"search": "== 1"}}],
                    }
                ],
                "storage": {"directory": str(folder), "max_size": max_size, "sync": False},
            }
        )
        self.rows: defaultdict[int, list[tuple[int, Any, Completeness]]] = defaultdict(list)
        self.agents: dict[int, str] = {}
        self.begin()

    def begin(self) -> None:
        """A life begins."""
        assert self.config.storage is not None
        self.durable = Durable(
            self.config.storage,
            now=lambda: self.now,
            clock=lambda: self.now,
            segment_bytes=self.segment_bytes,
            exporters=[NamedExporter("all")],
        )
        self.listener, limits = Listener(self.tell), build_limits(self.config)
        self.pipeline = Pipeline(
            build_engine(self.config),
            self.listener,
            limits,
            clock=lambda: self.now,
            journal=self.durable,
        )
        owed: list[Any] = []
        self.pipeline.recover(Recovery(self.durable, RecoveredReports(owed)))
        for report, _ in owed:
            self.tell(report)

    def tell(self, report: Report) -> None:
        """Delivered."""
        run, (result,) = int(report.trajectory.span_id, 16), report.results
        row = (report.revision, type(result.outcome).__name__, report.trajectory.completeness)
        self.agents[run] = report.trajectory.agent
        if row not in self.rows[run]:
            self.rows[run].append(row)
        self.durable.journal_delivery("all", [report])

    def send(self, *spans: tuple[int, int, int, str]) -> None:
        """A request arrives."""
        body = request(*spans)
        self.pipeline.spans(read_traces(body).spans, RawRequest("traces", body))

    def wait(self, seconds: int) -> None:
        """Time passes."""
        for _ in range(seconds):
            self.now += 1
            self.pipeline.step()

    def crash(self) -> None:
        """The process ends, and the next one begins."""
        self.durable.journal.close()
        self.durable._directory.release()
        self.begin()

    def last(self) -> dict[int, tuple[str, int]]:
        """Of each run the last outcome and revision; each revision follows the one before."""
        for run, rows in self.rows.items():
            assert [revision for revision, *_ in rows] == list(range(len(rows))), (run, rows)
        return {run: (rows[-1][1], rows[-1][0]) for run, rows in self.rows.items()}
