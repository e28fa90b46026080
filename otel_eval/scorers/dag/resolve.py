"""Resolve the references between a tree's nodes, and check that every run reaches exactly one
verdict with a score.

Names, labels and expressions are resolved; cycles are refused. The check tries every verdict of
every decision. What cannot affect the rest of a walk is left out of its state, so that paths which
meet again are followed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final

from pydantic import TypeAdapter, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.scorers.cel import compile_expression
from otel_eval.scorers.dag.parse import (
    PARTS,
    Node,
    WrittenNode,
    WrittenNodes,
    link_problems,
    linked_nodes,
)
from otel_eval.scorers.dag.walk import Step, TreePlan, WalkState
from otel_eval.scorers.values import text_of
from otel_eval.validation import ReadAs, lines_of, validated

_GIVES: Final = {
    "binary": (("BOOL", "DYN"), "true or false"),
    "choice": (("STRING", "DYN"), "a text"),
}


def _resolved_nodes(written_nodes: Mapping[str, WrittenNode]) -> dict[str, Node]:
    """Link the nodes of a tree and compile their expressions.

    Raises:
        ConfigError: with every problem of links or, if there is none, of expressions and of what
            nodes read; each begins with `.name`.
    """
    nodes = linked_nodes(written_nodes)
    labels = _labels(nodes)
    before: dict[str, list[str]] = {name: [] for name in nodes}
    for name, node in nodes.items():
        for successor in node.successors:
            before[successor].append(name)
    types: dict[str, Any] = dict.fromkeys(labels)
    above: dict[str, frozenset[str]] = {}
    compiled_nodes: dict[str, Node] = {}
    problems: list[str] = []
    for name in _ordered(before):
        above[name] = frozenset(before[name]).union(*(above[parent] for parent in before[name]))
        node = compiled_nodes[name] = _compile(f".{name}", nodes[name], types, problems)
        problems += _unreadable(f".{name}", node, labels, above[name])
        if (
            node.asks is not None
            and not node.reads
            and not any(name in compiled_nodes[parent].children for parent in before[name])
        ):
            problems.append(
                f".{name}.reads: missing; name what the judge is shown, e.g. reads: [output]"
            )
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return compiled_nodes


def _with_further_problems(value: Any, validate: ValidatorFunctionWrapHandler) -> object:
    """Validate the nodes of a tree, and report all problems of invalid ones at once: those of
    links between nodes and of expressions, too.

    Raises:
        ConfigError: a node is invalid; with every problem.
        ValidationError: the nodes are no mapping, or a name is invalid; with these problems alone.
    """
    try:
        return validate(value)
    except ValidationError as error:
        # of the mapping itself or of a name
        if any(not problem["loc"] or "[key]" in problem["loc"] for problem in error.errors()):
            raise
        adapter: TypeAdapter[WrittenNode] = TypeAdapter(WrittenNode)
        nodes: dict[Any, WrittenNode | None] = dict.fromkeys(value)
        for name, node in value.items():
            with suppress(ConfigError):
                nodes[name] = validated(adapter, node)
        raise ConfigError(
            *(f".{line}" for line in lines_of(error)),
            *link_problems(nodes),
            *_expression_problems(value),
        ) from None


def _expression_problems(nodes: Mapping[Any, Any]) -> Iterator[str]:
    """Problems of expressions, in which any name may be an output, of any type."""
    mappings = {name: node for name, node in nodes.items() if isinstance(node, Mapping)}
    labels = dict.fromkeys(
        map(str, [*nodes, *(node.get("output_label") for node in mappings.values())])
    )
    for name, node in mappings.items():
        if isinstance(node.get("cel"), str):
            try:
                compile_expression(node["cel"], labels)
            except ConfigError as error:
                yield from (f".{name}.cel: {problem}" for problem in error.problems)


Nodes = Annotated[
    Mapping[str, Node],
    ReadAs(Annotated[WrittenNodes, WrapValidator(_with_further_problems)], _resolved_nodes),
]


def _labels(nodes: Mapping[str, Node]) -> dict[str, str]:
    """Return label → task, for the outputs of all tasks.

    Raises:
        ConfigError: two outputs have the same label.
    """
    labels: dict[str, str] = {}
    for name, node in nodes.items():
        owner = labels.setdefault(node.label, name) if node.label else name
        if owner != name:
            label = redacted_repr(node.label)
            raise ConfigError(
                f".{name}.output_label: {label} is the output of {redacted_repr(owner)} already;"
                " rename one"
            )
    return labels


def _ordered(before: Mapping[str, list[str]]) -> list[str]:
    """Return the names in topological order.

    Raises:
        ConfigError: there is a cycle.
    """
    try:
        return [*TopologicalSorter(before).static_order()]
    except CycleError as error:
        circle: list[str] = error.args[1]
        cycle = " → ".join(circle)
        raise ConfigError(
            f".{circle[0]}: leads back to itself ({cycle}); a run would never end, cut the circle"
        ) from None


def _compile(where: str, node: Node, types: dict[str, Any], problems: list[str]) -> Node:
    """Return the node with its compiled expression; add the type of its output to `types`, and
    problems to `problems`.
    """
    if node.cel is None:
        return node
    try:
        program = compile_expression(node.cel, types)
    except ConfigError as error:
        problems += [f"{where}.cel: {problem}" for problem in error.problems]
        return node
    allowed, expected = _GIVES.get(node.kind, ((program.returns,), ""))
    if program.returns not in allowed:
        problems.append(
            f"{where}.cel: gives {program.returns}, not {expected}; compare it with something, or"
            " convert it"
        )
    if node.label:
        types[node.label] = program.type
    return replace(node, program=program)


def _unreadable(
    where: str, node: Node, labels: Mapping[str, str], above: frozenset[str]
) -> Iterator[str]:
    """Yield a problem for each name that is neither a part of the run nor the output of an ancestor
    of the node.
    """
    where = f"{where}.{'reads' if node.cel is None else 'cel'}"
    for read in sorted(node.named - {*PARTS, "run"}):
        maker = labels.get(read)
        if maker is None:
            yield (
                f"{where}: there is no {redacted_repr(read)} to read;"
                f" {did_you_mean(read, [*PARTS, *labels])}"
            )
        elif maker not in above:
            remedy = f"add {node.name} to the children of {maker}"
            yield (
                f"{where}: {read} is the output of {redacted_repr(maker)}, which does not lead"
                f" here; {remedy}"
            )


_MOST_STATES: Final = 20_000


class CoverageSearch:
    """A search over walks with every verdict of every decision.

    Attributes:
        problems: paths without a score, or with two; each problem begins with the name of a node.
    """

    def __init__(self, plan: TreePlan) -> None:
        self._plan = plan
        self.problems: list[str] = []
        # The nodes for which it matters whether a node has run: its readers, and the nodes that
        # lead to it.
        self._dependents = {name: {*plan.readers[name]} for name in plan.nodes}
        for name, node in plan.nodes.items():
            for successor in node.successors:
                self._dependents[successor].add(name)
        seen: set[tuple[object, ...]] = set()
        to_follow = [(WalkState(plan), {*plan.roots})]
        while to_follow and not self.problems:
            state, ready = to_follow.pop()
            self._do_tasks(state, ready)
            run = {step.node for step in state.path}
            # Walks that agree in everything that affects the rest continue in the same way: only
            # the first is followed.
            relevant = frozenset(name for name in run if self._dependents[name] - run)
            summary = (relevant, frozenset(state.opened - run), frozenset(ready), state.end is None)
            if summary in seen:
                continue
            seen.add(summary)
            if len(seen) > _MOST_STATES:
                first = min(plan.roots)
                self.problems.append(
                    f"{first}: more ways lead on from here than can be checked; split the tree by"
                    " then: {scorer: …}"
                )
            elif ready:
                to_follow += self._decided(state, ready, plan.nodes[min(ready)])
            elif state.end is None:
                self.problems.append(self._unfinished(state, run))

    def _do_tasks(self, state: WalkState, ready: set[str]) -> None:
        """Run all tasks that are ready, repeatedly, since a task may make others ready. Tasks do
        not fork the walk.
        """
        while tasks := {name for name in ready if self._plan.nodes[name].kind == "task"}:
            ready -= tasks
            for name in tasks:
                ready.update(state.record(self._plan.nodes[name], None))

    def _decided(
        self, state: WalkState, ready: set[str], node: Node
    ) -> list[tuple[WalkState, set[str]]]:
        """Follow each verdict of a decision: a state and the ready nodes for each; a second score
        is a problem.
        """
        after = []
        for verdict in node.verdicts:
            if verdict.then is None and state.end is not None:
                nodes = self._plan.nodes
                scored = next(
                    name
                    for name, chosen, _ in state.path
                    if chosen is not None and nodes[name].by_verdict[chosen] is state.end
                )
                self.problems.append(
                    f"{node.name}: a run may reach a score here and at {scored} as well; let a"
                    " verdict of one lead to the other"
                )
                continue
            fork = state.fork()
            after.append((fork, {*ready - {node.name}, *fork.record(node, verdict.verdict)}))
        return after

    def _unfinished(self, state: WalkState, run: set[str]) -> str:
        """Return the problem of a walk that ended without a score; it names a node that should have
        run.
        """
        plan = self._plan
        node, verdict, _ = next(
            (step for step in reversed(state.path) if step.verdict is not None), Step("", None)
        )
        after = f"after {f'{node}: {text_of(verdict)}'!r} " if verdict is not None else ""
        blocked = sorted(
            name
            for name in plan.nodes.keys() - run
            if name in state.opened or plan.reads[name] & run
        )
        if not blocked:
            return f"{node}: {after}no score is reached; let every way end in one"
        name = blocked[0]
        missing = sorted(plan.reads[name] - run)
        cause = (
            f"waits for {missing[0]}, which does not run then"
            if missing
            else "runs only where a verdict leads to it"
        )
        return (
            f"{name}: {after}no score is reached, as this node {cause}; let every way end in one"
            " score"
        )
