"""Stored traces of any number and order: evaluated whole, as they end, in bounded memory."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.build import build_engine
from otel_eval.app.replay_coverage import ReplayCoverage
from otel_eval.app.stored_traces import replay
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.errors import InputError, OtelEvalError
from otel_eval.exporters.result_rows import NO_RUN, rows_of
from otel_eval.model import Completeness, Report
from otel_eval.sources.files import CollectedMessages
from tests.support.listeners import NO_PROBLEMS
from tests.support.made_spans import json_document, json_span
from tests.support.stored_files import read_file

RECORDED = sorted(
    path
    for folder in ("traces", "conformance")
    for path in (Path(__file__).parents[1] / folder).rglob("*.json*")
    if path.is_file()
)
SCORERS = [
    {"type": "tool_errors"},
    {"type": "tool_call_count", "criteria": {"search": "<= 2"}},
    {"type": "time_cost", "max_ms": 1000},
]
LIMITS = {"max_bytes": "1MiB", "max_bytes_per_trace": "1MiB"}
CONFIG: dict[str, Any] = {
    "evaluations": [{"name": "all", "match": {"runs": "all"}, "scorers": SCORERS}],
    "traces": LIMITS,
}


def span(trace: int, number: int, *, parent: int = 0, size: int = 0) -> dict[str, Any]:
    """A span of a trace; number 1 is its root, an agent's."""
    operation = "execute_tool" if parent else "invoke_agent"
    return json_span(
        *(trace, number, parent, f"{operation} search"),
        start_ns=10**18 + number,
        end_ns=10**18 + 10**6 + number,
        attributes={
            "gen_ai.operation.name": operation,
            "gen_ai.tool.name": "search",
            "padding": "x" * size,
        },
    )


def line(*spans: dict[str, Any]) -> str:
    return json.dumps(json_document(spans)) + "\n"


def write(path: Path, lines: Iterator[str]) -> Path:
    with path.open("w") as out:
        out.writelines(lines)
    return path


def rows(
    paths: list[Path], config: dict[str, Any] = CONFIG
) -> tuple[list[dict[str, Any]], list[str]]:
    """The results as JSON Lines have them, but for when they were made; and the problems."""
    problems: list[str] = []
    reports = list(replay(paths, load(config), listener=CollectedMessages(problems)))
    return [row for report in reports for row in fields(report)], problems


def fields(report: Report) -> list[dict[str, Any]]:
    return [
        {key: value for key, value in row.items() if key != "evaluated_at"}
        for row in rows_of(report)
        if row["outcome"] != NO_RUN
    ]


def held_whole(paths: list[Path]) -> list[dict[str, Any]]:
    """The same from a buffer that holds everything until all is read."""
    buffer, engine = (
        TraceBuffer(Limits(max_bytes=2**40, max_traces=10**9)),
        build_engine(load(CONFIG)),
    )
    for path in paths:
        try:
            for framed in read_file(path):
                buffer.push_many(framed.spans, 0.0)
                buffer.push_logs(framed.logs, 0.0)
        except InputError:
            continue
    return [
        row
        for trace in buffer.drain(0.0)
        for report in engine.evaluate(trace)
        for row in fields(report)
    ]


def in_one_order(found: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(each, sort_keys=True, default=str) for each in found)


def test_every_recorded_trace_has_the_results_it_has_when_all_is_held():
    """Some files one by one, and all of them as one input."""
    assert len(RECORDED) > 20
    for paths in ([path] for path in RECORDED[::6]):
        assert in_one_order(rows(paths)[0]) == in_one_order(held_whole(paths)), paths
    assert in_one_order(rows(RECORDED)[0]) == in_one_order(held_whole(RECORDED))


def test_traces_that_are_all_open_at_once_are_evaluated_whole(tmp_path: Path):
    """Their spans in any order, over two files and more than `max_bytes`: as if memory were
    unlimited.
    """
    rng = random.Random(1)
    spans = [
        span(trace, number, parent=number > 1, size=300)
        for trace in range(1, 201)
        for number in range(1, 11)
    ]
    rng.shuffle(spans)
    half = len(spans) // 2
    paths = [
        write(tmp_path / name, map(line, some))
        for name, some in (("a", spans[:half]), ("b", spans[half:]))
    ]
    found, problems = rows(paths)
    assert (in_one_order(found), problems) == (in_one_order(held_whole(paths)), [])
    assert {row["completeness"] for row in found} == {"complete"}


def test_there_may_be_any_number_of_traces(tmp_path: Path):
    """`max_traces` is a limit of what is open at one time in a process that cannot wait; here it is
    none.
    """
    path = write(tmp_path / "many", (line(span(trace, 1)) for trace in range(1, 501)))
    found, problems = rows([path], CONFIG | {"traces": LIMITS | {"max_traces": 10}})
    assert len(found) == 500 * len(SCORERS)
    assert ({row["completeness"] for row in found}, problems) == ({"complete"}, [])


