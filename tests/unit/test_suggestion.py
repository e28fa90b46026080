"""Policies from observed runs: what they say, what they catch, and what they let pass."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import pytest

from otel_eval.cli.suggesting import policy_lines
from otel_eval.config import load
from otel_eval.config.yaml_text import parse
from otel_eval.model import Trajectory
from otel_eval.scorers import create_scorer
from otel_eval.scorers.rule_conflicts import contradictions
from otel_eval.suggestion import SuggestedPolicy, SuggestedRule, suggest_policies
from otel_eval.testing import call, trajectory

MS = 1_000_000


def run(names: Sequence[str], *, agent: str = "clerk") -> Trajectory:
    """A run whose calls follow one another, each of 10 ms."""
    calls = [
        call(name, start_ns=(10 * index + 1) * MS, end_ns=(10 * index + 9) * MS)
        for index, name in enumerate(names, 1)
    ]
    return trajectory(
        *calls,
        agent=agent,
        start_ns=MS,
        end_ns=(10 * len(calls) + 20) * MS,
        input_tokens=100 * len(calls),
        output_tokens=10,
    )


def support_run(rng: random.Random) -> list[str]:
    """What an agent for customers calls: it varies, within rules."""
    names = ["lookup"] * rng.randint(1, 3)
    names += ["read_policy"] * rng.randint(0, 1)
    match rng.choice(("refund", "refund", "answer", "escalate")):
        case "refund":
            names += ["verify", "refund", "notify"]
        case "answer":
            names += ["answer"]
        case _:
            names += ["notify", "escalate"]
    return names


def rules_of(policy: SuggestedPolicy, kind: str) -> list[SuggestedRule]:
    return [rule for rule in policy.rules if rule.spec["type"] == kind]


def passes(policy: SuggestedPolicy, run: Trajectory) -> bool:
    active = [create_scorer(dict(rule.spec)) for rule in policy.rules if not rule.inactive]
    return all(scorer(run).passed for scorer in active)


@pytest.fixture(scope="module")
def observed() -> list[list[str]]:
    rng = random.Random(4)
    return [support_run(rng) for _ in range(400)]


def test_a_policy_says_what_every_run_did(observed: list[list[str]]) -> None:
    """With the number of runs in which each rule was seen."""
    (policy,) = suggest_policies(map(run, observed))
    assert (policy.agent, policy.runs, policy.unknown) == ("clerk", 400, 0)
    (required,) = rules_of(policy, "required_tools")
    assert (required.spec["patterns"], required.runs) == (["lookup"], 400)
    rules = {rule.spec["rules"][0]: rule for rule in rules_of(policy, "precedence")}
    refunds = sum("refund" in names for names in observed)
    assert rules["refund only after verify"].runs == refunds
    assert "escalate only after notify" in rules
    assert "verify only after lookup" in rules
    assert "refund only after lookup" not in rules, "it follows from two others"
    assert "answer before lookup" not in rules
    counts = {
        tool: criteria
        for rule in rules_of(policy, "tool_call_count")
        for tool, criteria in rule.spec["criteria"].items()
    }
    assert counts["lookup"] == [">= 1", "<= 3"]
    assert counts["refund"] == ["<= 1"]
    assert rules_of(policy, "forbidden_tools")[0].spec["tools"]["exclude"] == [
        "answer",
        "escalate",
        "lookup",
        "notify",
        "read_policy",
        "refund",
        "verify",
    ]
    assert {rule.spec["type"] for rule in policy.rules} >= {"time_cost", "step_efficiency"}


def test_every_observed_run_passes_what_is_suggested(observed: list[list[str]]) -> None:
    (policy,) = suggest_policies(map(run, observed))
    assert all(passes(policy, run(names)) for names in observed)


def mutated(names: Sequence[str], rng: random.Random) -> list[str]:
    """The calls with one added, dropped or exchanged with its neighbour; never the same."""
    calls = list(names)
    match rng.choice(("add", "drop", "swap")):
        case "add":
            calls.insert(rng.randint(0, len(calls)), rng.choice(("delete_account", *calls)))
        case "drop":
            del calls[rng.randrange(len(calls))]
        case _:
            index = rng.randrange(max(1, len(calls) - 1))
            calls[index : index + 2] = reversed(calls[index : index + 2])
    return calls if calls != names else mutated(names, rng)


def test_a_policy_of_one_half_passes_the_other_and_catches_what_was_changed(
    observed: list[list[str]],
) -> None:
    """A change that no observed rule forbids, such as a second look-up, is no fault."""
    rng = random.Random(5)
    (policy,) = suggest_policies(map(run, observed[:200]))
    held_out = [passes(policy, run(names)) for names in observed[200:]]
    caught = [not passes(policy, run(mutated(names, rng))) for names in observed[200:]]
    shares = sum(held_out) / len(held_out), sum(caught) / len(caught)
    print(
        f"held-out runs that pass: {shares[0]:.1%}; mutated runs that are caught: {shares[1]:.1%}"
    )
    assert shares[0] >= 0.99
    assert shares[1] >= 0.6


def test_rules_that_were_seen_too_rarely_are_not_active() -> None:
    """In fewer than 20 runs, or 5 % of them."""
    usual = [["search", "answer"]] * 500
    rare = [["search", "approve", "pay"]] * 21
    (policy,) = suggest_policies(map(run, [*usual, *rare]))
    rules = {rule.spec["rules"][0]: rule for rule in rules_of(policy, "precedence")}
    rule = rules["pay only after approve"]
    assert (rule.runs, rule.inactive) == (21, "seen in few runs")
    lines = list(policy_lines([policy]))
    line = next(line for line in lines if "pay only after approve" in line)
    assert line.startswith("      # - {type: precedence")
    assert line.endswith("# in 21 of 521 runs; seen in few runs")


def test_few_runs_are_said_to_be_few() -> None:
    policies = suggest_policies(map(run, [["search"], ["search"]]))
    assert any("Only 2 runs: a first sketch" in line for line in policy_lines(policies))


def test_tools_of_other_agents_are_forbidden() -> None:
    """Instead of everything that was never seen."""
    runs = [run(["search"]), run(["search", "pay"], agent="cashier")]
    cashier, clerk = suggest_policies(runs)
    assert rules_of(clerk, "forbidden_tools")[0].spec["patterns"] == ["pay"]
    assert rules_of(cashier, "forbidden_tools")[0].spec["tools"]["exclude"] == ["pay", "search"]


def test_an_order_that_never_varied_is_suggested_whole() -> None:
    (policy,) = suggest_policies(map(run, [["a", "b", "a"]] * 3))
    (order,) = rules_of(policy, "tool_call_order")
    assert order.spec == {"type": "tool_call_order", "expected": ["a", "b", "a"], "strict": True}
    assert rules_of(policy, "precedence") == []


def configuration(runs: Iterable[Trajectory]) -> str:
    return "\n".join(policy_lines(suggest_policies(runs)))


@pytest.mark.parametrize(
    "name", ["a*b", "never", "x|y", "with blank", "ü", "'\"#: {", "[a]?", "no"]
)
def test_any_name_gives_a_valid_file_that_the_run_passes(name: str) -> None:
    """Names with a meaning in patterns, rules or YAML, of tools and of agents."""
    runs = [run([name, "other"], agent=name), run([name, "more", "other"], agent=name)]
    text = configuration(runs)
    config = load(parse(text, where="suggested"))
    (evaluation,) = config.evaluations
    scorers = [create_scorer(spec) for spec in evaluation.scorers]
    assert list(contradictions(scorers)) == []
    for scorer in scorers:
        assert all(scorer(run).passed for run in runs), (scorer.name, text)


def test_runs_with_unknown_calls_are_left_out() -> None:
    unknown = trajectory(agent="clerk", calls_unknown="no tool span")
    (policy,) = suggest_policies([run(["search"]), unknown])
    assert (policy.runs, policy.unknown) == (1, 1)
    assert "1 further run left out" in configuration([run(["search"]), unknown])
