"""The page on the command line: `otel-eval view` serves it with stored runs, and `otel-eval replay
--format html` writes it to a file.
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click

from otel_eval import app
from otel_eval.app.page import tokens_of_page
from otel_eval.cli.comparing import holds_results, result_lines
from otel_eval.cli.log_format import warn
from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError, InputError
from otel_eval.exporters.run_documents import run_document
from otel_eval.merging import check_row
from otel_eval.model import Report
from otel_eval.ui import MAX_RUNS, ReportPage, documents_of_rows
from otel_eval.ui.server import PageServer

_STOP_S: Final = 1.0
_TITLE: Final = 3  # names of files in a title


class HtmlReport:
    """The page with runs in it, written as reports come.

    Args:
        write: takes the text.
        files: the names of the inputs, for the title.
        config: its `ui` says whether content is included, and where traces can be seen.
        max_runs: after this many runs, calls are included only of runs that did not pass.
    """

    def __init__(
        self,
        write: Callable[[str], object],
        files: Sequence[str],
        config: EvalConfig,
        max_runs: int = MAX_RUNS,
    ) -> None:
        self._write: Final = write
        self._content: Final = config.ui.include_content
        self._without_run = 0
        self._page: Final = ReportPage(
            title=_title(files), settings={"trace_url": config.ui.trace_url}, max_runs=max_runs
        )
        write(self._page.begin())

    def add(self, report: Report) -> None:
        """Write a report; traces without a run are counted."""
        if report.no_run is None:
            self._write(self._page.run(run_document(report, content=self._content)))
        else:
            self._without_run += 1

    def add_document(self, document: Mapping[str, Any]) -> None:
        """Write a run document."""
        self._write(self._page.run(document))

    def finish(self, notices: Sequence[str] = ()) -> None:
        """Write the end, with lines that are shown above the runs."""
        shown = [*notices]
        if self._without_run:
            shown.append(
                f"{self._without_run} traces have no run; otel-eval explain with the same files"
                " shows why."
            )
        self._write(self._page.end(shown))


def _title(files: Sequence[str]) -> str:
    names = [Path(file).name for file in files[:_TITLE]]
    more = len(files) - len(names)
    return ", ".join(names) + (f" and {more} more" if more else "")


def view(
    files: Sequence[str],
    config: EvalConfig,
    *,
    is_configured: bool,
    endpoint: str,
    max_runs: int,
) -> int:
    """Serve the page with the runs of the files until Ctrl-C; 0.

    Args:
        files: results, run documents or traces; the latter are scored.
        config: the evaluations.
        is_configured: whether a configuration was named, which stored traces need.
        endpoint: host:port on this machine; port 0 chooses a free one.
        max_runs: after this many runs, calls are included only of runs that did not pass.

    Raises:
        ConfigError: the files are traces and no configuration was named, or the address cannot be
            bound.
        InputError: a file cannot be read.
    """
    parts: list[str] = []
    written, problems = HtmlReport(parts.append, files, config, max_runs), list[str]()
    for document in _documents(files, config, is_configured, problems, written):
        written.add_document(document)
    written.finish(problems)
    warn(problems)
    page = "".join(parts)
    parts.clear()
    allow = tokens_of_page(config.ui.auth)
    server = PageServer(
        endpoint, lambda: page, allow=allow, names=config.ui.names, key="--endpoint"
    )
    server.start()
    try:
        click.echo(f"http://{server.address}/ shows the runs; Ctrl-C stops")
        threading.Event().wait()
    except KeyboardInterrupt:
        pass
    finally:
        server.stop(_STOP_S)
    return 0


def _documents(
    files: Sequence[str],
    config: EvalConfig,
    is_configured: bool,
    problems: list[str],
    written: HtmlReport,
) -> Iterator[Mapping[str, Any]]:
    """Yield the documents of files of results; reports of stored traces are written."""
    try:
        results = [file for file in files if holds_results(file)]
        rows = [row for file in results for row in result_lines(file)]
        for row in rows:
            if "document" not in row:
                check_row(row)
    except OSError as error:
        raise InputError(f"{error.filename}: {error.strerror or error}") from None
    except (EOFError, zlib.error) as error:
        raise InputError(f"{', '.join(files)}: {error}") from None
    yield from documents_of_rows(rows)
    traces = [file for file in files if file not in results]
    if traces and not is_configured:
        raise ConfigError(
            f"{traces[0]}: holds no results; to score it as traces, name a configuration with"
            " --config"
        )
    for report in app.replay(traces, config, on_problem=problems.append) if traces else ():
        written.add(report)
