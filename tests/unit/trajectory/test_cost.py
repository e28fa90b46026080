"""A trace is read in time in proportion to its size, whatever its spans say; beyond a number of
steps it is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from otel_eval import engine
from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import STEP_LIMIT, ClosedTrace, Steps
from otel_eval.model import Report, Skipped
from otel_eval.scorers import create_scorer
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.counted_work import is_in_proportion
from tests.support.made_spans import FakeSpan, closed, span

TIMES = 8
MOST = 20.0  # where a linear cost gives 8 and a quadratic one 64
LONG = 10**9
SHAPES: dict[str, Callable[[int], Iterator[FakeSpan]]] = {}


def shape(spans: Callable[[int], Iterator[FakeSpan]]) -> Callable[[int], Iterator[FakeSpan]]:
    """Adds a shape of traces by its function's name: so many spans, or as many of what is
    repeated.
    """
    SHAPES[spans.__name__.replace("_", " ")] = spans
    return spans


def agent(
    span_id: object, parent: object = "", start: int = 0, end: int = LONG, name: str = ""
) -> FakeSpan:
    attributes = {
        "gen_ai.operation.name": "invoke_agent",
        **({"gen_ai.agent.name": name} if name else {}),
    }
    return span(
        str(span_id), str(parent), "invoke_agent", start_ns=start, end_ns=end, attributes=attributes
    )


def tool(
    span_id: object,
    parent: object,
    start: int,
    end: int,
    scope: str = "a",
    name: str = "search",
    **fields: Any,
) -> FakeSpan:
    """A call; `arguments` and `id` are recorded if given."""
    attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
    if "arguments" in fields:
        attributes["gen_ai.tool.call.arguments"] = json.dumps(fields["arguments"])
    if "id" in fields:
        attributes["gen_ai.tool.call.id"] = fields["id"]
    return span(
        str(span_id),
        str(parent),
        f"execute_tool {name}",
        start_ns=start,
        end_ns=end,
        scope=scope,
        attributes=attributes,
    )


def model(span_id: object, parent: object, start: int, **fields: Any) -> FakeSpan:
    """A model call with its messages before and after as JSON, and other fields of a span."""
    attributes = {
        f"gen_ai.{key}.messages": json.dumps(fields.pop(key))
        for key in ("input", "output")
        if key in fields
    }
    attributes["gen_ai.operation.name"] = "chat"
    return span(
        str(span_id),
        str(parent),
        "chat",
        start_ns=start,
        end_ns=start + 1,
        attributes=attributes,
        **fields,
    )


def asked(number: int) -> dict[str, Any]:
    call = {
        "type": "tool_call",
        "id": f"call_{number}",
        "name": "search",
        "arguments": {"q": number},
    }
    return {"role": "assistant", "parts": [call]}


def answered(number: int) -> dict[str, Any]:
    return {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": f"call_{number}", "response": "found"}],
    }


def two_instrumentations(count: int, **of_inner: Callable[[int], Any]) -> Iterator[FakeSpan]:
    """Pairs of spans, all of them at once, so that every outer interval holds every inner one."""
    yield agent("run")
    for number in range(count):
        yield tool(f"o{number}", "run", number, LONG - number, arguments={"q": number})
        fields = {key: value(number) for key, value in of_inner.items()}
        yield tool(f"i{number}", "run", LONG // 4 + number, LONG // 2 - number, scope="b", **fields)


@shape
def two_instrumentations_with_equal_arguments(count: int) -> Iterator[FakeSpan]:
    yield from two_instrumentations(count, arguments=lambda number: {"q": number})


@shape
def two_instrumentations_with_different_arguments(count: int) -> Iterator[FakeSpan]:
    yield from two_instrumentations(count, arguments=lambda number: {"q": -1 - number})


@shape
def two_instrumentations_one_of_them_without_arguments(count: int) -> Iterator[FakeSpan]:
    yield from two_instrumentations(count)


@shape
def two_instrumentations_one_of_them_with_ids(count: int) -> Iterator[FakeSpan]:
    yield from two_instrumentations(count, id=lambda number: f"call_{number}")


@shape
def one_instrumentation_for_each_call(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    yield from (
        tool(number, "run", 10 * number, 10 * number + 5, scope=f"scope {number}")
        for number in range(count)
    )


@shape
def nested_agents_of_one_name(count: int) -> Iterator[FakeSpan]:
    for number in range(count):
        yield agent(number, number - 1 if number else "", number, LONG - number, "same")
        yield tool(f"t{number}", number, number, LONG - number)


@shape
def nested_agents_without_names(count: int) -> Iterator[FakeSpan]:
    for number in range(count):
        yield agent(number, number - 1 if number else "", number, LONG - number)
        yield tool(f"t{number}", number, number, LONG - number)


@shape
def agents_side_by_side(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    for number in range(count):
        yield agent(number, "run", number, LONG - number, f"agent {number}")
        yield tool(f"t{number}", number, number, LONG - number)


@shape
def tools_within_tools_with_other_arguments(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    for number in range(count):
        yield tool(
            number, number - 1 if number else "run", number, LONG - number, arguments={"q": number}
        )


@shape
def calls_in_another_order_than_they_were_asked_for(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    yield model("m", "run", 0, output=[asked(number) for number in range(count)])
    yield from (
        tool(number, "run", 10 + number, LONG, arguments={"q": count - number})
        for number in range(count)
    )


@shape
def calls_with_bare_values(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    yield model("m", "run", 0, output=[asked(number) for number in range(count)])
    yield from (
        tool(number, "run", 10 + number, LONG, arguments=count - number) for number in range(count)
    )


@shape
def calls_of_tools_that_were_asked_for_once_each(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    call = {"type": "tool_call", "arguments": {}}
    yield model(
        "m",
        "run",
        0,
        output=[{"parts": [{**call, "name": f"tool {number}"} for number in range(count)]}],
    )
    yield from (
        tool(number, "run", 10 + number, LONG, name=f"tool {number}") for number in range(count)
    )


@pytest.mark.parametrize("needs", [frozenset[str](), ALL_NEEDS], ids=["names", "all"])
@pytest.mark.parametrize("spans", SHAPES.values(), ids=SHAPES)
def test_a_trace_is_read_in_time_in_proportion_to_its_size(
    spans: Callable[[int], Iterator[FakeSpan]], needs: frozenset[str]
) -> None:
    """Also where each span has to be compared with the others."""
    plan, small, great = Plan(needs=needs), closed(*spans(50)), closed(*spans(50 * TIMES))
    assert not any(run.trajectory.too_large for run in build(great, plan))
    assert is_in_proportion(lambda: build(small, plan), lambda: build(great, plan), MOST)


def as_json(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    history: list[Any] = []
    for number in range(count):
        yield model(number, "run", 10 * number, input=history, output=[asked(number)])
        history += [asked(number), answered(number)]


def test_a_history_that_each_model_call_repeats_is_read_once() -> None:
    """Eight times as many model calls have 64 times as much text in all, of which an eighth of an
    eighth is new.
    """
    small, great = closed(*as_json(25)), closed(*as_json(25 * TIMES))
    assert len(build(great, Plan())[0].trajectory.calls) == 25 * TIMES - 1
    assert is_in_proportion(lambda: build(small, Plan()), lambda: build(great, Plan()), MOST)


def levels_of_attempts(count: int) -> Iterator[FakeSpan]:
    """Each call holds another one and an attempt after it, so that each level has one attempt
    more.
    """
    yield agent("run", end=LONG * LONG)
    for number in range(count):
        yield tool(number, number - 1 if number else "run", number, LONG - 2 * number)
        yield tool(f"a{number}", number, LONG - 2 * number - 1, LONG - 2 * number)


def evaluated(trace: ClosedTrace) -> list[Report]:
    scorers = tuple(
        create_scorer(each)
        for each in ({"type": "tool_errors"}, {"type": "time_cost", "max_ms": 1})
    )
    return Engine([ScorerSet(name="e", scorers=scorers)]).evaluate(trace)


def test_a_trace_that_takes_too_many_steps_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """By every scorer, with the limit in the reason; what is known without reading its calls is
    there.
    """
    monkeypatch.setattr(engine, "Steps", partial(Steps, 20_000))
    (report,) = evaluated(closed(*levels_of_attempts(100)))
    run, outcomes = report.trajectory, [result.outcome for result in report.results]
    why = f"evaluating the trace takes more than {STEP_LIMIT:,} steps"
    assert outcomes == [Skipped(f"too large: {why}", reason="too_large")] * 2
    assert (run.calls, run.calls_unknown, run.too_large) == ((), why, why)
    assert (run.start_ns, run.end_ns, run.service) == (0, LONG * LONG, "test")


def test_an_incomplete_run_is_incomplete_however_large_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Spans that are missing are known without reading any."""
    monkeypatch.setattr(engine, "Steps", partial(Steps, 20_000))
    (report,) = evaluated(closed(*levels_of_attempts(100), cut="spans were dropped"))
    assert [result.outcome for result in report.results] == [
        Skipped("incomplete: spans were dropped", reason="incomplete")
    ] * 2


def test_equal_traces_take_equal_steps(subtests: pytest.Subtests) -> None:
    """Whatever is left, the outcome depends on nothing else, and no run is read in part."""
    for left in range(0, 4000, 250):
        with subtests.test(left=left):
            trace = closed(
                *as_json(10), *two_instrumentations(5, arguments=lambda number: {"q": number})
            )
            one, other = (build(trace, Plan(needs=ALL_NEEDS), Steps(left)) for _ in range(2))
            assert one == other
            whole = build(trace, Plan(needs=ALL_NEEDS))
            for run, complete in zip(one, whole, strict=True):
                assert run == complete or (run.trajectory.too_large and not run.trajectory.calls)
