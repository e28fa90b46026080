"""When is a run complete? One test or more for each case of docs/explanation/completeness.md, named
by its letter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from otel_eval.model import Completeness, Trajectory
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import Plan
from otel_eval.trajectory.runs import CUT, NEVER_ARRIVED
from tests.support.made_spans import FakeSpan, closed, span

PLAN = Plan()
OP = "gen_ai.operation.name"


def agent(
    span_id: str, parent: str = "", start: int = 0, end: int = 100, name: str = "a", **fields: Any
) -> FakeSpan:
    attributes = {OP: "invoke_agent", "gen_ai.agent.name": name, **fields.pop("attributes", {})}
    return span(
        span_id,
        parent,
        f"invoke_agent {name}",
        start_ns=start,
        end_ns=end,
        attributes=attributes,
        **fields,
    )


def tool(span_id: str, parent: str, start: int = 1, name: str = "look", **fields: Any) -> FakeSpan:
    attributes = {OP: "execute_tool", "gen_ai.tool.name": name}
    return span(
        span_id,
        parent,
        f"execute_tool {name}",
        start_ns=start,
        end_ns=start + 1,
        attributes=attributes,
        **fields,
    )


def chat(span_id: str, parent: str, start: int = 1, **fields: Any) -> FakeSpan:
    return span(
        span_id,
        parent,
        "chat m",
        start_ns=start,
        end_ns=start + 1,
        attributes={OP: "chat"},
        **fields,
    )


def step(span_id: str, parent: str = "", start: int = 1, end: int = 50, **fields: Any) -> FakeSpan:
    return span(span_id, parent, "step", start_ns=start, end_ns=end, **fields)


def evaluated(*spans: FakeSpan, **facts: Any) -> list[Trajectory]:
    return [run.trajectory for run in build(closed(*spans, **facts), PLAN)]


def summaries(*spans: FakeSpan, **facts: Any) -> list[tuple[str, str, int]]:
    return [
        (bytes.fromhex(t.span_id).decode(), t.incomplete, len(t.calls))
        for t in evaluated(*spans, **facts)
    ]


def test_a_complete_run_is_evaluated():
    """The normal case."""
    assert summaries(agent("r"), chat("m", "r"), tool("t", "r")) == [("r", "", 1)]


@pytest.mark.parametrize("reason", list(Completeness))
def test_b_whatever_closed_the_trace_evidence_decides(reason: Completeness):
    """A whole run is evaluated even if the trace was aged out; the reason travels with it."""
    (run,) = evaluated(agent("r"), tool("t", "r"), reason=reason)
    assert (run.incomplete, run.completeness) == ("", reason)


def test_c_a_child_that_ends_after_its_run_is_the_runs():
    """Streaming and background tasks; also one that starts later."""
    assert summaries(agent("r", end=10), tool("t", "r", start=20)) == [("r", "", 1)]


@pytest.mark.parametrize(
    ("flags", "completeness"),
    [
        ({"remote": True}, Completeness.REMOTE_PARENT),
        ({"remote": None, "kind": 2}, Completeness.REMOTE_PARENT),
        ({"remote": None}, Completeness.DETACHED),
        ({"remote": False}, Completeness.DETACHED),
    ],
)
def test_d_a_run_whose_parent_never_arrives_is_evaluated(
    flags: dict[str, Any], completeness: Completeness
):
    """The caller's service exports elsewhere, or is not sampled."""
    (run,) = evaluated(
        agent("r", "caller", **flags), tool("t", "r"), reason=Completeness.REMOTE_PARENT
    )
    assert (run.incomplete, run.completeness, run.outermost) == ("", completeness, True)


@pytest.mark.parametrize(
    "flags", [{"remote": True}, {"remote": None, "kind": 5}, {"remote": None, "kind": 1}]
)
def test_d_a_local_root_without_agent_is_the_run(flags: dict[str, Any]):
    """A span whose parent is elsewhere, with a model or tool span below."""
    assert summaries(step("r", "caller", **flags), chat("m", "r"), tool("t", "r")) == [("r", "", 1)]


def test_e_two_agents_in_one_request_are_two_runs():
    """Each is scored on its own subtree; what lies beside them is neither's."""
    spans = [
        step("http", end=200),
        agent("r1", "http"),
        tool("t1", "r1"),
        agent("r2", "http", 110, 150),
        chat("m", "http", 190),
    ]
    assert summaries(*spans) == [("r1", "", 1), ("r2", "", 0)]


def test_e_siblings_under_a_missing_request_do_not_cut_each_other():
    """The missing parent is known to be above both."""
    assert summaries(
        agent("r1", "http"),
        agent("r2", "http", 10, 20),
        chat("m", "http", 15),
        reason=Completeness.REMOTE_PARENT,
    ) == [
        ("r1", "", 0),
        ("r2", "", 0),
    ]


def test_e_an_agent_elsewhere_in_the_trace_does_not_cut():
    """An agent that another service called, of whose parent nothing is known."""
    assert summaries(agent("r1"), agent("r2", "lost", 10, 20, remote=None)) == [
        ("r1", "", 0),
        ("r2", "", 0),
    ]


