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
from otel_eval.cli.shortfalls import no_run_line, nothing_evaluated, unused_records
from otel_eval.cli.tables import label_line, run_block, score_block, tally_line
from otel_eval.config import EvalConfig
from otel_eval.errors import ConfigError
from otel_eval.model import Failed, Report, Result, Scored, Skipped, Trajectory

__all__ = ["show_explanations", "show_scores", "show_trajectories"]

_NOTHING_EVALUATED: Final = 3  # exit code
_MOST_FAILURES: Final = 20

# It records a label for a distribution and says so by being skipped: no verdict, so no exit code.
_NO_VERDICT: Final = "label_distribution"


_VERDICTS: Final = ("passed", "did not pass", "skipped", "recorded", "failed to score")


class _Problems:
    """Inputs that could not be used: told at once, remembered for the exit code."""

    def __init__(self, progress: Progress) -> None:
        self.count = 0
        self._progress = progress

    def __call__(self, message: str) -> None:
        self.count += 1
        self.notice(message)

    def notice(self, message: str) -> None:
        """Print a line that does not affect the exit code."""
        with self._progress.aside():
            click.echo(f"otel-eval: {' '.join(message.split())}", err=True)


def show_trajectories(files: Sequence[str], config: EvalConfig, *, form: str, every_run: bool) -> int:
    """Print each run of the files; 0, or 2 if some input could not be used."""
    from otel_eval import app

    problems = _Problems(Progress(()))
    coverage = app.Coverage()
    for trajectory in app.understand(files, config, on_problem=problems, on_notice=problems.notice, coverage=coverage):
        if every_run or trajectory.outermost:
            _print([json_line(trajectory_fields(trajectory))] if form == "json" else [*run_block(trajectory), ""])
    if coverage.traces_without_run:
        click.echo(f"otel-eval: {no_run_line(coverage)}; `otel-eval explain` with the same files shows why", err=True)
    return 2 if problems.count else 0


def show_explanations(files: Sequence[str], config: EvalConfig, *, form: str, trace_id: str, redact: bool) -> int:
    """Print why each trace of the files has runs and scores, or none; 0, or 2 if some input could not be used.

    Args:
        files: of traces.
        config: its evaluations, conventions and limits.
        form: "table" for text, "json" for one line a trace.
        trace_id: what the ids of the traces begin with; "" for all.
        redact: whether values are left out.
    """
    from otel_eval import app
    from otel_eval.cli.explain_fields import Disclosure, explanation_fields
    from otel_eval.cli.explain_text import closing_lines, explanation_block

    problems, disclosure, looked_for = _Problems(Progress(())), Disclosure(redact=redact), set[str]()
    traces = with_run = 0
    for explained in app.explain(files, config, on_problem=problems, on_notice=problems.notice):
        if not explained.trace.trace_id.startswith(trace_id.lower()):
            continue
        fields = explanation_fields(explained, disclosure)
        traces, with_run = traces + 1, with_run + bool(explained.runs)
        if fields["no_run"]:
            looked_for.update(key for keys in fields["looked_for"].values() for key in keys)
        _print([json_line(fields)] if form == "json" else explanation_block(fields))
    if form == "table" and (traces or not problems.count):
        _print(closing_lines(traces, with_run, looked_for))
    return 2 if problems.count else 0


def show_scores(
    files: Sequence[str],
    config: EvalConfig,
    *,
    form: str,
    strict: bool,
    export: bool,
    allow_empty: bool = False,
    allow_unused: bool = False,
    full_ids: bool = False,
) -> int:
    """Print each score of the files.

    Returns:
        2 if some input could not be used; else 1 if some score did not pass; else 3 if nothing was evaluated or a record of
        a dataset matched no run, unless that is allowed; else 0.
    """
    from otel_eval import app

    if export and not (config.exporters.otlp or config.exporters.jsonl):
        raise ConfigError("exporters: none is configured, so --export has nowhere to send to; name one or leave --export out")
    with Progress(files) as progress:
        problems, tally = _Problems(progress), _Tally()
        coverage = app.Coverage()
        reports = app.replay(
            files,
            config,
            export=export,
            on_problem=problems,
            on_notice=problems.notice,
            on_progress=progress.advance,
            coverage=coverage,
        )
        for report in reports:
            lines = _json_lines(report) if form == "json" else _table(report, tally.is_of_last_run(report), full_ids=full_ids)
            tally.count(report)
            with progress.aside():
                _print(lines)
    if form == "table" and (tally.runs or not problems.count):
        _print(["", *tally.lines()])
    missed = [
        *(() if allow_empty else nothing_evaluated(coverage, tally.evaluated, tally.skipped)),
        *(() if allow_unused else unused_records(coverage)),
    ]
    for warning in coverage.tool_name_warnings():
        click.echo(f"otel-eval: {warning}", err=True)
    for failure in tally.failure_lines():
        click.echo(f"otel-eval: {failure}", err=True)
    if problems.count:
        return 2  # the problem was printed, and it may be the cause of all that is missing
    for line in missed:
        click.echo(f"otel-eval: {line}", err=True)
    return tally.exit_code(strict=strict) or (_NOTHING_EVALUATED if missed else 0)


