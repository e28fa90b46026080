"""Runs below a span that stays open: each is scored while that goes on, without waiting for it."""

from __future__ import annotations

import gc
import json
import threading
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider

from otel_eval import EvalSpanProcessor
from tests.support.waiting import wait_until

AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


def program(results: Path, **config: Any) -> tuple[TracerProvider, EvalSpanProcessor, Any]:
    """A provider with our processor, and a tracer."""
    processor = EvalSpanProcessor(
        {
            "evaluations": [
                {
                    "name": "e",
                    "scorers": [{"type": "tool_call_count", "criteria": {"search": "== 1"}}],
                }
            ],
            "exporters": {"jsonl": {"path": str(results)}},
            **config,
        }
    )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    return provider, processor, provider.get_tracer("app")


def run(tracer: Any, name: str) -> None:
    """One agent run with one call."""
    with (
        tracer.start_as_current_span(
            f"invoke_agent {name}", attributes={**AGENT, "gen_ai.agent.name": name}
        ),
        tracer.start_as_current_span("execute_tool search", attributes=TOOL),
    ):
        pass


def rows(results: Path) -> list[tuple[str, float | None, int, str]]:
    """Agent, value, revision and completeness of what was scored."""
    lines = map(json.loads, results.read_text().splitlines() if results.exists() else [])
    return [(row["agent"], row["value"], row["revision"], row["completeness"]) for row in lines]


def test_a_run_below_an_open_span_is_scored_at_once(tmp_path: Path):
    """Within a second or two, or by force_flush; and once."""
    provider, processor, tracer = program(results := tmp_path / "results.jsonl")
    with tracer.start_as_current_span("websocket"):
        with tracer.start_as_current_span("message"):
            run(tracer, "first")
            wait_until(lambda: rows(results))
            assert rows(results) == [("first", 1.0, 0, "detached")]
        with tracer.start_as_current_span("message"):
            run(tracer, "second")
            assert processor.force_flush(300_000)
            assert rows(results) == [("first", 1.0, 0, "detached"), ("second", 1.0, 0, "detached")]
    provider.shutdown()
    assert len(rows(results)) == 2


def test_a_run_below_an_open_span_whose_trace_was_forgotten_is_scored_at_once(tmp_path: Path):
    """At a limit, as here, or at the maximal age because nothing had ended in it."""
    provider, processor, tracer = program(
        results := tmp_path / "results.jsonl", traces={"max_traces": 1}
    )
    with tracer.start_as_current_span("websocket"):
        tracer.start_span("another trace", context=Context()).end()
        assert processor.counts()["traces_evicted"] == 1
        run(tracer, "first")
        assert processor.force_flush(300_000)
        assert ("first", 1.0, 0, "detached") in rows(results)
    provider.shutdown()
    assert [row[0] for row in rows(results)].count("first") == 1


def test_an_agent_that_calls_an_agent_is_waited_for(tmp_path: Path):
    """Inner runs are no outermost ones, however long the outer run takes."""
    provider, processor, tracer = program(results := tmp_path / "results.jsonl")
    with tracer.start_as_current_span("websocket"):
        with tracer.start_as_current_span(
            "invoke_agent outer", attributes={**AGENT, "gen_ai.agent.name": "outer"}
        ):
            with tracer.start_as_current_span("step"):
                run(tracer, "inner")
            assert processor.force_flush(300_000)
            assert rows(results) == []
        assert processor.force_flush(300_000)
        assert rows(results) == [("outer", 1.0, 0, "detached")]
    provider.shutdown()
    assert len(rows(results)) == 1


def test_an_open_span_becomes_an_agents_when_its_attributes_say_so(tmp_path: Path):
    """They may be set after the start."""
    provider, processor, tracer = program(results := tmp_path / "results.jsonl")
    with tracer.start_as_current_span("work") as span:
        span.set_attributes({**AGENT, "gen_ai.agent.name": "outer"})
        run(tracer, "inner")
        assert processor.force_flush(300_000)
        assert rows(results) == []
    provider.shutdown()
    assert rows(results) == [("outer", 1.0, 0, "complete")]


