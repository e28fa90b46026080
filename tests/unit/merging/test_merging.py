"""Merging results of several evaluators: the rule, case by case, and its laws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_eval import InputError, merge_results
from tests.support.counted_work import is_in_proportion
from tests.support.merged_lines import ROW


def row(evaluator: str | None = "a", **fields: Any) -> dict[str, Any]:
    """A line as exporters write it, with what merging looks at."""
    return {**ROW, "evaluator": evaluator} | fields


def rows_of(*sources: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Who won, with which outcome, and whether it is marked."""
    return [
        (each["evaluator"], each["outcome"], each.get("split", False))
        for each in merge_results(*sources)
    ]


def test_results_of_one_evaluator_stay_as_they_are() -> None:
    """In order of trace, run, evaluation and scorer."""
    rows = [row(scorer="y"), row(), row(trace_id="s")]
    assert merge_results(rows) == [rows[2], rows[1], rows[0]]


@pytest.mark.parametrize("outcome", ["scored", "failed", "skipped"])
def test_the_highest_revision_of_an_evaluator_counts(outcome: str) -> None:
    """Whatever its outcome: late spans showed what was not known before."""
    later = row(revision=1, outcome=outcome, spans=4, spans_digest="d4")
    assert merge_results([row()], [later]) == [later]


def test_evaluators_that_knew_the_same_spans_are_not_split() -> None:
    """Two that got every span agree; one is kept beside the other."""
    merged = merge_results([row("a")], [row("b")])
    assert [(each["evaluator"], each.get("split"), len(each["others"])) for each in merged] == [
        ("a", None, 1)
    ]


def test_every_result_of_a_trace_is_marked_where_evaluators_knew_different_spans() -> None:
    """Also of runs that only one of them has; other traces are not."""
    one = [row("a"), row("a", span_id="only here"), row("a", trace_id="whole")]
    other = [row("b", spans=2, spans_digest="d2")]
    assert rows_of(one, other) == [
        ("a", "scored", True),
        ("a", "scored", True),
        ("a", "scored", False),
    ]


def test_an_evaluator_without_a_result_shows_the_split() -> None:
    """It had spans of the trace: what the other one says of it may be wrong, however complete it
    looks.
    """
    nothing = row(
        "b", span_id="", evaluation="", scorer="", outcome="no_run", spans=1, spans_digest="d1"
    )
    assert rows_of([row("a")], [nothing]) == [("b", "no_run", True), ("a", "scored", True)]


def test_a_no_run_report_of_an_evaluator_ends_once_it_has_results() -> None:
    """The rest of the trace arrived late."""
    nothing = row(
        span_id="", evaluation="", scorer="", outcome="no_run", spans=1, spans_digest="d1"
    )
    assert merge_results([nothing], [row()]) == [row()]


def test_a_report_that_spans_came_too_late_stays_beside_the_results() -> None:
    """The results lack these spans."""
    late = row(
        span_id="", evaluation="", scorer="", outcome="no_run", reason="late", spans_digest="d9"
    )
    assert rows_of([row(), late]) == [("a", "no_run", False), ("a", "scored", False)]


def test_an_evaluator_knows_what_its_last_result_was_made_from() -> None:
    """A run that late spans did not change keeps its first result, with the digest of then."""
    first, second = (
        row("a", spans=3),
        row("a", span_id="other", revision=1, spans=5, spans_digest="d5"),
    )
    assert rows_of([first, second], [row("b", spans=5, spans_digest="d5")]) == [
        ("a", "scored", False),
        ("b", "scored", False),
    ]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        ({"outcome": "scored", "spans": 1}, {"outcome": "failed", "spans": 9}),
        ({"outcome": "failed", "spans": 1}, {"outcome": "skipped", "spans": 9}),
        (
            {"outcome": "scored", "spans": 9, "value": 1.0},
            {"outcome": "scored", "spans": 8, "value": 0.0},
        ),
        ({"value": 0.25}, {"value": 0.5}),
        (
            {"evaluated_at": "2026-01-02", "value": 0.25},
            {"evaluated_at": "2026-01-01", "value": 0.5},
        ),
        ({"evaluated_at": "2026-01-01"}, {"evaluated_at": "2026-01-02"}),
    ],
)
def test_the_better_result_of_several_evaluators_is_preferred(
    better: dict[str, Any], worse: dict[str, Any]
) -> None:
    """Scored, failed, skipped; more spans; the smaller JSON, in which the time counts last."""
    for one, other in (("a", "b"), ("b", "a")):
        winner, loser = row(one, **better), row(other, **worse)
        # else the name of the evaluator, which is in the JSON, would decide
        if "outcome" not in better:
            loser["evaluator"] = winner["evaluator"]
        (merged,) = merge_results([loser], [winner])
        assert {key: merged[key] for key in winner} == winner


def test_files_without_an_evaluator_are_one_evaluator_each() -> None:
    """As from `replay`: what two files hold of a trace is compared; a file that is read twice is
    the same one.
    """
    one, other = [row(None)], [row(None, spans=2, spans_digest="d2")]
    ((first, _, split),) = rows_of(one, other)
    assert (first.startswith("file:"), split) == (True, True)
    assert merge_results(one, one) == merge_results(one)
    again = [row(None, evaluated_at="later")]
    assert rows_of(one, again) == rows_of(one)


