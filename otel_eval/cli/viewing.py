"""`otel-eval view`: serves the page with stored runs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Final

import click

from otel_eval.app import stored_traces
from otel_eval.app.page import open_page_tokens
from otel_eval.cli.html_report import HtmlReport
from otel_eval.cli.log_format import warn
from otel_eval.cli.results import split_inputs
from otel_eval.config import EvalConfig
from otel_eval.merging import check_row
from otel_eval.sources.files import CollectedMessages
from otel_eval.ui import documents_of_rows
from otel_eval.ui.server import RunsServer

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
    report_page = HtmlReport(parts.append, files, config, max_runs=max_runs)
    messages = CollectedMessages()
    rows, traces = split_inputs(files, is_configured=is_configured)
    for row in rows:
        if "document" not in row:
            check_row(row)
    for document in documents_of_rows(rows):
        report_page.add_document(document)
    if traces:
        for report in stored_traces.replay(traces, config, messages):
            report_page.add(report)
    report_page.finish(lines=messages.problems)
    warn(messages.problems)
    page = "".join(parts)
    parts.clear()
    allow = open_page_tokens(config.ui.auth)
    server = RunsServer(
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
