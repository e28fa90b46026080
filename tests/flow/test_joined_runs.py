"""Runs that may have begun before the evaluator took over its input are marked `joined`."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor
from otel_eval.app.build import build_engine
from otel_eval.assembly import Limits
from otel_eval.config import load
from otel_eval.model import Completeness, Report
from otel_eval.pipeline import Pipeline
from tests.support.listening import Listener
from tests.support.made_spans import frames, span

TRACE = b"t" * 16
NOW = 1_700_000_000 * 10**9
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "clerk"}
CONFIG: dict[str, Any] = {
    "evaluations": [{"name": "e", "match": {"runs": "all"}, "scorers": [{"type": "time_cost"}]}]
}


def _completeness(
    started: int | None, *, since_ns: int, why: Completeness | None = None
) -> list[str]:
    told: list[Report] = []
    pipeline = Pipeline(
        build_engine(load(CONFIG)), Listener(told.append), Limits(), since_ns=since_ns
    )
    run = span(
        "run", start_ns=started or 0, end_ns=(started or 0) and started + 5, attributes=AGENT
    )
    pipeline.spans([(TRACE, span_id, frame, 10) for span_id, frame in frames([run]).items()])
    pipeline.drain(why)
    return [report.trajectory.completeness.value for report in told]


@pytest.mark.parametrize(
    ("started", "completeness"),
    [(NOW - 1, "joined"), (NOW, "complete"), (NOW + 1, "complete"), (None, "joined")],
)
def test_a_run_that_began_before_the_process_took_over_is_joined(
    started: int | None, completeness: str
) -> None:
    """Some of its spans may have gone to another process; where no time was recorded that is not
    known either.
    """
    assert _completeness(started, since_ns=NOW) == [completeness]


def test_with_history_or_stored_traces_nothing_is_joined() -> None:
    """All spans there are were read."""
    assert _completeness(NOW - 1, since_ns=0) == ["complete"]


@pytest.mark.parametrize(
    "why", [Completeness.IDLE, Completeness.AGED, Completeness.OVERFLOW, Completeness.SHUTDOWN]
)
def test_a_trace_that_was_closed_early_stays_what_it_is(why: Completeness) -> None:
    """That says more of what may be missing."""
    assert _completeness(NOW - 1, since_ns=NOW, why=why) == [why.value]


def _provider() -> Any:
    return TracerProvider(shutdown_on_exit=False)


def test_in_a_process_runs_that_were_open_when_the_processor_was_added_are_joined(
    tmp_path: Path,
) -> None:
    """Their earlier tool calls were not seen. Runs that begin later are not, nor are those with
    start times of the past.
    """
    provider, path = _provider(), tmp_path / "results.jsonl"
    tracer = provider.get_tracer("opentelemetry.instrumentation.test")
    early = tracer.start_span("early", attributes=AGENT)
    provider.add_span_processor(
        EvalSpanProcessor({**CONFIG, "exporters": {"jsonl": {"path": str(path)}}})
    )
    early.end()
    tracer.start_span("later", attributes=AGENT).end()
    tracer.start_span("dated back", attributes=AGENT, start_time=5).end(9)
    provider.shutdown()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert sorted((row["completeness"], row["duration_ms"] == 4 / 1e6) for row in rows) == [
        ("complete", False),
        ("complete", True),
        ("joined", False),
    ]


def test_a_span_that_is_late_for_a_joined_run_gives_a_row_that_says_so(tmp_path: Path) -> None:
    """Nothing of the trace was open, so the run is no longer kept."""
    provider, path = _provider(), tmp_path / "results.jsonl"
    tracer = provider.get_tracer("opentelemetry.instrumentation.test")
    early = tracer.start_span("early", attributes=AGENT)
    processor = EvalSpanProcessor({**CONFIG, "exporters": {"jsonl": {"path": str(path)}}})
    provider.add_span_processor(processor)
    from opentelemetry.trace import set_span_in_context

    context = set_span_in_context(early)
    early.end()
    processor.force_flush()
    tracer.start_span("chat m", context=context, attributes={"gen_ai.operation.name": "chat"}).end()
    provider.shutdown()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(row["outcome"], row["completeness"], row["reason"]) for row in rows] == [
        ("scored", "joined", None),
        ("no_run", "aged", "late"),
    ]


def test_a_server_with_storage_knows_since_when_it_took_spans(tmp_path: Path) -> None:
    """Its first start, not its last one."""
    from otel_eval.config import Storage
    from otel_eval.storage.durable import Durable

    before = time.time_ns()
    starts = []
    for _ in range(2):
        durable = Durable(Storage(directory=str(tmp_path)))
        starts.append(durable.identity)
        durable.close()
    assert starts[0] == starts[1]
    assert before <= starts[0].since_ns <= time.time_ns()
