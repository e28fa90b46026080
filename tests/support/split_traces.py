"""Count scores that are wrong, and not marked so, after traces were split at random between two
evaluators and merged.

    python -m tests.support.split_traces [TRACES]

Recorded traces (`tests/traces`) and generated ones (`agent_programs.py`) are evaluated whole, which
gives the reference, and in two parts, with each span in one or the other at random. A merged score
is wrong if the whole trace has another value or no such result. The second column counts wrong
scores whether marked or not: what a reader would believe without the marks.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from otel_eval import merge_results
from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.engine import Engine
from otel_eval.exporters.result_rows import rows_of
from otel_eval.model import Stamp
from otel_eval.otlp.protobuf import read_traces
from tests.support import agent_programs
from tests.support.stored_files import read_file

TESTS = Path(__file__).parents[1]
RECORDED = sorted(path for path in (TESTS / "traces").glob("*.json") if path.name != "truth.json")
SCORERS = [
    {"type": "tool_call_count", "criteria": {"search": "<= 2", "get_weather": [">=", 1]}},
    {"type": "tool_call_order", "expected": ["search", "book"]},
    {"type": "required_tools", "patterns": ["*book*"]},
    {"type": "forbidden_tools", "patterns": ["*delete*"]},
    {"type": "execution_order", "of": "spans", "expected": ["chat m"]},
    {"type": "time_cost", "max_ms": 5000},
    {"type": "redundant_calls"},
    {"type": "trajectory_structure"},
    {"type": "step_efficiency", "max_calls": 3, "max_model_calls": 2},
    {"type": "tool_errors"},
]

Items = tuple[list[Any], list[Any]]
"""Framed spans and log records of one trace."""
Row = dict[str, Any]


def traces() -> Iterator[Items]:
    """Recorded traces and as many generated ones in turn, without end; the recorded ones again and
    again.
    """
    recorded = [item for path in RECORDED for item in _by_trace(list(read_file(path)))]
    seed = 0
    while True:
        yield from recorded
        generated = read_traces(
            agent_programs.protobuf(agent_programs.play(seed, traces=len(recorded)))
        )
        yield from _by_trace([generated])
        seed += 1


def _by_trace(read: Sequence[Any]) -> list[Items]:
    found: dict[bytes, Items] = {}
    for framed in read:
        for place, items in enumerate((framed.spans, framed.logs)):
            for item in items:
                found.setdefault(item[0], ([], []))[place].append(item)
    return list(found.values())


def evaluated(engine: Engine, items: Items, evaluator: str = "") -> list[Row]:
    """The lines that one evaluator writes for what it has of a trace."""
    buffer = TraceBuffer(Limits())
    buffer.push_many(items[0], 0.0)
    buffer.push_logs(items[1], 0.0)
    return [
        row
        for trace in buffer.drain(0.0)
        for report in engine.evaluate(trace, Stamp(evaluator))
        for row in rows_of(report)
    ]


def split(items: Items, rng: random.Random) -> tuple[Items, Items]:
    """Two parts, each of any size."""
    share = rng.random()
    one: Items = ([], [])
    other: Items = ([], [])
    for place in (0, 1):
        for item in items[place]:
            (one if rng.random() < share else other)[place].append(item)
    return one, other


def wrong_scores(whole: Sequence[Row], merged: Sequence[Row]) -> list[Row]:
    """The merged scores that the whole trace does not have."""
    names = ("trace_id", "span_id", "evaluation", "scorer")
    truth = {
        tuple(row[name] for name in names): (row["outcome"], row["value"], row["passed"])
        for row in whole
    }
    scored = (row for row in merged if row["outcome"] == "scored")
    return [
        row
        for row in scored
        if truth.get(tuple(row[name] for name in names))
        != (row["outcome"], row["value"], row["passed"])
    ]


def count(runs: str, how_many: int, seed: int = 1) -> tuple[int, int, int]:
    """Wrong scores that are not marked, wrong scores, and all scores, after so many traces were
    split.
    """
    rng = random.Random(seed)
    config = load({"evaluations": [{"name": "e", "match": {"runs": runs}, "scorers": SCORERS}]})
    engine = build_engine(config, lines=True)
    unmarked = wrong = scores = 0
    for items, _ in zip(traces(), range(how_many), strict=False):
        one, other = split(items, rng)
        merged = merge_results(evaluated(engine, one, "one"), evaluated(engine, other, "other"))
        bad = wrong_scores(evaluated(engine, items), merged)
        wrong += len(bad)
        unmarked += sum(not row.get("split") for row in bad)
        scores += sum(row["outcome"] == "scored" for row in merged)
    return unmarked, wrong, scores


def main() -> None:
    """Print a line for each kind of runs."""
    how_many = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    print(f"{'runs':<10} {'wrong, unmarked':>16} {'wrong':>8} {'scores':>8}   of {how_many} traces")
    for runs in ("outermost", "all"):
        print(f"{runs:<10} {'{:>16} {:>8} {:>8}'.format(*count(runs, how_many))}")


if __name__ == "__main__":
    main()
