"""Resolve the references between a tree's nodes, and see that every run reaches exactly one verdict with a score.

Names, labels and expressions are resolved; cycles are refused. The walk is tried with every verdict of every decision; what can
no longer make a difference is dropped from the state, so that paths that meet again are followed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.scorers.cel import Program, compiled
from otel_eval.scorers.dag.parse import NODE, PARTS, TYPES, Node, Nodes, NodeSpec, Verdict, parse_nodes, words
from otel_eval.scorers.dag.walk import Step, TreePlan, WalkState
from otel_eval.scorers.parameters import invalid_value, with_schema

_GIVES: Final = {"binary": (("BOOL", "DYN"), "true or false"), "choice": (("STRING", "DYN"), "a text")}


@with_schema({"type": "object", "additionalProperties": NODE, "minProperties": 1})
def nodes(key: str, value: Any) -> Nodes:
    """The nodes of a tree, joined.

    Raises:
        ConfigError: with every problem that can be seen without knowing the root.
    """
    given, problems = parse_nodes(key, value)
    joined = _Resolver(key, given, {name: value[name] for name, node in given.items() if node is None})
    problems += joined.problems
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return Nodes(joined.made, joined.verdicts)


class _Resolver:
    """The nodes that could be made, and what is wrong with the others and between them."""

    def __init__(self, key: str, given: Mapping[str, NodeSpec | Verdict | None], unusable: Mapping[str, Any]) -> None:
        self._key = key
        self._names: Final = [*given]
        self._given: Final = {name: node for name, node in given.items() if isinstance(node, NodeSpec)}
        self.verdicts: Final = {name: node for name, node in given.items() if isinstance(node, Verdict)}
        self.problems: list[str] = []
        self.made: dict[str, Node] = {}
        for name, node in self._given.items():
            self.made[name] = self._joined(name, node)
        self._labels = self._distinct_labels()
        order = self._order()
        self._above = _ancestors(self.made, order) if order and not unusable else {}
        unsure = {_label(str(name), each) for name, each in unusable.items()} - TYPES  # YAML's names may be numbers
        types: dict[str, Any] = dict.fromkeys([*self._labels, *sorted(unsure)])
        for name in order or self.made:
            self._compile(name, types)
            self._check_reads(name, types)
        for name, each in unusable.items():
            source = each.get("cel") if isinstance(each, Mapping) else None
            if isinstance(source, str) and source.strip():
                self._compiled(f"{self._key}.{name}.cel", source, types)

    def _joined(self, name: str, node: NodeSpec) -> Node:
        place = f"{self._key}.{name}"
        if node.kind == "task":
            children = tuple(self._task_children(place, node))
            return Node(name, node.kind, asks=node.asks, reads=node.reads, label=node.label, children=children)
        verdicts = tuple(self._verdicts(place, node))
        self._check_verdicts(
            place, node.kind, [verdict.verdict for verdict in verdicts], complete=len(verdicts) == len(node.children)
        )
        for at, verdict in enumerate(verdicts):
            self._check_then(f"{place}.children[{at}].then", verdict)
        return Node(name, node.kind, asks=node.asks, reads=node.reads, verdicts=verdicts)

    def _task_children(self, place: str, node: NodeSpec) -> Iterator[str]:
        for at, child in enumerate(node.children):
            where = f"{place}.children[{at}]"
            if not isinstance(child, str) or not self._known(where, child):
                continue
            if child in self.verdicts:
                self.problems.append(
                    f"{where}: {redacted_repr(child)} is a verdict, and a task decides nothing; name a task, binary or choice"
                )
            yield child

    def _verdicts(self, place: str, node: NodeSpec) -> Iterator[Verdict]:
        for at, child in enumerate(node.children):
            where = f"{place}.children[{at}]"
            if isinstance(child, Verdict):
                yield child
            elif child in self.verdicts:
                yield self.verdicts[child]
            elif self._known(where, child) and child in self._given:
                said = "true" if node.kind == "binary" else "…"
                self.problems.append(f"{where}: {redacted_repr(child)} is no verdict; write {{verdict: {said}, then: {child}}}")

    def _known(self, where: str, name: str) -> bool:
        if name in self._names:
            return True
        self.problems.append(f"{where}: there is no node {redacted_repr(name)}; {did_you_mean(name, self._names)}")
        return False

    def _check_then(self, where: str, verdict: Verdict) -> None:
        if verdict.then is None or not self._known(where, verdict.then):
            return
        if verdict.then in self.verdicts:
            self.problems.append(f"{where}: {redacted_repr(verdict.then)} is a verdict itself; write its score here")

    def _check_verdicts(self, place: str, kind: str, said: list[bool | str], *, complete: bool) -> None:
        wanted, name = (bool, "true or false") if kind == "binary" else (str, "a text")
        unfit = [each for each in said if not isinstance(each, wanted)]
        self.problems += [
            str(invalid_value(f"{place}.children", each, f"{name}, as the verdicts of a {kind} are", "write it so"))
            for each in unfit
        ]
        if unfit or not complete:
            return
        if kind == "binary" and sorted(said) != [False, True]:
            self.problems.append(
                f"{place}.children: a binary has one verdict true and one false, not [{', '.join(map(words, said))}]; write both"
            )
        if kind == "choice" and not said:
            self.problems.append(
                f"{place}.children: missing; a choice has at least one verdict, e.g. [{{verdict: good, score: 10}}]"
            )
        twice = sorted({str(each) for each in said if said.count(each) > 1}) if kind == "choice" else []
        self.problems += [f"{place}.children: the verdict {redacted_repr(each)} is there twice; keep one" for each in twice]

    def _distinct_labels(self) -> dict[str, str]:
        labels: dict[str, str] = {}
        for name, node in self.made.items():
            if node.label in labels:
                where = f"{self._key}.{name}.output_label"
                label, owner = redacted_repr(node.label), redacted_repr(labels[node.label])
                self.problems.append(f"{where}: {label} is the output of {owner} already; rename one")
            elif node.label:
                labels[node.label] = name
        return labels

    def _order(self) -> list[str] | None:
        """Names, each after all that lead to it; None if there is a cycle."""
        order: dict[str, None] = {}
        around: list[str] = []

        def visit(name: str) -> bool:
            if name in order or name not in self.made:
                return True
            if name in around:
                circle = " → ".join([*around[around.index(name) :], name])
                self.problems.append(
                    f"{self._key}.{name}: leads back to itself ({circle}); a run would never end, cut the circle"
                )
                return False
            around.append(name)
            # A name is noted after all that follow it, so that the reversed order has each after all that lead to it.
            good = not [each for each in self.made[name].successors if not visit(each)]  # all of them, not to the first
            around.pop()
            order[name] = None
            return good

        good = not [name for name in self.made if not visit(name)]
        return [*reversed(order)] if good else None

    def _compile(self, name: str, types: dict[str, Any]) -> None:
        node, source = self.made[name], self._given[name].cel
        where = f"{self._key}.{name}.cel"
        program = None if source is None else self._compiled(where, source, types)
        if program is None:
            return
        allowed, wanted = _GIVES.get(node.kind, ((program.returns,), ""))
        if program.returns not in allowed:
            self.problems.append(f"{where}: gives {program.returns}, not {wanted}; compare it with something, or convert it")
        self.made[name] = replace(node, program=program)
        if node.label:
            types[node.label] = program.type

    def _compiled(self, where: str, source: str, types: Mapping[str, Any]) -> Program | None:
        try:
            return compiled(where, source, types)
        except ConfigError as error:
            self.problems += error.problems
            return None

    def _check_reads(self, name: str, types: Mapping[str, Any]) -> None:
        """What is read is there, and is a part of the run or comes from above."""
        node = self.made[name]
        where = f"{self._key}.{name}.{'reads' if node.program is None else 'cel'}"
        for read in sorted(node.named - {*PARTS, "run"}):
            maker = self._labels.get(read)
            if maker is None and read not in types:
                self.problems.append(
                    f"{where}: there is no {redacted_repr(read)} to read; {did_you_mean(read, [*PARTS, *self._labels])}"
                )
            elif maker is not None and self._above and maker not in self._above[name]:
                remedy = f"add {name} to the children of {maker}"
                self.problems.append(
                    f"{where}: {read} is the output of {redacted_repr(maker)}, which does not lead here; {remedy}"
                )
        if node.asks is not None and not node.reads and not any(name in each.children for each in self.made.values()):
            self.problems.append(f"{self._key}.{name}.reads: missing; name what the judge is shown, e.g. reads: [output]")


def _label(name: str, given: Any) -> str:
    label = given.get("output_label") if isinstance(given, Mapping) else None
    return label if isinstance(label, str) else name


def _ancestors(made: Mapping[str, Node], order: Sequence[str]) -> dict[str, frozenset[str]]:
    """All nodes that lead to each, however far; the order has each after all that lead to it."""
    found = dict.fromkeys(order, frozenset[str]())
    for name in order:
        for each in found.keys() & made[name].successors:
            found[each] |= found[name] | {name}
    return found


_MOST_STATES: Final = 20_000


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
        self._askers = {name: {*plan.readers[name]} for name in plan.nodes}
        for name, node in plan.nodes.items():
            for each in node.successors:
                self._askers[each].add(name)
        seen: set[tuple[object, ...]] = set()
        waiting = [(WalkState(plan), {*plan.roots})]
        while waiting and not self.problems:
            way, ready = waiting.pop()
            self._do_tasks(way, ready)
            run = {step.node for step in way.path}
            # Two walks that agree in what can still make a difference go on alike: the second is not followed.
            known = (self._remembered(run), frozenset(way.opened - run), frozenset(ready), way.end is None)
            if known in seen:
                continue
            seen.add(known)
            if len(seen) > _MOST_STATES:
                first = min(plan.roots)
                self.problems.append(
                    f"{first}: more ways lead on from here than can be checked; split the tree by then: {{scorer: …}}"
                )
            elif ready:
                waiting += self._decided(way, ready, plan.nodes[min(ready)])
            elif way.end is None:
                self.problems.append(self._stuck(way, run))

    def _do_tasks(self, way: WalkState, ready: set[str]) -> None:
        """Tasks decide nothing: all that can run do. A task may make others ready, so this is repeated."""
        while tasks := {name for name in ready if self._plan.nodes[name].kind == "task"}:
            ready -= tasks
            for name in tasks:
                ready.update(way.go(self._plan.nodes[name], None))

    def _decided(self, way: WalkState, ready: set[str], node: Node) -> list[tuple[WalkState, set[str]]]:
        after = []
        for verdict in node.verdicts:
            if verdict.then is None and way.end is not None:
                scored = next(name for name, said, _ in way.path if said is not None and self._ends(name, said))
                self.problems.append(
                    f"{node.name}: a run may reach a score here and at {scored} as well; let a verdict of one lead to the other"
                )
                continue
            fork = way.fork()
            after.append((fork, {*ready - {node.name}, *fork.go(node, verdict.verdict)}))
        return after

    def _ends(self, name: str, verdict: bool | str) -> bool:
        return self._plan.nodes[name].by_verdict[verdict].then is None

    def _remembered(self, run: set[str]) -> frozenset[str]:
        return frozenset(name for name in run if self._askers[name] - run)

    def _stuck(self, way: WalkState, run: set[str]) -> str:
        """Name what was to go on and does not."""
        plan = self._plan
        node, verdict, _ = next((step for step in reversed(way.path) if step.verdict is not None), Step("", None))
        after = f"after {f'{node}: {words(verdict)}'!r} " if verdict is not None else ""
        held = sorted(name for name in plan.nodes.keys() - run if name in way.opened or plan.reads[name] & run)
        if not held:
            return f"{node}: {after}no score is reached; let every way end in one"
        name = held[0]
        missing = sorted(plan.reads[name] - run)
        why = f"waits for {missing[0]}, which does not run then" if missing else "runs only where a verdict leads to it"
        return f"{name}: {after}no score is reached, as this node {why}; let every way end in one score"
