"""The formats of `otel-eval replay`: a table, JSON Lines, JUnit and Markdown."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from otel_eval.cli.markdown import Comment, escape
from otel_eval.cli.render import outcome_cells, run_block, score_block
from otel_eval.cli.summary import Summary
from otel_eval.exporters.console import VERDICT_COLORS, VERDICT_WORDS, is_notable
from otel_eval.exporters.result_rows import line_of, rows_of
from otel_eval.exporters.text_table import Layout, plain
from otel_eval.model import Failed, Report, Result, Scored, Trajectory, elapsed_ns

Write = Callable[[str], object]


class ReportFormat(ABC):
    """Writes reports as they come, and what they amount to at the end.

    Args:
        write: takes the text.
        not_passed: whether only results are written that did not pass, were skipped or failed.
    """

    def __init__(self, write: Write, *, not_passed: bool) -> None:
        self._write: Final = write
        self._only_notable: Final = not_passed

    def add(self, report: Report) -> None:
        """Write a report, or keep what is needed of it."""
        if self._only_notable:
            notable = tuple(result for result in report.results if is_notable(result))
            if not notable:
                return
            report = replace(report, results=notable)
        self._add(report)

    @abstractmethod
    def _add(self, report: Report) -> None: ...

    @abstractmethod
    def finish(self, summary: Summary, lines: Sequence[str]) -> None:
        """Write the end.

        Args:
            summary: of all results.
            lines: distributions of labels, and last the counts.
        """


class TableFormat(ReportFormat):
    """Text for a terminal: each run with its scores, then tables of scorers and agents.

    Args:
        layout: the width of the text, and whether it has colours.
        full_ids: whether ids are written in full.
    """

    def __init__(self, write: Write, *, not_passed: bool, layout: Layout, full_ids: bool) -> None:
        super().__init__(write, not_passed=not_passed)
        self._layout: Final = layout
        self._full_ids: Final = full_ids
        self._last: Trajectory | None = None

    def _add(self, report: Report) -> None:
        if report.no_run is not None:
            return
        if report.trajectory is not self._last:
            block = run_block(
                report.trajectory,
                arguments=False,
                case=report.attributes,
                full_ids=self._full_ids,
                layout=self._layout,
            )
            self._lines(["", *block])
        self._last = report.trajectory
        revision = f" (revision {report.revision})" if report.revision else ""
        verdict = ""
        if report.verdict is not None:
            words = VERDICT_WORDS[report.verdict]
            verdict = f": {self._layout.colored(words, VERDICT_COLORS[words])}"
        self._lines(
            [
                f"  evaluation {plain(report.evaluation)}{revision}{verdict}",
                *score_block(report.results, self._layout),
            ]
        )

    def finish(self, summary: Summary, lines: Sequence[str]) -> None:
        """Write the tables."""
        for table in summary.tables():
            if text := table.text_lines(self._layout, 40):
                self._lines(["", *text])
        self._lines(["", *lines])

    def _lines(self, lines: Sequence[str]) -> None:
        self._write("".join([f"{line}\n" for line in lines]))


class JsonFormat(ReportFormat):
    """JSON Lines: rows of results."""

    def _add(self, report: Report) -> None:
        self._write("".join([f"{line_of(row)}\n" for row in rows_of(report)]))

    def finish(self, summary: Summary, lines: Sequence[str]) -> None:
        """Write nothing: each line stands for itself."""


# elements within a case, and the attributes with their numbers
_JUNIT_COUNTS: Final = {"failure": "failures", "error": "errors", "skipped": "skipped"}


class JunitFormat(ReportFormat):
    """JUnit XML: a test case for each result.

    A score that does not pass is a failure, a scorer that failed an error. What counts for nothing,
    because the scorer has the severity `warn`, is skipped.
    """

    def __init__(self, write: Write, *, not_passed: bool) -> None:
        super().__init__(write, not_passed=not_passed)
        # The counts stand before the cases, of which there may be many.
        # closed in `finish`, or by the end of the object
        self._cases: Final = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._counts = dict.fromkeys(("tests", *_JUNIT_COUNTS.values()), 0)

    def _add(self, report: Report) -> None:
        for result in report.results:
            part, attributes = _junit_part(result)
            self._counts["tests"] += 1
            inner = ""
            if part:
                self._counts[_JUNIT_COUNTS[part]] += 1
                inner = f"<{part}{_xml_attributes(attributes)}/>"
            case = {
                "classname": f"{report.evaluation}.{report.trajectory.agent or '(unnamed)'}",
                "name": f"{result.scorer} [{case_name(report)}]",
                "time": f"{(elapsed_ns(report.trajectory) or 0) / 1e9:.3f}",
            }
            self._cases.write(f"    <testcase{_xml_attributes(case)}>{inner}</testcase>\n")

    def finish(self, summary: Summary, lines: Sequence[str]) -> None:
        """Write the document."""
        from xml.sax.saxutils import escape as escape_xml  # deferred: it loads HTTP

        totals = _xml_attributes({name: str(count) for name, count in self._counts.items()})
        self._write('<?xml version="1.0" encoding="UTF-8"?>\n')
        self._write(f'<testsuites name="otel-eval"{totals}>\n')
        self._write(f'  <testsuite name="otel-eval"{totals}>\n')
        with self._cases:
            self._cases.seek(0)
            while text := self._cases.read(1 << 16):
                self._write(text)
        self._write(f"    <system-out>{escape_xml(plain(lines[-1]))}</system-out>\n")
        self._write("  </testsuite>\n</testsuites>\n")


def _junit_part(result: Result) -> tuple[str, dict[str, str]]:
    """The element within a case, "" for a pass, and its attributes."""
    outcome, text = result.outcome, outcome_cells(result)[2]
    if outcome.passed:
        return "", {}
    if not isinstance(outcome, Scored | Failed):
        return "skipped", {"message": f"{outcome.reason}: {text}"}
    if isinstance(outcome, Failed):
        part, kind, message = "error", outcome.error_type, text
    else:
        part, kind, message = "failure", "not passed", f"{outcome.value:.3f}: {text}"
    if result.severity == "warn":
        return "skipped", {"message": f"{kind}, which does not count (severity warn): {message}"}
    return part, {"type": kind, "message": message}


def _xml_attributes(values: dict[str, str]) -> str:
    """The text of attributes, each with a space before it."""
    from xml.sax.saxutils import quoteattr  # deferred: it loads HTTP

    # XML has no controls and lone surrogates
    return "".join(f" {name}={quoteattr(plain(value))}" for name, value in values.items())


def case_name(report: Report) -> str:
    """What tells the run from others: its case, or its attributes if there are any and its ids."""
    if report.case:
        return report.case
    run = report.trajectory
    values = [str(value) for value in report.attributes.values()]
    return " ".join([*values, f"{run.trace_id}/{run.span_id}"])


class MarkdownFormat(ReportFormat):
    """Markdown for a comment on a change: the summary, then what did not pass."""

    def __init__(self, write: Write, *, not_passed: bool) -> None:
        super().__init__(write, not_passed=not_passed)
        # It stands below the summary, which is complete at the end: no more than fits is kept.
        self._listed: Final = Comment()

    def _add(self, report: Report) -> None:
        self._listed.add(
            *(_markdown_item(report, result) for result in report.results if is_notable(result))
        )

    def finish(self, summary: Summary, lines: Sequence[str]) -> None:
        """Write the comment."""
        comment = Comment("otel-eval replay")
        comment.add(f"### otel-eval: {escape(lines[-1])}", "")
        if len(lines) > 1:
            comment.add(*(f"* {escape(line)}" for line in lines[:-1]), "")
        for table in summary.tables():
            comment.add(*table.markdown_lines())
        comment.extend(self._listed)
        self._write(comment.text())


def _markdown_item(report: Report, result: Result) -> str:
    """A list item in Markdown, on one line, for a result that did not pass, was skipped or failed:
    its score if it has one, its name, the agent, the case and the reason.
    """
    value, outcome, reason = outcome_cells(result)
    score = f" {value}" if value != "-" else ""
    agent = report.trajectory.agent or "(unnamed)"
    name = f"{report.evaluation}/{result.scorer}"
    return (
        f"* **{outcome}{score}** {escape(name)}, {escape(agent)},"
        f" {escape(case_name(report))}: {escape(reason)}"
    )


FORMATS: Final[Mapping[str, type[ReportFormat]]] = {
    "json": JsonFormat,
    "junit": JunitFormat,
    "markdown": MarkdownFormat,
}
"""The formats that have no parameters of their own."""
