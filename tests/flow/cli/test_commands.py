"""The commands: arguments in, text and exit codes out."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from otel_eval import __version__
from otel_eval.native import extension

Run = Callable[..., subprocess.CompletedProcess[str]]
Write = Callable[..., Path]

PASSES = '{type: tool_call_count, criteria: {get_weather: ["==", 2]}}'
FAILS = "{type: tool_errors, threshold: 1.0}"
FIELDS = [
    *(
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
    ),
    *(
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
    ),
    *(
        "service",
        "service_version",
        "environment",
        "conversation_id",
        "attributes",
        "case",
        "spans",
        "spans_digest",
        "evaluator",
    ),
    *("schema", "revision", "result_id"),
]
SKIPPED = "{type: time_cost, of: no_such_tool}"


def test_the_version_is_quick_and_loads_nothing_heavy(otel_eval_process: Run) -> None:
    """No gRPC, protobuf, pydantic or YAML for a word."""
    script = (
        "import sys; from otel_eval.cli import main; main(['--version'])\n"
        "print(sorted(set(sys.modules) & {'grpc', 'google.protobuf', 'pydantic', 'yaml'}))"
    )
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=root, timeout=300
    )
    assert done.stdout.startswith(
        f"otel-eval {__version__} ({'pure' if extension('_native') is None else 'compiled'},"
        " Python 3."
    )
    assert done.stdout.splitlines()[-1] == "[]"
    assert otel_eval_process("--version").returncode == 0


def test_no_word_at_all_shows_the_help(otel_eval_process: Run) -> None:
    """Every command is in it."""
    done = otel_eval_process()
    assert done.returncode == 0
    assert all(
        word in done.stdout
        for word in ("serve", "check", "schema", "scorers", "conventions", "trajectory", "replay")
    )


def test_check_says_what_it_found(otel_eval: Run, config: Write) -> None:
    """One line, exit 0."""
    done = otel_eval("check", config(PASSES, FAILS))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("valid; 1 evaluation, 2 scorers")


def test_check_suggests_only_after_where_a_rule_says_before(otel_eval: Run, config: Write) -> None:
    """A rule that should guard a tool passes where the guard is missing."""
    done = otel_eval("check", config('{type: precedence, rules: ["verify before refund"]}'))
    said = (
        "'verify before refund' also holds where verify is never called; write 'refund only after"
        " verify' if"
    )
    assert done.returncode == 0
    assert done.stderr.startswith(f"otel-eval: evaluations[0].scorers[0]: {said}")


def test_check_names_each_file_that_cannot_be_written_and_creates_none(
    otel_eval: Run, tmp_path: Path
) -> None:
    """Results, dead letters and the journal; a folder of the journal that is missing is created by
    `serve`.
    """
    (tmp_path / "file").touch()
    unusable = (
        f"exporters: {{jsonl: {{path: {tmp_path}/none/r.jsonl}}, dead_letter: {tmp_path}}}\n"
        f"storage: {{directory: {tmp_path}/file/journal}}\n"
    )
    (tmp_path / "eval.yaml").write_text(unusable, encoding="utf-8")
    done = otel_eval("check", tmp_path / "eval.yaml")
    keys = ("exporters.jsonl.path", "exporters.dead_letter", "storage.directory")
    assert done.returncode == 2
    assert [key for key in keys if f"{key}: " not in done.stderr] == []
    usable = (
        unusable.replace("/none/", "/")
        .replace("dead_letter: ", "dead_letter: file")
        .replace("file/journal", "new/journal")
    )
    (tmp_path / "eval.yaml").write_text(
        usable.replace(f"file{tmp_path}", f"{tmp_path}/file"), encoding="utf-8"
    )
    assert otel_eval("check", tmp_path / "eval.yaml").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["eval.yaml", "file"]


def test_check_reads_every_record_of_a_dataset_beside_the_configuration(
    otel_eval: Run, config: Write, tmp_path: Path
) -> None:
    """Also where the command is run in another folder."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "cases.jsonl").write_text(
        '{"id": "a", "expected": ["x"]}\n{"id": "b", "expectd": ["x"]}\n{"id": "c", "expected":'
        " 3}\n"
    )
    text = config(
        "{type: tool_call_order, reference: {dataset: cases.jsonl, key: case, column: id}}"
    ).read_text()
    (folder / "eval.yaml").write_text(text)
    done = otel_eval("check", folder / "eval.yaml")
    assert done.returncode == 2
    assert "cases.jsonl line 2: expected: missing; add it, or remove the record" in done.stderr
    assert "cases.jsonl line 3: expected: 3 is not a list of tool names; write e.g." in done.stderr
    (folder / "cases.jsonl").write_text('{"id": "a", "expected": ["x"]}\n')
    assert otel_eval("check", folder / "eval.yaml").returncode == 0


