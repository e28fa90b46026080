"""A policy from observed runs: what every run of an agent did, as scorers that all of them pass.

A suggestion is a draft for a person: each rule says in how many runs it was seen, and rules that
were seen too rarely to be believed are not active. What is suggested is scored on the observed runs
before it is returned, so a suggestion never contradicts the runs that it was made from.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Final

from otel_eval.model import Trajectory, elapsed_ns
from otel_eval.scorers import create_scorer
from otel_eval.scorers.partial_order import parallel_groups
from otel_eval.scorers.tool_names import plural

FEWEST_RUNS: Final = 20
"""Rules that were seen in fewer runs are not active, unless there are fewer runs in all."""

LEAST_SHARE: Final = 0.05
"""Rules that were seen in a smaller share of the runs are not active."""

_MOST_RULES: Final = 30  # of precedence, for one agent
_MARGIN: Final = 1.5  # of budgets, over the 99th percentile
_KEYWORDS: Final = frozenset({"never", "before", "then", "within", "after"})
_WILDCARDS: Final = str.maketrans(dict.fromkeys("*?[]|", "?"))

_SeenSpec = tuple[Mapping[str, Any], int]
"""A scorer's specification, and in how many runs its rule was seen to hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedRule:
    """One scorer, with one rule where its type has a list of them.

    Attributes:
        spec: the scorer, as a configuration names it.
        runs: in how many runs the rule was seen to hold.
        inactive: why it should not be used as it is, or "".
    """

    spec: Mapping[str, Any]
    runs: int
    inactive: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestedPolicy:
    """What is suggested for one agent.

    Attributes:
        agent: the agent's name.
        runs: its runs whose calls are known.
        unknown: its other runs: scorers of calls skip them.
        rules: the rules, those that are not active among them.
    """

    agent: str
    runs: int
    unknown: int
    rules: Sequence[SuggestedRule]


def suggest_policies(
    runs: Iterable[Trajectory], offered: Iterable[str] = ()
) -> list[SuggestedPolicy]:
    """Suggest a policy for each agent, in order of the agents' names.

    Args:
        runs: outermost runs, read with everything that they recorded.
        offered: names of the tools that were offered to models in these runs, as far as recorded.
    """
    by_agent: defaultdict[str, list[Trajectory]] = defaultdict(list)
    for run in runs:
        by_agent[run.agent].append(run)
    tools = {
        agent: {call.name for run in of_agent for call in run.calls}
        for agent, of_agent in by_agent.items()
    }
    everywhere = set(offered).union(*tools.values())
    return [
        _policy_of(agent, by_agent[agent], elsewhere=sorted(everywhere - tools[agent]))
        for agent in sorted(by_agent)
    ]


def _policy_of(
    agent: str, runs: Sequence[Trajectory], *, elsewhere: Sequence[str]
) -> SuggestedPolicy:
    """The policy of one agent; `elsewhere` are the tools that only other agents have."""
    observed = [run for run in runs if not (run.calls_unknown or run.incomplete or run.too_large)]
    rules: list[_SeenSpec] = [
        *((spec, len(observed)) for spec in _tool_specs(observed, elsewhere)),
        *_order_specs(observed),
        *_count_specs(observed),
        *((spec, len(observed)) for spec in _budget_specs(observed)),
    ]
    return SuggestedPolicy(
        agent=agent,
        runs=len(observed),
        unknown=len(runs) - len(observed),
        rules=[
            SuggestedRule(spec=spec, runs=seen, inactive=_why_inactive(spec, seen, observed))
            for spec, seen in rules
        ],
    )


def _why_inactive(spec: Mapping[str, Any], seen: int, runs: Sequence[Trajectory]) -> str:
    """Why a rule is suggested as inactive: few of the runs show it, or some would not pass it; ""
    if it is active.

    Args:
        seen: the number of runs that show it.
    """
    if seen < max(min(FEWEST_RUNS, len(runs)), math.ceil(LEAST_SHARE * len(runs))):
        return "seen in few runs"
    scorer = create_scorer(dict(spec))
    failing = sum(not scorer(run).passed for run in runs)
    return f"{plural(failing, 'run')} would not pass" if failing else ""


def as_pattern(name: str) -> str:
    """A pattern for a tool's name, in which characters with a meaning stand for any character."""
    return name.translate(_WILDCARDS)