def test_runs_side_by_side_below_one_open_span_do_not_wait_for_one_another(tmp_path: Path):
    """What is open beside a run is no part of it."""
    provider, processor, tracer = program(results := tmp_path / "results.jsonl")
    with tracer.start_as_current_span("worker"):
        with (
            tracer.start_as_current_span("job a"),
            tracer.start_as_current_span(
                "invoke_agent a", attributes={**AGENT, "gen_ai.agent.name": "a"}
            ),
        ):
            worker = tracer.start_span("job b", context=None)
            with tracer.start_as_current_span("execute_tool search", attributes=TOOL):
                pass
        with tracer.start_as_current_span("job c"):
            run(tracer, "c")
            assert processor.force_flush(300_000)
            # "job b" is open, and a part of a's run
            assert sorted(rows(results)) == [("c", 1.0, 0, "detached")]
        worker.end()
        assert processor.force_flush(300_000)
        assert sorted(rows(results)) == [("a", 1.0, 0, "detached"), ("c", 1.0, 0, "detached")]
    provider.shutdown()
    assert len(rows(results)) == 2


def test_runs_below_a_run_that_background_work_keeps_open_wait_for_it(tmp_path: Path):
    """Each of several, though their agent's own span has ended."""
    provider, processor, tracer = program(results := tmp_path / "results.jsonl")
    with tracer.start_as_current_span("websocket"):
        with tracer.start_as_current_span(
            "invoke_agent outer", attributes={**AGENT, "gen_ai.agent.name": "outer"}
        ):
            background = tracer.start_span("background")
            for name in ("first", "second"):
                run(tracer, name)
        assert processor.force_flush(300_000)
        assert rows(results) == []
        background.end()
        assert processor.force_flush(300_000)
        assert rows(results) == [("outer", 0.0, 0, "detached")]
    provider.shutdown()


@pytest.mark.slow
def test_thousands_of_runs_below_one_span_cost_what_the_last_ones_do(tmp_path: Path):
    """Neither memory nor time grows with what is over, and no span is dropped."""
    provider, processor, tracer = program(
        results := tmp_path / "results.jsonl", traces={"grace_period": 0}
    )
    seconds, held = [], []
    with tracer.start_as_current_span("websocket"):
        tracemalloc.start()
        for part in range(5):
            began = time.process_time()
            for turn in range(600):
                with tracer.start_as_current_span("message"):
                    run(tracer, f"agent {turn}")
                if turn % 200 == 0:
                    processor.force_flush()
            processor.force_flush()
            seconds.append(time.process_time() - began)
            gc.collect()  # what is only garbage is not held
            held.append(tracemalloc.get_traced_memory()[0])
            assert len(rows(results)) == 600 * (part + 1)
        tracemalloc.stop()
    provider.shutdown()
    assert (len(rows(results)), {row[1:] for row in rows(results)}) == (
        3000,
        {(1.0, 0, "detached")},
    )
    assert processor.counts().get("spans_dropped", 0) == 0
    assert held[-1] < held[0] + 1_000_000, held
    assert seconds[-1] < 3 * seconds[0] + 1, seconds


def test_a_span_open_in_another_thread_below_a_run_is_waited_for(tmp_path: Path):
    """Background work that an agent began belongs to its run."""
    provider, processor, tracer = program(results := tmp_path / "results.jsonl")
    done, began = threading.Event(), threading.Event()

    def work(parent: Any) -> None:
        from opentelemetry.trace import set_span_in_context

        with tracer.start_as_current_span(
            "execute_tool search", context=set_span_in_context(parent), attributes=TOOL
        ):
            began.set()
            done.wait(300)

    with tracer.start_as_current_span("websocket"):
        with tracer.start_as_current_span(
            "invoke_agent a", attributes={**AGENT, "gen_ai.agent.name": "a"}
        ) as agent:
            thread = threading.Thread(target=work, args=(agent,))
            thread.start()
            began.wait(300)
        processor.force_flush()
        assert rows(results) == []
        done.set()
        thread.join()
        processor.force_flush()
        assert rows(results) == [("a", 1.0, 0, "detached")]
    provider.shutdown()
