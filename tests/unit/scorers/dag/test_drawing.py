"""A tree as a drawing: every shape, every arrow, and texts that cannot leave their quotes."""

from __future__ import annotations

import pytest

from otel_eval.scorers import create_scorer


async def judge(prompt):
    raise AssertionError(prompt)


def drawn(nodes, root="a", **parameters):
    return create_scorer({"type": "dag", "root": root, "nodes": nodes, **parameters}).drawing()


def test_tasks_decisions_scores_and_scorers_have_shapes_of_their_own():
    """Dotted arrows carry data; verdicts stand in order, however they are written."""
    errors = {"type": "tool_errors", "name": "few errors"}
    nodes = {
        "a": {
            "type": "task",
            "cel": "calls.size()",
            "children": ["c", "b"],
            "output_label": "number",
        },
        "b": {
            "type": "binary",
            "cel": "number > 1",
            "children": [{"verdict": True, "then": "c"}, {"verdict": False, "score": 2.5}],
        },
        "c": {
            "type": "choice",
            "criteria": "Is it good?",
            "reads": ["output"],
            "children": [
                {"verdict": "no", "then": {"scorer": errors}},
                {"verdict": "Yes", "score": 10},
            ],
        },
    }
    assert drawn(nodes, judge=judge).splitlines() == [
        "flowchart TD",
        '    n0["a<br/>calls.size#40;#41;"]',
        '    n1{"b<br/>number #62; 1"}',
        '    n2{{"c<br/>judge#58; Is it good#63;"}}',
        '    n0 -. "number" .-> n1',
        '    n0 -. "number" .-> n2',
        '    n1 -- "false" --> n1v0(["2.5"])',
        '    n1 -- "true" --> n2',
        '    n2 -- "Yes" --> n2v0(["10"])',
        '    n2 -- "no" --> n2v1[["few errors #40;tool_errors#41;"]]',
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("x" * 80, "x" * 80),
        ("x" * 81, "x" * 79 + "…"),
        ('é "b" <i>\n  ,…', "é #34;b#34; #60;i#62; ,…"),
        ("v1.5 of a-b_c", "v1.5 of a-b_c"),
        ("1. first", "1#46; first"),
        ("- second. _third_", "#45; second#46; #95;third#95;"),
    ],
)
def test_texts_are_one_line_cut_at_eighty_characters_and_quoted(name, shown):
    """Whatever Mermaid or HTML would read in them stands there as its number."""
    leaves = [{"verdict": True, "score": 1}, {"verdict": False, "score": 0}]
    assert f'"{shown}<br/>true"' in drawn(
        {name: {"type": "binary", "cel": "true", "children": leaves}}, name
    )