def test_a_trace_is_evaluated_when_its_last_span_was_read(tmp_path: Path):
    """In the order in which traces end, while later lines are not read yet."""
    ends = [(2, 1), (1, 1), (3, 2), (3, 1)]
    padding = (line(span(trace, 1, size=2000)) for trace in range(10, 810))
    path = write(
        tmp_path / "traces",
        iter([*(line(span(trace, number, parent=number > 1)) for trace, number in ends), *padding]),
    )
    reports = replay([path], load(CONFIG), listener=CollectedMessages())
    first = next(reports)
    os.truncate(path, 0)  # what was not read is gone
    seen = [
        int(first.trajectory.trace_id, 16),
        *(int(each.trajectory.trace_id, 16) for each in reports),
    ]
    assert seen[:3] == [2, 1, 3]
    assert len(seen) < 400


def test_a_trace_over_its_limit_is_cut_wherever_its_spans_were(tmp_path: Path):
    """Its runs are skipped as incomplete, once, naming the limit."""
    lines = [
        line(span(trace, number, parent=number > 1))
        for number in range(1, 30)
        for trace in range(1, 40)
    ]
    config = CONFIG | {
        "traces": {"max_bytes": "64KiB", "max_bytes_per_trace": "64KiB", "max_spans_per_trace": 20}
    }
    found, problems = rows([write(tmp_path / "traces", iter(lines))], config)
    assert (len(found), problems) == (39 * len(SCORERS), [])
    assert all(
        row["outcome"] == "skipped" and "max_spans_per_trace" in row["explanation"] for row in found
    )
    assert {row["completeness"] for row in found} == {str(Completeness.OVERFLOW)}


def replayed_by(jobs: int, paths: list[Path], config: dict[str, Any]) -> dict[str, Any]:
    """Everything that can be seen of a replay: lines in their order, messages, and counts."""
    coverage = ReplayCoverage()
    messages: list[str] = []
    listener = CollectedMessages(messages, messages)
    reports = list(replay(paths, load(config), listener, coverage=coverage, jobs=jobs))
    lines = [{**row, "evaluated_at": None} for report in reports for row in rows_of(report)]
    counts = (coverage.runs, coverage.matched, coverage.traces_without_run, coverage.unended)
    return {"lines": lines, "messages": sorted(messages), "counts": counts}


