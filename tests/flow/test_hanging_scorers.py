"""In a program, a scorer that does not return costs its own results: not those of others, no span,
and no timely exit.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from otel_eval import EvalSpanExporter, EvalSpanProcessor
from otel_eval.model import Outcome, Scored, Trajectory
from tests.support.waiting import LIMIT_S

AGENT = {"gen_ai.operation.name": "invoke_agent"}
TOOL = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"}


@dataclass
class Hanging:
    """Returns once it is released."""

    asked: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    name: str = "hanging"
    type: str = "hanging"
    version: str = "1"
    needs: frozenset[str] = frozenset()

    def __call__(self, trajectory: Trajectory) -> Outcome:
        self.asked.set()
        self.released.wait()
        return Scored(1.0, True)


class Kept(InMemorySpanExporter):
    """Tells what it got beyond its shutdown."""

    def shutdown(self) -> None:
        return

    def names(self) -> list[str]:
        return sorted(span.name for span in self.get_finished_spans())

    def scores(self) -> list[tuple[Any, Any]]:
        events = [event for span in self.get_finished_spans() for event in span.events]
        score_events = [
            dict(event.attributes or {})
            for event in events
            if event.name == "gen_ai.evaluation.result"
        ]
        return sorted(
            (
                each["gen_ai.evaluation.name"],
                each.get("error.type", each.get("gen_ai.evaluation.score.value")),
            )
            for each in score_events
        )


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    """Released at the end, so that no thread of a test outlives it."""
    scorer = Hanging()
    yield scorer
    scorer.released.set()


def config(hanging: Hanging, scorer_timeout: str) -> dict[str, Any]:
    scorers = [hanging, {"type": "tool_errors"}]
    return {
        "async_scoring": {"scorer_timeout": scorer_timeout},
        "evaluations": [{"name": "e", "scorers": scorers}],
    }


def run_agents(provider: TracerProvider, count: int) -> None:
    tracer = provider.get_tracer("app")
    for _ in range(count):
        with (
            tracer.start_as_current_span("agent", attributes=AGENT),
            tracer.start_as_current_span("tool", attributes=TOOL),
        ):
            pass


def test_the_exporter_lets_runs_leave_with_the_scores_of_the_others(
    hanging: Hanging, until: Any
) -> None:
    """Three times it is waited for, then no more."""
    kept = Kept()
    exporter = EvalSpanExporter(kept, config(hanging, "100ms"))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run_agents(provider, 5)
    until(lambda: len(kept.names()) == 10)
    hung = [("hanging", "quarantined")] * 2 + [("hanging", "timeout")] * 3
    assert kept.scores() == hung + [("tool_errors", 1.0)] * 5
    assert exporter.counts()["scorers.hung{scorer=hanging}"] == 3
    provider.shutdown()


@pytest.mark.parametrize("end", ["force_flush", "shutdown"])
def test_the_exporter_ends_in_time_and_no_span_is_lost(
    hanging: Hanging, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it is waited for: what had to be evaluated leaves without scores."""
    monkeypatch.setattr("otel_eval.app.inprocess._SHUTDOWN_S", 2.0)
    kept = Kept()
    exporter = EvalSpanExporter(kept, config(hanging, "1h"), max_wait=3600)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    run_agents(provider, 3)
    assert hanging.asked.wait(LIMIT_S)
    run_agents(provider, 1)  # no spans wait for it
    exporter.force_flush(2000) if end == "force_flush" else exporter.shutdown()
    assert kept.names() == ["agent"] * 4 + ["tool"] * 4
    assert exporter.counts()["exporter.unscored_spans"] == 4
    hanging.released.set()
    provider.shutdown()


def test_the_processor_scores_all_runs_by_the_others(hanging: Hanging) -> None:
    """And says what failed, and counts it."""
    kept = Kept()
    processor = EvalSpanProcessor(config(hanging, "100ms"))
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    run_agents(provider, 5)
    assert provider.force_flush(300_000)
    assert [value for name, value in kept.scores() if name == "tool_errors"] == [1.0] * 5
    assert [value for name, value in kept.scores() if name == "hanging"] == ["quarantined"] * 2 + [
        "timeout"
    ] * 3
    assert processor.counts()["scorers.hung{scorer=hanging}"] == 3
    provider.shutdown()


def test_a_scorer_that_a_tree_leads_to_is_limited_too(
    hanging: Hanging, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tree is called on a thread of its own, as the scorer is elsewhere."""
    monkeypatch.setattr(sys.modules[__name__], "hang", hanging, raising=False)
    kept = Kept()
    children = [
        {"verdict": True, "then": {"scorer": {"type": f"{__name__}:hang"}}},
        {"verdict": False, "score": 0},
    ]
    tree = {
        "type": "dag",
        "root": "any",
        "nodes": {"any": {"type": "binary", "cel": "calls.size() > 0", "children": children}},
    }
    scorers = [tree, {"type": "tool_errors"}]
    provider = TracerProvider(shutdown_on_exit=False)
    processor = EvalSpanProcessor(
        {
            "async_scoring": {"scorer_timeout": "100ms"},
            "evaluations": [{"name": "e", "scorers": scorers}],
        }
    )
    provider.add_span_processor(processor)
    provider.add_span_processor(SimpleSpanProcessor(kept))
    run_agents(provider, 1)
    assert provider.force_flush(300_000)
    assert kept.scores() == [("dag", "timeout"), ("tool_errors", 1.0)]
    provider.shutdown()
