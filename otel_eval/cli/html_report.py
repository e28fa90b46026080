"""`otel-eval replay --format html`: the page with runs in it, as one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from otel_eval.cli.formats import ReportFormat, Write
from otel_eval.cli.summary import Summary
from otel_eval.config import EvalConfig
from otel_eval.exporters.run_documents import run_document
from otel_eval.model import Report
from otel_eval.scorers.tool_names import plural, some_of
from otel_eval.ui import ReportPage

_TITLE: Final = 3  # names of files in a title


class HtmlReport(ReportFormat):
    """The page with runs in it, written as reports come.

    Args:
        files: the names of the inputs, for the title.
        config: its `ui` says whether content is included, and where traces can be seen.
        max_runs: after this many runs, calls are included only of runs that did not pass.
    """

    def __init__(
        self,
        write: Write,
        files: Sequence[str],
        config: EvalConfig,
        *,
        max_runs: int,
        not_passed: bool = False,
    ) -> None:
        super().__init__(write, not_passed=not_passed)
        self._content: Final = config.ui.include_content
        self._without_run = 0
        self._page: Final = ReportPage(
            title=_title(files), settings={"trace_url": config.ui.trace_url}, max_runs=max_runs
        )
        write(self._page.begin())

    def add(self, report: Report) -> None:
        """Write a report; traces without a run are counted."""
        if report.no_run is not None:
            self._without_run += 1
        else:
            super().add(report)

    def _add(self, report: Report) -> None:
        self.add_document(run_document(report, content=self._content))

    def add_document(self, document: Mapping[str, Any]) -> None:
        """Write a run document."""
        self._write(self._page.run(document))

    def finish(self, summary: Summary | None = None, lines: Sequence[str] = ()) -> None:
        """Write the end of the page, which shows `lines` and the number of traces without a run
        above the runs; the summary is not shown.
        """
        shown = [*lines]
        if self._without_run:
            shown.append(
                f"{plural(self._without_run, 'trace')} without a run; otel-eval explain with the"
                " same files shows why."
            )
        self._write(self._page.end(shown))


def _title(files: Sequence[str]) -> str:
    names = [Path(file).name for file in files[:_TITLE]]
    return some_of(names, len(files))
