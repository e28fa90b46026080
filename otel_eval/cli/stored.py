"""Stored traces on the command line: `trajectory`, `explain` and `replay`, their progress bar and
exit codes.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import click

from otel_eval import app
from otel_eval.cli.explanation import (
    Disclosure,
    closing_lines,
    explanation_block,
    tested_attributes,
)
from otel_eval.cli.log_format import warn
from otel_eval.cli.render import label_line, run_block, score_block, summary_line, trajectory_fields
from otel_eval.config import EvalConfig
from otel_eval.diagnostics import lone_calls_text
from otel_eval.errors import redacted_repr
from otel_eval.evaluations import selects
from otel_eval.exporters.result_rows import encoded, rows_of
from otel_eval.model import (
    INAPPLICABLE_REASONS,
    Failed,
    Outcome,
    Report,
    Result,
    Scored,
    Skipped,
)
from otel_eval.scorers import summarize
from otel_eval.scorers.tool_names import plural

_NOTHING_EVALUATED: Final = 3  # exit code
_MOST_FAILURES: Final = 20

# This scorer records a label for a distribution, as a skipped result: it neither passes nor fails,
# and has no exit code.
_RECORDING_TYPE: Final = "label_distribution"
_OUTCOMES: Final = ("passed", "did not pass", "skipped", "recorded", "failed to score")
_CLEAR: Final = "\r\x1b[2K"  # ANSI: to the start of the line, and erase it
_CURSOR: Final = "\x1b[?25h"  # ANSI: show the cursor, which the bar hides


def show_trajectories(files: Sequence[str], config: EvalConfig, *, form: str, runs: str) -> int:
    """Print the runs of the files that `runs`, as in a configuration's `match`, selects; 0, or 2 if
    an input is invalid.
    """
    messages, coverage = InputMessages(), app.ReplayCoverage()
    notify = {"on_problem": messages.problem, "on_notice": messages.notice}
    found = app.understand(files, config, **notify, coverage=coverage, lone_calls=runs == "tools")
    for trajectory in found:
        if selects(runs, trajectory):
            _print(
                encoded([trajectory_fields(trajectory)])
                if form == "json"
                else [*run_block(trajectory), ""]
            )
    if coverage.traces_without_run:
        warn([f"{coverage.no_run()}; `otel-eval explain` with the same files shows why"])
    elif coverage.lone_calls:
        warn([lone_calls_text(coverage.lone_calls)])
    return 2 if messages.problems else 0


def show_explanations(
    files: Sequence[str], config: EvalConfig, *, trace_id: str, redact: bool
) -> int:
    """Print why each trace of the files has runs and scores, or none; 0, or 2 if an input is
    invalid.

    Args:
        files: files with traces.
        config: the evaluations, conventions and limits.
        trace_id: a prefix of the trace ids; "" for all traces.
        redact: whether to leave out values.
    """
    messages, disclosure, tested = InputMessages(), Disclosure(redact=redact), set[str]()
    traces = with_run = 0
    for explained in app.explain(
        files, config, on_problem=messages.problem, on_notice=messages.notice
    ):
        if not explained.trace.trace_id.startswith(trace_id.lower()):
            continue
        traces, with_run = traces + 1, with_run + bool(explained.runs)
        if not explained.runs:
            tested |= tested_attributes(explained.trace)
        _print(explanation_block(explained, disclosure))
    if trace_id and not traces:
        warn(
            [
                f"no trace id in the files begins with {redacted_repr(trace_id)}; `otel-eval"
                " trajectory` shows the ids"
            ]
        )
    elif traces or not messages.problems:
        _print(closing_lines(traces, with_run, tested))
    return 2 if messages.problems else 0


def show_scores(
    files: Sequence[str],
    config: EvalConfig,
    *,
    form: str,
    export: bool,
    allow_skipped: bool = False,
    allow_empty: bool = False,
    allow_unused: bool = False,
    full_ids: bool = False,
    jobs: int = 1,
) -> int:
    """Print each score of the files.

    Returns:
        2 if an input is invalid; else 3 if nothing was evaluated; else 1 if a score did not pass,
        or a scorer failed or was skipped although it applies; else 3 if a record of a dataset
        matched no run; 0 where that is allowed. Results of scorers with the severity `warn` do not
        count.
    """
    counted, last = _ReplayOutcomes(), None
    with InputMessages(files) as messages:
        notify = {"on_problem": messages.problem, "on_notice": messages.notice}
        reports = app.replay(
            files,
            config,
            export=export,
            **notify,
            on_progress=messages.advance,
            coverage=counted,
            jobs=jobs,
        )
        for report in reports:
            shown = report.trajectory is last
            lines = (
                encoded(rows_of(report))
                if form == "json"
                else _table(report, shown, full_ids=full_ids)
            )
            last = report.trajectory if report.no_run is None else last
            messages.clear()  # reports are printed as they come, however many traces follow
            _print(lines)
    if form == "table" and (counted.scored_runs or not messages.problems):
        _print(["", *counted.lines()])
    is_empty = not allow_empty and not counted.has_results
    why = counted.why_nothing() or "no scorer ran, because each has a sample below 1"
    missed = [f"nothing was evaluated: {why}; {_REMEDY}"] if is_empty else []
    missed += [] if allow_unused else unused_records(counted)
    lone = [lone_calls_text(counted.lone_calls)] if counted.lone_calls and counted.runs else []
    warn([*counted.tool_name_warnings(), *counted.failure_lines(), *lone])
    if messages.problems:
        return 2  # already printed, and possibly the cause of everything that is missing
    warn(missed)
    if is_empty:
        return _NOTHING_EVALUATED
    skipped = [] if allow_skipped or allow_empty else counted.skipped_lines()
    warn(skipped)
    return 1 if skipped or counted.has_failures else _NOTHING_EVALUATED if missed else 0


class _ReplayOutcomes(app.ReplayCoverage):
    """Counts results by outcome, failures and labels as well."""

    def __init__(self) -> None:
        super().__init__()
        self.scored_runs: set[tuple[str, str]] = set()
        self._outcomes: Counter[str] = Counter()
        self._labels: dict[str, list[Result]] = {}
        # results with the severity `error`: skipped although the scorer applies, by reason; and
        # those that did not pass or failed
        self._unscored: Counter[str] = Counter()
        self._failures = 0
        # scorer, error type, place in the user's code
        self.failures: Counter[tuple[str, str, str]] = Counter()

    def add(self, report: Report) -> list[tuple[str, Failed, str, int]]:
        """Count the report's results; a report of a trace without a run has none."""
        self._outcomes.update(_outcome(result) for result in report.results)
        for result in report.results:
            if result.severity == "error":
                self._count_outcome(result.outcome)
            if isinstance(result.outcome, Failed) and result.outcome.place:
                self.failures[result.scorer, result.outcome.error_type, result.outcome.place] += 1
            if result.type == _RECORDING_TYPE:
                self._labels.setdefault(f"{report.evaluation} {result.scorer}", []).append(result)
        if report.no_run is None:
            self.scored_runs.add((report.trajectory.trace_id, report.trajectory.span_id))
        return super().add(report)

    def _count_outcome(self, outcome: Outcome) -> None:
        if isinstance(outcome, Skipped):
            if outcome.reason not in INAPPLICABLE_REASONS:
                self._unscored[outcome.reason] += 1
        elif not outcome.passed:
            self._failures += 1

    def lines(self) -> list[str]:
        """The last lines of a table: one for each distribution of labels, then the counts."""
        distributions = [
            f"{name}: {label_line(summarize(results))}" for name, results in self._labels.items()
        ]
        return [
            *distributions,
            summary_line(
                [(word, self._outcomes[word]) for word in _OUTCOMES], len(self.scored_runs)
            ),
        ]

    def failure_lines(self) -> Iterator[str]:
        """A line for each user-defined scorer that failed: type of the error, file and line or what
        was returned, no content.
        """
        for (scorer, error, place), count in self.failures.most_common(_MOST_FAILURES):
            yield f"scorer {scorer} failed {plural(count, 'time')}: {error} ({place})"

    @property
    def has_failures(self) -> bool:
        """Whether a score did not pass, or a scorer failed, that counts."""
        return self._failures > 0

    def skipped_lines(self) -> list[str]:
        """A line about the scorers that were skipped although they apply; [] if none was."""
        if not self._unscored:
            return []
        reasons = ", ".join(f"{reason} {count}" for reason, count in self._unscored.most_common())
        skipped = plural(self._unscored.total(), "result")
        return [f"{skipped} skipped ({reasons}); --allow-skipped accepts that"]


