"""Results as JSON Lines."""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import stat
import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from otel_eval.errors import ConfigError
from otel_eval.exporters import jsonl
from otel_eval.exporters.jsonl import DeadLetterFile, JsonLinesExporter, JsonLinesFile
from otel_eval.exporters.result_rows import line_of, lines_of, rows_of
from otel_eval.model import Evidence, Report, Scored, Stamp
from tests.support.waiting import LIMIT_S, wait_until

Reports = Callable[..., Report]

FIELDS = [
    "trace_id",
    "span_id",
    "agent",
    "evaluation",
    "scorer",
    "type",
    "version",
    "policy",
    "severity",
    "outcome",
    "value",
    "passed",
    "explanation",
    "reason",
    "error_type",
    "details",
    "threshold",
    "verdict",
    "completeness",
    "start_time",
    "duration_ms",
    "evaluated_at",
    "service",
    "service_version",
    "environment",
    "conversation_id",
    "attributes",
    "case",
    "spans",
    "spans_digest",
    "evaluator",
    "schema",
    "revision",
    "result_id",
]
OCCASION = FIELDS[17:-2]


@pytest.mark.parametrize(
    ("kind", "fields_expected"),
    [
        (
            "scored",
            ["scored", 0.75, True, "3 of 4 in order", None, None, {"missing": ["refund"]}, 0.5],
        ),
        ("below", ["scored", 0.25, False, "1 of 4 in order", None, None, {}, 0.5]),
        (
            "skipped",
            ["skipped", None, None, "arguments not recorded", "not_recorded", None, {}, 0.5],
        ),
        (
            "failed",
            ["failed", None, None, "the scorer failed with KeyError", None, "KeyError", {}, 0.5],
        ),
    ],
)
def test_a_line_has_every_field_and_null_for_what_does_not_apply(
    report: Reports, kind: str, fields_expected: list[object]
):
    """In the documented order, whatever the outcome."""
    made = report(kind)
    (fields,) = rows_of(made)
    assert list(fields) == FIELDS
    assert [fields[key] for key in FIELDS[9:17]] == fields_expected


def test_a_line_has_when_where_and_which_case(report: Reports):
    """And from which spans, by whom. Times are RFC 3339 with nanoseconds."""
    facts = {"start_ns": 1_700_000_000_000_000_001, "end_ns": 1_700_000_000_250_000_001}
    made = replace(
        report("scored", service_version="1.2", environment="staging", **facts),
        attributes={"test.case.id": "c7", "attempt": 2},
        case="c7",
        evidence=Evidence(9, "0123456789abcdef"),
        stamp=Stamp("e" * 32, 1_700_000_001_000_000_000),
    )
    (fields,) = rows_of(made)
    assert {key: fields[key] for key in OCCASION} == {
        "verdict": "pass",
        "completeness": "remote_parent",
        "start_time": "2023-11-14T22:13:20.000000001Z",
        "duration_ms": 250.0,
        "evaluated_at": "2023-11-14T22:13:21.000000000Z",
        "service": "shop",
        "service_version": "1.2",
        "environment": "staging",
        "conversation_id": "c-1",
        "attributes": {"test.case.id": "c7", "attempt": 2},
        "case": "c7",
        "spans": 9,
        "spans_digest": "0123456789abcdef",
        "evaluator": "e" * 32,
        "schema": 1,
    }


@pytest.mark.parametrize(
    ("start", "end", "fields_expected"),
    [
        (None, None, (None, None)),
        (0, 0, (None, None)),
        (0, 5_000_000, ("1970-01-01T00:00:00.000000000Z", 5.0)),
        (7, 5, ("1970-01-01T00:00:00.000000007Z", None)),
        (10**30, 10**30 + 10**6, (None, 1.0)),
    ],
)
def test_a_time_that_was_not_recorded_is_null(
    report: Reports, start: int | None, end: int | None, fields_expected: tuple[Any, Any]
):
    """Never zero; and a time beyond the calendar costs no line."""
    made = report("scored", start_ns=start, end_ns=end)
    (fields,) = rows_of(made)
    assert (fields["start_time"], fields["duration_ms"]) == fields_expected
    assert [fields[key] for key in ("evaluated_at", "spans", "spans_digest", "evaluator")] == [
        None
    ] * 4


