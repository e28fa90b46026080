"""Stored traces on the command line: what was understood of them, and how they score.

Knows formats of output, progress and exit codes; reading and scoring are the application's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import click

from otel_eval.cli.progress import Progress
from otel_eval.cli.rows import json_line, trajectory_fields
from otel_eval.cli.tables import run_block, score_block, tally
from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError
from otel_eval.model import Report, Result, Scored, Skipped

__all__ = ["show_scores", "show_trajectories"]

# It records a label for a distribution and says so by being skipped: no verdict, so no exit code.
_NO_VERDICT: Final = "label_distribution"


class _Problems:
    """Inputs that could not be used: told at once, remembered for the exit code."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self._progress = progress

    def __call__(self, message: str) -> None:
        self.count += 1
        with self._progress.aside():
            click.echo(f"otel-eval: {' '.join(message.split())}", err=True)


def show_trajectories(files: Sequence[str], config: EvalConfig, *, form: str, every_run: bool) -> int:
    """Print each run of the files; 0, or 2 if some input could not be used."""
    from otel_eval import app

    problems = _Problems(Progress(()))
    for trajectory in app.understand(files, config, on_problem=problems):
        if every_run or trajectory.outermost:
            _print([json_line(trajectory_fields(trajectory))] if form == "json" else [*run_block(trajectory), ""])
    return 2 if problems.count else 0


def show_scores(files: Sequence[str], config: EvalConfig, *, form: str, strict: bool, export: bool) -> int:
    """Print each score of the files; 0, 1 if some score did not pass, 2 if some input could not be used."""
    from otel_eval import app

    if export and not (config.exporters.otlp or config.exporters.jsonl):
        raise ConfigError("exporters: none is configured, so --export has nowhere to send to; name one or leave --export out")
    verdicts: Counter[str] = Counter()
    runs: set[tuple[str, str]] = set()
    with Progress(files) as progress:
        problems = _Problems(progress)
        reports = app.replay(files, config, export=export, on_problem=problems, on_progress=progress.advance)
        for report in reports:
            verdicts.update(_verdict(result) for result in report.results)
            runs.add((report.trajectory.trace_id, report.trajectory.span_id))
            with progress.aside():
                _print(_json_lines(report) if form == "json" else _table(report))
    if form == "table":
        words = [(word, verdicts[word]) for word in ("passed", "did not pass", "skipped", "recorded", "failed to score")]
        click.echo(tally(words, len(runs)))
    return _exit_code(verdicts, strict=strict, problems=problems.count)


def _verdict(result: Result) -> str:
    if isinstance(result.outcome, Scored):
        return "passed" if result.outcome.passed else "did not pass"
    if isinstance(result.outcome, Skipped):
        return "recorded" if result.type == _NO_VERDICT else "skipped"
    return "failed to score"


def _exit_code(verdicts: Counter[str], *, strict: bool, problems: int) -> int:
    if problems:
        return 2
    bad = verdicts["did not pass"] + verdicts["failed to score"] + (verdicts["skipped"] if strict else 0)
    return 1 if bad else 0


def _json_lines(report: Report) -> Iterator[str]:
    from otel_eval.sinks.jsonl import result_fields

    return (json_line(result_fields(report, result)) for result in report.results)


def _table(report: Report) -> list[str]:
    revision = f" (revision {report.revision})" if report.revision else ""
    return [*run_block(report.trajectory), f"  evaluation {report.evaluation}{revision}", *score_block(report.results), ""]


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
