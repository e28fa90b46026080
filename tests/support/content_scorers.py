"""Scorers of every built-in type that asks no judge, with parameters that fit a recorded run."""

from __future__ import annotations

from collections import Counter
from typing import Any

from otel_eval.model import UNRECORDED, Trajectory
from otel_eval.scorers import create_scorer

__all__ = ["scorers_for"]


def scorers_for(run: Trajectory) -> list[Any]:
    """Built once for each run, so that a score tells apart what was recorded from what was not."""
    return [
        create_scorer({**spec, "name": f"{at} {spec['type']}"})
        for at, spec in enumerate(_specs(run))
    ]


def _specs(run: Trajectory) -> list[dict[str, Any]]:
    names = [call.name for call in run.calls]
    first, last = (names[0], names[-1]) if names else ("a", "b")
    return [
        *_about_names(names, first, last),
        *(spec | {"failed_calls": "exclude"} for spec in _about_names(names, first, last)),
        *_about_content(run),
        *_about_the_run(run, first),
    ]


def _about_names(names: list[str], first: str, last: str) -> list[dict[str, Any]]:
    counts = {name: f"== {count}" for name, count in Counter(names).items()} or {"a": "== 0"}
    return [
        {"type": "forbidden_tools", "patterns": [first, "no_such_tool"]},
        {"type": "required_tools", "patterns": [last, "no_such_tool"]},
        {"type": "tool_call_count", "criteria": counts},
        {"type": "tool_call_count", "criteria": {"no_such_tool": "== 0"}},
        {"type": "execution_order", "expected": names},
        {"type": "execution_order", "expected": names, "of": "spans"},
        {"type": "tool_call_order", "expected": names},
        {
            "type": "tool_correctness",
            "expected": [{"name": name} for name in names],
            "measure": "precision",
        },
        {
            "type": "trajectory_match",
            "expected": [{"name": name} for name in names[:2]],
            "match": "in_order",
            "measure": "f1",
        },
        {"type": "trajectory_pattern", "pattern": {"sequence": names[:2] or ["a"]}},
        {
            "type": "precedence",
            "rules": [
                f"{first} before {last}",
                f"{last} only after {first}",
                f"never {first} after {last}",
            ],
        },
        {"type": "redundant_calls", "ignore_arguments": True},
        {"type": "loop_detection", "max_repeats": 1},
        {"type": "step_efficiency", "max_calls": 2},
        {"type": "tool_errors"},
        {"type": "error_recovery"},
    ]


def _about_content(run: Trajectory) -> list[dict[str, Any]]:
    with_arguments = [
        {"name": call.name, "arguments": call.arguments}
        for call in run.calls
        if isinstance(call.arguments, dict) and "__value__" not in call.arguments
    ]
    with_results = [
        {"name": call.name, "result": call.result}
        for call in run.calls
        if call.result is not UNRECORDED
    ]
    found: list[dict[str, Any]] = [{"type": "redundant_calls"}]
    if with_arguments:
        found += [
            {"type": "tool_call_args", "expected": with_arguments},
            {"type": "tool_call_args", "expected": with_arguments[:2], "arguments": "exact"},
            {
                "type": "tool_correctness",
                "expected": with_arguments,
                "compare": ["arguments"],
                "arguments": "overlap",
            },
            {
                "type": "trajectory_match",
                "expected": with_arguments,
                "match": "in_order",
                "arguments": "exact",
            },
            {
                "type": "trajectory_match",
                "expected": [*with_arguments[1:], with_arguments[0]],
                "match": "exact",
                "arguments": "exact",
            },
        ]
    if with_results:
        found.append({"type": "tool_call_output", "expected": with_results})
    if (
        with_arguments
        and with_results
        and len(with_arguments) == len(with_results) == len(run.calls)
    ):
        both = [{**one, **other} for one, other in zip(with_arguments, with_results, strict=True)]
        found.append(
            {"type": "tool_correctness", "expected": both, "compare": ["arguments", "result"]}
        )
        found.append({"type": "trajectory_match", "expected": both[:1], "measure": "recall"})
    return found


def _about_the_run(run: Trajectory, first: str) -> list[dict[str, Any]]:
    used = (run.input_tokens or 0) + (run.output_tokens or 0)
    return [
        {"type": "step_efficiency", "max_tokens": max(1, used // 2)},
        {"type": "step_efficiency", "max_model_calls": 1},
        *(
            {"type": "time_cost", "max_ms": 1000, "of": of}
            for of in ("run", "tools", "critical_path", first)
        ),
        {"type": "label_distribution", "label": "conversation"},
        {"type": "trajectory_structure", "steps": "steps"},
        {"type": "trajectory_structure", "required_keys": ["name", "span_id"]},
        *({"type": "expression", "expression": each} for each in _expressions(run)),
        {"type": "dag", "root": "answered", "nodes": _TREE},
    ]


def _expressions(run: Trajectory) -> list[str]:
    equal = [
        f"run.{key} == {_literal(value)}"
        for key, value in (("input", run.input), ("output", run.output))
        if isinstance(value, str)
    ]
    return [
        *equal,
        *(f"calls.exists(c, c.arguments.{key} != null)" for key in _keys(run)),
        "size(calls) < 3",
        "calls.exists(c, c.error != null)",
        'calls.all(c, c.error == null || c.error.message != "")',
        "calls.all(c, size(c.arguments) == 1)",
        'calls.filter(c, c.result != "").size() == 2',
        "run.input_tokens + run.output_tokens > 10",
        "run.model_calls == 1",
        *['calls[0].name == "get_weather" && calls[0].duration_ms >= 0.0' for _ in run.calls[:1]],
    ]


def _keys(run: Trajectory) -> list[str]:
    named = [
        call.arguments for call in run.calls if isinstance(call.arguments, dict) and call.arguments
    ]
    return [next(iter(named[0]))] if named and next(iter(named[0])).isidentifier() else []


def _literal(text: str) -> str:
    escaped = (
        text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
    )
    return f'"{escaped}"'


_TREE: dict[str, Any] = {
    "answered": {
        "type": "binary",
        "cel": 'run.output != ""',
        "children": [{"verdict": True, "then": "called"}, {"verdict": False, "score": 0}],
    },
    "called": {
        "type": "binary",
        "cel": "size(calls) > 2",
        "children": [{"verdict": True, "score": 10}, {"verdict": False, "score": 5}],
    },
}
