"""Resolve the references between a tree's nodes, and see that every run reaches exactly one verdict with a score.

Names, labels and expressions are resolved; cycles are refused. The walk is tried with every verdict of every decision; what can
no longer make a difference is dropped from the state, so that paths that meet again are followed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.scorers.cel.program import compiled
from otel_eval.scorers.dag.parse import NODE, PARTS, TYPES, Node, Nodes, NodeSpec, Verdict, parse_nodes, words
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
    return Nodes(joined.made, {name: node.verdict for name, node in given.items() if node and node.verdict})


class _Resolver:
    """The nodes that could be made, and what is wrong with the others and between them."""

    def __init__(self, key: str, given: Mapping[str, NodeSpec | None], unusable: Mapping[str, Any]) -> None:
        self._key = key
        self._names: Final = [*given]
        self._given: Final = {name: node for name, node in given.items() if node is not None}
        self.problems: list[str] = []
        self.made: dict[str, Node] = {}
        for name, node in self._given.items():
            if node.kind != "verdict":
                self.made[name] = self._joined(name, node)
        self._labels = self._distinct_labels()
        order = self._order()
        whole = order is not None and len(given) == len(self._given)
        self._above = ancestors(self.made) if whole else {}
        unsure = {_label(str(name), each) for name, each in unusable.items()} - TYPES  # YAML's names may be numbers
        types: dict[str, Any] = dict.fromkeys([*self._labels, *sorted(unsure)])
        for name in order or self.made:
            self._compile(name, types)
            self._check_reads(name, types)
        for name, each in unusable.items():
            self._check_cel(f"{self._key}.{name}.cel", each, types)

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
            if self._is_verdict(child):
                self.problems.append(
                    f"{where}: {redacted_repr(child)} is a verdict, and a task decides nothing; name a task, binary or choice"
                )
            yield child

    def _verdicts(self, place: str, node: NodeSpec) -> Iterator[Verdict]:
        for at, child in enumerate(node.children):
            where = f"{place}.children[{at}]"
            if isinstance(child, Verdict):
                yield child
            elif self._known(where, child) and child in self._given:
                verdict = self._given[child].verdict
                if verdict is not None:
                    yield verdict
                else:
                    said = "true" if node.kind == "binary" else "…"
                    self.problems.append(
                        f"{where}: {redacted_repr(child)} is no verdict; write {{verdict: {said}, then: {child}}}"
                    )

    def _known(self, where: str, name: str) -> bool:
        if name in self._names:
            return True
        self.problems.append(f"{where}: there is no node {redacted_repr(name)}; {did_you_mean(name, self._names)}")
        return False

    def _is_verdict(self, name: str) -> bool:
        node = self._given.get(name)
        return node is not None and node.kind == "verdict"

    def _check_then(self, where: str, verdict: Verdict) -> None:
        if verdict.then is None or not self._known(where, verdict.then):
            return
        if self._is_verdict(verdict.then):
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
        if source is None:
            return
        where = f"{self._key}.{name}.cel"
        try:
            program = compiled(where, source, types)
        except ConfigError as error:
            self.problems += error.problems
            return
        allowed, wanted = _GIVES.get(node.kind, ((program.returns,), ""))
        if program.returns not in allowed:
            self.problems.append(f"{where}: gives {program.returns}, not {wanted}; compare it with something, or convert it")
        self.made[name] = replace(node, program=program)
        if node.label:
            types[node.label] = program.type

    def _check_cel(self, where: str, given: Any, types: Mapping[str, Any]) -> None:
        """The expression of a node that cannot be used because of something else."""
        source = given.get("cel") if isinstance(given, Mapping) else None
        try:
            if isinstance(source, str) and source.strip():
                compiled(where, source, types)
        except ConfigError as error:
            self.problems += error.problems

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


def ancestors(made: Mapping[str, Node]) -> dict[str, frozenset[str]]:
    """All nodes that lead to each, however far. There must be no cycle."""
    before: dict[str, set[str]] = {name: set() for name in made}
    for name, node in made.items():
        for each in node.successors:
            before.get(each, set()).add(name)
    found: dict[str, frozenset[str]] = {}

    def above(name: str) -> frozenset[str]:
        if name not in found:
            found[name] = frozenset(before[name]).union(*(above(each) for each in before[name]))
        return found[name]

    for name in made:
        above(name)
    return found


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
            # Two walks that agree in what can still make a difference go on alike: the second is not followed.
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
            # A task may make others ready, so this is repeated until nothing more can run.
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
