"""Traces whose spans two evaluators share: after merging no wrong score is unmarked."""

from __future__ import annotations

import pytest

from otel_eval import merge_results
from otel_eval.app.build import build_engine
from otel_eval.config import load
from tests.support import split_traces
from tests.support.made_spans import frames, span


@pytest.mark.parametrize("runs", ["outermost", "all"])
def test_no_wrong_score_is_unmarked(runs: str) -> None:
    """The short form of `python -m tests.support.split_traces`; without the marks many scores would
    be wrong.
    """
    unmarked, wrong, scores = split_traces.count(runs, 150, seed=7)
    assert unmarked == 0
    assert wrong > 20
    assert scores > 500


def test_a_trace_that_is_not_split_is_not_marked() -> None:
    """Two evaluators that each got all of it agree; one that got none has nothing to say."""
    engine = build_engine(
        load({"evaluations": [{"name": "e", "scorers": split_traces.SCORERS}]}), lines=True
    )
    for items, _ in zip(split_traces.traces(), range(80), strict=False):
        whole = split_traces.evaluated(engine, items, "one")
        for other in (
            split_traces.evaluated(engine, items, "two"),
            split_traces.evaluated(engine, ([], []), "two"),
        ):
            merged = merge_results(whole, other)
            assert not any(row.get("split") for row in merged)
            assert split_traces.wrong_scores(whole, merged) == []


def test_without_lines_of_traces_without_a_run_a_split_may_not_show() -> None:
    """One evaluator has the root alone, the other all below it, which is a run of its own as far as
    it can see.
    """
    tool = span(
        "tool",
        "work",
        attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "search"},
    )
    items = [
        (b"t" * 16, span_id, frame, 10)
        for span_id, frame in frames([span("root"), span("work", "root"), tool]).items()
    ]
    unmarked = []
    for rows in (True, False):
        config = {
            "evaluations": [{"name": "e", "scorers": split_traces.SCORERS}],
            "results": {"no_run": rows},
        }
        engine = build_engine(load(config), lines=True)
        one, other = (
            split_traces.evaluated(engine, (items[:1], []), "one"),
            split_traces.evaluated(engine, (items[1:], []), "other"),
        )
        wrong = split_traces.wrong_scores(
            split_traces.evaluated(engine, (items, [])), merge_results(one, other)
        )
        unmarked.append(sum(not row.get("split") for row in wrong))
    assert unmarked[0] == 0
    assert unmarked[1] > 0
