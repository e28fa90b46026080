"""The example with DuckDB: every trace of the Parquet files is scored once and as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PROGRAM = Path(__file__).parents[2] / "examples/duckdb_evaluate.py"
TRACES = 7_000  # of three spans: two shares
CONFIG = {"evaluations": [{"name": "errors", "scorers": [{"type": "tool_errors"}]}]}


def spans(number: int) -> list[dict[str, Any]]:
    """An agent with two calls, of which the second fails in every third run."""
    agent = f"{3 * number + 1:016x}"
    found = [{"span_id": agent, "parent_span_id": None, "name": "agent", "status_code": 0}]
    found += [
        {
            "span_id": f"{3 * number + call:016x}",
            "parent_span_id": agent,
            "name": "tool",
            "status_code": 2 if call == 3 and number % 3 == 0 else 0,
        }
        for call in (2, 3)
    ]
    operation = {"agent": "invoke_agent", "tool": "execute_tool"}
    return [
        {
            **span,
            "trace_id": f"{number + 1:032x}",
            "start_time_unix_nano": 10**18 + number,
            "end_time_unix_nano": 10**18 + number + 1000,
            "attributes": [
                ("gen_ai.operation.name", operation[span["name"]]),
                ("gen_ai.tool.name", "search"),
            ],
        }
        for span in found
    ]


@pytest.mark.timeout(240)
def test_every_trace_in_parquet_is_scored_once(tmp_path: Path) -> None:
    """Its spans are far apart, and in several files."""
    rows = [span for number in range(TRACES) for span in spans(number)]
    schema = pa.Table.from_pylist(rows[:3]).schema
    kind = pa.map_(pa.string(), pa.string())
    schema = schema.set(schema.get_field_index("attributes"), pa.field("attributes", kind))
    schema = schema.set(
        schema.get_field_index("parent_span_id"), pa.field("parent_span_id", pa.string())
    )
    for part in range(3):
        table = pa.Table.from_pylist(rows[part::3], schema)
        pq.write_table(table, tmp_path / f"spans{part}.parquet")
    config = tmp_path / "eval.json"
    config.write_text(json.dumps(CONFIG))
    output = tmp_path / "results.parquet"
    command = [sys.executable, str(PROGRAM), str(config), str(tmp_path / "spans*.parquet")]
    subprocess.run([*command, str(output), "2"], check=True)
    results = pq.read_table(output).to_pylist()
    assert len({row["trace_id"] for row in results}) == len(results) == TRACES
    assert {row["outcome"] for row in results} == {"scored"}
    failed = [row for row in results if not row["passed"]]
    assert len(failed) == len(range(0, TRACES, 3))
