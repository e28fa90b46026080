"""Decision trees are drawn as Mermaid flowcharts."""

from __future__ import annotations

import pytest

from otel_eval.cli import main

NODES = """
        nodes:
          names:
            type: task
            cel: calls.map(c, c.name)
            output_label: tools
            children: [looked]
          looked:
            type: binary
            cel: '"search" in tools'
            children:
              - {verdict: true, then: polite}
              - {verdict: false, then: {scorer: {type: tool_errors, name: errors}}}
          polite:
            type: choice
            criteria: 'Is it "polite"?'
            reads: [output]
            children: [{verdict: "yes; quite", score: 10}, {verdict: no, score: 2.5}]
"""
CONFIG = f"""
judges:
  main: {{base_url: "https://models.example/v1", model: m, api_key_env: NO_SUCH_KEY}}
evaluations:
  - name: first
    scorers:
      - type: tool_errors
      - type: dag
        judge: main
        root: names{NODES}
  - name: second
    scorers:
      - type: dag
        name: few
        root: a
        nodes: {{a: {{type: choice, cel: "'x'", children: [{{verdict: x, score: 1}}]}}}}
"""
FIRST = """%% first / dag
flowchart TD
    n0{"looked<br/>#34;search#34; in tools"}
    n1["names<br/>calls.map#40;c, c.name#41;"]
    n2{{"polite<br/>judge#58; Is it #34;polite#34;#63;"}}
    n0 -- "false" --> n0v0[["errors #40;tool_errors#41;"]]
    n0 -- "true" --> n2
    n1 -. "tools" .-> n0
    n2 -- "no" --> n2v0(["2.5"])
    n2 -- "yes#59; quite" --> n2v1(["10"])
"""
SECOND = """%% second / few
flowchart TD
    n0{{"a<br/>#39;x#39;"}}
    n0 -- "x" --> n0v0(["1"])
"""


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "eval.yaml"
    path.write_text(CONFIG, encoding="utf-8")
    return str(path)


def test_trees_are_drawn(config, capsys):
    """All of them; neither a judge nor its key is needed."""
    assert main(["dag", config]) == 0
    assert capsys.readouterr().out == f"{FIRST}\n{SECOND}"


def test_a_name_gives_mermaid_no_orders(tmp_path, capsys):
    """It obeys directives in comments too, and draws nothing where one does not end."""
    path = tmp_path / "eval.yaml"
    path.write_text(
        CONFIG.replace("name: first", "name: '%%{init: {theme: dark}}%%'"), encoding="utf-8"
    )
    assert main(["dag", str(path)]) == 0
    assert capsys.readouterr().out.startswith("%% %% {init: {theme: dark}}%% / dag\nflowchart TD\n")


def test_a_configuration_without_trees_is_reported(tmp_path, capsys):
    """It has nothing to draw."""
    path = tmp_path / "eval.yaml"
    path.write_text("evaluations: [{name: e, scorers: [{type: tool_errors}]}]", encoding="utf-8")
    assert main(["dag", str(path)]) == 2
    assert "there is no scorer of type dag; add one" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("written", "wrong", "problem"),
    [
        (
            "calls.map(",
            "call.map(",
            "names.cel: column 1: 'call' is not known; did you mean 'calls'?",
        ),
        ("criteria:", "critera:", "polite.critera: unknown key; did you mean 'criteria'?"),
        (
            "then: polite",
            "then: polit",
            "looked.children[0].then: there is no node 'polit'; did you mean 'polite'?",
        ),
    ],
)
def test_a_problem_of_a_tree_is_reported_with_its_whole_path(
    tmp_path, capsys, written, wrong, problem
):
    """From the top of the file down to the node."""
    path = tmp_path / "eval.yaml"
    path.write_text(CONFIG.replace(written, wrong), encoding="utf-8")
    assert main(["dag", str(path)]) == 2
    assert f"evaluations[0].scorers[1].nodes.{problem}" in capsys.readouterr().err


def test_problems_of_nodes_and_of_expressions_are_reported_at_once(tmp_path, capsys):
    """Each would otherwise take a correction and another start."""
    path = tmp_path / "eval.yaml"
    wrong = (
        CONFIG.replace("calls.map(", "call.map(")
        .replace("criteria:", "critera:")
        .replace("then: polite", "then: polit")
    )
    path.write_text(wrong, encoding="utf-8")
    assert main(["dag", str(path)]) == 2
    reported = capsys.readouterr().err
    for problem in (
        "names.cel: column 1: 'call'",
        "polite.critera: unknown key",
        "looked.children[0].then: there is no node 'polit'",
    ):
        assert f"evaluations[0].scorers[1].nodes.{problem}" in reported
