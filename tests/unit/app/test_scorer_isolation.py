"""The guard around users' scorers: what hangs, ends the process or is ours."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from otel_eval.app.guarded_scorer import MOST_TIMEOUTS, guard_scorer
from otel_eval.counters import Counters
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Outcome, Scored
from otel_eval.scorers import create_scorer
from otel_eval.scorers.build import FunctionScorer
from otel_eval.testing import call, trajectory
from tests.support.waiting import LIMIT_S, wait_until

RUN = trajectory(call("search"))


def of(function: Callable[..., Any], name: str = "own") -> Scorer:
    """A function as a scorer."""
    return FunctionScorer(type=name, function=function, arguments={})


def threads() -> list[threading.Thread]:
    """Those of the scorer that is given up."""
    return [each for each in threading.enumerate() if each.name == "otel-eval-given_up"]


@pytest.fixture
def released() -> Iterator[threading.Event]:
    """Set at the end, so that no thread of a test outlives it."""
    event = threading.Event()
    yield event
    event.set()


def test_a_function_that_returns_is_asked_as_without_a_guard() -> None:
    """Name, type, version and needs are its own; so is the outcome."""
    scorer, limited = of(lambda _: 0.75), guard_scorer(of(lambda _: 0.75), LIMIT_S, Counters())
    assert isinstance(limited, Scorer)
    assert (limited.name, limited.type, limited.version, limited.needs) == (
        "own",
        "own",
        "1",
        frozenset(),
    )
    assert limited(RUN) == scorer(RUN)
    assert isinstance(limited(RUN), Scored)


def test_built_in_and_asynchronous_scorers_are_not_wrapped() -> None:
    """Asynchronous scorers, too: they have a limit of their own."""

    async def patient(_: Any) -> float:
        return 1.0

    for scorer in (create_scorer({"type": "tool_errors"}), of(patient)):
        assert guard_scorer(scorer, LIMIT_S, Counters()) is scorer


def test_a_function_that_hangs_fails_and_others_go_on(released: threading.Event) -> None:
    """The result of that run fails. The scorer is called for the next run on a new thread, until it
    has hung too often.
    """
    tally, hangs = Counters(), [True, False, True, True]
    limited = guard_scorer(
        of(lambda _: released.wait() and 1.0 if hangs.pop(0) else 1.0), 0.05, tally
    )
    outcomes = list[Outcome]()
    for limit_s in (0.05, LIMIT_S, 0.05, 0.05, 0.05, 0.05):
        limited._limit_s = limit_s  # type: ignore[attr-defined]
        outcomes.append(limited(RUN))
    kinds = [each.error_type if isinstance(each, Failed) else "scored" for each in outcomes]
    assert kinds == ["timeout", "scored", "timeout", "timeout", "quarantined", "quarantined"]
    assert tally.get("scorers.hung", scorer="own") == MOST_TIMEOUTS


def test_a_thread_that_was_given_up_ends_when_its_scorer_returns(released: threading.Event) -> None:
    """Only a thread that never returns remains, and a late outcome is not used for the next run."""
    late = [True]
    slow = of(lambda _: released.wait() and 0.1 if late and late.pop() else 1.0, "given_up")
    limited = guard_scorer(slow, 0.05, Counters())
    assert isinstance(limited(RUN), Failed)
    limited._limit_s = LIMIT_S  # type: ignore[attr-defined]
    assert limited(RUN).value == 1.0  # type: ignore[union-attr]
    assert len(threads()) == 2
    released.set()
    wait_until(lambda: len(threads()) == 1)
    assert limited(RUN).value == 1.0  # type: ignore[union-attr]


def test_a_function_that_ends_the_process_fails() -> None:
    """It ends neither the process nor the thread that scores."""
    outcome = guard_scorer(of(lambda _: sys.exit("no")), LIMIT_S, Counters())(RUN)
    assert isinstance(outcome, Failed)
    assert outcome.error_type == "SystemExit"


def test_spans_of_a_users_scorer_are_not_recorded() -> None:
    """An agent that the scorer runs would be evaluated by it, too, in an endless loop."""
    provider = TracerProvider(shutdown_on_exit=False)
    scorer = of(lambda _: provider.get_tracer("agent").start_span("run").is_recording())
    assert guard_scorer(scorer, LIMIT_S, Counters())(RUN).value == 0.0  # type: ignore[union-attr]
    assert scorer(RUN).value == 1.0  # type: ignore[union-attr]
