"""Stored traces on the command line: `trajectory`, `explain` and `check --against`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Final

import click

from otel_eval.app import stored_traces
from otel_eval.app.replay_coverage import ReplayCoverage
from otel_eval.app.rule_coverage import RuleCoverage, rule_coverage
from otel_eval.cli.exit_codes import NOTHING_FOUND
from otel_eval.cli.explanation import (
    Disclosure,
    closing_lines,
    explanation_block,
    tested_attributes,
)
from otel_eval.cli.inputs import InputMessages, files_of
from otel_eval.cli.log_format import warn
from otel_eval.cli.render import run_block, trajectory_fields
from otel_eval.config import EvalConfig
from otel_eval.diagnostics import lone_calls_text
from otel_eval.errors import redacted_repr
from otel_eval.evaluations import selects
from otel_eval.exporters.result_rows import encoded
from otel_eval.exporters.text_table import layout_of, plain
from otel_eval.scorers.tool_names import plural, shortened

_LONGEST_NOTE: Final = 100  # characters


def show_trajectories(paths: Sequence[str], config: EvalConfig, *, form: str, runs: str) -> int:
    """Print the runs of the files that `runs`, as in a configuration's `match`, selects; 0, or 2 if
    an input is invalid.

    Raises:
        KeyboardInterrupt: after a line with the number of runs that were printed.
    """
    coverage, layout = ReplayCoverage(), layout_of(sys.stdout)
    with InputMessages() as messages:
        trajectories = stored_traces.understand(
            files_of(paths),
            config,
            messages,
            coverage=coverage,
            lone_calls=runs == "tools",
        )
        try:
            for trajectory in trajectories:
                if selects(runs, trajectory):
                    messages.clear()
                    if form == "json":
                        click.echo(encoded([trajectory_fields(trajectory)]), nl=False)
                    else:
                        click.echo("\n".join([*run_block(trajectory, layout=layout), ""]))
                    messages.count()
        except KeyboardInterrupt:
            messages.notice(f"interrupted after {plural(messages.done, 'run')}")
            raise
    if coverage.traces_without_run:
        warn([f"{coverage.no_run()}; `otel-eval explain` with the same files shows why"])
    elif coverage.lone_calls:
        warn([lone_calls_text(coverage.lone_calls)])
    return messages.exit_code()


def show_explanations(
    paths: Sequence[str], config: EvalConfig, *, trace_id: str, redact: bool
) -> int:
    """Print why each trace of the files has runs and scores, or none; 0, or 2 if an input is
    invalid.

    Args:
        paths: files with traces, or folders of them.
        config: the evaluations, conventions and limits.
        trace_id: a prefix of the trace ids; "" for all traces.
        redact: whether to leave out values.

    Raises:
        KeyboardInterrupt: after the lines that close what was explained so far.
    """
    disclosure = Disclosure(redact=redact, layout=layout_of(sys.stdout))
    tested = set[str]()
    with_run = 0
    with InputMessages("traces") as messages:
        explanations = stored_traces.explain(
            files_of(paths),
            config,
            messages,
        )
        try:
            for explained in explanations:
                if not explained.trace.trace_id.startswith(trace_id.lower()):
                    continue
                with_run += bool(explained.runs)
                if not explained.runs:
                    tested |= tested_attributes(explained.trace)
                messages.clear()
                click.echo("\n".join(explanation_block(explained, disclosure)))
                messages.count()
        except KeyboardInterrupt:
            messages.notice("interrupted")
            click.echo("\n".join(closing_lines(messages.done, with_run, tested, disclosure)))
            raise
    if trace_id and not messages.done:
        warn(
            [
                f"no trace id in the files begins with {redacted_repr(trace_id)}; `otel-eval"
                " trajectory` shows the ids"
            ]
        )
    elif messages.done or not messages.problems:
        click.echo("\n".join(closing_lines(messages.done, with_run, tested, disclosure)))
    return messages.exit_code()


def show_coverage(files: Sequence[str], config: EvalConfig) -> int:
    """Print what each rule of a policy decides on the runs of the files (`check --against`).

    Returns:
        0; 2 if an input is invalid; 3 if no run matches an evaluation.
    """
    with InputMessages() as messages:
        rules = rule_coverage(files_of(files), config, messages)
    if not any(rule.passed or rule.not_passed or rule.failed or rule.skipped for rule in rules):
        warn(["no evaluation matches a run; `otel-eval explain` with the same files shows why"])
        return messages.exit_code(NOTHING_FOUND)
    click.echo("  pass  do not pass  skipped  failed  rule")
    for rule in rules:
        click.echo(_rule_line(rule))
    return messages.exit_code()


def _rule_line(rule: RuleCoverage) -> str:
    """Numbers of runs, the rule, and what to know of it."""
    numbers = (
        f"{rule.passed:>6}  {rule.not_passed:>11}  {rule.skipped.total():>7}  {rule.failed:>6}"
    )
    note = shortened(plain(rule.note), _LONGEST_NOTE)
    return f"{numbers}  {plain(rule.evaluation)}, {plain(rule.rule)}{note and f' ({note})'}"
