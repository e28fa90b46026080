"""Whether every run reaches exactly one verdict with a score, whatever the decisions are.

The walk is tried with every verdict of every decision; what can no longer make a difference is dropped from the state, so that
paths that meet again are followed once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_eval.scorers.dag.parse import Node, words

__all__ = ["TreePlan", "outcomes"]

_MOST_STATES: Final = 20_000


@dataclass(frozen=True, slots=True)
class TreePlan:
    """When each node runs.

    Attributes:
        nodes: by name.
        roots: those that run at the start.
        waits: node → how much has to happen before it runs: each task that it reads, and, if it is some verdict's
            `then`, one such verdict.
        readers: task → the nodes that wait for its output.
        gated: the nodes that are some verdict's `then`.
        asking: those that ask a judge.
    """

    nodes: Mapping[str, Node]
    roots: tuple[str, ...]
    waits: Mapping[str, int] = field(init=False)
    readers: Mapping[str, tuple[str, ...]] = field(init=False)
    gated: frozenset[str] = field(init=False)
    asking: frozenset[str] = field(init=False)
    reads: Mapping[str, frozenset[str]] = field(init=False)

    def __post_init__(self) -> None:
        makers = {node.label: name for name, node in self.nodes.items() if node.label}
        reads = {name: {makers[each] for each in node.named if each in makers} for name, node in self.nodes.items()}
        for name, node in self.nodes.items():
            for child in node.children:
                reads[child].add(name)
        gated = {verdict.then for node in self.nodes.values() for verdict in node.verdicts if verdict.then is not None}
        readers = {name: tuple(sorted(each for each in reads if name in reads[each])) for name in self.nodes}
        self._set("reads", {name: frozenset(tasks) for name, tasks in reads.items()})
        self._set("gated", frozenset(gated))
        self._set("asking", frozenset(name for name, node in self.nodes.items() if node.program is None))
        self._set("readers", readers)
        self._set("waits", {name: len(tasks) + (name in gated) for name, tasks in reads.items()})

    def _set(self, key: str, value: object) -> None:
        object.__setattr__(self, key, value)


@dataclass(frozen=True, slots=True)
class _State:
    """Where a walk may be: what has run, what some verdict asked to go on, the decision that reached a score."""

    run: frozenset[str]
    asked: frozenset[str]
    scored: str = ""
    last: str = ""  # the last verdict, in words


def outcomes(plan: TreePlan) -> list[str]:
    """What is wrong with the ways through: a way without a score, or with two.

    Each problem begins with the name of a node.
    """
    search = _CoverageSearch(plan)
    return search.problems


class _CoverageSearch:
    def __init__(self, plan: TreePlan) -> None:
        self._plan = plan
        self.problems: list[str] = []
        # What may still ask whether a node has run: its readers, and the decisions that lead to it.
        self._askers = {name: {*plan.readers[name], *self._leading(name)} for name in plan.nodes}
        seen: set[tuple[object, ...]] = set()
        waiting = [_State(frozenset(), frozenset(plan.roots))]
        while waiting and not self.problems:
            state = self._after_tasks(waiting.pop())
            ready = self._ready(state)
            known = (self._remembered(state.run), state.asked - state.run, frozenset(ready), bool(state.scored))
            if known in seen:
                continue
            seen.add(known)
            if len(seen) > _MOST_STATES:
                first = min(plan.roots)
                self.problems.append(
                    f"{first}: more ways lead on from here than can be checked; split the tree by then: {{scorer: …}}"
                )
            elif ready:
                waiting += self._decided(state, ready[0])
            elif not state.scored:
                self.problems.append(self._stuck(state))

    def _leading(self, name: str) -> set[str]:
        return {each for each, node in self._plan.nodes.items() if name in node.successors}

    def _ready(self, state: _State) -> list[str]:
        plan = self._plan
        return [
            name
            for name in sorted(plan.nodes)
            if name not in state.run
            and plan.reads[name] <= state.run
            and (name in state.asked or (name not in plan.gated and bool(plan.reads[name])))
        ]

    def _after_tasks(self, state: _State) -> _State:
        """Tasks decide nothing: all that can run do."""
        run = state.run
        while True:
            tasks = {name for name in self._ready(_State(run, state.asked)) if self._plan.nodes[name].kind == "task"}
            if not tasks:
                return _State(run, state.asked, state.scored, state.last)
            run |= tasks

    def _decided(self, state: _State, name: str) -> list[_State]:
        run, after = state.run | {name}, []
        for verdict in self._plan.nodes[name].verdicts:
            said = f"{name}: {words(verdict.verdict)}"
            if verdict.then is not None:
                after.append(_State(run, state.asked | {verdict.then}, state.scored, said))
            elif state.scored:
                self.problems.append(
                    f"{name}: a run may reach a score here and at {state.scored} as well; let a verdict of one lead to the other"
                )
            else:
                after.append(_State(run, state.asked, name, said))
        return after

    def _remembered(self, run: frozenset[str]) -> frozenset[str]:
        return frozenset(name for name in run if self._askers[name] - run)

    def _stuck(self, state: _State) -> str:
        """Name what was to go on and does not."""
        plan, after = self._plan, f"after {state.last!r} " if state.last else ""
        idle = sorted(plan.nodes.keys() - state.run)
        held = [name for name in idle if name in state.asked or plan.reads[name] & state.run]
        if not held:
            return f"{state.last.split(':')[0]}: {after}no score is reached; let every way end in one"
        name = held[0]
        missing = sorted(plan.reads[name] - state.run)
        why = f"waits for {missing[0]}, which does not run then" if missing else "runs only where a verdict leads to it"
        return f"{name}: {after}no score is reached, as this node {why}; let every way end in one score"
