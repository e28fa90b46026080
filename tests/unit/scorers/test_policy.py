"""The digest of a policy: what changes it and what does not."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from otel_eval.config import load
from otel_eval.model import Trajectory
from otel_eval.scorers import create_scorer, scorer
from otel_eval.scorers.counts import ForbiddenTools
from otel_eval.scorers.policy import policy_of
from otel_eval.scorers.references import DatasetPath

COUNT = {"type": "tool_call_count", "criteria": {"search": "<= 10"}}
ORDER = {"type": "tool_call_order", "expected": ["a", "b"]}
ARGS = {"type": "tool_call_args", "expected": [{"name": "a", "arguments": {"x": 1}}]}


@scorer("test.policy_function", version="2")
def at_most(trajectory: Trajectory, limit: int = 3) -> bool:
    """A scorer of a user's with a parameter."""
    return len(trajectory.calls) <= limit


@scorer("test.policy_class")
class AtMost:
    """The same as a class whose instances satisfy the protocol."""

    type = "test.policy_class"
    version = "1"
    needs = frozenset[str]()

    def __init__(self, limit: int = 3) -> None:
        self.name, self.limit = "at_most", limit

    def __call__(self, trajectory: Trajectory) -> Any:
        """Compare with the limit."""
        return len(trajectory.calls) <= self.limit


async def first_judge(prompt: str) -> str:
    """A judge."""
    return prompt


async def second_judge(prompt: str) -> str:
    """Another one."""
    return prompt


def policy(spec: dict[str, Any], **more: Any) -> str:
    """The digest of a specification with further parameters."""
    return policy_of(create_scorer({**spec, **more}))


def test_a_policy_is_16_hex_digits():
    """Of a 64-bit hash."""
    assert int(policy(COUNT), 16) >= 0
    assert len(policy(COUNT)) == 16


@pytest.mark.parametrize(
    ("spec", "same"),
    [
        (COUNT, {"name": "budget"}),
        (COUNT, {"criteria": {"search": ["<=", 10]}}),
        (COUNT, {"threshold": 1, "strict": False, "failed_calls": "include", "severity": "error"}),
        (COUNT, {"type": "tool-call-count"}),
        (ARGS, {"include_content": True}),
        (ARGS, {"expected": [{"name": "a", "args": '{"x": 1}'}]}),
        ({"type": "time_cost"}, {"max_ms": 30000}),
        ({"type": "time_cost", "max_ms": 5}, {"max_ms": 5.0}),
    ],
)
def test_names_spelling_and_defaults_do_not_change_a_policy(spec, same):
    """What is called or written otherwise computes the same."""
    assert policy(spec) == policy({**spec, **same})


@pytest.mark.parametrize(
    ("spec", "other"),
    [
        (COUNT, {"criteria": {"search": "<= 1"}}),
        (COUNT, {"threshold": 0.5}),
        (COUNT, {"tools": {"exclude": ["x"]}}),
        (COUNT, {"severity": "warn"}),
        (ORDER, {"type": "execution_order"}),
        (ORDER, {"expected": [["a", "b"]]}),
        (ORDER, {"reference": "my.expected"}),
        (ARGS, {"arguments": "exact"}),
        ({"type": "trajectory_pattern", "pattern": ["a", "b"]}, {"pattern": ["b", "a"]}),
        ({"type": "precedence", "rules": ["a before b"]}, {"rules": ["b before a"]}),
        ({"type": "test.policy_function"}, {"limit": 4}),
        ({"type": "test.policy_function"}, {"threshold": 1.0}),
        ({"type": "test.policy_class"}, {"limit": 4}),
        (
            {"type": "llm_judge", "criteria": "short", "judge": first_judge},
            {"judge": second_judge},
        ),
        ({"type": "llm_judge", "criteria": "short", "judge": first_judge}, {"prompt": "Judge."}),
    ],
)
def test_what_a_scorer_is_given_changes_its_policy(spec, other):
    """Also what decides only whether it passes, and a user's own parameters."""
    assert policy(spec) != policy({**spec, **other})


def test_a_scorer_built_in_python_has_the_policy_of_its_specification():
    """Both ways build the same object."""
    built = ForbiddenTools(patterns=("delete_*",))
    assert policy_of(built) == policy({"type": "forbidden_tools", "patterns": ["delete_*"]})


def tree(limit: int, **more: Any) -> dict[str, Any]:
    """A decision tree that leads to another scorer."""
    further = {"scorer": {"type": "time_cost", "max_ms": limit, **more}}
    children = [{"verdict": True, "score": 10}, {"verdict": False, "then": further}]
    node = {"type": "binary", "cel": "calls.size() < 5", "children": children}
    return {"type": "dag", "root": "few", "nodes": {"few": node}}


def test_a_tree_contains_the_policies_of_its_scorers():
    """Their names do not count either."""
    assert policy(tree(5)) == policy(tree(5, name="speed"))
    assert policy(tree(5)) != policy(tree(6))


def test_records_of_a_dataset_are_no_part_of_a_policy(tmp_path: Path):
    """Its path, key, field and column are; the folder of the configuration is not."""
    digests = set()
    for folder, expected in (("one", ["a"]), ("two", ["b"])):
        (tmp_path / folder).mkdir()
        record = {"id": "7", "expected": expected, "other": expected}
        for name in ("cases.jsonl", "more.jsonl"):
            (tmp_path / folder / name).write_text(json.dumps(record))
        reference = {"dataset": "cases.jsonl", "key": "case", "column": "id"}
        file = tmp_path / folder / "policy.yaml"
        specs = [
            {"type": "tool_call_order", "reference": {**reference, **each}}
            for each in ({}, {"dataset": "more.jsonl"}, {"field": "other"}, {"key": "no"})
        ]
        named = [{**spec, "name": str(number)} for number, spec in enumerate(specs)]
        file.write_text(json.dumps({"evaluations": [{"name": "e", "scorers": named}]}))
        built = [each for _, each in load(file).named_scorers()]
        digests.add(tuple(map(policy_of, built)))
    ((*policies,),) = digests
    assert len({*policies}) == 4


def test_the_path_of_a_dataset_can_be_copied():
    """Workers receive the configuration in copies."""
    path = DatasetPath("/folder/cases.jsonl", "cases.jsonl")
    copy = pickle.loads(pickle.dumps(path))
    assert (copy, copy.written) == (path, "cases.jsonl")
