"""`otel-eval view`: serves the page with stored runs."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import click

from otel_eval.app import stored_traces
from otel_eval.app.page import tokens_of_page
from otel_eval.cli.comparing import holds_results, result_lines
from otel_eval.cli.html_report import HtmlReport
from otel_eval.cli.log_format import warn
from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError, InputError
from otel_eval.merging import check_row
from otel_eval.ui import documents_of_rows
from otel_eval.ui.server import PageServer

_STOP_S: Final = 1.0


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
    written = HtmlReport(parts.append, files, config, max_runs=max_runs)
    problems: list[str] = []
    for document in _documents(files, config, is_configured, problems, written):
        written.add_document(document)
    written.finish(lines=problems)
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
    for report in (
        stored_traces.replay(traces, config, on_problem=problems.append) if traces else ()
    ):
        written.add(report)
