"""The parts of a decision tree.

Knows what there is to say of a node; knows neither how it is written nor how it is evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_eval.interfaces import Scorer
from otel_eval.scorers.cel import Program
from otel_eval.scorers.wording import tool

__all__ = ["PARTS", "Node", "Nodes", "Verdict", "words"]

PARTS: Final = ("input", "output", "calls", "reference")
"""What a judge may be shown of a run."""


def words(verdict: bool | str) -> str:
    """A verdict as it is written in YAML."""
    return str(verdict).lower() if isinstance(verdict, bool) else verdict


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a decision may come to, and what follows: exactly one of a score, a node and a scorer.

    Attributes:
        verdict: true or false of a binary decision, one of the texts of a choice.
        score: 0 to 10.
        then: the name of the node that goes on.
        scorer: the scorer whose score it is.
    """

    verdict: bool | str
    score: float | None = None
    then: str | None = None
    scorer: Scorer | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """A task or a decision.

    Attributes:
        name: unique in its tree.
        kind: `task`, `binary` or `choice`.
        program: the expression that decides, or None.
        asks: what a judge is asked, or None.
        reads: what the judge is shown: some of `PARTS` and labels.
        label: what the output of a task is called, or "".
        children: of a task, the names of the nodes that read its output.
        verdicts: of a decision; `by_verdict` finds one. `verdict_type` is what they are, so that 1 is not taken for true.
        said: how an explanation tells that it came to a verdict; None for the output of a task.
    """

    name: str
    kind: str
    program: Program | None = None
    asks: str | None = None
    reads: tuple[str, ...] = ()
    label: str = ""
    children: tuple[str, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    by_verdict: Mapping[bool | str, Verdict] = field(init=False, repr=False, compare=False)
    verdict_type: type = field(init=False, repr=False, compare=False)
    said: Mapping[bool | str | None, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        said = {each.verdict: f"{tool(self.name)}: {tool(words(each.verdict))}" for each in self.verdicts}
        object.__setattr__(self, "by_verdict", {each.verdict: each for each in self.verdicts})
        object.__setattr__(self, "verdict_type", bool if self.kind == "binary" else str)
        object.__setattr__(self, "said", {None: tool(self.name), **said})

    @property
    def successors(self) -> tuple[str, ...]:
        """The nodes that it leads to, each once."""
        led = [*self.children, *(verdict.then for verdict in self.verdicts if verdict.then is not None)]
        return tuple(dict.fromkeys(led))

    @property
    def named(self) -> frozenset[str]:
        """What it looks at, by name: parts of a run, labels."""
        return frozenset(self.reads) if self.program is None else self.program.reading.names


@dataclass(frozen=True, slots=True)
class Nodes:
    """The tasks and decisions of a tree by name, and the verdicts that were written beside them."""

    by_name: Mapping[str, Node]
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)

    @property
    def labels(self) -> dict[str, Node]:
        """The tasks by the label of their output."""
        return {node.label: node for node in self.by_name.values() if node.label}
