"""A file of results that is written again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from otel_eval.exporters.jsonl import ChangedLinesExporter, JsonLinesFile
from otel_eval.model import Report, Scored, Stamp

Reports = Callable[..., Report]


def _written(path: Path, *reports: Report) -> list[dict]:  # type: ignore[type-arg]
    exporter = ChangedLinesExporter(str(path))
    for each in reports:
        exporter.export([each])
    exporter.close(1.0)
    return [
        json.loads(line)
        for line in path.read_bytes().splitlines()
        if line.startswith(b'{"trace_id"')
    ]


def test_when_and_by_whom_makes_no_difference(report: Reports, tmp_path: Path) -> None:
    """Results of a receiver and of a replay are equal, and those of yesterday and today."""
    path = tmp_path / "results.jsonl"
    first = _written(path, replace(report("scored", "failed"), stamp=Stamp("me", 5)))
    assert len(first) == 2
    assert _written(path, replace(report("scored", "failed"), stamp=Stamp("", 6))) == first


def test_a_changed_result_is_added_once(report: Reports, tmp_path: Path) -> None:
    """Also by the same exporter, and when it changes back to what an earlier line has."""
    path = tmp_path / "results.jsonl"
    made = report("scored")
    changed = replace(made, results=(replace(made.results[0], outcome=Scored(0.1, False)),))
    assert [row["value"] for row in _written(path, made, changed, changed)] == [0.75, 0.1]
    assert [row["value"] for row in _written(path, changed)] == [0.75, 0.1]
    assert [row["value"] for row in _written(path, made)] == [0.75, 0.1, 0.75]


def test_lines_of_other_programs_are_left_alone(report: Reports, tmp_path: Path) -> None:
    """And half a surrogate pair or a number without a JSON name changes nothing."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(b'not JSON\n[]\n5\n{"result_id": 7}\n\xff\xfe\n')
    odd = replace(report("scored", agent="a\ud800"), attributes={"odd": float("nan")})
    assert len(_written(path, odd)) == 1
    assert len(_written(path, odd)) == 1


def test_its_lines_are_found_by_id(report: Reports, tmp_path: Path) -> None:
    """As those of every exporter of lines: the id stands at the end."""
    path = tmp_path / "results.jsonl"
    (row,) = _written(path, report("scored"))
    file = JsonLinesFile(path)
    assert file.written_ids() == {row["result_id"]}
    file.close()


def test_lines_that_were_not_written_are_still_to_be_written(report: Reports) -> None:
    """On a device that is full."""
    exporter = ChangedLinesExporter("/dev/full")
    attempts = [exporter.export([report("scored")]).status for _ in range(2)]
    exporter.close(1.0)
    assert attempts == ["retryable", "retryable"]
