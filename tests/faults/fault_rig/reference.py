"""What the results must be, computed twice: counted out by hand here, and by `otel-eval replay`
over the same spans.

Knows the evaluation that the rig uses. The arithmetic is written anew, from the scorers'
documentation.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from otel_eval.app import stored_traces
from otel_eval.config import load
from otel_eval.exporters.result_rows import NO_RUN, rows_of
from otel_eval.sources.files import CollectedMessages
from tests.faults.fault_rig.traffic import Run, body, trace_id

__all__ = ["CONVENTIONS", "EVALUATION", "by_hand", "replayed"]

BUDGET_MS: Final = 1200
EVALUATION: Final[dict[str, Any]] = {
    "name": "rig",
    "scorers": [
        {"type": "tool_call_count", "criteria": {"search": "<= 2", "refund": ["==", 1]}},
        {"type": "tool_errors"},
        {"type": "forbidden_tools", "patterns": ["delete_*"]},
        {"type": "time_cost", "max_ms": BUDGET_MS},
    ],
}
CONVENTIONS: Final = {"records_tool_spans": ["rig"]}
"""Of the spans' scope: a run without tool spans made no call."""
Results = dict[str, tuple[str, float | None]]
"""Scorer to outcome and value."""


def by_hand(run: Run) -> Results:
    """What each scorer must say of a whole run."""
    tools = [call.tool for call in run.calls]
    kept = [tools.count("search") <= 2, tools.count("refund") == 1]
    failed = sum(call.failed for call in run.calls)
    return {
        "tool_call_count": ("scored", sum(kept) / 2),
        "tool_errors": ("scored", 1 - failed / len(tools)) if tools else ("skipped", None),
        "forbidden_tools": ("scored", 0.0 if "delete_account" in tools else 1.0),
        "time_cost": ("scored", max(0.0, 1 - run.ms / BUDGET_MS)),
    }


def replayed(runs: Iterable[Run]) -> dict[str, Results]:
    """What `replay` says of the same spans, by trace id."""
    found: dict[str, Results] = {}
    with tempfile.TemporaryDirectory() as folder:
        stored = Path(folder) / "stored.bin"
        stored.write_bytes(body([span for run in runs for span in run.spans()]))
        problems: list[str] = []
        for report in stored_traces.replay(
            [stored],
            load({"evaluations": [EVALUATION], "conventions": CONVENTIONS}),
            listener=CollectedMessages(problems),
        ):
            for row in rows_of(report):
                if row["outcome"] == NO_RUN:
                    continue
                found.setdefault(row["trace_id"], {})[row["scorer"]] = (
                    row["outcome"],
                    row["value"],
                )
    assert not problems, problems
    return found


def agree(runs: list[Run]) -> None:
    """The two references say the same, or neither can be trusted."""
    stored = replayed(runs)
    for run in runs:
        mine, theirs = by_hand(run), stored[trace_id(run.number).hex()]
        assert mine.keys() == theirs.keys()
        for scorer, result in mine.items():
            assert same(result, theirs[scorer]), (run, scorer, result, theirs[scorer])


def same(one: tuple[str, float | None], other: tuple[str, float | None]) -> bool:
    """Equal outcomes, and values equal but for rounding."""
    if one[0] != other[0] or (one[1] is None) != (other[1] is None):
        return False
    return one[1] is None or other[1] is None or abs(one[1] - other[1]) < 1e-9
