"""`otel-eval compare`: reads both sides, and shows what changed as text, Markdown or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from otel_eval.app import stored_traces
from otel_eval.cli.exit_codes import NOTHING_FOUND
from otel_eval.cli.inputs import files_of
from otel_eval.cli.log_format import warn
from otel_eval.cli.markdown import Comment, Table, escape
from otel_eval.cli.results import split_inputs
from otel_eval.cli.summary import percent
from otel_eval.comparison import (
    AgentComparison,
    ComparedScorer,
    ResultComparison,
    ScorerComparison,
    SideSummary,
    WorseRun,
    compare,
    field_text,
    results_of_rows,
)
from otel_eval.config import EvalConfig, load
from otel_eval.errors import ConfigError, InputError
from otel_eval.exporters.run_documents import run_document
from otel_eval.exporters.text_table import layout_of, plain
from otel_eval.exporters.whole_file import write_whole
from otel_eval.sources.files import CollectedMessages

_MOST_WORSE: Final = 20  # cases shown for a scorer


def show_comparison(
    inputs: Sequence[str],
    *,
    config: str | None,
    case: str,
    by: str,
    before: str | None,
    after: str | None,
    allow_lost: bool,
    form: str,
    output: str | None,
) -> int:
    """Print the comparison of two sets of results.

    Returns:
        0, 1 for a regression or loss that counts, or 3 if there is nothing to compare.

    Raises:
        ConfigError: the options do not fit together.
        InputError: an input cannot be read.
    """
    loaded = load(config) if config else None
    if by:
        if before is None or after is None:
            raise ConfigError(f"--by {by}: name both values, with --before and --after")
        rows = _rows(inputs, loaded)
        sides = [[row for row in rows if field_text(row, by) == value] for value in (before, after)]
        for side, value in zip(sides, (before, after), strict=True):
            if not side:
                warn([f"no result has {by} {value!r}; {_values_seen(rows, by)}"])
    elif len(inputs) != 2:
        raise ConfigError("compare: name two inputs, before and after, or one field with --by")
    else:
        sides = [_rows([path], loaded) for path in inputs]
    old, new = (results_of_rows(rows, case=case) for rows in sides)
    if case and not any(result.run.case for result in (*old, *new)):
        raise InputError(
            f"--case {case}: no result has such a field or attribute; name one of its fields, or"
            " export the attribute with `results: {attributes: [...]}`"
        )
    comparison = compare(old, new, declared=bool(case))
    if form == "json":
        text = _json(comparison, len(old), len(new))
    else:
        text = _markdown(comparison) if form == "markdown" else _table(comparison)
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(output, text)
    if not comparison.scorers:
        warn(["nothing to compare: no scorer with the same policy has results on both sides"])
        return NOTHING_FOUND
    return 1 if comparison.regressed or (comparison.lost and not allow_lost) else 0


def _values_seen(rows: Iterable[Mapping[str, Any]], by: str) -> str:
    """The values of the field `by`, at most ten, as the end of an error message."""
    values = sorted({field_text(row, by) for row in rows} - {""})[:10]
    return f"seen: {', '.join(values)}" if values else "no result has that field"


def _rows(paths: Sequence[str], config: EvalConfig | None) -> list[Mapping[str, Any]]:
    """Return the rows or run documents of files and folders; stored traces are scored."""
    rows, traces = split_inputs(files_of(paths), is_configured=config is not None)
    if traces and config is not None:
        messages = CollectedMessages()
        reports = stored_traces.replay(traces, config, messages)
        rows += [run_document(report, content=False) for report in reports if report.no_run is None]
        if messages.problems:
            raise InputError(messages.problems[0])
    return rows


def _name_of(scorer: ComparedScorer) -> str:
    return f"{scorer.agent or '(unnamed)'}: {scorer.evaluation}/{scorer.scorer}"


def _number(value: float | None, unit: str = "") -> str:
    """A number with three digits or, from 10 on, without decimals; "-" for None."""
    return "-" if value is None else f"{value:,.3g}{unit}" if value < 10 else f"{value:,.0f}{unit}"


def _finding(comparison: ScorerComparison) -> str:
    """The finding with the p-value of the test that decided."""
    p_value = (
        ""
        if comparison.p_value is None or comparison.finding == "unchanged"
        else f", p = {comparison.p_value:.2g}"
    )
    severity = "" if comparison.counts else " (severity warn)"
    return f"{comparison.finding}{p_value}{severity}"


def _scorer_table(comparison: ResultComparison) -> Table:
    header = ("scorer", "before", "after", "mean", "by", "finding")
    return Table(header, [_scorer_row(scorer) for scorer in comparison.scorers])


def _scorer_row(comparison: ScorerComparison) -> tuple[str, ...]:
    """The cells of a scorer: both sides, the means, how it was compared, and the finding."""
    return (
        _name_of(comparison.scorer),
        _side_text(comparison.before),
        _side_text(comparison.after),
        f"{_number(comparison.before.mean)} → {_number(comparison.after.mean)}",
        comparison.way,
        _finding(comparison),
    )


def _side_text(side: SideSummary) -> str:
    """The pass rate of one side, of how many scores, and how many runs have no score."""
    unscored = side.runs - side.scored
    missing = f", {unscored} not scored" if unscored else ""
    return f"{percent(side.pass_rate)} of {side.scored}{missing}"


def _worse_lines(comparison: ScorerComparison) -> Iterator[str]:
    """A line for each case that got worse, the first 20 of each kind."""
    for kind, cases in (("does not pass", comparison.worse), ("not scored", comparison.lost)):
        if (
            comparison.finding in ("within noise", "unchanged", "improvement")
            and kind == "does not pass"
        ):
            continue
        for case in cases[:_MOST_WORSE]:
            yield f"{_name_of(comparison.scorer)}: {kind}: {_case_text(case)}"
        if len(cases) > _MOST_WORSE:
            yield f"{_name_of(comparison.scorer)}: {len(cases) - _MOST_WORSE} more"


def _case_text(case: WorseRun) -> str:
    """A case that got worse: its name, the trace after the change, why it is worse, and where
    the calls part, as far as these are known.
    """
    trace = f" (trace {case.after.trace_id})" if case.after else ""
    parting = f"; {case.parting}" if case.parting else ""
    return f"{case.case}{trace}: {case.explanation}{parting}"


def _agent_lines(agent: AgentComparison) -> Iterator[str]:
    """How runs, durations, tokens and tools of an agent changed."""
    name = agent.agent or "(unnamed)"
    changes = [f"runs {agent.runs[0]} → {agent.runs[1]}"]
    for label, values, unit in (
        ("median duration", agent.duration_ms, " ms"),
        ("median tokens", agent.tokens, ""),
    ):
        if None not in values:
            changes.append(f"{label} {_number(values[0], unit)} → {_number(values[1], unit)}")
    yield f"{name}: {', '.join(changes)}"
    for label, tools in (("appeared", agent.appeared), ("vanished", agent.vanished)):
        if tools:
            named = ", ".join(f"{tool} (in {count} runs)" for tool, count in tools.items())
            yield f"{name}: tools that {label}: {named}"


def _other_lines(comparison: ResultComparison) -> list[str]:
    """What is written beside the table: cases that got worse or did not run, changes of each
    agent, and what was not compared.
    """
    lines = [line for scorer in comparison.scorers for line in _worse_lines(scorer)]
    lines += [f"{case}: the case did not run" for case in comparison.missing_cases]
    lines += [line for agent in comparison.agents for line in _agent_lines(agent)]
    return lines + [f"not compared: {sentence}" for sentence in comparison.not_compared]


def _summary(comparison: ResultComparison) -> str:
    """A line on whether something got worse and how often each finding occurs; "nothing to
    compare" if no scorer was compared.
    """
    if not comparison.scorers:
        return "nothing to compare"
    findings = [scorer.finding for scorer in comparison.scorers]
    words = ("regression", "loss", "improvement", "within noise", "unchanged")
    counts = ", ".join(f"{findings.count(word)} {word}" for word in words if word in findings)
    worse = comparison.regressed or comparison.lost
    return f"{'worse than before' if worse else 'nothing got worse'}: {counts}"


def _table(comparison: ResultComparison) -> str:
    lines = _scorer_table(comparison).text_lines(layout_of(sys.stdout), 48)
    lines_below = [plain(line) for line in _other_lines(comparison)]
    blank = [""] if lines and lines_below else []
    return "\n".join([*lines, *blank, *lines_below, _summary(comparison), ""])


def _markdown(comparison: ResultComparison) -> str:
    """The comparison as a comment on a change."""
    comment = Comment("otel-eval compare")
    comment.add(f"### otel-eval: {escape(_summary(comparison))}", "")
    comment.add(*_scorer_table(comparison).markdown_lines())
    comment.add(*(f"* {escape(line)}" for line in _other_lines(comparison)))
    return comment.text()


def _json(comparison: ResultComparison, before: int, after: int) -> str:
    fields = asdict(comparison) | {
        "regressed": comparison.regressed,
        "lost": comparison.lost,
        "results": {"before": before, "after": after},
    }
    return json.dumps(fields, ensure_ascii=False, indent=2, default=str) + "\n"