class _Tally:
    """How the scores fell."""

    def __init__(self) -> None:
        self.runs: set[tuple[str, str]] = set()
        self._verdicts: Counter[str] = Counter()
        self.skipped: Counter[str] = Counter()  # by reason
        self._last: Trajectory | None = None
        self._labels: dict[str, list[Result]] = {}
        self.failures: Counter[tuple[str, str, str]] = Counter()  # scorer, error type, place in the user's code

    def is_of_last_run(self, report: Report) -> bool:
        """Whether the report is of the same run as the last one that was counted."""
        return report.trajectory is self._last

    def count(self, report: Report) -> None:
        """Count the results; a report of a trace without any does not count."""
        if report.no_run is not None:
            return
        self._verdicts.update(_verdict(result) for result in report.results)
        for result in report.results:
            if isinstance(result.outcome, Failed) and result.outcome.place:
                self.failures[result.scorer, result.outcome.error_type, result.outcome.place] += 1
            if isinstance(result.outcome, Skipped):
                self.skipped["recorded" if result.type == _NO_VERDICT else result.outcome.reason] += 1
            if result.type == _NO_VERDICT:
                self._labels.setdefault(f"{report.evaluation} {result.scorer}", []).append(result)
        self._last = report.trajectory
        self.runs.add((self._last.trace_id, self._last.span_id))

    def lines(self) -> list[str]:
        """The last lines of a table: a line for each distribution of labels, then the counts."""
        from otel_eval.scorers import summarize

        distributions = [f"{name}: {label_line(summarize(results))}" for name, results in self._labels.items()]
        return [*distributions, tally_line([(word, self._verdicts[word]) for word in _VERDICTS], len(self.runs))]

    def failure_lines(self) -> Iterator[str]:
        """A line for each scorer of a user that raised: the type of the error, file and line, and no content."""
        for (scorer, error, place), count in self.failures.most_common(_MOST_FAILURES):
            yield f"scorer {scorer} failed {count} time{'' if count == 1 else 's'}: {error} at {place}"

    @property
    def evaluated(self) -> int:
        """Results that are no skip, and skips of runs that were too large to score."""
        return self._verdicts.total() - self.skipped.total() + self.skipped["too_large"]

    def exit_code(self, *, strict: bool) -> int:
        """0, or 1 if some score did not pass, some scorer failed or, where that is asked, one was skipped.

        A scorer that had nothing to score (`not_applicable`) and a recorded label never count.
        """
        skipped = self._verdicts["skipped"] - self.skipped["not_applicable"] if strict else 0
        return 1 if self._verdicts["did not pass"] + self._verdicts["failed to score"] + skipped else 0


def _verdict(result: Result) -> str:
    if isinstance(result.outcome, Scored):
        return "passed" if result.outcome.passed else "did not pass"
    if isinstance(result.outcome, Skipped):
        return "recorded" if result.type == _NO_VERDICT else "skipped"
    return "failed to score"


def _json_lines(report: Report) -> Iterator[str]:
    from otel_eval.exporters.result_rows import rows_of

    return map(json_line, rows_of(report))


def _table(report: Report, again: bool, *, full_ids: bool) -> list[str]:
    """The scores of an evaluation, below their run where it was not shown already; nothing for a trace without a run."""
    if report.no_run is not None:
        return []
    run = [] if again else ["", *run_block(report.trajectory, arguments=False, case=report.attributes, full_ids=full_ids)]
    revision = f" (revision {report.revision})" if report.revision else ""
    return [*run, f"  evaluation {report.evaluation}{revision}", *score_block(report.results)]


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line)
