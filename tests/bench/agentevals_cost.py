"""Microseconds of CPU to read a trace of 20 spans from protobuf and to score it; `table.py` takes
the medians.

    .venv-peers/agentevals_cli/bin/python tests/bench/agentevals_cost.py ours|agentevals FOLDER

agentevals-cli runs one metric on it (tool_trajectory_avg_score), ours four scorers and the lines of
their results. Every trace has ids of its own.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from shapes import SCORERS, evaluate, shapes

TRACES = 100
TOOLS = ("search", "fetch", "refund")


def expected(folder: Path) -> Path:
    """A file with one expected conversation."""
    invocation = {
        "invocation_id": "one",
        "user_content": {"role": "user", "parts": [{"text": "hello"}]},
        "intermediate_data": {"tool_uses": [{"name": name, "args": {}} for name in TOOLS]},
    }
    path = folder / "expected.json"
    case = {"eval_id": "one", "conversation": [invocation]}
    path.write_text(json.dumps({"eval_set_id": "bench", "eval_cases": [case]}))
    return path


def with_agentevals(bodies: list[bytes], folder: Path) -> Callable[[], int]:
    from agentevals.adk_bridge import load_eval_set
    from agentevals.config import BuiltinMetricDef, EvalParams
    from agentevals.otel.decode import decode_traces_proto
    from agentevals.otel.model import build_traces
    from agentevals.runner import run_evaluation_from_traces

    logging.disable(logging.CRITICAL)
    metric = BuiltinMetricDef(
        name="tool_trajectory_avg_score", trajectory_match_type="ANY_ORDER", threshold=0.5
    )
    config, eval_set = EvalParams(evaluators=[metric]), load_eval_set(str(expected(folder)))

    def work() -> int:
        scored = 0
        for body in bodies:
            traces = build_traces(
                decode_traces_proto(ExportTraceServiceRequest.FromString(body)).spans
            )[0]
            result = asyncio.run(run_evaluation_from_traces(traces, config, eval_set))
            scored += sum(
                metric.eval_status in ("PASSED", "FAILED")
                for trace in result.trace_results
                for metric in trace.metric_results
            )
        return scored

    return work


def main() -> None:
    kind, folder = sys.argv[1], Path(sys.argv[2])
    copy, rng = shapes()["lean"], random.Random(5)
    bodies = [copy(rng) for _ in range(TRACES)]
    if kind == "ours":
        work = evaluate(bodies, {"evaluations": [{"name": "bench", "scorers": SCORERS}]})
    else:
        work = with_agentevals(bodies, folder)
    assert work(), "nothing was scored"
    began = time.process_time()
    work()
    print((time.process_time() - began) / TRACES * 1e6)


if __name__ == "__main__":
    main()
