"""`check --against`: what each rule of a policy decides on stored runs; and suggestions from tools
that were offered.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from otel_eval.app.rule_coverage import RuleCoverage, rule_coverage
from otel_eval.cli import main
from otel_eval.cli.suggesting import write_suggestion
from otel_eval.config import load
from otel_eval.config.yaml_text import parse
from tests.support.listeners import NO_PROBLEMS
from tests.support.made_spans import json_document, json_span

SCORERS: list[dict[str, Any]] = [
    {"type": "required_tools", "name": "looks up", "patterns": ["lookup"]},
    {"type": "precedence", "name": "order", "rules": ["refund only after lookup", "x before y"]},
    {"type": "tool_call_count", "name": "any number", "criteria": {"lookup": ">= 0"}},
    {"type": "time_cost", "name": "time", "max_ms": 1000},
    {
        "type": "tool_call_args",
        "name": "arguments",
        "expected": [{"name": "lookup", "arguments": {"q": 1}}],
    },
    {"type": "forbidden_tools", "name": "safe", "patterns": ["delete"]},
]


def write_runs(path: Path, runs: Sequence[Sequence[str]], offered: Sequence[str] = ()) -> Path:
    """A trace for each run, with a model call that was offered tools, and one span a call."""
    spans = []
    for number, tools in enumerate(runs, 1):
        parts: list[tuple[str, dict[str, str]]] = [
            ("invoke_agent clerk", {"gen_ai.agent.name": "clerk"}),
            ("chat model", {}),
            *((f"execute_tool {tool}", {"gen_ai.tool.name": tool}) for tool in tools),
        ]
        if offered:
            definitions = [{"type": "function", "name": name} for name in offered]
            parts[1][1]["gen_ai.tool.definitions"] = json.dumps(definitions)
        for place, (name, attributes) in enumerate(parts, 1):
            spans.append(
                json_span(
                    *(number, number * 100 + place, 0 if place == 1 else number * 100 + 1, name),
                    start_ns=10**18 + place * 10**6,
                    end_ns=10**18 + (place * 10**6 + 10**5 if place > 1 else 10**8),
                    attributes={"gen_ai.operation.name": name.split()[0], **attributes},
                )
            )
    path.write_text(json.dumps(json_document(spans, scope={"name": "pydantic-ai"})))
    return path


def covered(tmp_path: Path) -> dict[str, RuleCoverage]:
    runs = [["lookup", "refund"]] * 3 + [["refund"]]
    config = load({"evaluations": [{"name": "shop", "scorers": SCORERS}]})
    path = write_runs(tmp_path / "runs.json", runs)
    return {rule.rule: rule for rule in rule_coverage([path], config, listener=NO_PROBLEMS)}


def test_each_rule_has_its_numbers_of_runs(tmp_path: Path) -> None:
    rules = covered(tmp_path)
    numbers = {
        name: (rule.passed, rule.not_passed, rule.skipped.total()) for name, rule in rules.items()
    }
    assert numbers == {
        "looks up": (3, 1, 0),
        "order: refund only after lookup": (3, 1, 0),
        "order: x before y": (4, 0, 0),
        "any number": (4, 0, 0),
        "time": (4, 0, 0),
        "arguments": (0, 1, 3),
        "safe": (4, 0, 0),
    }


def test_a_rule_that_nothing_can_break_is_named(tmp_path: Path) -> None:
    rules = covered(tmp_path)
    assert [name for name, rule in rules.items() if rule.can_break is False] == ["any number"]
    assert rules["any number"].note == "nothing breaks it"
    assert rules["safe"].note == ""


def test_a_rule_that_is_skipped_everywhere_says_why(tmp_path: Path) -> None:
    scorer = {"type": "tool_call_output", "expected": [{"name": "lookup", "result": 1}]}
    config = load({"evaluations": [{"scorers": [scorer]}]})
    path = write_runs(tmp_path / "runs.json", [["lookup"]])
    (rule,) = rule_coverage([path], config, listener=NO_PROBLEMS)
    assert rule.can_break is None
    assert rule.note.startswith("never decides here: ")


@pytest.mark.parametrize(
    ("arguments", "code"),
    [(["--against", "runs.json"], 0), (["--against", "missing.json"], 2), (["runs.json"], 2)],
)
def test_the_command_says_what_it_could_read(
    arguments: list[str],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_runs(tmp_path / "runs.json", [["lookup", "refund"]])
    policy = {"evaluations": [{"name": "shop", "scorers": SCORERS[:1]}]}
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    assert main(["check", "policy.yaml", *arguments]) == code
    shown = capsys.readouterr()
    if code:
        assert shown.err.startswith("otel-eval: ")
    else:
        assert shown.out.splitlines()[1:] == [
            "  pass  do not pass  skipped  failed  rule",
            "     1            0        0       0  shop, looks up",
        ]


def test_tools_that_were_offered_and_never_called_are_forbidden(tmp_path: Path) -> None:
    runs = [["lookup", "refund"]] * 20
    path = write_runs(tmp_path / "runs.json", runs, offered=["lookup", "refund", "delete"])
    output = tmp_path / "suggested.yaml"
    assert write_suggestion([str(path)], load(None), str(output)) == 0
    scorers = parse(output.read_text(), where="suggested")["evaluations"][0]["scorers"]
    assert [each["patterns"] for each in scorers if each["type"] == "forbidden_tools"] == [
        ["delete"]
    ]