def test_lines_are_appended(report: Reports, tmp_path: Path):
    """A second process goes on where the first ended."""
    path = tmp_path / "results.jsonl"
    for revision in (0, 1):
        exporter = JsonLinesExporter(path)
        exporter.export([report("scored", "failed", revision=revision)])
        assert exporter.flush(LIMIT_S)
        exporter.close(1.0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["outcome"], line["revision"]) for line in lines] == [
        ("scored", 0),
        ("failed", 0),
        ("scored", 1),
        ("failed", 1),
    ]


@pytest.mark.parametrize("torn", ['{"tr', '{"trace_id": "ab', '{"trace_id":' + "x" * 200_000])
def test_a_line_torn_by_a_crash_is_cut_at_start(report: Reports, tmp_path: Path, torn: str):
    """Else the next line would continue it and be lost too."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"trace_id": "whole"}\n' + torn)
    exporter = JsonLinesExporter(path)
    exporter.export([report("scored")])
    exporter.close(1.0)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line["trace_id"][:5] for line in lines] == ["whole", "0af76"]


def test_a_last_line_that_is_not_ours_is_kept(report: Reports, tmp_path: Path):
    """The path names a file of another program."""
    path = tmp_path / "notes.txt"
    path.write_text("no newline")
    exporter = JsonLinesExporter(path)
    exporter.export([report("scored")])
    exporter.close(1.0)
    assert path.read_text().splitlines()[0] == "no newline"
    assert len(path.read_text().splitlines()) == 2


def test_a_file_that_cannot_be_written_is_refused_at_start(tmp_path: Path):
    """Naming key, value and remedy in one line."""
    with pytest.raises(
        ConfigError, match=r"exporters\.jsonl\.path: '.*' cannot be written .*; name a file"
    ) as refused:
        JsonLinesExporter(tmp_path / "missing" / "results.jsonl")
    assert "\n" not in str(refused.value)


def test_a_dash_is_standard_output(report: Reports, capsys: pytest.CaptureFixture[str]):
    """One line per result."""
    exporter = JsonLinesExporter("-")
    exporter.export([report("scored", "below")])
    exporter.close(1.0)
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_lines_on_standard_output_are_utf_8_whatever_its_encoding(
    report: Reports, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    """Text that was written before stays before them."""
    made, written = report("scored"), io.BytesIO()
    made = replace(
        made, results=(replace(made.results[0], outcome=Scored(1.0, True, "größer → \U0001f600")),)
    )
    monkeypatch.setattr(
        sys, "stdout", io.TextIOWrapper(written, encoding=encoding, errors="backslashreplace")
    )
    print("results:")
    JsonLinesExporter("-").export([made])
    title, line = written.getvalue().decode().splitlines()
    assert (title, json.loads(line)["explanation"]) == ("results:", "größer → \U0001f600")


def test_numbers_that_json_has_no_name_for_become_null(report: Reports):
    """Strict parsers read every line."""
    made = report("scored")
    odd = next(rows_of(made)) | {"details": {"ratio": math.nan, "all": [math.inf, Scored]}}
    assert json.loads(line_of(odd), parse_constant=pytest.fail)["details"]["ratio"] is None


UNSAFE = [*range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]


def test_controls_are_escaped_and_decode_to_the_same_text(report: Reports):
    """No terminal obeys them, no reader ends a line at them, and nothing is shown in another
    order.
    """
    scored = report("scored")
    controls = "".join(map(chr, [*range(0x20), *UNSAFE]))
    text = f"a{controls}b"
    line = line_of(next(rows_of(scored)) | {"agent": text, "details": {text: [text, math.nan]}})
    assert not {*controls} & {*line}
    assert len(line.splitlines()) == 1
    decoded = json.loads(line)
    assert (decoded["agent"], decoded["details"]) == (text, {text: [text, None]})


def test_ordinary_text_is_written_as_it_is(report: Reports):
    """Letters of any script, and what stands beside the escaped ranges."""
    made = report("scored")
    text = "~\xa0\u2027\u202f\u2065\u206a\ud7ff\ue000 né 東京 שלום 😀 \\u0085"
    line = line_of(next(rows_of(made)) | {"agent": text})
    assert json.dumps(text, ensure_ascii=False) in line
    assert json.loads(line)["agent"] == text


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize(("given", "expected"), [({}, 0o600), ({"mode": 0o640}, 0o640)])
def test_a_file_is_created_with_the_mode_that_is_asked_for(
    tmp_path: Path, umask: int, given: dict[str, int], expected: int
):
    """Only its owner reads it, unless the configuration says otherwise; the umask changes
    neither.
    """
    path, before = tmp_path / "results.jsonl", os.umask(umask)
    try:
        JsonLinesExporter(path, **given).close(1.0)
        DeadLetterFile(tmp_path / "dead.jsonl", **given).close()
    finally:
        os.umask(before)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, tmp_path / "dead.jsonl")] == [
        expected,
        expected,
    ]


def test_a_file_that_exists_keeps_its_mode(tmp_path: Path):
    """Also behind a link that leads to it, and one that leads to no file yet."""
    path, link, ahead = tmp_path / "results.jsonl", tmp_path / "link", tmp_path / "ahead"
    path.touch()
    path.chmod(0o664)
    link.symlink_to(path)
    ahead.symlink_to(tmp_path / "new.jsonl")
    for each in (path, link, ahead):
        JsonLinesExporter(each, mode=0o640).close(1.0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664
    assert not stat.S_IMODE((tmp_path / "new.jsonl").stat().st_mode) & 0o137


def test_the_lines_of_a_report_are_those_of_its_rows(report: Reports):
    """What results share is encoded once for all of them, with the same text; also numbers and
    characters that JSON lacks.
    """
    made = report("scored", agent='a "b" \u2028', service="\x7f")
    first = made.results[0]
    odd = replace(
        first,
        scorer="other",
        outcome=Scored(math.nan, passed=False, explanation="\ud800", details={"x": [math.inf]}),
    )
    made = replace(made, results=(first, odd), attributes={"ratio": math.nan})
    lines = [line_of(row).encode("utf-8", "backslashreplace") + b"\n" for row in rows_of(made)]
    assert lines_of(made) == b"".join(lines)
    assert len(lines) == 2


def test_a_parent_and_its_forked_children_lose_no_line_of_each_other(tmp_path: Path) -> None:
    """They share the open file with its position and its lock, and each looks at the end of the
    file before it appends.
    """
    path, lines = tmp_path / "results.jsonl", 400
    file = JsonLinesFile(path)
    file.write(b'{"trace_id":"first"}\n')
    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            for number in range(lines):
                file.write(b'{"trace_id":"%d %d"}\n' % (os.getpid(), number))
            os._exit(0)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    file.close()
    written = path.read_bytes().splitlines()
    assert len(written) == 1 + 3 * lines
    assert set(written[1:]) == {
        b'{"trace_id":"%d %d"}' % (child, number) for child in children for number in range(lines)
    }


def _trace_ids(path: Path) -> list[str]:
    return [json.loads(line)["trace_id"] for line in path.read_text().splitlines()]


def _line(name: str) -> bytes:
    return json.dumps({"trace_id": name}).encode() + b"\n"


@pytest.mark.parametrize("kind", [JsonLinesFile, DeadLetterFile])
def test_a_file_that_is_renamed_is_opened_anew(
    tmp_path: Path, kind: type[JsonLinesFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the next write, with the mode of the configuration, wherever the program is by then; what
    was written stays where it is.
    """
    monkeypatch.chdir(tmp_path)
    path, rotated = tmp_path / "results.jsonl", tmp_path / "results.jsonl.1"
    file = kind("results.jsonl", mode=0o640)
    file.write(_line("first"))
    path.rename(rotated)
    monkeypatch.chdir("/")
    file.write(_line("second"))
    file.close()
    assert (_trace_ids(rotated), _trace_ids(path)) == (["first"], ["second"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_file_that_is_renamed_is_opened_anew_without_a_line_to_write(tmp_path: Path) -> None:
    """So that nothing holds the renamed one, which may be compressed or deleted."""
    path = tmp_path / "results.jsonl"
    file = JsonLinesFile(path)
    path.rename(tmp_path / "results.jsonl.1")
    file.reopen()
    file.close()
    assert path.read_bytes() == b""


def test_lines_that_only_a_deleted_file_has_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was deleted between the look at its path and the write."""
    path = tmp_path / "results.jsonl"
    file = JsonLinesFile(path)
    file.write(_line("first"))
    append = jsonl._append

    def delete_and_append(opened: io.RawIOBase, lines: bytes) -> None:
        monkeypatch.setattr(jsonl, "_append", append)
        path.unlink()
        append(opened, lines)

    monkeypatch.setattr(jsonl, "_append", delete_and_append)
    file.write(_line("second"))
    file.close()
    assert _trace_ids(path) == ["second"]


def test_a_file_whose_folder_is_gone_is_an_error(report: Reports, tmp_path: Path) -> None:
    """The results wait in the queue until it is there again."""
    folder = tmp_path / "results"
    folder.mkdir()
    exporter = JsonLinesExporter(folder / "results.jsonl")
    (folder / "results.jsonl").unlink()
    folder.rmdir()
    assert exporter.export([report("scored")]).status == "retryable"
    folder.mkdir()
    assert exporter.export([report("scored")]).status == "ok"
    exporter.close(1.0)
    assert len(_trace_ids(folder / "results.jsonl")) == 1


def test_lines_stay_whole_after_a_truncation_which_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In place, as `copytruncate` does it."""
    path = tmp_path / "results.jsonl"
    file = JsonLinesFile(path)
    file.write(_line("first"))
    os.truncate(path, 0)
    file.write(_line("second"))
    file.close()
    assert path.read_bytes() == _line("second")
    assert "was truncated" in caplog.text


def test_results_in_a_renamed_file_are_not_written_again_after_a_crash(
    report: Reports, tmp_path: Path
) -> None:
    """They are queued again, because their delivery was not recorded."""
    path, delivered = tmp_path / "results.jsonl", report("scored")
    first = JsonLinesExporter(path)
    first.export([delivered])
    path.rename(tmp_path / "results-20260101.jsonl")
    second = JsonLinesExporter(path)
    second.requeued([delivered])
    second.export([delivered])
    second.close(1.0)
    first.close(1.0)
    assert path.read_bytes() == b""


def test_a_named_pipe_is_refused_by_that_name(tmp_path: Path) -> None:
    """What nobody has read of it would be lost with the process."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="it is a named pipe"):
        JsonLinesExporter(tmp_path / "pipe")


def test_a_write_that_hangs_does_not_hang_the_end(
    tmp_path: Path,
) -> None:
    """Another process keeps the lock of the file, for instance."""
    path = tmp_path / "results.jsonl"
    file = JsonLinesFile(path)
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        writing = threading.Thread(target=file.write, args=(_line("late"),))
        writing.start()
        wait_until(file._lock.locked)
        file.close()
        with pytest.raises(TimeoutError, match="an earlier write to the file hangs"):
            file.write(_line("later"))
    writing.join()
    file.close()
    assert _trace_ids(path) == ["late"]
