"""A trace is read in time in proportion to its size, whatever its spans say; a run that is too
large is skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from otel_eval.engine import Engine
from otel_eval.evaluations import ScorerSet
from otel_eval.interfaces import ClosedTrace, SpanEvent
from otel_eval.model import Outcome, Report, Scored, Skipped, Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.trajectory import limits
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.counted_work import is_in_proportion
from tests.support.made_spans import FakeSpan, closed, span

TIMES = 8
MOST = 12.0  # where a linear cost gives 8 and a quadratic one 64
MOST_GROWING = 24.0  # each agent has one name more above it, of which it keeps a hundred
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


NESTED = (nested_agents_of_one_name, nested_agents_without_names)


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


@shape
def answers_in_the_message_that_asked(count: int) -> Iterator[FakeSpan]:
    """As where the model's provider runs the tools."""
    yield agent("run")
    parts = [
        part
        for number in range(count)
        for part in (*asked(number)["parts"], *answered(number)["parts"])
    ]
    yield model("m", "run", 0, output=[{"role": "assistant", "parts": parts}])


@shape
def requests_without_ids_in_a_tree_each(count: int) -> Iterator[FakeSpan]:
    call = {"type": "tool_call", "name": "search", "arguments": {}}
    for number in range(count):
        yield agent(number, start=10 * number, end=10 * number + 9)
        yield model(f"m{number}", number, 10 * number, output=[{"parts": [call]}])


