"""Walk a decision tree for one run: tasks extract, decisions choose a verdict, and one verdict
gives the score.

The walk runs in rounds: all nodes that are ready, then those that become ready by them. The result
depends on the verdicts alone, neither on the order in which nodes were written nor on which judge
answers first. A node without an answer blocks only the nodes that depend on it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, NamedTuple

from otel_eval.model import UNRECORDED, Failed, Skipped, Trajectory
from otel_eval.scorers.cel import ExpressionEvaluator, Program
from otel_eval.scorers.cel.binding import REASONS
from otel_eval.scorers.dag.parse import Node, NodeVerdict
from otel_eval.scorers.judge import Judge, JudgeError, ask, build_prompt, calls_as_data, failed
from otel_eval.scorers.outcomes import NoScore, prefixed


class TreePlan:
    """The dependencies between the nodes of a tree without cycles.

    Attributes:
        nodes: the nodes by name.
        roots: the names of the nodes that run first.
        waits: node → number of its unmet dependencies at the start: one for each task that it
            reads, and one more if it is the `then` of some verdict.
        readers: task → the nodes that depend on its output.
        judge_nodes: the nodes that a judge answers.
        reads: node → the tasks whose output it reads.
    """

    def __init__(self, nodes: Mapping[str, Node], roots: Iterable[str]) -> None:
        makers = {node.label: name for name, node in nodes.items() if node.label}
        self.nodes, self.roots = nodes, tuple(sorted(roots))
        self.reads = {
            name: {makers[label] for label in node.named if label in makers}
            for name, node in nodes.items()
        }
        for name, node in nodes.items():
            for child in node.children:
                self.reads[child].add(name)
        gated = {verdict.then for node in nodes.values() for verdict in node.verdicts}
        self.waits = {name: len(tasks) + (name in gated) for name, tasks in self.reads.items()}
        self.readers = {
            name: tuple(sorted(reader for reader in nodes if name in self.reads[reader]))
            for name in nodes
        }
        self.judge_nodes = {name for name, node in nodes.items() if node.program is None}


class Step(NamedTuple):
    """A node that ran; `verdict` is None for a task."""

    node: str
    verdict: bool | str | None
    reason: str = ""


class NodeAnswer(NamedTuple):
    """The result of a node: the output of a task or the verdict of a decision, and the judge's
    reason, or "".
    """

    value: Any
    reason: str = ""


Ask = Callable[[Node, Mapping[str, Any]], Awaitable[NodeAnswer | Skipped | Failed]]
"""Requests a judge's answer for a node, given the outputs of tasks by label."""


class WalkResult(NamedTuple):
    """A path through the tree.

    Attributes:
        path: the nodes that ran, by round and then by name.
        end: the verdict that was reached, or the outcome if none was.
    """

    path: Sequence[Step]
    end: NodeVerdict | Skipped | Failed


