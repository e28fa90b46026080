"""`otel-eval replay`: scores stored traces, and tells by its exit code whether all is well."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, nullcontext
from functools import partial
from typing import Final, cast

import click

from otel_eval.app import stored_traces
from otel_eval.app.replay_coverage import ReplayCoverage
from otel_eval.cli.exit_codes import NOTHING_FOUND, UNUSABLE
from otel_eval.cli.formats import FORMATS, ReportFormat, TableFormat, Write
from otel_eval.cli.inputs import InputMessages, files_of
from otel_eval.cli.log_format import warn
from otel_eval.cli.render import label_line, summary_line
from otel_eval.cli.summary import ScorerSummary, Summary, percent
from otel_eval.config import EvalConfig
from otel_eval.diagnostics import lone_calls_text
from otel_eval.errors import redacted_repr
from otel_eval.exporters.text_table import Layout, layout_of
from otel_eval.exporters.whole_file import WholeFile
from otel_eval.model import INAPPLICABLE_REASONS, Failed, Report, Result
from otel_eval.scorers import summarize
from otel_eval.scorers.tool_names import plural

_MOST_FAILURES: Final = 20
_SHOWN: Final = 5
_RECORDING_TYPE: Final = "label_distribution"
_REMEDY: Final = (
    "`otel-eval explain` with the same files and --config shows why; --allow-empty accepts it"
)


def show_scores(
    paths: Sequence[str],
    config: EvalConfig,
    *,
    form: str,
    output: str | None,
    export: bool,
    not_passed: bool,
    full_ids: bool,
    max_runs: int,
    min_pass_rate: float | None,
    allow_skipped: bool,
    allow_empty: bool,
    allow_unused: bool,
    jobs: int,
) -> int:
    """Write each score of the files, and what they amount to.

    Args:
        paths: files with traces, or folders of them.
        config: the evaluations, conventions, judges and limits.
        form: `table`, `json`, `junit`, `markdown` or `html`.
        output: a file to write to, which is there whole or not at all, and is not written if no
            input could be read; None for standard output.
        export: whether results also go to the configured exporters.
        not_passed: whether only results are written that did not pass, were skipped or failed.
        full_ids: whether a table has ids in full.
        max_runs: of `html`, after how many runs calls are left out of runs that pass.
        min_pass_rate: the share of the scores of each scorer that has to pass; None: all.
        allow_skipped: whether scorers may be skipped although they apply.
        allow_empty: whether nothing at all may be evaluated.
        allow_unused: whether records of datasets may match no run.
        jobs: processes that evaluate.

    Returns:
        2 if an input is invalid; else 3 if nothing was evaluated; else 1 if a score did not pass,
        or a scorer failed or was skipped although it applies; else 3 if a record of a dataset
        matched no run; 0 where that is allowed. Results of scorers with the severity `warn` do not
        count.

    Raises:
        InputError: the output cannot be written, or a folder has no files.
        KeyboardInterrupt: after the summary of what was scored.
    """
    files, outcomes = files_of(paths), _ReplayOutcomes()
    file = WholeFile(output) if output is not None else nullcontext()
    with file as opened, InputMessages() as messages:
        layout = layout_of(sys.stdout) if opened is None else Layout()
        write: Write
        if opened is not None:
            write = opened.write
        elif form == "table":  # in the encoding of standard output; other formats are in UTF-8
            write = partial(click.echo, nl=False)
        else:
            write = _write_utf8
        formatted: ReportFormat
        if form == "html":
            from otel_eval.cli.html_report import HtmlReport

            formatted = HtmlReport(write, files, config, max_runs=max_runs, not_passed=not_passed)
        elif form == "table":
            formatted = TableFormat(write, not_passed=not_passed, layout=layout, full_ids=full_ids)
        else:
            formatted = FORMATS[form](write, not_passed=not_passed)
        reports = stored_traces.replay(
            files,
            config,
            messages,
            export=export,
            coverage=outcomes,
            jobs=jobs,
        )
        try:
            with closing(cast("Generator[Report, None, None]", reports)):
                _write_reports(reports, formatted, messages)
        except KeyboardInterrupt:
            messages.notice(f"interrupted; scored before: {outcomes.count_line()}")
            if form == "table" and output is None:
                formatted.finish(outcomes.summary, outcomes.lines(layout.width))
            raise
        is_unread = bool(messages.problems) and not outcomes.runs + outcomes.traces_without_run
        if form != "table" or outcomes.summary.runs or not messages.problems:
            formatted.finish(outcomes.summary, outcomes.lines(layout.width))
        if opened is not None and is_unread:
            opened.discard()
    if output is not None and not is_unread:
        click.echo(f"{output}: written; {outcomes.count_line()}")
    return _exit_code(
        outcomes,
        has_problems=bool(messages.problems),
        min_pass_rate=min_pass_rate,
        allow_skipped=allow_skipped or allow_empty,
        allow_empty=allow_empty,
        allow_unused=allow_unused,
    )


def _write_utf8(text: str) -> None:
    click.echo(text.encode("utf-8", "backslashreplace"), nl=False)


def _write_reports(
    reports: Iterator[Report], formatted: ReportFormat, messages: InputMessages
) -> None:
    """Write reports as they come, however many traces follow."""
    last = None
    for report in reports:
        messages.clear()
        formatted.add(report)
        if report.no_run is None and report.trajectory is not last:
            last = report.trajectory
            messages.count()


def _exit_code(
    outcomes: _ReplayOutcomes,
    *,
    has_problems: bool,
    min_pass_rate: float | None,
    allow_skipped: bool,
    allow_empty: bool,
    allow_unused: bool,
) -> int:
    """Print warnings, and what is wrong beside invalid inputs and scores that do not pass; return
    the exit code, as `show_scores` does.

    Args:
        has_problems: whether an input was invalid.
        min_pass_rate, allow_skipped, allow_empty, allow_unused: as of `show_scores`.
    """
    is_empty = not allow_empty and not outcomes.has_results
    reason = outcomes.why_nothing() or "no scorer ran, because each has a sample below 1"
    missing = [f"nothing was evaluated: {reason}; {_REMEDY}"] if is_empty else []
    missing += [] if allow_unused else _unused_records(outcomes)
    lone = [lone_calls_text(outcomes.lone_calls)] if outcomes.lone_calls and outcomes.runs else []
    warn([*outcomes.tool_name_warnings(), *outcomes.failure_lines(), *lone])
    if has_problems:
        return UNUSABLE  # already printed, and possibly the cause of everything that is missing
    warn(missing)
    if is_empty:
        return NOTHING_FOUND
    wrong = [] if allow_skipped else outcomes.skipped_lines()
    if min_pass_rate is not None:
        wrong += outcomes.too_low_lines(min_pass_rate)
    warn(wrong)
    if wrong or any(
        scorer.failed or (min_pass_rate is None and scorer.passed < scorer.scored)
        for scorer in outcomes.counting_scorers
    ):
        return 1
    return NOTHING_FOUND if missing else 0


class _ReplayOutcomes(ReplayCoverage):
    """Counts results by outcome, failures and labels as well.

    Attributes:
        summary: by scorer and by agent.
    """

    def __init__(self) -> None:
        super().__init__()
        self.summary: Final = Summary()
        self._labels: dict[str, list[Result]] = {}
        # scorer, error type, place in the user's code
        self._failures: Counter[tuple[str, str, str]] = Counter()

    def add(self, report: Report) -> list[tuple[str, Failed, str, int]]:
        """Count the report's results; a report of a trace without a run has none."""
        self.summary.add(report)
        for result in report.results:
            if isinstance(result.outcome, Failed) and result.outcome.place:
                self._failures[result.scorer, result.outcome.error_type, result.outcome.place] += 1
            if result.type == _RECORDING_TYPE:
                self._labels.setdefault(f"{report.evaluation} {result.scorer}", []).append(result)
        return super().add(report)

    @property
    def counting_scorers(self) -> list[ScorerSummary]:
        """The scorers whose results count for the exit code."""
        return [scorer for scorer in self.summary.scorers.values() if scorer.counts]

    def count_line(self) -> str:
        """The number of runs and of results by outcome, and of runs that no evaluation matched, as
        a line.
        """
        counts: Counter[str] = Counter()
        for scorer in self.summary.scorers.values():
            counts["passed"] += scorer.passed
            counts["did not pass"] += scorer.scored - scorer.passed
            counts["skipped"] += scorer.skipped.total()
            counts["recorded"] += scorer.recorded
            counts["failed to score"] += scorer.failed
        line = summary_line([*counts.items()], len(self.summary.runs))
        unmatched = f"; {plural(self._missed_runs, 'run')} matched no evaluation"
        return line + (unmatched if self._missed_runs else "")

    def lines(self, width: int) -> list[str]:
        """The last lines: one for each distribution of labels, then the counts."""
        distributions = [
            f"{name}: {label_line(summarize(results), width)}"
            for name, results in self._labels.items()
        ]
        return [*distributions, self.count_line()]

    def failure_lines(self) -> Iterator[str]:
        """A line for each user-defined scorer that failed: type of the error, file and line or what
        was returned, no content.
        """
        for (scorer, error, location), count in self._failures.most_common(_MOST_FAILURES):
            yield f"scorer {scorer} failed {plural(count, 'time')}: {error} ({location})"

    def skipped_lines(self) -> list[str]:
        """A line about the scorers that were skipped although they apply; [] if none was."""
        counts: Counter[str] = Counter()
        for scorer in self.counting_scorers:
            counts.update(scorer.skipped)
        for reason in INAPPLICABLE_REASONS:
            del counts[reason]
        if not counts:
            return []
        reasons = ", ".join(f"{reason} {count}" for reason, count in counts.most_common())
        skipped = plural(counts.total(), "result")
        return [f"{skipped} skipped ({reasons}); --allow-skipped accepts that"]

    def too_low_lines(self, rate: float) -> list[str]:
        """A line for each scorer that counts and passes less often."""
        return [
            f"{scorer.name}: {percent(scorer.pass_rate)} of {plural(scorer.scored, 'score')} pass,"
            f" less than --min-pass-rate {rate:g}"
            for scorer in self.counting_scorers
            if scorer.pass_rate is not None and scorer.pass_rate < rate
        ]


def _unused_records(coverage: ReplayCoverage) -> Iterator[str]:
    """Dataset files with records that matched no run."""
    for dataset, keys in coverage.unused_records():
        named = ", ".join(
            f"line {dataset.line_of(key)} {redacted_repr(key)}" for key in keys[:_SHOWN]
        )
        ellipsis, total = ", …" if len(keys) > _SHOWN else "", len(dataset.record_keys())
        yield (
            f"{dataset.path}: {len(keys)} of {plural(total, 'record')} matched no run:"
            f" {named}{ellipsis}; record the missing cases or check the key;"
            " --allow-unused accepts it"
        )
