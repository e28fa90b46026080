"""Results as lines for people."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import pytest

from otel_eval.config import load
from otel_eval.delivery.export_queue import without_content
from otel_eval.errors import ConfigError
from otel_eval.exporters.console import ConsoleExporter, report_lines
from otel_eval.model import Failed, Pending, Report

Reports = Callable[..., Report]
START_NS = 1_764_300_000_000_000_000


async def never(_: object) -> Failed:
    return Failed("never")


def awaiting(report: Report) -> Report:
    """The report with one more result, which is pending."""
    return replace(report, pending=(Pending(report.results[0], never),), awaited=1)


def test_a_run_has_a_line_and_a_row_for_each_result_that_did_not_pass(report: Reports) -> None:
    run = report("scored", "below", "skipped", "failed", start_ns=START_NS, end_ns=START_NS + 1)
    assert report_lines(run) == [
        "03:20:00Z  helpdesk                  2 calls   not passed     policy",
        "  below    0.250  not passed  1 of 4 in order",
        "  skipped  -      skipped     arguments not recorded",
        "  failed   -      failed      the scorer failed with KeyError",
    ]


def test_a_run_that_passed_has_one_line(report: Reports) -> None:
    assert report_lines(report("scored", revision=1)) == [
        "-          helpdesk                  2 calls   pass           policy (revision 1)"
    ]


def test_the_number_of_calls_outlasts_the_queue(report: Reports) -> None:
    stripped = without_content(report("scored"))
    assert stripped.trajectory.calls == ()
    assert "  2 calls  " in report_lines(stripped)[0]


def test_a_run_whose_judge_has_not_answered_has_not_passed(report: Reports) -> None:
    first, row = report_lines(without_content(awaiting(report("scored"))))
    assert first.split()[4:] == ["pending", "policy"]
    assert row.split(maxsplit=3)[3] == "1 result to come"
    assert "not passed" in report_lines(awaiting(report("below")))[0]


def test_the_answer_of_a_judge_has_a_line_of_its_own_that_shows_a_pass_too(report: Reports) -> None:
    first, row = report_lines(replace(report("scored"), late=True))
    assert first.split()[4:] == ["pass", "policy"]
    assert row.split() == ["scored", "0.750", "pass", "3", "of", "4", "in", "order"]


def test_a_part_of_another_run_has_no_verdict(report: Reports) -> None:
    (line,) = report_lines(replace(report("scored"), standing=None))
    assert line.split()[4:] == ["-", "policy"]


def test_names_of_a_trace_cannot_control_the_terminal(report: Reports) -> None:
    stream = io.StringIO()
    hostile = report("below", agent="\x1b[2Jroot\r\n\x9b31m\u202e", evaluation="\x1b]0;x\x07")
    scorer = replace(hostile.results[0], scorer="\x1b[1m\nname")
    ConsoleExporter(stream).export([replace(hostile, results=(scorer,))])
    assert stream.getvalue().count("\n") == 2
    assert stream.getvalue().replace("\n", "").isprintable()


def terminal_text(report: Report, columns: int) -> str:
    """What is written to a terminal of this width."""
    ours, theirs = os.openpty()
    text = b""
    with os.fdopen(ours, "rb", buffering=0) as screen:
        with os.fdopen(theirs, "w") as stream:
            fcntl.ioctl(stream, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            assert ConsoleExporter(stream).export([report]).status == "ok"
        with suppress(OSError):  # the end: nothing has the terminal open any more
            while part := screen.read(65536):  # as much as has passed the terminal so far
                text += part
    return text.decode().replace("\r\n", "\n")


def test_text_is_as_wide_as_the_terminal(report: Reports, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    run = report("failed", evaluation="a-name-that-has-no-space-on-it")
    for columns in (50, 140):
        lines = terminal_text(run, columns).splitlines()
        assert max(map(len, lines)) <= columns
    assert "\x1b" not in terminal_text(run, 50)
    assert len(terminal_text(run, 50).splitlines()) > len(lines) == 2


def test_a_verdict_has_a_colour_on_a_terminal_only(
    report: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert "\x1b[32mpass\x1b[0m" in terminal_text(report("scored"), 80)
    stream = io.StringIO()
    ConsoleExporter(stream).export([report("scored")])
    assert "\x1b" not in stream.getvalue()


def test_results_are_lost_and_counted_where_there_is_no_standard_output(
    report: Reports, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert ConsoleExporter().export([report("scored")]).status == "permanent"
    closed = io.StringIO()
    closed.close()
    assert ConsoleExporter(closed).export([report("scored")]).status == "permanent"


def test_a_program_may_give_another_stream() -> None:
    exporter = ConsoleExporter(sys.stderr)
    assert load({"exporters": {"console": exporter}}).exporters.console is exporter


def test_lines_of_json_and_lines_for_people_do_not_share_standard_output() -> None:
    with pytest.raises(ConfigError, match="console: jsonl"):
        load({"exporters": {"console": {}, "jsonl": {"path": "-"}}})


BLOCKED = """
import os, sys
os.set_blocking(1, False)
try:
    while True:
        os.write(1, b"." * 512)  # nothing reads the pipe, which is full after this
except BlockingIOError:
    os.set_blocking(1, True)
from opentelemetry.sdk.trace import TracerProvider
from otel_eval import EvalSpanProcessor
provider = TracerProvider()
provider.add_span_processor(EvalSpanProcessor({"exporters": {"console": {}}}))
with provider.get_tracer("a").start_as_current_span(
    "invoke_agent a", attributes={"gen_ai.operation.name": "invoke_agent"}
):
    pass
print("the agent is done", file=sys.stderr)
"""


def test_a_program_ends_although_nothing_reads_its_standard_output() -> None:
    """The results that could not be printed are logged as lost."""
    with subprocess.Popen(
        [sys.executable, "-c", BLOCKED], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stderr is not None
        logged = program.stderr.read()
        assert program.wait() == 0
    assert logged.startswith("the agent is done\n")
    assert "console did not deliver 2 results before the end" in logged