def test_a_misspelt_tool_is_reported_by_a_replay(
    otel_eval: Run, recorded: Path, config: Write
) -> None:
    """On standard error, once, with the name that was meant; the score still decides the exit
    code.
    """
    done = otel_eval(
        "replay",
        recorded,
        "--config",
        config('{type: tool_call_count, criteria: {get_wether: "<= 3"}}'),
    )
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        "otel-eval: `get_wether` was never called; did you mean `get_weather`? (evaluation one, 1"
        " run)"
    ]


def test_the_schema_is_json(otel_eval: Run) -> None:
    """For editors."""
    assert "evaluations" in json.loads(otel_eval("schema").stdout)["properties"]


@pytest.mark.parametrize(
    ("word", "known"), [("scorers", "tool_call_count"), ("conventions", "openinference")]
)
def test_what_is_installed_is_listed(otel_eval: Run, word: str, known: str) -> None:
    """Each with a few words."""
    done = otel_eval(word)
    assert (done.returncode, done.stderr) == (0, "")
    assert known in done.stdout.lower()


def test_a_trajectory_is_what_happened(otel_eval: Run, recorded: Path) -> None:
    """One run a line; the two look-ups overlapped, one booking failed."""
    done = otel_eval("trajectory", recorded, "--format", "json")
    (run,) = [json.loads(line) for line in done.stdout.splitlines()]
    calls = run["calls"]
    assert done.returncode == 0
    assert [call["name"] for call in calls] == [
        "get_weather",
        "get_weather",
        "book_flight",
        "book_flight",
    ]
    assert [call["overlaps"] for call in calls] == [[1], [0], [], []]
    assert [bool(call["error"]) for call in calls] == [False, False, True, False]
    assert {call["arguments_recorded"] for call in calls} == {True}


def test_a_trajectory_is_readable(otel_eval: Run, recorded: Path) -> None:
    """The table fits in 100 columns."""
    done = otel_eval("trajectory", recorded)
    assert "4 tool calls" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


@pytest.mark.parametrize(
    ("scorers", "options", "code"),
    [
        ([PASSES], [], 0),
        ([PASSES, FAILS], [], 1),
        ([PASSES, SKIPPED], [], 0),
        (["{type: label_distribution, label: nothing}"], [], 0),
        ([PASSES, FAILS.replace("{", "{severity: warn, ", 1)], [], 0),
    ],
)
def test_the_exit_code_says_whether_all_passed(
    otel_eval: Run, recorded: Path, config: Write, scorers: list[str], options: list[str], code: int
) -> None:
    """A scorer that had nothing to score never counts, nor does a recorded label."""
    done = otel_eval("replay", recorded, "--config", config(*scorers), *options)
    assert (done.returncode, done.stderr) == (code, "")


def test_a_result_is_a_line_with_the_documented_fields(
    otel_eval: Run, recorded: Path, config: Write
) -> None:
    """Scored or skipped, the fields are the same."""
    done = otel_eval("replay", recorded, "--config", config(FAILS, SKIPPED), "--format", "json")
    scored, skipped = [json.loads(line) for line in done.stdout.splitlines()]
    assert list(scored) == list(skipped)
    assert sorted(scored) == sorted(FIELDS)
    assert (scored["outcome"], scored["value"], scored["passed"]) == ("scored", 0.75, False)
    assert (skipped["outcome"], skipped["value"], skipped["passed"]) == ("skipped", None, None)


