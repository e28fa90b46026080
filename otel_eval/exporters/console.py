"""Prints scores for people: a line for each run, and below it what did not pass, was skipped or
failed.
"""

from __future__ import annotations

import os
import select
import sys
import threading
from collections.abc import Sequence
from typing import Final, TextIO

from otel_eval.counters import renew_after_fork
from otel_eval.exporters import Exporter
from otel_eval.exporters.result_rows import start_time
from otel_eval.exporters.text_table import (
    GREEN,
    PLAIN_LAYOUT,
    RED,
    YELLOW,
    Layout,
    columns,
    layout_of,
    plain,
)
from otel_eval.model import Report, Result, Scored, Skipped, Verdict
from otel_eval.retry import ExportResult, reason_of
from otel_eval.scorers.tool_names import plural, shortened

PENDING: Final = "pending"
"""Instead of a verdict, where nothing has failed so far and results of judges are awaited."""
VERDICT_WORDS: Final = {verdict: verdict.value.replace("_", " ") for verdict in Verdict}
VERDICT_COLORS: Final = {
    VERDICT_WORDS[Verdict.PASS]: GREEN,
    VERDICT_WORDS[Verdict.NOT_PASSED]: RED,
    VERDICT_WORDS[Verdict.NOT_EVALUATED]: YELLOW,
}
"""The colours of these words."""
_AGENT_WIDTH: Final = 24
_CALLS_WIDTH: Final = 8
_VERDICT_WIDTH: Final = max(map(len, VERDICT_COLORS))


class ConsoleExporter(Exporter):
    """Prints a line for each run and evaluation: start, agent, number of tool calls, verdict, name
    of the evaluation. Rows below it show the results that did not pass, were skipped or failed,
    with the reason.

    Text is as wide as the terminal, and has colours on a terminal unless `NO_COLOR` is set.
    Explanations are those of every exporter, so that arguments, results and messages are shown only
    if a scorer includes them. Control characters of names become blanks.

    Args:
        stream: where to write; standard output at the time of writing if left out.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self.name = "console"
        self._stream: Final = stream
        self._lock = threading.Lock()  # held while writing: lines of two threads must not mix
        renew_after_fork(self)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Print the reports. What cannot be printed is lost, and counted as such."""
        stream = sys.stdout if self._stream is None else self._stream
        if stream is None:  # a program without a console
            return ExportResult.permanent("there is no standard output")
        try:
            layout = layout_of(stream)
            lines = [line for report in batch for line in report_lines(report, layout)]
            with self._lock:
                _write(stream, "".join([f"{line}\n" for line in lines]))
        except (OSError, ValueError) as error:  # the latter from a closed stream
            return ExportResult.permanent(reason_of(error))
        return ExportResult.ok()


def report_lines(report: Report, layout: Layout = PLAIN_LAYOUT) -> list[str]:
    """The lines of one report: the run with its verdict, then a row for each result to look at."""
    if not report.results and not report.pending:  # a trace without a run
        return []
    rows = [
        (result.scorer, *outcome_cells(result))
        for result in report.results
        # a pass that was awaited has a row because its line has no verdict
        if is_notable(result) or (report.late and result.outcome.passed)
    ]
    if report.pending:
        rows.append(("…", "-", PENDING, f"{plural(len(report.pending), 'result')} to come"))
    indent, widest = 2, max(8, min(32, layout.width // 3))
    return [
        _headline(report, layout),
        *columns(None, rows, indent=indent, layout=layout, widest=widest),
    ]


def _headline(report: Report, layout: Layout) -> str:
    width = layout.width
    run, verdict = report.trajectory, _verdict(report)
    start = start_time(run)
    count = len(run.calls) if report.call_count is None else report.call_count
    calls = "calls ?" if run.calls_unknown and not count else plural(count, "call")
    revision = f" (revision {report.revision})" if report.revision else ""
    agent_width = max(8, min(_AGENT_WIDTH, width // 4))
    agent = shortened(plain(run.agent or run.name or "(unnamed)"), agent_width)
    before = (
        f"{start[11:19] + 'Z' if start else '-':<9}  {agent:<{agent_width}}  "
        f"{shortened(calls, _CALLS_WIDTH):<{_CALLS_WIDTH}}  "
    )
    after = f"{'':{max(0, _VERDICT_WIDTH - len(verdict))}}  {plain(report.evaluation)}{revision}"
    after = shortened(after, max(1, width - len(before) - len(verdict))).rstrip()
    return f"{before}{layout.colored(verdict, VERDICT_COLORS.get(verdict, ''))}{after}"


def _verdict(report: Report) -> str:
    """The verdict of the run, or that results which may change it are awaited; a part of another
    run has none.
    """
    if report.verdict is not None:
        return VERDICT_WORDS[report.verdict]
    return PENDING if report.awaited else "-"


def is_notable(result: Result) -> bool:
    """Whether a result did not pass, was skipped or failed; a recorded label is none of these."""
    outcome = result.outcome
    return not outcome.passed and not (
        isinstance(outcome, Skipped) and outcome.reason == "recorded"
    )


def outcome_cells(result: Result) -> tuple[str, str, str]:
    """Value, outcome and reason of a result. An outcome that would count against the run, but for
    the severity of the scorer, is marked.
    """
    outcome, value = result.outcome, "-"
    if isinstance(outcome, Scored):
        value, word = f"{outcome.value:.3f}", "pass" if outcome.passed else "not passed"
    else:
        word = "skipped" if isinstance(outcome, Skipped) else "failed"
    mark = " (warn)" if result.severity == "warn" and not outcome.passed else ""
    return value, f"{word}{mark}", outcome.explanation


def _write(stream: TextIO, text: str) -> None:
    """Write the text, bypassing the buffer of the process's own standard output.

    A thread that is blocked in that buffer (a pipe that nothing reads) holds its lock, for which
    other threads that print would wait, and without which the interpreter aborts when it ends.
    """
    if stream is not sys.__stdout__ or os.name != "posix":
        stream.write(text)
        stream.flush()
        return
    descriptor = stream.fileno()
    unwritten = memoryview(text.encode(stream.encoding or "utf-8", "backslashreplace"))
    while unwritten:
        try:
            unwritten = unwritten[os.write(descriptor, unwritten) :]
        except BlockingIOError:  # another process made the terminal or pipe non-blocking
            select.select((), (descriptor,), ())
