"""Messages fill what spans leave out, and make the calls that left no span."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from otel_eval.interfaces import ClosedTrace, SpanEvent
from otel_eval.model import UNRECORDED, Trajectory, Unnamed
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from tests.support.made_spans import FakeSpan, closed, span

PLAN = Plan(needs=ALL_NEEDS)
OP = "gen_ai.operation.name"
RUN = span("run", "", "invoke_agent a", start_ns=0, end_ns=100, attributes={OP: "invoke_agent"})


def asked(name: str, arguments: Any, call_id: str = "") -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def answered(call_id: str, result: Any) -> dict[str, Any]:
    return {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": call_id, "response": result}],
    }


def model(
    span_id: str,
    start: int,
    *parts: dict[str, Any],
    history: tuple[dict[str, Any], ...] = (),
    **fields: Any,
) -> FakeSpan:
    attributes = {
        OP: "chat",
        "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": list(parts)}]),
    }
    if history:
        attributes["gen_ai.input.messages"] = json.dumps(list(history))
    return span(
        span_id,
        fields.pop("parent", "run"),
        "chat m",
        start_ns=start,
        end_ns=start + 1,
        attributes=attributes,
        **fields,
    )


def tool(span_id: str, start: int, **attributes: Any) -> FakeSpan:
    given = {
        OP: "execute_tool",
        "gen_ai.tool.name": "look",
        **{f"gen_ai.tool.call.{k}": v for k, v in attributes.items()},
    }
    return span(
        span_id, "run", "execute_tool look", start_ns=start, end_ns=start + 1, attributes=given
    )


def trajectory(*spans: FakeSpan, plan: Plan = PLAN) -> Trajectory:
    return build(closed(*spans), plan)[0].trajectory


def test_arguments_and_results_are_filled_by_call_id():
    """The order of the messages does not matter then."""
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 2}, "c2"), asked("look", {"q": 1}, "c1")),
        tool("a", 3, id="c1"),
        tool("b", 5, id="c2"),
        model("n", 8, history=(answered("c1", {"n": 1}), answered("c2", {"n": 2}))),
    ).calls
    assert [(call.arguments, call.result) for call in made] == [
        ({"q": 1}, {"n": 1}),
        ({"q": 2}, {"n": 2}),
    ]


def test_without_ids_order_among_same_named_calls_decides():
    """And gives the calls their ids, and with them their results."""
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}, "c1"), asked("look", {"q": 2}, "c2")),
        tool("a", 3),
        tool("b", 5),
        model("n", 8, history=(answered("c2", 22),)),
    ).calls
    assert [(call.arguments, call.call_id, call.result) for call in made] == [
        ({"q": 1}, "c1", UNRECORDED),
        ({"q": 2}, "c2", 22),
    ]


def test_requests_without_ids_are_not_counted_twice():
    """The agent's own span repeats what its model spans said; the second call asks for something
    else.
    """
    said = [{"parts": [asked("look", {"q": 1}), asked("look", {"q": 2})]}]
    run = span(
        "run",
        attributes={OP: "invoke_agent", "gen_ai.output.messages": json.dumps(said)},
        end_ns=100,
    )
    first, second = model("m", 1, asked("look", {"q": 1})), model("n", 5, asked("look", {"q": 2}))
    made = trajectory(run, first, tool("a", 3), second, tool("b", 7), tool("c", 9)).calls
    assert [call.arguments for call in made] == [{"q": 1}, {"q": 2}, UNRECORDED]


def test_a_bare_value_finds_the_object_that_holds_it():
    """A tool of one argument is often recorded without its name; order alone would mistake a
    retry.
    """
    made = trajectory(
        RUN,
        model(
            "m", 1, asked("look", {"city": "Paris"}, "c1"), asked("look", {"city": "Oslo"}, "c2")
        ),
        tool("a", 3, arguments="Oslo"),
        tool("b", 5, arguments="Paris"),
    ).calls
    assert [call.arguments for call in made] == [{"city": "Oslo"}, {"city": "Paris"}]


def test_a_call_claimed_by_id_is_not_given_away():
    """A retry of the same id takes the same request and leaves the next one alone."""
    failed = tool("a", 3, id="c1")
    failed.status_code = 2
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}, "c1"), asked("look", {"q": 2}, "c2")),
        failed,
        tool("b", 5, id="c1"),
        tool("c", 7),
    ).calls
    assert [call.arguments for call in made] == [{"q": 1}, {"q": 1}, {"q": 2}]


def test_what_a_span_recorded_is_never_overwritten():
    """The span saw the call; the model only asked for it."""
    (call,) = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}, "c1")),
        tool("a", 3, id="c1", arguments='{"q": "1"}'),
    ).calls
    assert call.arguments == {"q": "1"}


def test_without_any_tool_span_messages_make_the_calls():
    """Each once, in order, without times, with what came back; the last one was not answered."""
    run = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}, "c1"), asked("look", '{"q": 2}', "c2")),
        model(
            "n",
            5,
            asked("book", {}, "c3"),
            history=({"parts": [asked("look", {"q": 1}, "c1")]}, answered("c1", "one")),
        ),
        model("o", 9, asked("pay", {}, "c4")),
    )
    assert '"pay"' in run.calls_unknown
    assert [(c.name, c.arguments, c.result, c.start_ns, c.agent_path) for c in run.calls] == [
        ("look", {"q": 1}, "one", None, ("a",)),
        ("look", {"q": 2}, UNRECORDED, None, ("a",)),
        ("book", {}, UNRECORDED, None, ("a",)),
    ]


@pytest.mark.parametrize("given", [{"q": 1}, {"q": 2}, {"q": 1, "deep": True}])
def test_each_answer_of_a_model_may_number_its_calls_anew(given: dict[str, Any]):
    """Some models begin with `call_0` in each answer; each request is a call with a result of its
    own.
    """
    first, second = asked("look", {"q": 1}, "call_0"), asked("look", given, "call_0")
    history = ({"parts": [first]}, answered("call_0", "one"))
    messages = (
        model("m", 1, first),
        model("n", 5, second, history=history),
        model("o", 9, history=(*history, {"parts": [second]}, answered("call_0", "two"))),
    )
    recovered = trajectory(RUN, *messages).calls
    assert [(call.arguments, call.call_id, call.result) for call in recovered] == [
        ({"q": 1}, "call_0", "one"),
        (given, "call_0", "two"),
    ]
    spans = tool("a", 3, id="call_0"), tool("b", 7, id="call_0")
    assert len(trajectory(RUN, *messages, *spans).calls) == 2
    assert [call.span_id for call in trajectory(RUN, *messages, spans[1]).calls] == ["", "62"]


@pytest.mark.parametrize("arguments", [{}, "cut {", None])
def test_a_second_description_of_a_request_that_lost_its_arguments_is_no_other_request(
    arguments: Any,
):
    """Such as that of another instrumentation beside the first one."""
    run = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}, "c1")),
        model("n", 1, asked("look", arguments, "c1")),
        model("o", 5, history=(answered("c1", "one"),)),
    )
    assert [(call.arguments, call.result) for call in run.calls] == [({"q": 1}, "one")]


@pytest.mark.parametrize("spans", [(), (tool("a", 3, id="c1"),)])
def test_a_bare_value_in_a_request_has_no_name_with_or_without_a_span(spans: tuple[FakeSpan, ...]):
    """So no scorer compares it with arguments by name."""
    asks, answers = model("m", 1, asked("look", "Paris", "c1")), model("n", 9)
    (call,) = trajectory(RUN, asks, *spans, answers).calls
    assert (type(call.arguments), call.arguments) == (Unnamed, {"__value__": "Paris"})


@pytest.mark.parametrize("spans", [(), (tool("a", 3, id="c1"),)])
def test_a_request_with_an_empty_text_has_no_arguments_with_or_without_a_span(
    spans: tuple[FakeSpan, ...],
):
    asks, answers = model("m", 1, asked("look", "", "c1")), model("n", 9)
    (call,) = trajectory(RUN, asks, *spans, answers).calls
    assert call.arguments == {}


def test_what_the_provider_ran_is_a_call_and_what_nothing_answered_is_unknown():
    """Whatever the table says."""
    searched = {"type": "tool_call_response", "id": "c2", "response": "found"}
    made = model("m", 1, asked("refund", {}, "c1"), asked("web_search", {"q": 1}, "c2"), searched)
    for scope in ("agent_framework", "test"):
        agent = span("run", "", "invoke_agent a", attributes={OP: "invoke_agent"}, scope=scope)
        run = trajectory(agent, made)
        assert [(call.name, call.result) for call in run.calls] == [("web_search", "found")]
        assert '"refund"' in run.calls_unknown


def test_calls_of_earlier_turns_are_not_recovered():
    """They are in the history only."""
    run = trajectory(RUN, model("m", 1, history=({"parts": [asked("old", {}, "c0")]},)))
    assert (run.calls, run.calls_unknown) == ((), "")


def test_a_framework_and_its_client_tell_of_a_model_call_once():
    """Also where calls have no ids."""
    run = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1})),
        model("n", 1, asked("look", {"q": 1}), parent="m"),
        model("o", 9),
    )
    assert (len(run.calls), run.model_calls) == (1, 2)


@pytest.mark.parametrize(
    ("scope", "calls"), [("x.instrumentation.anthropic", 2), ("x.instrumentation.openai", 3)]
)
def test_a_clients_own_span_beside_that_of_an_instrumentation_is_the_same_model_call(
    scope: str, calls: int
):
    """Anthropic's client records neither messages nor which of the others describe its calls; it
    starts during one of them.
    """
    own = span(
        "o",
        "run",
        "anthropic.messages.create",
        start_ns=2,
        end_ns=9,
        attributes={OP: "chat"},
        scope="com.anthropic.sdk.python",
    )
    beside = model("m", 1, asked("look", {}, "c1"), scope=scope)
    run = trajectory(RUN, beside, own, model("n", 20))
    assert (run.model_calls, [call.name for call in run.calls], bool(run.calls_unknown)) == (
        calls,
        ["look"],
        calls == 3,
    )


def test_an_agents_own_messages_serve_where_models_recorded_none():
    """pydantic-ai keeps the whole conversation on the run; what earlier runs said is not this
    one's.
    """
    messages = [
        {"parts": [asked("old", {}, "c0")]},
        {"parts": [asked("look", {"q": 1}, "c1")]},
        answered("c1", 1),
        {"parts": [asked("final_result", {}, "c9")]},
    ]
    attributes = {
        OP: "invoke_agent",
        "pydantic_ai.all_messages": json.dumps(messages),
        "pydantic_ai.new_message_index": 1,
    }
    run = trajectory(span("run", "", "invoke_agent a", attributes=attributes, scope="pydantic-ai"))
    assert [call.name for call in run.calls] == ["look"]


CHAT = {OP: "chat", "gen_ai.output.messages": '[{"role": "assistant", "parts": []}]'}


@pytest.mark.parametrize(
    ("scope", "attributes", "known"),
    [
        ("opentelemetry.instrumentation.openai_v2", {OP: "chat"}, False),
        ("opentelemetry.instrumentation.openai_v2", CHAT, True),
        (
            "opentelemetry.instrumentation.openai_v2",
            {**CHAT, "gen_ai.output.messages": " null"},
            False,
        ),
        ("my.agent", {OP: "chat"}, False),
        ("my.agent", {OP: "invoke_agent"}, False),
        ("agent_framework", {OP: "invoke_agent"}, True),
        ("opentelemetry.instrumentation.crewai", {OP: "invoke_agent"}, False),
        (
            "openinference.instrumentation.crewai",
            {"openinference.span.kind": "AGENT", "output.value": '{"messages": []}'},
            False,
        ),
    ],
)
def test_no_call_and_unknown_calls_are_two_things(
    scope: str, attributes: dict[str, Any], known: bool
):
    """It depends on what the instrumentation records, or on messages that would show a call."""
    run = trajectory(span("run", "", "x", attributes=attributes, scope=scope))
    assert (run.calls, run.calls_unknown == "") == ((), known)


class Records:
    """Log records that are their own events."""

    def event(self, payload: SpanEvent) -> SpanEvent:
        return payload


def with_logs(trace: ClosedTrace, **records: list[SpanEvent]) -> ClosedTrace:
    logs = {
        name.encode(): tuple((record, Records()) for record in given)
        for name, given in records.items()
    }
    return replace(trace, logs=logs)


def test_content_that_came_as_log_records_is_joined():
    """Messages of a model span, and arguments of a tool span."""
    details = SpanEvent(
        "gen_ai.client.inference.operation.details",
        {"gen_ai.output.messages": [{"parts": [asked("look", {"q": 1}, "c1")]}]},
    )
    chat = span("m", "run", "chat m", start_ns=1, end_ns=2, attributes={OP: "chat"})
    filled = build(with_logs(closed(RUN, chat, tool("a", 3, id="c1")), m=[details]), PLAN)[
        0
    ].trajectory
    later = model("n", 9)
    recovered = build(with_logs(closed(RUN, chat, later), m=[details]), PLAN)[0].trajectory
    own = SpanEvent("gen_ai.execute_tool.details", {"gen_ai.tool.call.arguments": {"q": 3}})
    direct = build(with_logs(closed(RUN, tool("a", 3)), a=[own]), PLAN)[0].trajectory
    assert [t.calls[0].arguments for t in (filled, recovered, direct)] == [
        {"q": 1},
        {"q": 1},
        {"q": 3},
    ]


def test_a_sub_agents_messages_are_its_own():
    """Equal ids in two agents do not mix."""
    inner = span(
        "sub", "run", "invoke_agent b", start_ns=10, end_ns=20, attributes={OP: "invoke_agent"}
    )
    theirs = span(
        "b", "sub", "t", start_ns=12, end_ns=13, attributes=dict(tool("b", 0, id="c1").given)
    )
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": "outer"}, "c1")),
        tool("a", 3, id="c1"),
        inner,
        model("n", 11, asked("look", {"q": "inner"}, "c1"), parent="sub"),
        theirs,
    ).calls
    assert [call.arguments for call in made] == [{"q": "outer"}, {"q": "inner"}]


def test_histories_are_left_alone_where_nothing_is_missing():
    """Decoding them is the dearest part of reading a trace."""

    class Guarded(FakeSpan):
        def attributes(self, wanted: Any) -> dict[str, Any]:
            assert "gen_ai.input.messages" not in wanted.keys
            return super().attributes(wanted)

    asks = dict(model("m", 1, asked("look", {}, "c1"), history=(answered("c0", 0),)).given)
    guarded = Guarded("m", "run", "chat m", start_ns=1, end_ns=2, attributes=asks)
    whole = tool("a", 3, id="c1", arguments="{}", result="1")
    for plan in (Plan(needs=frozenset({"arguments", "results"})), Plan()):
        assert len(build(closed(RUN, guarded, whole), plan)[0].trajectory.calls) == 1


def turn(*calls: tuple[Any, str, Any]) -> tuple[dict[str, Any], ...]:
    """What a history holds of calls of `look` (arguments, id, result): the requests and the
    answers.
    """
    requests = [asked("look", arguments, call_id) for arguments, call_id, _ in calls]
    return {"role": "assistant", "parts": requests}, *(
        answered(call_id, result) for _, call_id, result in calls
    )


def test_a_request_without_an_id_finds_its_result_in_a_later_history():
    """Equal requests in the order of the history; the last one was never answered."""
    first = turn(({"q": 1}, "c1", "one"), ({"q": 2}, "c2", "two"))
    second = (*first, *turn(({"q": 1}, "c3", "three")))
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}), asked("look", {"q": 2})),
        model("n", 5, asked("look", {"q": 1}), history=first),
        model("o", 9, asked("look", {"q": 1}), history=second),
    ).calls
    assert [call.result for call in made] == ["one", "two", "three"]


def test_a_request_without_an_id_does_not_get_the_result_of_an_earlier_turn():
    """The same question was answered before the run began."""
    before = turn(({"q": 1}, "c1", "old"))
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}), history=before),
        model("n", 5, history=(*before, *turn(({"q": 1}, "c2", "new")))),
    ).calls
    assert [call.result for call in made] == ["new"]
    alone = trajectory(RUN, model("m", 1, asked("look", {"q": 1}), history=before))
    assert (alone.calls, bool(alone.calls_unknown)) == ((), True)


def test_a_request_belongs_to_a_call_before_the_next_model_call():
    """The first model call's output was not recorded, so what the second one asked for is not its
    call.
    """
    silent = span("m", "run", "chat m", start_ns=1, end_ns=2, attributes={OP: "chat"})
    made = trajectory(
        RUN, silent, tool("a", 3), model("n", 5, asked("look", {"q": 2})), tool("b", 7)
    ).calls
    assert [call.arguments for call in made] == [UNRECORDED, {"q": 2}]


def test_two_instrumentations_each_take_the_requests_for_themselves():
    """They describe the same calls."""
    others = [
        span(
            f"o{at}",
            "run",
            "t",
            start_ns=start,
            end_ns=start + 1,
            attributes=dict(tool("x", 0).given),
            scope="other",
        )
        for at, start in enumerate((3, 5))
    ]
    made = trajectory(
        RUN,
        model("m", 1, asked("look", {"q": 1}), asked("look", {"q": 2})),
        tool("a", 3),
        tool("b", 5),
        *others,
    ).calls
    assert [call.arguments for call in made] == [{"q": 1}, {"q": 2}]


def test_the_order_of_requests_tells_nothing_where_one_lacks_its_name():
    """It may be any of them."""
    family = "gen_ai.completion.0.tool_calls"
    flat = {f"{family}.0.id": "c1", f"{family}.1.name": "look", f"{family}.1.arguments": '{"q": 2}'}
    broken = span("m", "run", "chat m", start_ns=1, end_ns=2, attributes={OP: "chat", **flat})
    made = trajectory(RUN, broken, tool("a", 3), tool("b", 5)).calls
    assert [call.arguments for call in made] == [UNRECORDED, UNRECORDED]


def test_parallel_calls_of_two_instrumentations_are_told_apart_by_what_is_recorded():
    """One span recorded no arguments: it takes the place that is left."""

    def described(span_id: str, start: int, scope: str, **given: str) -> FakeSpan:
        attributes = {**tool("x", 0, **given).given}
        return span(
            span_id,
            "run",
            "execute_tool look",
            start_ns=start,
            end_ns=20 - start,
            attributes=attributes,
            scope=scope,
        )

    paris, oslo = '{"city": "Paris"}', '{"city": "Oslo"}'
    outer = [described("a", 1, "one", arguments=paris), described("b", 2, "one", arguments=oslo)]
    inner = [described("c", 3, "two"), described("d", 4, "two", arguments=paris)]
    assert [call.arguments["city"] for call in trajectory(RUN, *outer, *inner).calls] == [
        "Paris",
        "Oslo",
    ]
