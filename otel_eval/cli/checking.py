"""`otel-eval check --against`: what each rule of a policy decides on stored runs."""

from __future__ import annotations

from collections.abc import Sequence

import click

from otel_eval.app.rule_coverage import RuleCoverage, rule_coverage
from otel_eval.cli.inputs import InputMessages, files_of
from otel_eval.cli.log_format import warn
from otel_eval.config import EvalConfig
from otel_eval.exporters.text_table import plain

_NOTHING_MATCHED = 3  # exit code
_LONGEST_NOTE = 100  # characters


def show_coverage(files: Sequence[str], config: EvalConfig) -> int:
    """Print a table of the rules.

    Returns:
        0; 2 if an input is invalid; 3 if no run matches an evaluation.
    """
    with InputMessages() as messages:
        rules = rule_coverage(files_of(files), config, on_problem=messages.problem)
    if not any(rule.passed or rule.not_passed or rule.failed or rule.skipped for rule in rules):
        warn(["no evaluation matches a run; `otel-eval explain` with the same files shows why"])
        return 2 if messages.problems else _NOTHING_MATCHED
    click.echo("  pass  do not pass  skipped  failed  rule")
    for rule in rules:
        click.echo(_line(rule))
    return 2 if messages.problems else 0


def _line(rule: RuleCoverage) -> str:
    numbers = (
        f"{rule.passed:>6}  {rule.not_passed:>11}  {rule.skipped.total():>7}  {rule.failed:>6}"
    )
    note = plain(rule.note)
    if len(note) > _LONGEST_NOTE:
        note = f"{note[: _LONGEST_NOTE - 1]}…"
    return f"{numbers}  {plain(rule.evaluation)}, {plain(rule.rule)}{note and f' ({note})'}"
