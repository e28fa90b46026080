"""Walk a tree for one run: nodes decide, tasks extract, one verdict gives the score.

Knows rounds: all nodes that can run, then those that can run after them. What comes out depends on the verdicts alone,
neither on the order in which nodes were written nor on which judge answers first. A node that cannot tell holds up those
that wait for it and nobody else.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple

from otel_eval.model import Failed, Skipped
from otel_eval.scorers.cel import Evaluation, Invalid, Program, Unavailable
from otel_eval.scorers.dag.reach import Plan
from otel_eval.scorers.dag.shapes import Node, Verdict

__all__ = ["Answer", "Ask", "Step", "Walked", "Way", "finished", "walk"]


class Answer(NamedTuple):
    """What a node came to: the output of a task or the verdict of a decision, and a judge's reason."""

    value: Any
    reason: str = ""


Ask = Callable[[Node, Mapping[str, Any]], Awaitable[Answer | Skipped | Failed]]
"""Has a judge answer for a node, shown the outputs of tasks by label."""


class Step(NamedTuple):
    """A node that ran; `verdict` is None for a task."""

    node: str
    verdict: bool | str | None
    reason: str = ""


class Walked(NamedTuple):
    """A way through.

    Attributes:
        path: the nodes that ran, in order of rounds, and of names within one.
        end: the verdict that was reached, or why none was.
    """

    path: Sequence[Step]
    end: Verdict | Skipped | Failed


def finished(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What a coroutine returns that waits for nobody."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a node waited for somebody in a tree without judges")


async def walk(plan: Plan, evaluation: Evaluation, ask: Ask) -> Walked:
    """The way of one run."""
    way = Way(plan)
    trouble: Skipped | Failed | None = None
    ready: Sequence[str] = plan.roots
    while ready and way.end is None:
        coming: list[str] = []
        judged = await _judged([plan.nodes[name] for name in ready], way.outputs, ask) if plan.asking else {}
        for name in ready:
            node = plan.nodes[name]
            found = judged[name] if node.program is None else _evaluated(node, node.program, evaluation)
            if type(found) is Skipped or type(found) is Failed:
                trouble = trouble or found
            else:
                value, reason = found if type(found) is Answer else (found, "")
                coming += way.go(node, value, reason)
                if node.kind == "task":
                    evaluation.know(node.label, value)
        ready = sorted(coming) if len(coming) > 1 else coming
    return Walked(way.path, way.end or trouble or Failed("NoVerdict", "no verdict was reached"))


class Way:
    """How far a walk has come.

    Attributes:
        outputs: of tasks, by label.
        path: the nodes that ran.
        end: the verdict that was reached, or None.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._waits = dict(plan.waits)
        self._opened: set[str] = set()  # successors that some verdict has asked to go on
        self.outputs: dict[str, Any] = {}
        self.path: list[Step] = []
        self.end: Verdict | None = None

    def fork(self) -> Way:
        """Another that has come as far."""
        other = Way(self._plan)
        other._waits, other._opened, other.outputs = dict(self._waits), set(self._opened), dict(self.outputs)
        other.path, other.end = [*self.path], self.end
        return other

    def go(self, node: Node, value: Any, reason: str = "") -> Sequence[str]:
        """Note what a node came to; the nodes that can run because of it."""
        if node.kind == "task":
            self.path.append(Step(node.name, None))
            self.outputs[node.label] = value
            return self._free(self._plan.readers[node.name])
        self.path.append(Step(node.name, value, reason))
        verdict = node.by_verdict[value]
        then = verdict.then
        if then is None:
            self.end = verdict
        elif then not in self._opened:
            self._opened.add(then)
            return self._free((then,))
        return ()

    def _free(self, names: Sequence[str]) -> Sequence[str]:
        waits = self._waits
        for name in names:
            waits[name] -= 1
        return names if len(names) == 1 and not waits[names[0]] else [name for name in names if not waits[name]]


async def _judged(nodes: Sequence[Node], outputs: Mapping[str, Any], ask: Ask) -> dict[str, Answer | Skipped | Failed]:
    """What judges answer for those nodes that ask one; they are asked together."""
    asking = [node for node in nodes if node.program is None]
    if not asking:
        return {}
    if len(asking) == 1:
        return {asking[0].name: await ask(asking[0], outputs)}
    import asyncio  # loaded only where judges are waited for together

    answers = await asyncio.gather(*(ask(node, outputs) for node in asking))
    return {node.name: answer for node, answer in zip(asking, answers, strict=True)}


def _evaluated(node: Node, program: Program, evaluation: Evaluation) -> Any:
    """The value, or why there is none, as `Skipped` or `Failed`: no expression gives one of these."""
    try:
        value = evaluation.of(program)
    except Unavailable as unavailable:
        return Skipped(f"{node.name}: {unavailable}", reason=unavailable.reason)
    except Invalid as invalid:
        return Failed("ExpressionError", f"{node.name}: {invalid}")
    if node.kind != "task" and (type(value) is not node.verdict_type or value not in node.by_verdict):
        return Failed("UnknownVerdict", f"{node.name}: gave {value!r:.80}, which is none of its verdicts")
    return value