def test_several_processes_give_the_same_in_the_same_order(tmp_path: Path):
    """Also of traces over a limit, and with broken parts."""
    lines = [
        line(span(trace, number, parent=number > 1))
        for number in range(1, 12)
        for trace in range(number % 3, 200, 1 + number % 2)
        if trace
    ]
    lines.insert(len(lines) // 2, "{broken\n")
    paths = [*RECORDED[::6], write(tmp_path / "traces", iter(lines))]
    config = CONFIG | {"traces": LIMITS | {"max_spans_per_trace": 9}}
    alone = replayed_by(1, paths, config)
    assert len({row["trace_id"] for row in alone["lines"]}) > 200
    assert replayed_by(2, paths, config) == alone


def test_a_process_that_is_killed_ends_the_replay_with_an_error(tmp_path: Path):
    """No trace is left out in silence."""
    lines = (line(span(trace, 1), span(trace, 2, parent=1)) for trace in range(1, 2000))
    path = write(tmp_path / "traces", lines)
    reports = replay([path], load(CONFIG), listener=NO_PROBLEMS, jobs=2)
    next(reports)
    for child in multiprocessing.active_children():
        child.kill()
    with pytest.raises(OtelEvalError, match="--jobs"):
        list(reports)


def test_ids_that_the_first_pass_does_not_see_are_reported(tmp_path: Path):
    """Such traces may be evaluated in parts, and that is said."""
    odd = line(span(1, 1)).replace('"traceId"', '"tr\\u0061ceId"')
    found, problems = rows([write(tmp_path / "traces", iter([odd, line(span(2, 1))]))])
    assert len(found) == 2 * len(SCORERS)
    assert problems == [
        "1 traces may have been evaluated in parts: their ids are written in an unusual way"
    ]


def test_lines_written_after_the_first_pass_are_not_read(tmp_path: Path):
    """A file that grows is evaluated as it was found."""
    path = write(tmp_path / "traces", (line(span(trace, 1)) for trace in range(1, 4)))
    reports = replay([path], load(CONFIG), listener=NO_PROBLEMS)
    first = next(reports)
    with path.open("a") as out:
        out.write(line(span(9, 1)))
    assert [int(each.trajectory.trace_id, 16) for each in (first, *reports)] == [1, 2, 3]


@pytest.mark.parametrize(
    "after",
    ["", "\n" + line(span(3000, 1), span(3000, 2, parent=1))],
    ids=["the only line", "followed by another"],
)
def test_traces_in_what_could_not_be_read_are_skipped_as_incomplete(tmp_path: Path, after: str):
    """A document that breaks off: those that ended before the break are scored, the others are not
    taken for whole.
    """
    spans = [
        span(trace, number, parent=number > 1, size=900)
        for trace in range(1, 1001)
        for number in (1, 2)
    ]
    text = line(*spans, span(999, 3, parent=1)).rstrip()
    path = write(tmp_path / "traces", iter([text[:-300], after]))
    found, problems = rows([path])
    assert [problem.split(": ")[0] for problem in problems] == [str(path)]
    assert [row["outcome"] for row in found if int(row["trace_id"], 16) == 3000] == [
        "scored"
    ] * len(SCORERS) * bool(after)
    skipped = {int(row["trace_id"], 16) for row in found if row["outcome"] == "skipped"}
    assert 999 in skipped
    assert len(skipped) < 500
    assert all(
        "could not be read" in row["explanation"] for row in found if row["outcome"] == "skipped"
    )
    assert len(found) >= 1000 * len(SCORERS)


def test_a_program_is_told_of_problems_by_a_function_or_in_its_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """Without a listener for notices and progress."""
    stored = write(tmp_path / "stored.jsonl", iter([line(span(1, 1)), "no JSON\n"]))
    problems: list[str] = []
    assert len(list(replay([stored], load(CONFIG), on_problem=problems.append))) == 1
    assert len(list(replay([stored], load(CONFIG)))) == 1
    assert len(problems) == 1
    assert caplog.messages == problems


def test_of_gzip_that_was_cut_everything_before_the_cut_is_scored(tmp_path: Path):
    path = tmp_path / "traces"
    packed = gzip.compress(
        b"".join(line(span(trace, 1, size=900)).encode() for trace in range(1, 1001))
    )
    path.write_bytes(packed[: len(packed) * 3 // 4])
    found, problems = rows([path])
    assert [problem.split(": ")[:2] for problem in problems] == [[str(path), "broken gzip"]]
    assert (
        700 * len(SCORERS)
        < sum(row["reason"] != "incomplete" for row in found)
        < 800 * len(SCORERS)
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_an_input_too(tmp_path: Path):
    """It can be read only once, and is kept in a temporary file."""
    os.mkfifo(tmp_path / "pipe")
    content = gzip.compress(b"".join(line(span(trace, 1)).encode() for trace in range(1, 4)))
    writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
    writer.start()
    found, problems = rows([tmp_path / "pipe"])
    writer.join(300)
    assert (len(found), problems) == (3 * len(SCORERS), [])


MEASURE = """
import sys
from otel_eval.app.replay_coverage import ReplayCoverage
from otel_eval.app.stored_traces import replay
from otel_eval.config import load
from otel_eval.sources.files import CollectedMessages
class Problems(CollectedMessages):
    def problem(self, message): raise SystemExit(message)
def peak():  # of this process alone: what getrusage reports begins with the peak of the parent
    status = open("/proc/self/status")
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak()
reports = replay([sys.argv[1]], load(sys.argv[2]), listener=Problems())
count = sum(len(report.results) for report in reports)
print(count, peak() - before)
"""


def peak(path: Path, config: Path) -> tuple[int, float]:
    """Results, and MiB that the process grew by; in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, path, config],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    count, grown = done.stdout.split()
    return int(count), int(grown) / 1024


def open_at_once(path: Path, traces: int) -> Path:
    """20 kB of each trace, in ten spans; no trace is whole before the last span of each arrives."""
    lines = (
        line(*(span(trace, number, parent=number > 1, size=1500) for trace in range(at, at + 10)))
        for number in range(1, 11)
        for at in range(1, traces + 1, 10)
    )
    return write(path, lines)


def test_memory_does_not_follow_the_size_of_the_input(tmp_path: Path):
    """Of traces that are all open at once, and far more than `max_bytes`: 7 MB more input take
    less than a quarter of that.
    """
    config = tmp_path / "eval.json"
    config.write_text(json.dumps(CONFIG))
    sizes, peaks = [], []
    for traces in (300, 700):
        path = open_at_once(tmp_path / f"{traces}", traces)
        count, grown = peak(path, config)
        assert count == traces * len(SCORERS)
        sizes.append(path.stat().st_size / 2**20)
        peaks.append(grown)
    assert peaks[1] - peaks[0] < (sizes[1] - sizes[0]) / 4, (sizes, peaks)
