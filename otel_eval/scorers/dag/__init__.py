"""A decision tree as a scorer, and as a Mermaid flowchart
(https://mermaid.js.org/syntax/flowchart.html).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from operator import or_
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.model import Failed, Outcome, Scored, Skipped, Trajectory
from otel_eval.records import frozen_record
from otel_eval.scorers.base_scorer import Finding, ReferencedScorer, Requirements
from otel_eval.scorers.build import is_own_scorer
from otel_eval.scorers.cel import ExpressionEvaluator
from otel_eval.scorers.cel.binding import Bindings
from otel_eval.scorers.cel.vocabulary import FieldsRead
from otel_eval.scorers.dag.parse import Node, NodeVerdict
from otel_eval.scorers.dag.resolve import CoverageSearch, Nodes
from otel_eval.scorers.dag.walk import (
    NodeAnswer,
    Step,
    TreePlan,
    WalkResult,
    ask_node,
    data_for,
    run_to_end,
    walk,
)
from otel_eval.scorers.judge import AskingScorer, JudgeSpec
from otel_eval.scorers.outcomes import checked_outcome, prefixed
from otel_eval.scorers.parameters import Name
from otel_eval.scorers.registry import scorer
from otel_eval.scorers.tool_names import shortened, tool, tool_names_of
from otel_eval.scorers.user_code import private_copy
from otel_eval.scorers.values import text_of
from otel_eval.validation import LIST, TEXT, Flag, ReadAs, Share, Some, Words, one_of

_MOST_LISTED: Final = 30  # steps of a path in the explanation
_INSTRUCTIONS: Final = {
    "task": (
        "You extract something from what an agent's run recorded, for others to judge by. Do this"
        " and nothing else:"
    ),
    "binary": "You decide one question about an agent's run, by these criteria alone:",
    "choice": "You decide one question about an agent's run, by these criteria alone:",
}
_NEEDS: Final = {"input": {"content"}, "output": {"content"}, "calls": {"arguments", "results"}}


_Roots = Annotated[
    tuple[str, ...],
    ReadAs(
        one_of({TEXT: Annotated[Name, AfterValidator(lambda name: (name,))], LIST: Some[Name]}),
        lambda names: tuple(dict.fromkeys(names)),
    ),
    Words("is not the name of a node; write e.g. the-first-node, or a list of names"),
]


@scorer("dag")
@frozen_record
class Dag(AskingScorer, ReferencedScorer):
    """The score at the end of a path through a tree of decisions. 1 is best, range 0-1.

    Each node is decided by an expression or by a judge. The score of the verdict that is reached /
    10, or the score of the scorer that it leads to; `strict: true`: below 10 is 0. The explanation
    is the path that was taken. Details: `path` [{node, verdict}], `score` or `scorer` (`name`,
    `type`, `details`). Skipped: a node on the path reads what was not recorded. How nodes are
    written, joined and checked: [dag.md](dag.md).

    Attributes:
        nodes: the nodes by name.
        root: the node, or nodes, to begin with.
        judge: the judge of nodes with `instructions` or `criteria`, see
            [judges.md](../how-to/judges.md).
        reference: what `reference` stands for, see [References](#references).
        sample: in a tree with judges: the share of traces that are scored, chosen by trace id.
        include_content: `true` includes the judges' reasons in explanation and details.

    Example:
        type: dag
        root: few
        nodes:
          few:
            type: binary
            cel: calls.size() <= 5
            children:
              - {verdict: true, score: 10}
              - {verdict: false, then: {scorer: {type: redundant_calls}}}

    >>> from otel_eval.scorers import create_scorer
    >>> from otel_eval.testing import call, trajectory
    >>> leaves = [{"verdict": True, "score": 10}, {"verdict": False, "score": 4}]
    >>> few = {"type": "binary", "cel": "calls.size() <= 1", "children": leaves}
    >>> create_scorer({"type": "dag", "root": "few", "nodes": {"few": few}})(
    ...     trajectory(call("search"))
    ... ).explanation
    'few: true → 10 of 10'
    """

    default_threshold: ClassVar[float] = 0.5  # a leaf with a score of 5 or more passes

    nodes: Nodes
    root: _Roots
    judge: JudgeSpec | None = None
    sample: Share = 1.0
    include_content: Flag = False
    plan: TreePlan = field(init=False, repr=False, compare=False)
    reading: FieldsRead = field(init=False, repr=False, compare=False)
    scorers: tuple[Scorer, ...] = field(init=False, repr=False, compare=False)
    asynchronous: bool = field(init=False, repr=False, compare=False)

    def prepare(self) -> None:
        """Check roots, coverage, judge and reference.

        Raises:
            ConfigError: with every problem.
        """
        nodes = self.nodes
        problems = self._root_problems()
        if not problems:
            self._set("plan", TreePlan(nodes, self.root))
            problems = [f"nodes.{problem}" for problem in CoverageSearch(self.plan).problems]
        problems += self._missing_parameters()
        if problems:
            raise ConfigError(*dict.fromkeys(problems))
        programs = [node.program for node in nodes.values() if node.program is not None]
        self._set("reading", reduce(or_, [program.reading for program in programs], FieldsRead()))
        verdicts = [verdict for node in nodes.values() for verdict in node.verdicts]
        self._set(
            "scorers", tuple(verdict.scorer for verdict in verdicts if verdict.scorer is not None)
        )
        waits = bool(self.plan.judge_nodes) or any(
            getattr(scorer, "asynchronous", False) for scorer in self.scorers
        )
        self._set("asynchronous", waits)

    def _root_problems(self) -> list[str]:
        """Return problems of `root`, which must list exactly the nodes without predecessor; these
        reach all others.
        """
        nodes = self.nodes
        first = nodes.keys() - {
            successor for node in nodes.values() for successor in node.successors
        }
        wrong = [name for name in self.root if name not in first]
        if wrong:
            begin = "is not a task, binary or choice that follows no other node"
            return [
                f"root: {redacted_repr(name)} {begin}; {did_you_mean(name, sorted(first))}"
                for name in wrong
            ]
        lost = sorted(first - {*self.root})
        return [
            f"nodes.{name}: cannot be reached from {', '.join(self.root)}; lead to it or remove it"
            for name in lost
        ]

    def _missing_parameters(self) -> list[str]:
        """Problems of parameters that some node needs and the tree does not have."""
        problems = []
        for name, node in self.nodes.items():
            if node.asks is not None and self.judge is None:
                problems.append(
                    f"judge: missing, and nodes.{name} asks one; name one of `judges`, or write cel"
                    " there"
                )
            if "reference" in node.named and self.reference is None:
                problems.append(
                    f"reference: missing, and nodes.{name} reads it; name the attribute that"
                    " holds it"
                )
        return problems

    def requires(self) -> Requirements:
        """Return what nodes and further scorers read. Calls are not required, since that depends on
        the path.
        """
        shown_to_judges = (
            _NEEDS.get(part, set()) for node in self.nodes.values() for part in node.reads
        )
        needs = self.reading.needs.union(
            *shown_to_judges, *(scorer.needs for scorer in self.scorers)
        )
        further: list[frozenset[str]] = [
            getattr(scorer, "attribute_keys", frozenset()) for scorer in self.scorers
        ]
        return Requirements(
            needs=needs,
            attributes=self.reading.attributes.union(*further),
            calls=False,
            tools=tool_names_of(self.scorers),
        )

    def prompt_for(self, node: Node, data: Mapping[str, Any]) -> str:
        """Return the instruction to a judge for a node. What comes after it in the prompt, the data
        and the form of the answer, is not part of it.

        A subclass may override this. `data` is what the judge is shown; the instruction does not
        depend on it here.
        """
        return f"{_INSTRUCTIONS[node.kind]}\n{node.asks}"

    def drawing(self) -> str:
        """Return the tree as a Mermaid flowchart: tasks are boxes, decisions rhombuses and
        hexagons, scores rounded boxes; dotted arrows carry data.

        The text does not depend on the order of the nodes.
        """
        ids = {name: f"n{at}" for at, name in enumerate(sorted(self.nodes))}
        lines = ["flowchart TD"]
        for part in (_draw_node, _draw_arrows):
            for name in ids:
                lines += part(self.nodes[name], ids)
        return "\n".join(lines) + "\n"

    def find(self, trajectory: Trajectory) -> Finding | Outcome:
        """Return the outcome for one run, for a tree without judges."""
        outcome: Finding | Outcome = run_to_end(self.opinion(trajectory))
        return outcome

    async def opinion(self, trajectory: Trajectory) -> Finding | Outcome:
        """Walk the tree for one run and return the outcome."""
        reference = self.reference_of(trajectory)

        async def ask(node: Node, outputs: Mapping[str, Any]) -> NodeAnswer | Skipped | Failed:
            assert self.judge is not None
            labels = [self.nodes[task].label for task in self.plan.reads[node.name]]
            data = data_for(
                node, trajectory, reference, {label: outputs[label] for label in labels}
            )
            if isinstance(data, Skipped):
                return data
            answer = await ask_node(self.judge, node, self.prompt_for(node, data), data)
            return (
                NodeAnswer(answer.value)
                if isinstance(answer, NodeAnswer) and not self.include_content
                else answer
            )

        evaluation = ExpressionEvaluator(Bindings(self.reading, trajectory, reference))
        return await self._outcome_of(await walk(self.plan, evaluation, ask), trajectory)

    async def _outcome_of(self, walked: WalkResult, trajectory: Trajectory) -> Finding | Outcome:
        end = walked.end
        explained = _path_text(walked.path)
        details: dict[str, Any] = {"path": [_step_detail(step) for step in walked.path]}
        if isinstance(end, NodeVerdict):
            if end.score is None:
                return await _score_by(end.scorer, trajectory, explained, details)
            return Finding(
                end.score / 10,
                f"{explained} → {end.score:g} of 10",
                {**details, "score": end.score},
            )
        return prefixed(end, "", {**details, **end.details})


async def _score_by(
    further: Any, trajectory: Trajectory, explained: str, details: dict[str, Any]
) -> Finding | Outcome:
    """Return the score of the scorer that the last verdict leads to."""
    is_own = is_own_scorer(further)
    run = trajectory if is_own else private_copy(trajectory, further.needs)
    outcome: Outcome = (
        await further.evaluate(run) if getattr(further, "asynchronous", False) else further(run)
    )
    outcome = outcome if is_own else checked_outcome(outcome, further.name)
    details = {
        **details,
        "scorer": {"name": further.name, "type": further.type, "details": dict(outcome.details)},
    }
    if isinstance(outcome, Scored):
        return Finding(
            outcome.value, f"{explained} → {further.name}: {outcome.explanation}", details
        )
    return prefixed(outcome, f"{further.name}: ", details)


def _step_detail(step: Step) -> dict[str, Any]:
    detail: dict[str, Any] = {"node": step.node}
    if step.verdict is not None:
        detail["verdict"] = step.verdict
    return {**detail, "reason": step.reason} if step.reason else detail


def _path_text(path: Sequence[Step]) -> str:
    """The path with its verdicts and reasons, as an explanation lists it."""
    steps = []
    for node, verdict, reason in path[:_MOST_LISTED]:
        text = tool(node) if verdict is None else f"{tool(node)}: {tool(text_of(verdict))}"
        steps.append(f"{text} ({' '.join(reason.split())})" if reason else text)
    if len(path) > _MOST_LISTED:
        steps.append(f"{len(path) - _MOST_LISTED} more")
    return " → ".join(steps)


_SHAPES: Final = {"task": ("[", "]"), "binary": ("{", "}"), "choice": ("{{", "}}")}
_LONGEST: Final = 80
# All characters to escape. ".", "-" and "_" within a word are safe; some versions read "1. x", "-
# x" and "_x_" as Markdown.
_READ: Final = re.compile(r"(?<![^\W_])[._-]|[._-](?![^\W_])|[^\w .,…-]")


def _draw_node(node: Node, ids: Mapping[str, str]) -> Iterator[str]:
    """The lines that draw a node."""
    opening, closing = _SHAPES[node.kind]
    content = f"judge: {node.asks}" if node.program is None else node.program.source
    yield f'    {ids[node.name]}{opening}"{_quoted(node.name)}<br/>{_quoted(content)}"{closing}'


def _draw_arrows(node: Node, ids: Mapping[str, str]) -> Iterator[str]:
    """The lines that draw the arrows from a node."""
    node_id = ids[node.name]
    for child in sorted(node.children):
        yield f'    {node_id} -. "{_quoted(node.label)}" .-> {ids[child]}'
    for at, verdict in enumerate(
        sorted(node.verdicts, key=lambda verdict: text_of(verdict.verdict))
    ):
        yield (
            f'    {node_id} -- "{_quoted(text_of(verdict.verdict))}" -->'
            f" {_draw_end(verdict, f'{node_id}v{at}', ids)}"
        )


def _draw_end(verdict: NodeVerdict, end_id: str, ids: Mapping[str, str]) -> str:
    """The end of an arrow: a node, a further scorer or a score."""
    if verdict.then is not None:
        return ids[verdict.then]
    if verdict.scorer is not None:
        return f'{end_id}[["{_quoted(f"{verdict.scorer.name} ({verdict.scorer.type})")}"]]'
    return f'{end_id}(["{verdict.score:g}"])'


def _quoted(text: str) -> str:
    """Return the text in one line, shortened, with the characters that Mermaid, Markdown or HTML
    interpret as numeric codes.
    """
    return _READ.sub(
        lambda match: f"#{ord(match[0])};", shortened(" ".join(text.split()), _LONGEST)
    )