def test_a_later_line_of_a_file_replaces_an_earlier_one() -> None:
    """As a second replay appends it to what the first one exported."""
    assert [
        each["value"] for each in merge_results([row(None, value=1.0), row(None, value=0.5)])
    ] == [0.5]


@pytest.mark.parametrize("result_id", [None, "", 0, ["a"]])
def test_lines_without_a_usable_result_id_replace_only_those_of_the_same_result(
    result_id: Any,
) -> None:
    """Also if one line holds several of them."""
    others = [row(None, result_id=result_id, scorer=name) for name in ("b", "c")]
    lines = [
        row(None, result_id=result_id, scorer="a", others=others),
        row(None, result_id=result_id, scorer="a"),
    ]
    assert [each["scorer"] for each in merge_results(lines)] == ["a", "b", "c"]


def test_an_evaluator_that_does_not_tell_what_it_knew_may_be_split() -> None:
    """Older versions do not: unknown is no agreement. Alone it is whole."""
    assert rows_of([row("a", spans_digest=None)]) == [("a", "scored", False)]
    assert rows_of([row("a", spans_digest=None)], [row("b", spans_digest=None)]) == [
        ("a", "scored", True)
    ]


@pytest.mark.parametrize(
    "wrong", [{}, {"trace_id": 1}, {"trace_id": "t", "others": [1]}, 5, row(evaluator=7)]
)
def test_a_row_that_is_no_result_is_refused(wrong: Any) -> None:
    """With the field that is missing."""
    with pytest.raises(InputError, match=r"not a result: "):
        merge_results([wrong])


SMALL = {
    "trace_id": st.sampled_from("tu"),
    "span_id": st.sampled_from("sr"),
    "evaluation": st.just("e"),
    "scorer": st.sampled_from("xy"),
    "policy": st.sampled_from("pq"),
    "outcome": st.sampled_from(["scored", "failed", "skipped", "no_run"]),
    "value": st.sampled_from([None, 0.0, 1.0]),
    "spans": st.sampled_from([1, 2, 3, None]),
    "spans_digest": st.sampled_from(["d1", "d2", "d3", None]),
    "evaluator": st.sampled_from(["a", "b", "c", None]),
    "revision": st.integers(0, 2),
    "evaluated_at": st.sampled_from(["1", "2"]),
}
SOURCES = st.lists(st.lists(st.fixed_dictionaries(SMALL), max_size=8), min_size=3, max_size=3)


@given(SOURCES)
def test_merging_is_associative(sources: list[list[dict[str, Any]]]) -> None:
    """Whatever is merged first."""
    a, b, c = sources
    everything = merge_results(a, b, c)
    assert merge_results(merge_results(a, b), c) == everything
    assert merge_results(a, merge_results(b, c)) == everything
    assert merge_results(merge_results(c, a), b) == everything


@given(SOURCES)
def test_merging_is_commutative(sources: list[list[dict[str, Any]]]) -> None:
    """Files and, where an evaluator is named, lines come in any order."""
    a, b, c = sources
    assert merge_results(c, a, b) == merge_results(a, b, c)
    named = [each for each in a if each["evaluator"]]
    assert merge_results(named[::-1]) == merge_results(named)


@given(SOURCES)
def test_merging_again_changes_nothing(sources: list[list[dict[str, Any]]]) -> None:
    """Neither the output nor the same files once more."""
    merged = merge_results(*sources)
    assert merge_results(merged) == merged
    assert merge_results(*sources, *sources) == merged
    assert merge_results(merged, *sources) == merged


@given(SOURCES)
def test_results_of_evaluators_that_saw_different_spans_are_marked(
    sources: list[list[dict[str, Any]]],
) -> None:
    """Whatever the rows: if the output knows of two digests, it says so; and each result stands
    there once.
    """
    merged = merge_results(*sources)
    keys = [
        (
            *(each[name] for name in ("trace_id", "span_id", "evaluation", "scorer", "policy")),
            each["outcome"] == "no_run",
        )
        for each in merged
    ]
    assert keys == sorted(set(keys))
    for trace_id in {each["trace_id"] for each in merged}:
        rows = [each for each in merged if each["trace_id"] == trace_id]
        known: dict[str, tuple[int, str]] = {}
        for each in [*rows, *(other for one in rows for other in one.get("others", ()))]:
            evidence = (-1 if each["spans"] is None else each["spans"], each["spans_digest"] or "")
            known[each["evaluator"]] = max(known.get(each["evaluator"], evidence), evidence)
        digests = {digest for _, digest in known.values()}
        assert all(
            each.get("split", False) == (len(known) > 1 and (len(digests) > 1 or "" in digests))
            for each in rows
        )


def test_the_cost_is_linear() -> None:
    """Ten times the rows take about ten times the work, also where every result has a rival."""

    def work(count: int) -> Callable[[], object]:
        rows = [
            row("ab"[at % 2], trace_id=f"{at // 20}", span_id=f"{at // 2}") for at in range(count)
        ]
        return lambda: merge_results(rows)

    assert is_in_proportion(work(200), work(2_000), most=15.0)
