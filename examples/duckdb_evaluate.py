"""Score the agent runs in Parquet files with DuckDB, in several processes.

    python -m pip install . duckdb pyarrow
    python examples/duckdb_evaluate.py eval.yaml 'spans/*.parquet' results.parquet

The files have one span in each row, in columns that `otel_eval.evaluate` knows; rename others in
the query. Traces are divided by a hash of their id: each process gets whole traces, and holds one
share of them at a time.
"""

import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from otel_eval import evaluate

SPANS_OF_A_SHARE = 20_000
TEXTS = (
    *("trace_id", "span_id", "agent", "service", "evaluation", "scorer", "type", "policy"),
    *("severity", "outcome", "explanation", "reason", "error_type", "verdict", "completeness"),
    *("start_time", "evaluated_at", "spans_digest", "result_id"),
)
RESULTS = pa.schema(
    [
        *((name, pa.string()) for name in TEXTS),
        ("value", pa.float64()),
        ("passed", pa.bool_()),
        ("duration_ms", pa.float64()),
        ("details", pa.string()),  # JSON
    ]
)


def score(config: str, files: str, shares: int, share: int) -> pa.Table:
    """The results of one share of the traces."""
    with duckdb.connect() as connection:
        connection.execute("SET threads = 1; SET enable_progress_bar = false")
        found = connection.execute(
            "SELECT * FROM read_parquet($files) WHERE hash(trace_id) % $shares = $share",
            {"files": files, "shares": shares, "share": share},
        )
        names = [column[0] for column in found.description]
        spans = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    rows: list[dict[str, Any]] = evaluate(spans, config)
    return pa.Table.from_pylist(
        [{**row, "details": json.dumps(row["details"], default=str)} for row in rows], RESULTS
    )


def main(config: str, files: str, output: str, processes: str = "") -> None:
    """Write the results of all traces to a Parquet file."""
    (spans,) = duckdb.execute("SELECT count(*) FROM read_parquet($1)", [files]).fetchone() or (0,)
    shares = spans // SPANS_OF_A_SHARE + 1
    with (
        ProcessPoolExecutor(int(processes or os.cpu_count() or 1), get_context("spawn")) as pool,
        pq.ParquetWriter(output, RESULTS) as results,
    ):
        for table in pool.map(partial(score, config, files, shares), range(shares)):
            results.write_table(table)
    print(f"{spans} spans evaluated")


if __name__ == "__main__":
    main(*sys.argv[1:])
