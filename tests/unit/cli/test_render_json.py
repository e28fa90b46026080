"""A run as the fields of one JSON object."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from otel_eval.cli.render import overlaps, trajectory_fields
from otel_eval.model import ToolCall, ToolError
from otel_eval.testing import call, trajectory

INSTANTS = st.integers(0, 12)
CALLS = st.lists(
    st.builds(
        lambda name, start, length, within: call(
            name, span_id=name, start_ns=start, end_ns=start + length, enclosing=within
        ),
        st.sampled_from("abcdef"),
        INSTANTS,
        INSTANTS,
        st.lists(st.sampled_from("abcdef"), max_size=2),
    ),
    max_size=8,
)


def test_unrecorded_values_are_null() -> None:
    """`arguments_recorded` distinguishes an argument of null from an unrecorded one."""
    unknown, null = trajectory_fields(trajectory(call("a"), call("b", arguments=None)))["calls"]
    assert (unknown["arguments"], unknown["arguments_recorded"]) == (None, False)
    assert (null["arguments"], null["arguments_recorded"]) == (None, True)
    assert [
        unknown[key] for key in ("result", "error", "call_id", "span_id", "start_ns", "end_ns")
    ] == [None] * 6


def test_a_run_has_exactly_the_documented_fields() -> None:
    """Readers of the lines rely on them."""
    failed = call(
        "a",
        arguments={"q": 1},
        error=ToolError("Oops", "no"),
        start_ns=1,
        end_ns=2,
        call_id="c",
        span_id="s",
    )
    assert trajectory_fields(
        trajectory(failed, trace_id="t", span_id="r", agent="x", name="run")
    ) == {
        "trace_id": "t",
        "span_id": "r",
        "agent": "x",
        "name": "run",
        "completeness": "complete",
        "calls": [
            {
                "name": "a",
                "arguments": {"q": 1},
                "arguments_recorded": True,
                "result": None,
                "error": {"type": "Oops", "message": "no"},
                "call_id": "c",
                "span_id": "s",
                "start_ns": 1,
                "end_ns": 2,
                "overlaps": [],
            }
        ],
    }


def test_touching_calls_and_calls_within_calls_do_not_overlap() -> None:
    """Each has to start strictly before the other ends, and neither may be made within the
    other.
    """
    outer = call("outer", span_id="o", start_ns=0, end_ns=10)
    inner = call("inner", enclosing=["o"], start_ns=2, end_ns=4)
    beside, after = call("beside", start_ns=3, end_ns=5), call("after", start_ns=10, end_ns=12)
    assert overlaps((outer, inner, beside, after, call("untimed"))) == [[2], [2], [0, 1], [], []]


@given(CALLS)
def test_overlaps_are_what_the_definition_says(calls: list[ToolCall]) -> None:
    """Compared with every pair."""

    def together(one: ToolCall, other: ToolCall) -> bool:
        assert one.start_ns is not None
        assert one.end_ns is not None
        assert other.start_ns is not None
        assert other.end_ns is not None
        related = one.span_id in other.enclosing or other.span_id in one.enclosing
        return one.start_ns < other.end_ns and other.start_ns < one.end_ns and not related

    expected = [
        [j for j, other in enumerate(calls) if i != j and together(one, other)]
        for i, one in enumerate(calls)
    ]
    assert overlaps(tuple(calls)) == expected
