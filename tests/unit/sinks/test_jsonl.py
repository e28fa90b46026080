"""Results as JSON Lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Evidence, Report, Scored, Stamp
from otel_eval.sinks.jsonl import JsonLinesSink, line_of, result_fields

Reports = Callable[..., Report]

FIELDS = [
    "trace_id", "span_id", "agent", "evaluation", "scorer", "type", "version", "outcome",
    "value", "passed", "explanation", "reason", "details", "threshold", "completeness", "start_time", "duration_ms",
    "evaluated_at", "service", "service_version", "environment", "conversation_id", "attributes", "spans", "spans_digest",
    "evaluator", "schema", "revision", "result_id",
]  # fmt: skip
OCCASION = FIELDS[14:-2]


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        ("scored", ["scored", 0.75, True, "3 of 4 in order", None, {"missing": ["refund"]}, 0.5]),
        ("below", ["scored", 0.25, False, "1 of 4 in order", None, {}, 0.5]),
        ("skipped", ["skipped", None, None, "arguments not recorded", "not_recorded", {}, 0.5]),
        ("failed", ["failed", None, None, "KeyError", None, {}, 0.5]),
    ],
)
def test_a_line_has_every_field_and_null_for_what_does_not_apply(report: Reports, kind: str, told: list[object]):
    """In the documented order, whatever the outcome."""
    made = report(kind)
    fields = result_fields(made, made.results[0])
    assert list(fields) == FIELDS
    assert [fields[key] for key in FIELDS[7:14]] == told


def test_a_line_has_when_where_and_which_case(report: Reports):
    """And from which spans, by whom. Times are RFC 3339 with nanoseconds."""
    facts = {"start_ns": 1_700_000_000_000_000_001, "end_ns": 1_700_000_000_250_000_001}
    made = replace(
        report("scored", service_version="1.2", environment="staging", **facts),
        attributes={"test.case.id": "c7", "attempt": 2},
        evidence=Evidence(9, "0123456789abcdef"),
        stamp=Stamp("e" * 32, 1_700_000_001_000_000_000),
    )
    fields = result_fields(made, made.results[0])
    assert {key: fields[key] for key in OCCASION} == {
        "completeness": "orphaned",
        "start_time": "2023-11-14T22:13:20.000000001Z",
        "duration_ms": 250.0,
        "evaluated_at": "2023-11-14T22:13:21.000000000Z",
        "service": "shop",
        "service_version": "1.2",
        "environment": "staging",
        "conversation_id": "c-1",
        "attributes": {"test.case.id": "c7", "attempt": 2},
        "spans": 9,
        "spans_digest": "0123456789abcdef",
        "evaluator": "e" * 32,
        "schema": 1,
    }


@pytest.mark.parametrize(
    ("start", "end", "told"),
    [
        (None, None, (None, None)),
        (0, 0, (None, None)),
        (0, 5_000_000, ("1970-01-01T00:00:00.000000000Z", 5.0)),
        (7, 5, ("1970-01-01T00:00:00.000000007Z", None)),
        (10**30, 10**30 + 10**6, (None, 1.0)),
    ],
)
def test_a_time_that_was_not_recorded_is_null(report: Reports, start: int | None, end: int | None, told: tuple[Any, Any]):
    """Never zero; and a time beyond the calendar costs no line."""
    made = report("scored", start_ns=start, end_ns=end)
    fields = result_fields(made, made.results[0])
    assert (fields["start_time"], fields["duration_ms"]) == told
    assert [fields[key] for key in ("evaluated_at", "spans", "spans_digest", "evaluator")] == [None] * 4


def test_lines_are_appended(report: Reports, tmp_path: Path):
    """A second process goes on where the first ended."""
    path = tmp_path / "results.jsonl"
    for revision in (0, 1):
        sink = JsonLinesSink(path)
        sink.emit(report("scored", "failed", revision=revision))
        assert sink.flush(1.0)
        sink.close(1.0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["outcome"], line["revision"]) for line in lines] == [("scored", 0), ("failed", 0), ("scored", 1), ("failed", 1)]


@pytest.mark.parametrize("torn", ['{"trace_id": "ab', '{"trace_id":' + "x" * 200_000])
def test_a_line_torn_by_a_crash_is_cut_at_start(report: Reports, tmp_path: Path, torn: str):
    """Else the next line would continue it and be lost too."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"trace_id": "whole"}\n' + torn)
    sink = JsonLinesSink(path)
    sink.emit(report("scored"))
    sink.close(1.0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["trace_id"][:5] for line in lines] == ["whole", "0af76"]


def test_a_last_line_that_is_not_ours_is_kept(report: Reports, tmp_path: Path):
    """Somebody named a file of theirs."""
    path = tmp_path / "notes.txt"
    path.write_text("no newline")
    sink = JsonLinesSink(path)
    sink.emit(report("scored"))
    sink.close(1.0)
    assert path.read_text().splitlines()[0] == "no newline"
    assert len(path.read_text().splitlines()) == 2


def test_a_file_that_cannot_be_written_is_refused_at_start(tmp_path: Path):
    """Naming key, value and remedy in one line."""
    with pytest.raises(ConfigError, match=r"exporters\.jsonl\.path: '.*' cannot be written .*; name a file") as refused:
        JsonLinesSink(tmp_path / "missing" / "results.jsonl")
    assert "\n" not in str(refused.value)


def test_a_dash_is_standard_output(report: Reports, capsys: pytest.CaptureFixture[str]):
    """One line per result."""
    sink = JsonLinesSink("-")
    sink.emit(report("scored", "below"))
    sink.close(1.0)
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_numbers_that_json_has_no_name_for_become_null(report: Reports):
    """Strict parsers read every line."""
    made = report("scored")
    odd = result_fields(made, made.results[0]) | {"details": {"ratio": math.nan, "all": [math.inf, Scored]}}
    assert json.loads(line_of(odd), parse_constant=pytest.fail)["details"]["ratio"] is None
