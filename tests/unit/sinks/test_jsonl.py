"""Results as JSON Lines."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest

from otel_eval.errors import ConfigError
from otel_eval.model import Report, Scored
from otel_eval.sinks.jsonl import JsonLinesSink, line_of, result_fields

Reports = Callable[..., Report]

FIELDS = [
    "trace_id", "span_id", "agent", "evaluation", "scorer", "type", "version", "outcome",
    "value", "passed", "explanation", "reason", "details", "threshold", "completeness", "revision", "result_id",
]  # fmt: skip


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