def run_to_end(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Return the value of a coroutine that never suspends.

    Raises:
        RuntimeError: it suspends.
    """
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    coroutine.close()
    raise RuntimeError("a node suspended in a tree without judges")


async def walk(plan: TreePlan, evaluation: ExpressionEvaluator, ask: Ask) -> WalkResult:
    """Walk the tree for one run and return the path, with a verdict or with what prevented one: the
    first node that was skipped or failed, or `NoVerdict`.
    """
    state = WalkState(plan)
    failure: Skipped | Failed | None = None  # the first one
    ready: Sequence[str] = plan.roots
    while ready and state.end is None:
        next_ready: list[str] = []
        judge_nodes = [plan.nodes[name] for name in ready if name in plan.judge_nodes]
        judged = await _ask_judges(judge_nodes, state.outputs, ask) if judge_nodes else {}
        for name in ready:
            node = plan.nodes[name]
            result = (
                judged[name] if node.program is None else _evaluate(node, node.program, evaluation)
            )
            if type(result) is Skipped or type(result) is Failed:
                failure = result if failure is None else failure
            else:
                value, reason = result if type(result) is NodeAnswer else (result, "")
                next_ready += state.record(node, value, reason)
                if node.kind == "task":
                    evaluation.bind_label(node.label, value)
        ready = sorted(next_ready) if len(next_ready) > 1 else next_ready
    if failure is None:
        failure = Failed("NoVerdict", "no verdict was reached")
    return WalkResult(state.path, state.end or failure)


class WalkState:
    """The state of a walk.

    Attributes:
        opened: the nodes to which a verdict has led so far.
        outputs: the outputs of tasks by label.
        path: the nodes that ran so far.
        end: the verdict that was reached, or None.
    """

    def __init__(self, plan: TreePlan) -> None:
        self._plan = plan
        self._waits = dict(plan.waits)
        self.opened: set[str] = set()
        self.outputs: dict[str, Any] = {}
        self.path: list[Step] = []
        self.end: NodeVerdict | None = None

    def fork(self) -> WalkState:
        """Return an independent copy of this state."""
        other = copy(self)
        other._waits, other.outputs = {**self._waits}, {**self.outputs}
        other.opened, other.path = {*self.opened}, [*self.path]
        return other

    def record(self, node: Node, value: Any, reason: str = "") -> Sequence[str]:
        """Record the result of a node and return the nodes that become ready by it."""
        if node.kind == "task":
            self.path.append(Step(node.name, None))
            self.outputs[node.label] = value
            return self._now_ready(self._plan.readers[node.name])
        self.path.append(Step(node.name, value, reason))
        verdict = node.by_verdict[value]
        then = verdict.then
        if then is None:
            self.end = verdict
        elif then not in self.opened:
            self.opened.add(then)
            return self._now_ready((then,))
        return ()

    def _now_ready(self, names: Sequence[str]) -> Sequence[str]:
        """Count one dependency of each node as met; return those that have no other."""
        waits = self._waits
        for name in names:
            waits[name] -= 1
        return (
            names
            if len(names) == 1 and not waits[names[0]]
            else [name for name in names if not waits[name]]
        )


async def _ask_judges(
    nodes: Sequence[Node], outputs: Mapping[str, Any], ask: Ask
) -> dict[str, NodeAnswer | Skipped | Failed]:
    """Request the judges' answers for nodes without an expression concurrently; return them by
    node.
    """
    import asyncio  # imported only if judges are awaited

    answers = await asyncio.gather(*(ask(node, outputs) for node in nodes))
    return {node.name: answer for node, answer in zip(nodes, answers, strict=True)}


def _evaluate(node: Node, program: Program, evaluation: ExpressionEvaluator) -> Any:
    """Return the value, or a `Skipped` or `Failed` outcome if there is none; no expression has such
    an outcome as its value.
    """
    try:
        value = evaluation.of(program)
    except NoScore as ended:
        return prefixed(ended.outcome, f"{node.name}: ", {})
    # 1 equals true, and is not a verdict
    if node.kind != "task" and (type(value) not in (bool, str) or value not in node.by_verdict):
        return Failed(
            "UnknownVerdict", f"{node.name}: gave {value!r:.80}, which is none of its verdicts"
        )
    return value


_LONGEST: Final = 2000  # characters of a judge's reason
_AGAIN: Final = "Your answer before this one was not of the form that is asked for below."
_UNUSABLE: Final = ("judge_malformed", "judge_out_of_range")
_TEXTS: Final = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}


_NAMES: Final = {"input": "run.input", "output": "run.output"}


def data_for(
    node: Node, trajectory: Trajectory, reference: object, outputs: Mapping[str, Any]
) -> dict[str, Any] | Skipped:
    """Return the data for the judge of a node: the parts of the run that it reads, and outputs of
    tasks.

    Returns `Skipped` if one of these parts was not recorded.

    Args:
        node: the node.
        trajectory: the run.
        reference: the run's own reference, or `UNRECORDED`, or a `Skipped` outcome if there is
            none.
        outputs: by label, the outputs of the tasks that lead to the node and that it reads.
    """
    calls = calls_as_data(trajectory.calls) if not trajectory.calls_unknown else UNRECORDED
    recorded = {
        "input": trajectory.input,
        "output": trajectory.output,
        "calls": calls,
        "reference": reference,
    }
    parts = {part: recorded[part] for part in sorted(node.reads) if part in recorded}
    for part, value in parts.items():
        if isinstance(value, Skipped):
            return Skipped(f"{node.name}: {value.explanation}", reason=value.reason)
        if value is UNRECORDED:
            return Skipped(
                f"{node.name}: {_NAMES.get(part, part)} not recorded",
                reason=REASONS.get(part, "not_recorded"),
            )
    return parts | dict(sorted(outputs.items()))


async def ask_node(
    judge: Judge, node: Node, instruction: str, data: Mapping[str, Any]
) -> NodeAnswer | Skipped | Failed:
    """Return the judge's answer, or a `Skipped` or `Failed` outcome; after an unusable answer, the
    request is repeated once.

    Args:
        judge: the judge.
        node: the node that the answer is for.
        instruction: the task of the judge.
        data: the data that are added to the prompt.
    """
    schema, words = _answer_form(node)
    try:
        try:
            reply = await ask(judge, build_prompt(instruction, data, words), schema)
        except JudgeError as error:
            if error.kind not in _UNUSABLE:
                raise
            reply = await ask(
                judge, build_prompt(f"{instruction}\n\n{_AGAIN}", data, words), schema
            )
        return _answer_of(node, reply)
    except Exception as error:  # noqa: BLE001
        # a judge from Python may raise anything; that is an outcome
        return failed(error, where=f"{node.name}: ")


def _answer_form(node: Node) -> tuple[dict[str, Any], str]:
    """Return the JSON Schema of the answer, and its description for the prompt."""
    if node.kind == "task":
        return {"properties": {"output": _TEXTS}}, '{"output": a text, or a list of texts}'
    options = sorted(str(verdict.verdict) for verdict in node.verdicts)
    verdict: dict[str, Any]
    if node.kind == "binary":
        verdict, words = {"type": "boolean"}, "true or false"
    else:
        verdict, words = (
            {"type": "string", "enum": options},
            " or ".join(map(partial(json.dumps, ensure_ascii=False), options)),
        )
    # The reason comes first, so that models which write properties in this order reason before they
    # decide.
    properties = {"reason": {"type": "string"}, "verdict": verdict}
    return {
        "properties": properties
    }, f'{{"verdict": {words}, "reason": "why, in a sentence or two"}}'


def _answer_of(node: Node, reply: Mapping[str, Any]) -> NodeAnswer:
    """The answer in a judge's reply."""
    if node.kind == "task":
        return NodeAnswer(reply["output"])
    return NodeAnswer(reply["verdict"], reply["reason"].strip()[:_LONGEST])
