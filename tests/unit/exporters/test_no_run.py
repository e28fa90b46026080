"""Traces without a result: one line in JSON Lines and nothing elsewhere, through every step."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.counters import Counters
from otel_eval.delivery.export_queue import ExportQueue
from otel_eval.delivery.exports import Exports
from otel_eval.engine import Engine
from otel_eval.exporters import Exporter, ExportResult, names_of_exporters
from otel_eval.exporters.jsonl import JsonLinesExporter
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Report, Stamp
from otel_eval.storage.record_types import key_of, report_from_json, report_to_json
from tests.support.made_spans import frames, span
from tests.support.waiting import LIMIT_S

TRACE = b"t" * 16
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}


def _engine(sample: float = 1.0, agent: str = "*", **results: bool) -> Engine:
    evaluation = {
        "name": "e",
        "match": {"agent": agent},
        "sample": sample,
        "scorers": [{"type": "tool_errors"}],
    }
    return build_engine(load({"evaluations": [evaluation], "results": results}), lines=True)


def _buffer(*spans: object) -> TraceBuffer:
    buffer = TraceBuffer(Limits())
    _push(buffer, *spans)
    return buffer


def _push(buffer: TraceBuffer, *spans: object) -> None:
    buffer.push_many([(TRACE, span_id, frame, 10) for span_id, frame in frames(spans).items()], 0.0)  # type: ignore[arg-type]


def _judged(engine: Engine, buffer: TraceBuffer) -> list[Report]:
    return [
        report for trace in buffer.drain(0.0) for report in engine.evaluate(trace, Stamp("me", 5))
    ]


def test_a_trace_without_a_run_has_one_line() -> None:
    """With the spans that were known; every other field is there and empty."""
    (report,) = _judged(_engine(), _buffer(span("http")))
    (row,) = rows_of(report)
    assert report.results == ()
    assert {
        key: row[key]
        for key in (
            "outcome",
            "trace_id",
            "span_id",
            "scorer",
            "value",
            "spans",
            "evaluator",
            "revision",
        )
    } == {
        "outcome": "no_run",
        "trace_id": TRACE.hex(),
        "span_id": "",
        "scorer": "",
        "value": None,
        "spans": 1,
        "evaluator": "me",
        "revision": 0,
    }
    assert row["explanation"] == "no agent run was found in the trace"


def test_a_run_that_no_evaluation_matches_has_one_line_too() -> None:
    """Another evaluator may have the span that matches."""
    (report,) = _judged(_engine(agent="other"), _buffer(span("run", attributes=AGENT)))
    assert [row["explanation"] for row in rows_of(report)] == ["no run of the trace was evaluated"]


def test_a_trace_of_log_records_alone_has_one_line() -> None:
    """Its spans went elsewhere, and so did not meet what the records say of them."""
    buffer = TraceBuffer(Limits())
    buffer.push_logs([(TRACE, b"12345678", (b"", None), 5)], 0.0)  # type: ignore[list-item]
    (report,) = _judged(_engine(), buffer)
    (row,) = rows_of(report)
    assert (row["spans"], row["explanation"]) == (
        0,
        "log records of the trace arrived, but none of its spans",
    )


def test_late_spans_make_another_revision_of_the_line_until_there_is_a_result() -> None:
    """Then it is withdrawn."""
    engine, buffer = _engine(), _buffer(span("http"))
    judged = [_judged(engine, buffer)]
    for late in (span("db", "http"), span("run", "http", attributes=AGENT), span("cache", "http")):
        _push(buffer, late)
        judged.append(_judged(engine, buffer))
    assert [[(bool(each.no_run), each.revision) for each in reports] for reports in judged] == [
        [(True, 0)],
        [(True, 1)],
        [(False, 0), (True, 2)],
        [],
    ]
    assert [each.no_run and each.no_run.reason for each in judged[2]] == [None, "withdrawn"]


def test_no_line_where_none_is_wanted() -> None:
    """Switched off; not in the sample, as with every evaluator; not written as JSON Lines."""
    spans = span("http")
    assert _judged(_engine(no_run=False), _buffer(spans)) == []
    assert _judged(_engine(sample=0.000001), _buffer(spans)) == []
    assert _judged(build_engine(load({})), _buffer(spans)) == []


def test_a_line_survives_a_crash_and_is_written_once(tmp_path: Path) -> None:
    """It is found at the end of the file like a result."""
    (report,) = _judged(_engine(), _buffer(span("http")))
    again = report_from_json(json.loads(json.dumps(report_to_json(report))))
    assert list(rows_of(again)) == list(rows_of(report))
    assert key_of(again) == key_of(report) is not None
    exporter = JsonLinesExporter(tmp_path / "results.jsonl")
    exporter.export([report])
    before = (tmp_path / "results.jsonl").read_bytes()
    exporter.requeued([again])
    exporter.export([again])
    exporter.close(1.0)
    assert (tmp_path / "results.jsonl").read_bytes() == before != b""


class _Events(Exporter):
    """An exporter that writes no lines."""

    name = "events"

    def export(self, batch: Sequence[Report]) -> ExportResult:
        return ExportResult.permanent(f"{len(batch)}")


def test_only_lines_are_written_of_it(tmp_path: Path) -> None:
    """It is no event: a backend of results has no use for traces without one."""
    path = tmp_path / "results.jsonl"
    counters = Counters()
    exporters = [JsonLinesExporter(path), _Events()]
    queues = [ExportQueue(exporter, counters, max_reports=9) for exporter in exporters]
    delivery = Exports(queues)
    (report,) = _judged(_engine(), _buffer(span("http")))
    assert names_of_exporters(exporters, report) == ("jsonl",)
    delivery.start()
    delivery.export([report])
    assert delivery.drain(LIMIT_S)
    delivery.close(1.0)
    assert [json.loads(line)["outcome"] for line in path.read_text().splitlines()] == ["no_run"]
    assert counters.get("results.export_failed") == 0