def test_the_table_tells_each_score_and_counts(
    otel_eval: Run, recorded: Path, config: Write
) -> None:
    """Scorer, value, outcome, reason, within 100 columns."""
    done = otel_eval("replay", recorded, "--config", config(PASSES, FAILS))
    assert ["scorer", "value", "outcome", "reason"] in [
        line.split() for line in done.stdout.splitlines()
    ]
    assert done.stdout.splitlines()[-1] == "1 run, 2 results: 1 passed, 1 did not pass"
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_an_encoding_without_arrows_ends_nothing(
    otel_eval_process: Run, recorded: Path, config: Write
) -> None:
    """As that of a file may be on Windows: what it cannot hold stands there as its number."""
    leaves = "[{verdict: true, score: 10}, {verdict: false, score: 0}]"
    tree = (
        f"{{type: dag, root: →, nodes: {{→: {{type: binary, cel: 'true', children: {leaves}}}}}}}"
    )
    done = otel_eval_process(
        "replay", recorded, "--config", config(tree), PYTHONIOENCODING="tis-620"
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2192: true \\u2192 10 of 10" in done.stdout


def test_without_a_configuration_the_default_is_asked(otel_eval: Run, recorded: Path) -> None:
    """Errors and time."""
    rows = [
        json.loads(line)
        for line in otel_eval("replay", recorded, "--format", "json").stdout.splitlines()
    ]
    assert [(row["evaluation"], row["scorer"]) for row in rows] == [
        ("default", "tool_errors"),
        ("default", "time_cost"),
    ]


def test_exporters_are_used_only_when_asked(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path
) -> None:
    """Then the file holds the lines that `--format json` prints."""
    path = config(PASSES, more="exporters: {jsonl: {path: out.jsonl}}")
    otel_eval("replay", recorded, "--config", path)
    assert not (tmp_path / "out.jsonl").exists()
    done = otel_eval("replay", recorded, "--config", path, "--export", "--format", "json")
    written = (tmp_path / "out.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in written.splitlines()] == [
        json.loads(line) for line in done.stdout.splitlines()
    ]


CASES = "results: {attributes: [service.name]}"


def test_a_second_export_adds_only_what_has_changed(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path
) -> None:
    """An unchanged result stays as it is; of a changed one the later line counts, and both have its
    id. Another policy makes another result.
    """
    out = tmp_path / "out.jsonl"

    def exported(scorer: str) -> list[dict[str, Any]]:
        path = config(PASSES, scorer, more="exporters: {jsonl: {path: out.jsonl}}")
        otel_eval("replay", recorded, "--config", path, "--export")
        return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]

    first = exported("{type: tool_errors, threshold: 1.0}")
    assert [row["passed"] for row in first] == [True, False]
    assert exported("{type: tool_errors, threshold: 1.0}") == first
    other = exported("{type: tool_errors, threshold: 0.5}")
    assert other[:2] == first
    assert [row["passed"] for row in other[2:]] == [True, True]  # the first has another verdict
    assert other[2]["result_id"] == first[0]["result_id"]
    assert other[3]["policy"] != first[1]["policy"]
    assert other[3]["result_id"] != first[1]["result_id"]
    assert exported("{type: tool_errors, threshold: 0.5}") == other
    merged = [json.loads(line) for line in otel_eval("merge", out).stdout.splitlines()]
    assert sorted(row["passed"] for row in merged) == [False, True, True]


def test_an_export_that_fails_is_no_success(otel_eval: Run, recorded: Path, config: Write) -> None:
    """Although all passed; what a device holds is not read, which would never end."""
    path = config(PASSES, more="exporters: {jsonl: {path: /dev/full}}")
    done = otel_eval("replay", recorded, "--config", path, "--export")
    assert done.returncode == 2
    assert "otel-eval: exporters: 1 results were not delivered\n" in done.stderr