def test_e_a_remote_entry_is_no_gap():
    """A server in the same trace, called by a program whose span is missing."""
    assert summaries(agent("r1"), step("s", "lost", 10, remote=True), tool("t", "s", 11)) == [
        ("r1", "", 0)
    ]


@pytest.mark.parametrize(
    "attributes",
    [
        {OP: "create_agent"},
        {"mcp.method.name": "server/discover"},
        {"http.request.method": "GET"},
        {},
    ],
)
def test_f_a_trace_without_agent_model_or_tool_gives_no_run(attributes: dict[str, Any]):
    """Creating an agent runs nothing."""
    assert summaries(span("r", attributes=attributes), step("x", "r"), step("o", "lost")) == []


def test_g_nested_agents_are_runs_too():
    """The inner one's calls belong to both."""
    runs = evaluated(
        agent("r"), tool("t", "r", name="ask"), agent("s", "t", 2, 9, "b"), tool("u", "s", 3)
    )
    assert [(run.agent, run.outermost, len(run.calls)) for run in runs] == [
        ("a", True, 2),
        ("b", False, 1),
    ]


def test_g_a_wrapper_of_the_same_agent_is_a_run_of_its_own():
    """It is nested, so `outermost` counts the agent once."""
    runs = evaluated(agent("r"), agent("s", "r"), tool("t", "s"))
    assert [(run.outermost, len(run.calls)) for run in runs] == [(True, 1), (False, 1)]


def test_g_agents_nested_without_end_are_not_all_runs():
    """The outermost 64 are; deeper ones belong to those around them."""
    spans = [agent(f"{n:03}", f"{n - 1:03}" if n else "", n) for n in range(100)]
    runs = evaluated(*spans, tool("t", "099"))
    assert (len(runs), {len(run.calls) for run in runs}) == (64, {1})


def test_h_turns_of_a_conversation_are_traces_that_name_it():
    """Each is evaluated on its own."""
    (run,) = evaluated(agent("r", attributes={"gen_ai.conversation.id": "c-7"}), tool("t", "r"))
    assert run.conversation_id == "c-7"


def test_h_a_conversation_named_only_below_the_run_is_found():
    """Some instrumentations tell it on inner spans."""
    outer, _ = evaluated(agent("r"), agent("s", "r", attributes={"session.id": "c-8"}))
    assert outer.conversation_id == "c-8"


@pytest.mark.parametrize("backwards", [False, True])
def test_h_of_several_conversations_below_a_run_the_earliest_counts(backwards: bool):
    """Not the one whose span came first."""
    inner = [agent(f"s{n}", "r", n, attributes={"session.id": f"c-{n}"}) for n in (1, 2)]
    run = evaluated(agent("r"), *(reversed(inner) if backwards else inner))[0]
    assert run.conversation_id == "c-1"


def test_i_links_are_not_followed():
    """The linked work is a trace and a run of its own: here, the consumer's."""
    assert summaries(step("queue", kind=5), agent("r", "queue"), tool("t", "r")) == [("r", "", 1)]


def test_j_a_run_that_is_still_open_when_its_trace_is_given_up_is_not_evaluated():
    """Its children arrived, it did not."""
    (run,) = evaluated(
        chat("m", "r", remote=False), tool("t", "r", 3, remote=False), reason=Completeness.AGED
    )
    assert (run.incomplete, run.name, run.span_id) == (NEVER_ARRIVED, "", b"r".hex())


@pytest.mark.parametrize("flags", [{"remote": False}, {"remote": None}])
def test_k_a_run_whose_own_span_never_arrived_is_reported_once(flags: dict[str, Any]):
    """Under the id of the missing parent of its earliest fragment; a later arrival is then its next
    revision.
    """
    spans = [
        step("s1", "run", 5, **flags),
        tool("t1", "s1", 6),
        step("s0", "run", 2, **flags),
        chat("m", "s0", 3),
    ]
    runs = build(closed(*spans), PLAN)
    assert [(run.span_id, run.trajectory.incomplete) for run in runs] == [(b"run", NEVER_ARRIVED)]
    assert set(runs[0].members) == {b"s1", b"t1", b"s0", b"m"}


@pytest.mark.parametrize("flags", [{"remote": None}, {"remote": False}])
def test_k_a_lone_tool_or_model_span_is_a_fragment(flags: dict[str, Any]):
    """It is never the run's own span if its parent was local."""
    assert [run.incomplete for run in evaluated(tool("t", "run", **flags))] == [NEVER_ARRIVED]


