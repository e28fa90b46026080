"""`otel-eval compare`: reads both sides, and shows what changed as text, Markdown or JSON."""

from __future__ import annotations

import gzip
import json
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import click

from otel_eval.app import stored_traces
from otel_eval.cli.inputs import files_of
from otel_eval.cli.log_format import warn
from otel_eval.cli.markdown import Comment, escaped, table
from otel_eval.comparison import (
    AgentComparison,
    ComparedResult,
    Comparison,
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
from otel_eval.exporters.text_table import columns, layout_of, plain
from otel_eval.exporters.whole_file import write_whole

_NOTHING_COMPARED: Final = 3  # exit code
_MOST_WORSE: Final = 20  # cases shown for a scorer
_PEEKED: Final = 1 << 20  # bytes; a longer first line is no row of results


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
        rows = [row for path in inputs for row in _rows(path, loaded)]
        sides = [[row for row in rows if field_text(row, by) == value] for value in (before, after)]
        for side, value in zip(sides, (before, after), strict=True):
            if not side:
                warn([f"no result has {by} {value!r}; {_values_seen(rows, by)}"])
    elif len(inputs) != 2:
        raise ConfigError("compare: name two inputs, before and after, or one field with --by")
    else:
        sides = [list(_rows(path, loaded)) for path in inputs]
    old, new = (results_of_rows(rows, case=case) for rows in sides)
    if case and not any(result.run.case for result in (*old, *new)):
        raise InputError(
            f"--case {case}: no result has such a field or attribute; name one of its fields, or"
            " export the attribute with `results: {attributes: [...]}`"
        )
    comparison = compare(old, new, declared=bool(case))
    _write(_FORMS[form](comparison, old, new), output)
    if not comparison.scorers:
        warn(["nothing to compare: no scorer with the same policy has results on both sides"])
        return _NOTHING_COMPARED
    return 1 if comparison.regressed or (comparison.lost and not allow_lost) else 0


def _values_seen(rows: Iterable[Mapping[str, Any]], by: str) -> str:
    values = sorted({field_text(row, by) for row in rows} - {""})[:10]
    return f"seen: {', '.join(values)}" if values else "no result has that field"


def _rows(path: str, config: EvalConfig | None) -> Iterator[Mapping[str, Any]]:
    """Yield the rows or run documents of a file or folder; stored traces are scored."""
    files = files_of([path])
    try:
        traces = [file for file in files if not holds_results(file)]
        for file in files:
            if file not in traces:
                yield from result_lines(file)
    except (EOFError, zlib.error) as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{error.filename or path}: {error.strerror or error}") from None
    if traces:
        if config is None:
            raise ConfigError(f"{traces[0]}: holds no results; to score it as traces, add --config")
        problems: list[str] = []
        for report in stored_traces.replay(traces, config, on_problem=problems.append):
            if report.no_run is None:
                yield run_document(report, content=False)
        if problems:
            raise InputError(problems[0])


def _opened(path: str) -> Any:
    with open(path, "rb") as file:
        zipped = file.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if zipped else open(path, "rb")


def holds_results(path: str) -> bool:
    """Whether the first line is a row of results or a run document."""
    with _opened(path) as file:
        while line := file.readline(_PEEKED):
            if line.strip():
                try:
                    first = json.loads(line)
                except (ValueError, RecursionError):
                    return False
                return isinstance(first, dict) and ("outcome" in first or "document" in first)
    return False


def result_lines(path: str) -> Iterator[Mapping[str, Any]]:
    """Yield the rows or run documents of a file of results.

    Raises:
        InputError: a line is no JSON object.
    """
    with _opened(path) as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                raise InputError(f"{path}, line {number}: not JSON") from None
            if not isinstance(row, dict):
                raise InputError(f"{path}, line {number}: not a row of results")
            yield row


def _write(text: str, output: str | None) -> None:
    """Print the text, or write it to a file."""
    if output is None:
        click.echo(text, nl=False)
    else:
        write_whole(output, text)


def _name_of(one: ScorerComparison) -> str:
    return f"{one.scorer.agent or '(unnamed)'}: {one.scorer.evaluation}/{one.scorer.scorer}"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"


def _number(value: float | None, unit: str = "") -> str:
    return "-" if value is None else f"{value:,.3g}{unit}" if value < 10 else f"{value:,.0f}{unit}"


def _finding(one: ScorerComparison) -> str:
    p_value = (
        "" if one.p_value is None or one.finding == "unchanged" else f", p = {one.p_value:.2g}"
    )
    severity = "" if one.counts else " (severity warn)"
    return f"{one.finding}{p_value}{severity}"


_SCORER_HEADER: Final = ("scorer", "before", "after", "mean", "by", "finding")


def _scorer_row(one: ScorerComparison) -> tuple[str, ...]:
    return (
        _name_of(one),
        _side_text(one.before),
        _side_text(one.after),
        f"{_number(one.before.mean)} → {_number(one.after.mean)}",
        one.way,
        _finding(one),
    )


def _side_text(side: SideSummary) -> str:
    unscored = side.runs - side.scored
    missing = f", {unscored} not scored" if unscored else ""
    return f"{_percent(side.pass_rate)} of {side.scored}{missing}"


def _worse_lines(one: ScorerComparison) -> Iterator[str]:
    for kind, cases in (("does not pass", one.worse), ("not scored", one.lost)):
        if one.finding in ("within noise", "unchanged", "improvement") and kind == "does not pass":
            continue
        for case in cases[:_MOST_WORSE]:
            yield f"{_name_of(one)}: {kind}: {_case_text(case)}"
        if len(cases) > _MOST_WORSE:
            yield f"{_name_of(one)}: {len(cases) - _MOST_WORSE} more"


def _case_text(case: WorseRun) -> str:
    trace = f" (trace {case.after.trace_id})" if case.after else ""
    parting = f"; {case.parting}" if case.parting else ""
    return f"{case.case}{trace}: {case.explanation}{parting}"


def _agent_lines(agent: AgentComparison) -> Iterator[str]:
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


def _other_lines(comparison: Comparison) -> list[str]:
    lines = [line for one in comparison.scorers for line in _worse_lines(one)]
    lines += [f"{case}: the case did not run" for case in comparison.missing_cases]
    lines += [line for agent in comparison.agents for line in _agent_lines(agent)]
    return lines + [f"not compared: {sentence}" for sentence in comparison.not_compared]


def _summary(comparison: Comparison) -> str:
    if not comparison.scorers:
        return "nothing to compare"
    findings = [one.finding for one in comparison.scorers]
    words = ("regression", "loss", "improvement", "within noise", "unchanged")
    counts = ", ".join(f"{findings.count(word)} {word}" for word in words if word in findings)
    worse = comparison.regressed or comparison.lost
    return f"{'worse than before' if worse else 'nothing got worse'}: {counts}"


def _table(comparison: Comparison, *_: Sequence[ComparedResult]) -> str:
    rows = [tuple(map(plain, _scorer_row(one))) for one in comparison.scorers]
    lines = columns(_SCORER_HEADER, rows, layout=layout_of(sys.stdout), widest=48) if rows else []
    others = [plain(line) for line in _other_lines(comparison)]
    return (
        "\n".join([*lines, *([""] if lines and others else []), *others, _summary(comparison)])
        + "\n"
    )


def _markdown(comparison: Comparison, *_: Sequence[ComparedResult]) -> str:
    """The comparison as a comment on a change."""
    comment = Comment("otel-eval compare")
    comment.add(f"### otel-eval: {escaped(_summary(comparison))}", "")
    if comparison.scorers:
        comment.add(*table(_SCORER_HEADER, map(_scorer_row, comparison.scorers)))
    comment.add(*(f"* {escaped(line)}" for line in _other_lines(comparison)))
    return comment.text()


def _json(comparison: Comparison, *sides: Sequence[ComparedResult]) -> str:
    fields = asdict(comparison) | {
        "regressed": comparison.regressed,
        "lost": comparison.lost,
        "results": {"before": len(sides[0]), "after": len(sides[1])},
    }
    return json.dumps(fields, ensure_ascii=False, indent=2, default=str) + "\n"


_FORMS: Final = {"table": _table, "markdown": _markdown, "json": _json}