@shape
def requests_without_ids_that_results_without_names_answer(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    parts = [
        {"type": "tool_call", "name": f"tool {number}", "arguments": {}} for number in range(count)
    ]
    results = [{"type": "tool_call_response", "response": number} for number in range(count)]
    yield model("m", "run", 0, output=[{"role": "assistant", "parts": parts}])
    yield model("n", "run", 10, input=[{"role": "tool", "parts": results}], output=[])


@shape
def one_instrumentation_for_each_call_that_was_asked_for(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    parts = [
        {"type": "tool_call", "name": f"tool {number}", "arguments": {}} for number in range(count)
    ]
    yield model("m", "run", 0, output=[{"parts": parts}])
    yield from (
        tool(number, "run", 10 + number, LONG, name=f"tool {number}", scope=f"scope {number}")
        for number in range(count)
    )


@shape
def many_tools_within_one(count: int) -> Iterator[FakeSpan]:
    """The content of the outer one is compared with that of each inner one."""
    yield agent("run")
    yield tool("outer", "run", 1, LONG, arguments={"q": "x" * 10 * count})
    yield from (
        tool(number, "outer", 2 + number, LONG, arguments={"q": number}) for number in range(count)
    )


@shape
def runs_side_by_side_that_wait(count: int) -> Iterator[FakeSpan]:
    for number in range(count):
        yield agent(number, start=10 * number, end=10 * number + 9)
        waiting = tool(f"t{number}", number, 10 * number, 10 * number + 1)
        exception = {"exception.type": "GraphInterrupt", "exception.message": ""}
        waiting.given_events = [SpanEvent("exception", exception)]
        waiting.status_code = 2
        yield waiting


@pytest.mark.parametrize("needs", [frozenset[str](), ALL_NEEDS], ids=["names", "all"])
@pytest.mark.parametrize("spans", SHAPES.values(), ids=SHAPES)
def test_a_trace_is_read_in_time_in_proportion_to_its_size(
    spans: Callable[[int], Iterator[FakeSpan]], needs: frozenset[str]
) -> None:
    """Also where each span has to be compared with the others."""
    plan, small, great = Plan(needs=needs), closed(*spans(20)), closed(*spans(20 * TIMES))
    assert not any(run.trajectory.too_large for run in build(great, plan))
    most = MOST_GROWING if spans in NESTED else MOST
    assert is_in_proportion(lambda: build(small, plan), lambda: build(great, plan), most)


def as_json(count: int) -> Iterator[FakeSpan]:
    yield agent("run")
    history: list[Any] = []
    for number in range(count):
        yield model(number, "run", 10 * number, input=history, output=[asked(number)])
        history += [asked(number), answered(number)]


def test_a_history_that_each_model_call_repeats_is_read_once() -> None:
    """Eight times as many model calls have 64 times as much text in all, of which an eighth of an
    eighth is new. What was read is looked through for each call, a line or two for a message.
    """
    small, great = closed(*as_json(25)), closed(*as_json(25 * TIMES))
    assert len(build(great, Plan())[0].trajectory.calls) == 25 * TIMES - 1
    assert is_in_proportion(
        lambda: build(small, Plan()), lambda: build(great, Plan()), MOST_GROWING
    )


def levels_of_attempts(count: int) -> Iterator[FakeSpan]:
    """Each call holds another one and an attempt after it, so that each level has one attempt
    more.
    """
    yield agent("run", end=LONG * LONG)
    for number in range(count):
        yield tool(number, number - 1 if number else "run", number, LONG - 2 * number)
        yield tool(f"a{number}", number, LONG - 2 * number - 1, LONG - 2 * number)


CALLS = "the run has more than 10,000 calls"
BYTES = "the run recorded more than 64 MiB"
PAIRS = "too many spans of the run may describe the same calls"


@pytest.fixture
def low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a trace of some hundred spans exceeds."""
    monkeypatch.setattr(limits, "MOST_CALLS", 50)
    monkeypatch.setattr(limits, "MOST_BYTES", 20_000)
    monkeypatch.setattr(limits, "MOST_PAIRS", 2_000)


def many_calls(count: int) -> Iterator[FakeSpan]:
    yield agent("run", end=LONG * LONG)
    yield from (tool(number, "run", 10 * number, 10 * number + 5) for number in range(count))


def many_requests(count: int) -> Iterator[FakeSpan]:
    """Calls that left no span: one message asks for them, the next answers."""
    yield agent("run", end=LONG * LONG)
    short = {"type": "tool_call", "name": "f"}
    requests = [{**short, "id": f"c{number}"} for number in range(count)]
    results = [
        {"type": "tool_call_response", "id": f"c{number}", "response": 1} for number in range(count)
    ]
    yield model("m", "run", 0, output=[{"role": "assistant", "parts": requests}])
    yield model("n", "run", 10, input=[{"role": "tool", "parts": results}], output=[])


def great_arguments(count: int) -> Iterator[FakeSpan]:
    yield agent("run", end=LONG * LONG)
    yield tool("t", "run", 1, 2, arguments={"text": "x" * count})


def great_messages(count: int) -> Iterator[FakeSpan]:
    """Short text, and many values in it."""
    yield agent("run", end=LONG * LONG)
    yield model("m", "run", 0, output=[[]] * count)


def calls_at_once(count: int) -> Iterator[FakeSpan]:
    """Two instrumentations, one of which names neither arguments nor ids."""
    yield agent("run", end=LONG * LONG)
    for number in range(count // 2):
        yield tool(f"o{number}", "run", number, LONG - number, arguments={"q": number})
        yield tool(f"i{number}", "run", LONG // 4 + number, LONG // 2 - number, scope="b")


LARGE = [
    (many_calls, 50, 51, CALLS),
    (many_requests, 50, 51, CALLS),
    (great_arguments, 19_000, 20_000, BYTES),
    (great_messages, 500, 600, BYTES),
]


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize("needs", [frozenset[str](), ALL_NEEDS], ids=["names", "all"])
@pytest.mark.parametrize(
    ("spans", "fits", "does_not", "reason"), LARGE, ids=[row[0].__name__ for row in LARGE]
)
def test_a_run_is_read_whole_or_not_at_all(
    spans: Callable[[int], Iterator[FakeSpan]],
    fits: int,
    does_not: int,
    reason: str,
    needs: frozenset[str],
) -> None:
    """Up to a limit of what it recorded, which is the same whatever scorers read of it."""
    (run,) = build(closed(*spans(fits)), Plan(needs=needs))
    assert not run.trajectory.too_large
    (run,) = build(closed(*spans(does_not)), Plan(needs=needs))
    assert (run.trajectory.too_large, run.trajectory.calls) == (reason, ())


@pytest.mark.parametrize("needs", [frozenset[str](), ALL_NEEDS], ids=["names", "all"])
@pytest.mark.parametrize(
    ("spans", "count"), [(levels_of_attempts, 60), (calls_at_once, 140)], ids=["within", "beside"]
)
def test_a_run_whose_spans_all_may_be_the_same_calls_is_not_read(
    spans: Callable[[int], Iterator[FakeSpan]],
    count: int,
    needs: frozenset[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each level of attempts looks at all of them, and each interval at those that it lies in."""
    monkeypatch.setattr(limits, "MOST_PAIRS", 1_000)
    (run,) = build(closed(*spans(count)), Plan(needs=needs))
    assert (run.trajectory.too_large, run.trajectory.calls) == (PAIRS, ())


def evaluated(trace: ClosedTrace) -> list[Report]:
    scorers = tuple(
        create_scorer(each)
        for each in ({"type": "tool_errors"}, {"type": "time_cost", "max_ms": 1})
    )
    return Engine([ScorerSet(name="e", scorers=(*scorers, OfUser()))]).evaluate(trace)


class OfUser:
    """A scorer of somebody else, which knows no limits."""

    name = type = "of_user"
    version = "1"
    needs = frozenset[str]()

    def __call__(self, trajectory: Trajectory) -> Outcome:
        return Scored(1.0, True, f"{len(trajectory.calls)} calls")


@pytest.mark.usefixtures("low_limits")
def test_a_run_that_is_too_large_is_skipped_by_every_scorer() -> None:
    """Scorers of users are not called; what is known without reading its calls is there."""
    (report,) = evaluated(closed(*many_calls(51)))
    run, outcomes = report.trajectory, [result.outcome for result in report.results]
    assert outcomes == [Skipped(f"too large: {CALLS}", reason="too_large")] * 3
    assert (run.calls, run.calls_unknown, run.too_large) == ((), CALLS, CALLS)
    assert (run.start_ns, run.end_ns, run.service) == (0, LONG * LONG, "test")


@pytest.mark.usefixtures("low_limits")
def test_an_incomplete_run_is_incomplete_however_large_it_is() -> None:
    """Spans that are missing are known without reading any."""
    (report,) = evaluated(closed(*many_calls(51), cut="spans were dropped"))
    assert [result.outcome for result in report.results][:2] == [
        Skipped("incomplete: spans were dropped", reason="incomplete")
    ] * 2


@pytest.mark.usefixtures("low_limits")
@pytest.mark.parametrize("spans", [many_calls, many_requests, levels_of_attempts])
def test_a_run_does_not_depend_on_the_other_runs_of_its_trace(
    spans: Callable[[int], Iterator[FakeSpan]],
) -> None:
    """Neither on their size, nor on the order in which spans stand in the trace."""
    beside = [agent("other", start=5), tool("call", "other", 6, 7, arguments={"q": 1})]
    plan = Plan(needs=ALL_NEEDS)
    (alone,) = build(closed(*beside), plan)
    large = [*spans(120)]
    orders = ([*large, *beside], [*reversed(beside), *reversed(large)])
    for order in orders:
        first, second = build(closed(*order), plan)
        assert first.trajectory.too_large
        assert second == alone


@pytest.mark.usefixtures("low_limits")
def test_runs_within_a_run_that_is_not_read_are_not_read() -> None:
    """They are part of it."""
    inner = [agent("inner", "run", start=5), tool("call", "inner", 6, 7)]
    outer, within = build(closed(*many_calls(51), *inner), Plan())
    assert outer.trajectory.too_large == within.trajectory.too_large == CALLS