def _tool_specs(
    runs: Sequence[Trajectory], elsewhere: Sequence[str]
) -> Iterator[Mapping[str, Any]]:
    """Yield rules about the tools that are always called, and those that are never called."""
    called = [{call.name for call in run.calls} for run in runs]
    tools = sorted(set[str]().union(*called))
    for name in tools:
        if all(name in names for names in called):
            yield {"type": "required_tools", "patterns": [as_pattern(name)]}
    if elsewhere:
        yield {"type": "forbidden_tools", "patterns": [as_pattern(name) for name in elsewhere]}
    elif tools:
        called_tools = {"exclude": [as_pattern(name) for name in tools]}
        yield {"type": "forbidden_tools", "patterns": ["*"], "tools": called_tools}


def _order_specs(runs: Sequence[Trajectory]) -> Iterator[_SeenSpec]:
    """Yield an order that never varied, or else the precedence between pairs of tools."""
    orders = {tuple(call.name for call in run.calls) for run in runs}
    if len(orders) == 1 and (order := next(iter(orders))) and len(runs) > 1:
        yield {"type": "tool_call_order", "expected": list(order), "strict": True}, len(runs)
        return
    steps = [_steps_of(run) for run in runs]
    of_tool = Counter(name for steps_of_run in steps for name in steps_of_run)
    both: Counter[tuple[str, str]] = Counter()
    first_earlier, last_later = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for steps_of_run in steps:
        for pair in permutations(steps_of_run, 2):
            one, other = (steps_of_run[name] for name in pair)
            both[pair] += 1
            first_earlier[pair] += one.start < other.start
            last_later[pair] += one.stop < other.stop
    before = {pair for pair, count in both.items() if first_earlier[pair] == count}
    # These say more: that one tool is there whenever the other is.
    only_after = {(a, b) for a, b in before if both[a, b] == of_tool[b]}
    then = {(a, b) for (a, b), count in last_later.items() if count == of_tool[a]}
    rules = [(both[a, b], f"{b} only after {a}") for a, b in _without_implied(only_after)]
    rules += [(both[a, b], f"{a} then {b}") for a, b in _without_implied(then)]
    rules += [(both[a, b], f"{a} before {b}") for a, b in before - only_after - then]
    for count, rule in sorted(rules, key=lambda rule: (-rule[0], rule[1]))[:_MOST_RULES]:
        yield {"type": "precedence", "rules": [rule]}, count


def _without_implied(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs of a transitive relation that do not follow from two others."""
    names = {name for pair in pairs for name in pair}
    return [
        (a, b)
        for a, b in pairs
        if not any((a, name) in pairs and (name, b) in pairs for name in names)
    ]


def _steps_of(run: Trajectory) -> dict[str, range]:
    """For each tool that a rule can name, the groups of parallel calls from its first to its last
    call: `start` is the first, and `stop` follows the last.
    """
    steps: dict[str, range] = {}
    for step, group in enumerate(parallel_groups(run.calls)):
        for position in group:
            name = run.calls[position].name
            is_word = name.split() == [name] and name.lower() not in _KEYWORDS
            if is_word and name == as_pattern(name):
                steps[name] = range(steps.get(name, range(step, step)).start, step + 1)
    return steps


def _count_specs(runs: Sequence[Trajectory]) -> Iterator[_SeenSpec]:
    """Yield the range in which the number of calls of each tool lies."""
    counts = [Counter(call.name for call in run.calls) for run in runs]
    for name in sorted(set[str]().union(*counts)):
        numbers = [count[name] for count in counts]
        lowest, highest = min(numbers), max(numbers)
        criteria = [f"== {highest}"] if lowest == highest else [f">= {lowest}", f"<= {highest}"]
        if not lowest:
            criteria = criteria[-1:]
        spec = {"type": "tool_call_count", "criteria": {as_pattern(name): criteria}}
        yield spec, sum(map(bool, numbers))


def _budget_specs(runs: Sequence[Trajectory]) -> Iterator[Mapping[str, Any]]:
    """Yield budgets of time and tokens, if every run recorded them."""
    durations = [elapsed / 1e6 for run in runs if (elapsed := elapsed_ns(run)) is not None]
    if durations and len(durations) == len(runs):
        yield {"type": "time_cost", "max_ms": _budget(durations)}
    tokens = [
        run.input_tokens + run.output_tokens
        for run in runs
        if run.input_tokens is not None and run.output_tokens is not None
    ]
    if tokens and len(tokens) == len(runs) and max(tokens):
        yield {"type": "step_efficiency", "max_tokens": _budget(tokens)}


def _budget(values: Sequence[float]) -> int:
    """1.5 times the 99th percentile, at least the largest value; rounded up to two digits."""
    ordered = sorted(values)
    percentile = ordered[math.ceil(0.99 * len(ordered)) - 1]
    budget = max(_MARGIN * percentile, ordered[-1], 1)
    unit: int = 10 ** max(0, math.floor(math.log10(budget)) - 1)
    return math.ceil(budget / unit) * unit
