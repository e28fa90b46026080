"""Runs and their scores as the fields of JSON objects, and as text for a terminal."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from otel_eval.cli.summary import duration_text
from otel_eval.diagnostics import failure_text
from otel_eval.exporters import console
from otel_eval.exporters.result_rows import duration_ms, start_time
from otel_eval.exporters.text_table import (
    GREEN,
    PLAIN_LAYOUT,
    RED,
    WIDTH,
    YELLOW,
    Layout,
    columns,
    plain,
)
from otel_eval.model import (
    UNRECORDED,
    Failed,
    Result,
    ToolCall,
    Trajectory,
)
from otel_eval.scorers.tool_names import plural, shortened


def trajectory_fields(trajectory: Trajectory) -> dict[str, Any]:
    """The run with its calls. Values that were not recorded are null; `calls_unknown` and
    `waiting` are present only if set.
    """
    return {
        "trace_id": trajectory.trace_id,
        "span_id": trajectory.span_id,
        "agent": trajectory.agent,
        "name": trajectory.name,
        "completeness": str(trajectory.completeness),
        **({"calls_unknown": trajectory.calls_unknown} if trajectory.calls_unknown else {}),
        **({"waiting": trajectory.waiting} if trajectory.waiting else {}),
        "calls": [
            _call_fields(call, parallel)
            for call, parallel in zip(trajectory.calls, overlaps(trajectory.calls), strict=True)
        ],
    }


def _call_fields(call: ToolCall, parallel: list[int]) -> dict[str, Any]:
    """A call; null stands for a value that was not recorded."""
    return {
        "name": call.name,
        "arguments": _recorded(call.arguments),
        "arguments_recorded": call.arguments is not UNRECORDED,
        "result": _recorded(call.result),
        "error": asdict(call.error) if call.error else None,
        **({"failure_unknown": True} if call.failure_unknown else {}),
        "call_id": call.call_id or None,
        "span_id": call.span_id or None,
        "start_ns": call.start_ns,
        "end_ns": call.end_ns,
        "overlaps": parallel,
    }


def _recorded(value: Any) -> Any:
    return None if value is UNRECORDED else value


def overlaps(calls: tuple[ToolCall, ...]) -> list[list[int]]:
    """For each call the indices of those it overlapped in time.

    Two calls overlap if neither was made within the other and each starts strictly before the other
    ends; a call without both times overlaps none. Calls are visited in order of start, so the cost
    is proportional to the calls and the overlaps found.

    >>> from otel_eval.testing import call
    >>> overlaps(
    ...     (
    ...         call("a", start_ns=0, end_ns=5),
    ...         call("b", start_ns=4, end_ns=9),
    ...         call("c", start_ns=9, end_ns=10),
    ...     )
    ... )
    [[1], [0], []]
    """
    overlapping: list[list[int]] = [[] for _ in calls]
    running: list[tuple[int, int, int]] = []
    for start, end, i in sorted(
        (call.start_ns or 0, call.end_ns or 0, i) for i, call in enumerate(calls) if call.timed
    ):
        # Calls that ended before this one starts cannot overlap it or a later one.
        running = [interval for interval in running if start < interval[1]]
        for earlier_start, _, j in running:
            # A call within another is a part of it, as with agents that are tools, and does not run
            # beside it.
            if earlier_start < end and not _related(calls[i], calls[j]):
                overlapping[i].append(j)
                overlapping[j].append(i)
        running.append((start, end, i))
    return [sorted(numbers) for numbers in overlapping]


def _related(one: ToolCall, other: ToolCall) -> bool:
    """Whether one call was made within the other."""
    return bool(one.span_id and one.span_id in other.enclosing) or bool(
        other.span_id and other.span_id in one.enclosing
    )


# a blank at which no line is broken: before a separator, and between a number and its unit
_GLUE: Final = "\u00a0"
_NO_CASE: Final[Mapping[str, Any]] = {}
_CALL_HEADER: Final = ("#", "time", "parallel to", "outcome", "call")
_SCORE_HEADER: Final = ("scorer", "value", "outcome", "reason")


def run_block(
    trajectory: Trajectory,
    *,
    arguments: bool = True,
    case: Mapping[str, Any] = _NO_CASE,
    full_ids: bool = False,
    layout: Layout = PLAIN_LAYOUT,
) -> list[str]:
    """A headline of the run, then a table of its calls, numbered from 1 as in explanations.

    Args:
        trajectory: the run.
        arguments: whether to show the arguments of calls. Tables of scores do not: arguments are
            content, and are read only if a scorer needs them.
        case: attributes of the run to show, such as the id of a test case.
        full_ids: whether to show the ids of trace and span in full; otherwise half of the trace id.
        layout: the width of the lines, and whether they have colours.
    """
    unknown = f"calls unknown: {trajectory.calls_unknown}" if trajectory.calls_unknown else ""
    return [
        *_headlines(trajectory, case, full_ids=full_ids, width=layout.width),
        *textwrap.wrap(plain(unknown), layout.width, initial_indent="  ", subsequent_indent="    "),
        *_call_lines(trajectory, arguments=arguments, layout=layout),
    ]


def _headlines(
    trajectory: Trajectory, case: Mapping[str, Any], *, full_ids: bool, width: int
) -> list[str]:
    """Name, ids, service, start, number of calls, duration and completeness of the run, on up to
    three lines.
    """
    count, start = len(trajectory.calls), start_time(trajectory)
    parts = [
        f"run {trajectory.agent or trajectory.name or '(unnamed)'}",
        *_ids(trajectory, full=full_ids),
        *(
            f"{key}={value if isinstance(value, str) else json_text(value)}"
            for key, value in case.items()
        ),
        trajectory.service,
        f"{start[:10]} {start[11:19]}Z" if start else "",
        plural(count, "tool call") if count or not trajectory.calls_unknown else "calls unknown",
        duration_text(duration_ms(trajectory)),
        str(trajectory.completeness),
        f"incomplete: {trajectory.incomplete}" if trajectory.incomplete else "",
        f"waiting: {trajectory.waiting}" if trajectory.waiting else "",
    ]
    text = f"{_GLUE}· ".join(plain(part) for part in parts if part)
    for unit in ("ms", "s"):
        text = text.replace(f" {unit}{_GLUE}", f"{_GLUE}{unit}{_GLUE}")
    lines = textwrap.wrap(text, width, subsequent_indent="    ", max_lines=3, placeholder=" …")
    return [line.replace(_GLUE, " ") for line in lines]


def _ids(trajectory: Trajectory, *, full: bool) -> list[str]:
    """The trace id, and in full also the span id, where they are known."""
    trace_id = trajectory.trace_id if full else trajectory.trace_id[:16]
    return [f"trace {trace_id}"] * bool(trace_id) + [f"span {trajectory.span_id}"] * (
        full and bool(trajectory.span_id)
    )


_CALL_COLORS: Final = {"error": RED, "outcome unknown": YELLOW}


def _call_lines(trajectory: Trajectory, *, arguments: bool, layout: Layout) -> list[str]:
    """A table of the calls: number, duration, overlapping calls, outcome, name with arguments."""
    rows = []
    for number, (call, parallel) in enumerate(
        zip(trajectory.calls, overlaps(trajectory.calls), strict=True)
    ):
        beside = ", ".join(str(other + 1) for other in parallel[:3])
        beside += "…" if len(parallel) > 3 else ""
        outcome = (
            f"error {call.error.type}"
            if call.error
            else "outcome unknown"
            if call.failure_unknown
            else "ok"
        )
        text = _call_text(call) if arguments else call.name
        rows.append((str(number + 1), duration_text(duration_ms(call)), beside, outcome, text))
    return (
        columns(_CALL_HEADER, rows, indent=2, layout=layout, colors=_CALL_COLORS, colored=3)
        if rows
        else []
    )


def _call_text(call: ToolCall) -> str:
    """Name and arguments like a Python call."""
    if call.arguments is UNRECORDED:
        return f"{call.name}(arguments not recorded)"
    if isinstance(call.arguments, dict):
        inside = ", ".join(f"{key}={json_text(value)}" for key, value in call.arguments.items())
    else:
        inside = json_text(call.arguments)
    return f"{call.name}({inside})"


OUTCOME_COLORS: Final = {"pass": GREEN, "not passed": RED, "failed": RED, "skipped": YELLOW}


def score_block(results: Sequence[Result], layout: Layout = PLAIN_LAYOUT) -> list[str]:
    """The scores as a table: scorer, value, outcome, reason."""
    rows = [(result.scorer, *outcome_cells(result)) for result in results]
    return columns(_SCORE_HEADER, rows, indent=2, layout=layout, colors=OUTCOME_COLORS, colored=2)


def outcome_cells(result: Result) -> tuple[str, str, str]:
    """Value, outcome and reason of a result, as on the console; of a failed scorer also what to do.
    The message of its error may quote content, so only the type is shown.
    """
    value, outcome, reason = console.outcome_cells(result)
    if isinstance(result.outcome, Failed):
        details = result.outcome.details
        reason = f"the scorer failed: {failure_text(result.outcome.error_type, details)}"
        if {"dataset", "line", "problems"} <= details.keys():  # a record that is invalid
            remedies = "; ".join(f"{item['key']}: {item['remedy']}" for item in details["problems"])
            reason += f": {details['dataset']} line {details['line']}: {remedies}"
    return value, outcome, reason


def summary_line(results: Sequence[tuple[str, int]], runs: int) -> str:
    """The last line: the number of runs and of results by outcome."""
    parts = [f"{count} {word}" for word, count in results if count]
    total = sum(count for _, count in results)
    return f"{plural(runs, 'run')}, {plural(total, 'result')}" + (
        f": {', '.join(parts)}" if parts else ""
    )


def label_line(summary: Mapping[str, Any], width: int = WIDTH) -> str:
    """A distribution of labels in a line: each label with its count and share, and the skew."""
    fractions = zip(summary["labels"], summary["fractions"], strict=True)
    shares = [
        f"{label} {summary['counts'][label]} ({fraction:.0%})" for label, fraction in fractions
    ]
    skew = f"; skew {summary['skew']:.2f}"
    return shortened(plain(", ".join(shares) or "no labels"), width - len(skew)) + skew


def json_text(value: Any) -> str:
    """The value as JSON; what JSON has not as text."""
    return json.dumps(value, ensure_ascii=False, default=str)