def _outcome(result: Result) -> str:
    """One of `_OUTCOMES`."""
    if isinstance(result.outcome, Scored):
        return "passed" if result.outcome.passed else "did not pass"
    if isinstance(result.outcome, Skipped):
        return "recorded" if result.type == _RECORDING_TYPE else "skipped"
    return "failed to score"


def _table(report: Report, shown: bool, *, full_ids: bool) -> list[str]:
    """The scores of an evaluation, with a headline unless the same run was shown before; empty for
    a trace without a run.
    """
    if report.no_run is not None:
        return []
    run = (
        []
        if shown
        else [
            "",
            *run_block(
                report.trajectory, arguments=False, case=report.attributes, full_ids=full_ids
            ),
        ]
    )
    revision = f" (revision {report.revision})" if report.revision else ""
    verdict = f": {report.verdict.replace('_', ' ')}" if report.verdict else ""
    headline = f"  evaluation {report.evaluation}{revision}{verdict}"
    return [*run, headline, *score_block(report.results)]


def _print(lines: Sequence[str] | bytes) -> None:
    """Print lines of text, or lines of JSON in UTF-8."""
    if lines:
        click.echo(
            lines if isinstance(lines, bytes) else "\n".join(lines), nl=not isinstance(lines, bytes)
        )