@pytest.mark.parametrize(
    ("orphan", "cut"),
    [
        ([tool("t", "lost", 5, remote=False)], True),
        ([tool("t", "lost", 5, remote=None)], True),
        ([step("s", "lost", 5, remote=False)], True),
        ([step("s", "lost", 5, remote=None)], True),
        ([step("s", "lost", 5, remote=None, service="other")], False),
        (
            [
                step("s", "lost", 5, remote=None, service="other"),
                tool("t", "s", 6, service="other"),
            ],
            True,
        ),
        ([step("s", "lost", 5, remote=False, service="other")], True),
        ([step("s", "lost", 5, remote=None, kind=2), tool("t", "s", 6)], False),
        ([step("s", "lost", 5, remote=True)], False),
        ([step("s", "lost", 500, 600, remote=False)], False),
        ([agent("b", "lost", 5, 9, remote=False)], True),
        ([agent("b", "lost", 5, 9, remote=None)], False),
    ],
)
def test_a_missing_link_cuts_the_runs_it_may_belong_to(orphan: list[FakeSpan], cut: bool):
    """Partial sampling and lost batches: a span of the run's time whose parent should have been
    here.
    """
    runs = {t.span_id: t.incomplete for t in evaluated(agent("r"), tool("x", "r"), *orphan)}
    assert runs[b"r".hex()] == (CUT if cut else "")


def test_l_the_run_that_a_fragment_cuts_is_reported_alone():
    """The fragment belongs to it, so there is no second run."""
    assert summaries(agent("r"), tool("t", "lost", 5, remote=False)) == [("r", CUT, 0)]


def test_a_fragment_of_another_time_is_a_run_that_is_missing():
    """The run that did arrive is evaluated beside it."""
    assert summaries(agent("r"), tool("t", "lost", 500, remote=False)) == [
        ("r", "", 0),
        ("lost", NEVER_ARRIVED, 1),
    ]


@pytest.mark.parametrize("reason", ["more than 10 spans", "more than 1 MiB"])
def test_m_a_limit_that_dropped_spans_makes_every_run_incomplete(reason: str):
    """It is not known which run they belonged to."""
    runs = evaluated(agent("r"), tool("t", "r"), agent("s", "", 200, 300), cut=reason)
    assert [run.incomplete for run in runs] == [reason, reason]


def test_n_clocks_that_disagree_do_no_harm():
    """Children before their parents, ends before starts."""
    early = tool("t", "r", -50, service="other")
    backwards = FakeSpan(
        "u",
        "r",
        "x",
        start_ns=9,
        end_ns=3,
        attributes={OP: "execute_tool", "gen_ai.tool.name": "look"},
    )
    (run,) = evaluated(agent("r", "", 10, 5), early, backwards)
    assert [call.start_ns for call in run.calls] == [-50, 9]


def test_o_two_instrumentations_at_once_count_a_call_once():
    """Duplicates of one span id never come this far: assembly keeps one."""
    spans = [agent("r"), tool("t", "r", 5, scope="one"), tool("u", "r", 5, scope="two")]
    assert summaries(*spans) == [("r", "", 1)]


def test_p_runs_that_share_a_trace_id_are_told_apart():
    """One root around many runs, or a fixed id: each subtree is a run."""
    spans = [
        each
        for n in range(3)
        for each in (
            agent(f"r{n}", "", n * 200, n * 200 + 100),
            tool(f"t{n}", f"r{n}", n * 200 + 1),
        )
    ]
    assert summaries(*spans) == [("r0", "", 1), ("r1", "", 1), ("r2", "", 1)]


@pytest.mark.parametrize(
    "own",
    [
        {"scope": "otel_eval"},
        {"attributes": {"openinference.span.kind": "EVALUATOR"}},
        {"attributes": {OP: "evaluation"}},
    ],
)
def test_q_evaluations_are_not_evaluated(own: dict[str, Any]):
    """Nor what a judge did below one; and they cut nothing."""
    spans = [
        agent("r"),
        tool("t", "r"),
        step("e", "r", **own),
        tool("judge", "e", 5),
        step("f", "lost", 6, remote=False, **own),
    ]
    assert summaries(*spans) == [("r", "", 1)]
    assert summaries(step("e", **own), agent("judge-agent", "e")) == []


def test_r_spans_made_after_the_fact_are_ordered_by_their_times():
    """The root comes first, children in any order."""
    spans = [agent("r"), tool("b", "r", 9), tool("a", "r", 3)]
    (run,) = evaluated(*spans)
    assert [bytes.fromhex(call.span_id) for call in run.calls] == [b"a", b"b"]


def test_runs_stand_in_order_of_start_and_id():
    """Outermost and nested ones together."""
    spans = [agent("z", "", 5), agent("y", "", 5, 200), agent("x", "y", 50)]
    assert [bytes.fromhex(run.span_id) for run in evaluated(*spans)] == [b"y", b"z", b"x"]


def test_configured_attributes_are_the_spans_then_the_resources():
    """`service.name` is on the resource; a span may overrule it."""
    trace = closed(agent("r", attributes={"tier": "gold"}))
    (run,) = build(trace, Plan(attributes=frozenset({"tier", "service.name", "absent"})))
    assert run.trajectory.attributes == {"tier": "gold", "service.name": "test"}


@pytest.mark.parametrize("parent", [b"\0" * 8, b""])
def test_an_empty_parent_is_no_parent(parent: bytes):
    """Eight zero bytes are how some senders write it."""
    trace = closed(agent("r"), tool("t", "r"))
    frames = {
        key: ((parent, *frame[1:]) if key == b"r" else frame) for key, frame in trace.frames.items()
    }
    (run,) = build(replace(trace, frames=frames), PLAN)
    assert run.trajectory.incomplete == ""
