"""A whole tree as one expression, which gives the number of the path that a run takes.

Each node's expression stands where a walk would evaluate it. Where anything is not as every run should have it - an error,
something that was not recorded, an output that is too large - the expression gives nothing, and the run is walked. Ten
expressions take half the time of a walk in small runs, and two thirds in large ones (`tests/bench/decision_tree.py`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Final

from otel_eval.scorers.cel import ExpressionEvaluator, FieldsRead, InvalidExpression, Program, Unavailable, combined
from otel_eval.scorers.dag.coverage import TreePlan
from otel_eval.scorers.dag.walk import WalkResult, WalkState

__all__ = ["CompiledTree", "compile_tree"]

_MOST_NODES: Final = 100  # counting one again for each way that leads to it
_UNTOLD: Final = -1


@dataclass(frozen=True, slots=True)
class CompiledTree:
    """A tree as one expression.

    Attributes:
        program: gives a place in `ways`, or `_UNTOLD`.
        ways: all that there are.
    """

    program: Program
    ways: tuple[WalkResult, ...]

    def walked(self, evaluation: ExpressionEvaluator) -> WalkResult | None:
        """What `walk` would give, or None where only it can tell."""
        if evaluation.lacks(self.program):
            return None  # to try it would mostly be for nothing
        try:
            found = evaluation.of(self.program)
        except (Unavailable, InvalidExpression):
            evaluation.renew()
            return None
        return None if found == _UNTOLD else self.ways[found]


def compile_tree(plan: TreePlan) -> CompiledTree | None:
    """The tree as one expression; None if it asks judges, or is too large or too deep for one."""
    nodes = plan.nodes.values()
    programs = [node.program for node in nodes if node.program is not None and (node.kind != "task" or _is_light(node.program))]
    if len(programs) != len(nodes):
        return None
    writer = _Writer(plan, programs)
    source = writer.round(WalkState(plan), plan.roots)
    if writer.left < 0:
        return None
    program = combined(source, reduce(or_, [program.reading for program in programs], FieldsRead()))
    return None if program is None else CompiledTree(program, tuple(writer.ways))


def _is_light(task: Program) -> bool:
    """Whether its value can be handed to Python, which decides whether it fits a label."""
    return task.plain and not task.heavy


class _Writer:
    """Goes every way, as `walk` goes one."""

    def __init__(self, plan: TreePlan, programs: Sequence[Program]) -> None:
        self._plan = plan
        self._verdict = "verdict"  # a name that no expression has
        while any(self._verdict in program.source for program in programs):
            self._verdict += "_"
        self.left = _MOST_NODES
        self.ways: list[WalkResult] = []

    def round(self, way: WalkState, ready: Sequence[str]) -> str:
        """What follows, where these nodes are next."""
        if way.end is None and ready:
            return self._after(way, ready, [])
        if way.end is None:
            return str(_UNTOLD)
        self.ways.append(WalkResult(tuple(way.path), way.end))
        return str(len(self.ways) - 1)

    def _after(self, way: WalkState, ready: Sequence[str], coming: list[str]) -> str:
        """What follows, where some nodes of a round are left and others are coming in the next."""
        if not ready:
            return self.round(way, sorted(coming))
        self.left -= 1
        if self.left < 0:
            return str(_UNTOLD)
        node, further = self._plan.nodes[ready[0]], ready[1:]
        asked = f"({'' if node.program is None else node.program.source}\n)"  # there may be a comment at its end
        if node.kind == "task":
            then = self._after(way, further, [*coming, *way.go(node, None)])
            return f"cel.bind({node.label}, {asked}, fits({node.label}) ? {then} : {_UNTOLD})"
        followed = [(verdict.verdict, way.fork()) for verdict in node.verdicts]
        then_by = {verdict: self._after(fork, further, [*coming, *fork.go(node, verdict)]) for verdict, fork in followed}
        if node.kind == "binary":
            return f"({asked} ? {then_by[True]} : {then_by[False]})"
        chosen = "".join(
            f"{self._verdict} == {json.dumps(each, ensure_ascii=False)} ? {then} : " for each, then in then_by.items()
        )
        return f"cel.bind({self._verdict}, {asked}, {chosen}{_UNTOLD})"
