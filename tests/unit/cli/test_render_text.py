"""Runs and scores as text for a person."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval.cli.render import label_line, run_block, score_block, summary_line
from otel_eval.exporters.text_table import WIDTH, Layout, columns
from otel_eval.model import Completeness, Failed, Outcome, Result, Scored, Skipped, ToolError
from otel_eval.testing import call, trajectory


def result(outcome: Outcome, scorer: str = "s") -> Result:
    """A result with an outcome and nothing else."""
    return Result(
        evaluation="e",
        scorer=scorer,
        type="t",
        version="1",
        outcome=outcome,
        revision=0,
        result_id="0" * 32,
    )


def test_a_run_shows_its_calls_in_order() -> None:
    """Name, arguments, duration, what ran beside it and how it ended."""
    lines = run_block(
        trajectory(
            call("search", arguments={"q": "x"}, start_ns=0, end_ns=2_000_000),
            call(
                "open",
                start_ns=1_000_000,
                end_ns=3_000_000_000,
                error=ToolError("Timeout", "secret"),
            ),
            agent="helpful",
            service="shop",
            completeness=Completeness.REMOTE_PARENT,
        )
    )
    assert lines[0] == "run helpful · shop · 2 tool calls · remote_parent"
    assert lines[1:] == [
        "  #  time    parallel to  outcome        call",
        '  1  2.0 ms  2            ok             search(q="x")',
        "  2  3.00 s  1            error Timeout  open(arguments not recorded)",
    ]


def test_a_headline_breaks_after_a_separator_and_keeps_units_beside_their_numbers(
    subtests: pytest.Subtests,
) -> None:
    """Wherever the line is full; a longer name is broken itself."""
    for length in range(1, 90):
        with subtests.test(length=length):
            first, *more = run_block(
                trajectory(agent="a" * length, service="shop", start_ns=0, end_ns=18_900_000)
            )
            assert " ".join([first, *(line.strip() for line in more)]).endswith(
                " · shop · 1970-01-01 00:00:00Z · 0 tool calls · 18.9 ms · complete"
            )
            assert all(
                line.startswith("    ") and not line.strip().startswith(("·", "ms"))
                for line in more
            )
            assert all(len(line) <= WIDTH for line in (first, *more))


def test_times_that_are_none_are_not_shown() -> None:
    """Spans without times have 0 for both."""
    lines = run_block(
        trajectory(call("search", arguments={}, start_ns=0, end_ns=0), start_ns=0, end_ns=0)
    )
    assert lines[0].endswith(" · 1 tool call · complete")
    assert lines[2].split() == ["1", "ok", "search()"]


def test_arguments_are_left_out_where_scores_are_shown() -> None:
    """They are content, and may not even have been read."""
    lines = run_block(trajectory(call("search", arguments={"q": "secret"})), arguments=False)
    assert lines[2].split() == ["1", "ok", "search"]


def test_a_run_without_evidence_says_so() -> None:
    """Nothing known is not the same as no calls."""
    assert "calls unknown" in run_block(trajectory(calls_unknown="no tool spans"))[0]
    assert "incomplete: cut" in run_block(trajectory(incomplete="cut"))[0]


def test_every_outcome_is_shown_with_its_word() -> None:
    """Scorer, value, outcome, reason; the message of a failed scorer stays in the process."""
    rows = score_block(
        [
            result(Scored(1.0, True, "all there"), "good"),
            result(Scored(0.25, False, "one of four"), "bad"),
            result(Skipped("no tool data"), "unknown"),
            result(Failed("KeyError", "secret"), "broken"),
        ]
    )
    assert [row.split() for row in rows] == [
        ["scorer", "value", "outcome", "reason"],
        ["good", "1.000", "pass", "all", "there"],
        ["bad", "0.250", "not", "passed", "one", "of", "four"],
        ["unknown", "-", "skipped", "no", "tool", "data"],
        ["broken", "-", "failed", "the", "scorer", "failed:", "KeyError"],
    ]


@given(st.text(), st.text(), st.text(), st.dictionaries(st.text(), st.text()))
def test_no_text_of_a_trace_breaks_the_table(
    name: str, agent: str, reason: str, arguments: dict[str, str]
) -> None:
    """At most 100 columns wide, and no control character reaches the terminal."""
    run = trajectory(call(name, arguments=arguments, start_ns=0, end_ns=1), agent=agent)
    lines = [*run_block(run), *score_block([result(Scored(0.5, True, reason), name)])]
    assert max(map(len, lines)) <= WIDTH
    assert all(line.isprintable() for line in lines)


def test_a_long_reason_wraps_under_itself() -> None:
    """And ends at the fourth line."""
    lines = columns(("a", "b"), [("x", "word " * 200)], layout=Layout(40))
    assert len(lines) == 5
    assert all(line.startswith("   word") for line in lines[2:])
    assert lines[-1].endswith("…")


def test_the_last_line_counts() -> None:
    """Only what there was."""
    assert (
        summary_line([("passed", 2), ("skipped", 0), ("did not pass", 1)], 1)
        == "1 run, 3 results: 2 passed, 1 did not pass"
    )
    assert summary_line([], 0) == "0 runs, 0 results"


def test_labels_are_reported_in_one_line() -> None:
    """Counts, shares and skew; also for no labels."""
    summary = {
        "labels": ["no", "yes"],
        "counts": {"no": 1, "yes": 3},
        "fractions": [0.25, 0.75],
        "skew": 0.5,
    }
    assert label_line(summary) == "no 1 (25%), yes 3 (75%); skew 0.50"
    assert (
        label_line({"labels": [], "counts": {}, "fractions": [], "skew": 0.0})
        == "no labels; skew 0.00"
    )
    many = {f"label {number}": 1 for number in range(50)}
    line = label_line({"labels": list(many), "counts": many, "fractions": [0.02] * 50, "skew": 0.0})
    assert (len(line), line[-12:]) == (WIDTH, "…; skew 0.00")