def test_an_export_has_no_metrics(otel_eval: Run, recorded: Path, config: Write) -> None:
    """So an endpoint for metrics alone is nowhere to send to."""
    path = config(
        PASSES, more="exporters: {otlp: {endpoint: 'http://127.0.0.1:9', signals: [metrics]}}"
    )
    done = otel_eval("replay", recorded, "--config", path, "--export")
    assert done.returncode == 2
    assert "exporters: none takes what replay --export sends; name jsonl" in done.stderr


def test_the_table_shows_case_and_time(otel_eval: Run, recorded: Path, config: Write) -> None:
    """And the ids in full where that is asked."""
    rows = [
        json.loads(line)
        for line in otel_eval("replay", recorded, "--format", "json").stdout.splitlines()
    ]
    path = config(PASSES, more=CASES)
    short, full = (
        otel_eval("replay", recorded, "--config", path, *words).stdout
        for words in ([], ["--full-ids"])
    )
    ids = {word for row in rows for word in (row["trace_id"], row["span_id"])}
    begun = rows[0]["start_time"]
    assert f"service.name={rows[0]['service']}" in short
    assert f"{begun[:10]} {begun[11:19]}Z" in " ".join(short.split())
    assert not any(word in short for word in ids)
    assert all(word in full for word in ids)


def test_one_bad_file_does_not_stop_the_others(
    otel_eval: Run, recorded: Path, config: Write, tmp_path: Path
) -> None:
    """It is logged in a line, the others are scored, and the exit code says that some input was
    unusable.
    """
    (tmp_path / "lines.jsonl").write_text(
        json.dumps(json.loads(recorded.read_text(encoding="utf-8"))) + '\n{"resourceSpans": 3}\n',
        encoding="utf-8",
    )
    done = otel_eval("replay", "lines.jsonl", "--config", config(PASSES), "--format", "json")
    assert done.returncode == 2
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr.startswith("otel-eval: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["serv"], "serv"),
        (["replay"], "FILE"),
        (["replay", "nowhere.json"], "nowhere.json"),
        (["replay", "recorded.json", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["replay", "recorded.json", "--export"], "none takes what replay --export sends"),
        (["trajectory", "recorded.json", "--format", "xml"], "xml"),
        (["trajectory", "noise.bin"], "noise.bin"),
        (["check", "nowhere.yaml"], "nowhere.yaml"),
        (["serve", "--config", "broken.yaml"], "broken.yaml line 1: an unquoted >="),
    ],
)
def test_what_cannot_be_used_is_one_line_and_exit_2(
    otel_eval: Run, recorded: Path, words: list[str], message: str
) -> None:
    """No traceback, nothing on stdout."""
    (recorded.parent / "noise.bin").write_bytes(b"\x00\xff\x13noise" * 9)
    (recorded.parent / "broken.yaml").write_text("a: >= 3", encoding="utf-8")
    done = otel_eval(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("otel-eval: ")
    assert len(done.stderr.splitlines()) == 1
    assert message in done.stderr


def test_a_reader_that_goes_away_hears_no_complaint(recorded: Path) -> None:
    """As with `otel-eval ... | head -1`."""
    source, target = os.pipe()
    os.close(source)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "otel_eval", "trajectory", recorded],
            stdout=target,
            stderr=subprocess.PIPE,
            cwd=Path(__file__).parents[3],
            timeout=300,
        )
    finally:
        os.close(target)
    assert (done.returncode, done.stderr) == (141, b"")


def test_progress_is_shown_on_a_terminal_only(recorded: Path, config: Write) -> None:
    """The line is on stderr; what is printed on stdout stays clean."""
    terminal, theirs = pty.openpty()
    try:
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "otel_eval",
                "replay",
                recorded,
                "--config",
                config(PASSES),
                "--format",
                "json",
            ],
            stdout=subprocess.PIPE,
            stderr=theirs,
            cwd=Path(__file__).parents[3],
            timeout=300,
        )
        shown = os.read(terminal, 65536).decode()
    finally:
        os.close(theirs)
        os.close(terminal)
    assert "0 runs" in shown
    assert shown.endswith("\x1b[2K")
    assert [json.loads(line)["outcome"] for line in done.stdout.splitlines()] == ["scored"]
