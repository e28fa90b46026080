"""What a trajectory tells about its run beside calls and content: its resource, its response, and
its end.
"""

from __future__ import annotations

from typing import Any

import pytest

from otel_eval.model import Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from tests.support.made_spans import FakeResourceScope, FakeSpan, closed, span

OP = "gen_ai.operation.name"


def agent(**more: str) -> FakeSpan:
    return span(
        "run",
        "",
        "invoke_agent a",
        start_ns=10,
        end_ns=100,
        attributes={OP: "invoke_agent", **more},
    )


def tool(span_id: str, parent: str, end_ns: int) -> FakeSpan:
    return span(
        span_id,
        parent,
        "tool",
        start_ns=20,
        end_ns=end_ns,
        attributes={OP: "execute_tool"},
        remote=False,
    )


def of(*spans: FakeSpan) -> Trajectory:
    (run,) = build(closed(*spans), Plan())
    return run.trajectory


def test_the_resource_is_that_of_the_runs_own_span() -> None:
    """Not of the services that it calls."""
    own, called = agent(), tool("t", "run", 30)
    own.resource_scope = FakeResourceScope("shop", "app", {"openinference.project.name": "support"})
    called.resource_scope = FakeResourceScope("stock", "app")
    assert of(own, called).resource == {
        "service.name": "shop",
        "openinference.project.name": "support",
    }


def test_the_response_is_that_of_the_runs_own_span() -> None:
    """A response of one of its model calls is not the run's."""
    chat = span(
        "m",
        "run",
        "chat",
        start_ns=20,
        end_ns=30,
        attributes={OP: "chat", "gen_ai.response.id": "resp-2"},
    )
    assert of(agent(**{"gen_ai.response.id": "resp-1"}), chat).response_id == "resp-1"
    assert of(agent(), chat).response_id == ""


def test_a_run_is_over_when_its_own_span_ends() -> None:
    """Spans that outlive it do not matter."""
    run = of(agent(), tool("t", "run", 300))
    assert (run.ended_ns, run.last_end_ns) == (100, None)


def test_a_run_whose_own_span_never_arrived_is_over_when_the_last_of_its_spans_ends() -> None:
    """Of all its fragments."""
    run = of(tool("t", "lost", 30), tool("u", "lost", 50), tool("v", "lost", 40))
    assert (run.end_ns, run.last_end_ns, run.ended_ns) == (None, 50, 50)


def test_the_end_of_a_run_without_times_is_unknown() -> None:
    """Zero is how a span without times is spelt."""
    assert of(span("run", "", "a", attributes={OP: "invoke_agent"})).ended_ns is None


@pytest.mark.parametrize(
    ("recorded", "tokens"),
    [
        (7, 7),
        ("7", 7),
        (7.0, 7),
        (0, 0),
        (7.5, None),
        (-1, None),
        (True, None),
        ("many", None),
        (None, None),
    ],
)
def test_an_invalid_number_of_tokens_was_not_recorded(recorded: Any, tokens: int | None) -> None:
    """Anything else, such as -1 for none, was not recorded: a part of the sum is missing."""
    used = {OP: "chat", "gen_ai.usage.input_tokens": recorded, "gen_ai.usage.output_tokens": 5}
    chat = span(
        "m",
        "run",
        "chat",
        start_ns=20,
        end_ns=30,
        attributes={key: value for key, value in used.items() if value is not None},
    )
    (run,) = build(closed(agent(), chat), Plan(needs=frozenset({"tokens"})))
    assert (run.trajectory.input_tokens, run.trajectory.output_tokens) == (tokens, 5)