_REMEDY: Final = (
    "`otel-eval explain` with the same files and --config shows why; --allow-empty accepts it"
)
_SHOWN: Final = 5


def unused_records(coverage: app.ReplayCoverage) -> Iterator[str]:
    """Dataset files with records that matched no run."""
    for dataset, keys in coverage.unused_records():
        named = ", ".join(
            f"line {dataset.line_of(key)} {redacted_repr(key)}" for key in keys[:_SHOWN]
        )
        more, total = ", …" if len(keys) > _SHOWN else "", len(dataset.record_keys())
        yield (
            f"{dataset.path}: {len(keys)} of {plural(total, 'record')} matched no run:"
            f" {named}{more}; record the missing cases or check the key; --allow-unused accepts it"
        )


class InputMessages:
    """Lines on stderr about the inputs, and a bar that is cleared while something else is printed.

    There is no bar if stderr is not a terminal or no files are given.

    Attributes:
        problems: invalid inputs, which the exit code tells.
    """

    def __init__(self, files: Sequence[str] = ()) -> None:
        self.problems = 0
        # Without all sizes, for instance of standard input, there is no total to show progress
        # towards.
        sizes = [os.path.getsize(file) for file in files if os.path.isfile(file)]
        self._bar: Any = None
        if sizes and len(sizes) == len(files) and sys.stderr.isatty():
            self._bar = click.progressbar(length=sum(sizes), label="reading", file=sys.stderr)

    def __enter__(self) -> InputMessages:
        if self._bar is not None:
            self._bar.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()
        if self._bar is not None:
            click.echo(_CURSOR, nl=False, err=True)

    def problem(self, message: str) -> None:
        """Print and count a line about an invalid input."""
        self.problems += 1
        self.notice(message)

    def notice(self, message: str) -> None:
        """Print a line that does not affect the exit code."""
        self.clear()
        warn([" ".join(message.split())])

    def advance(self, read: int) -> None:
        """Add the number of bytes that were read."""
        if self._bar is not None:
            self._bar.update(read)

    def clear(self) -> None:
        """Clear the bar, so that something can be printed; it is drawn again when more was read."""
        if self._bar is not None:
            click.echo(_CLEAR, nl=False, err=True)
            self._bar._last_line = None  # click does not draw an unchanged line again
