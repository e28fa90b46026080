"""The nodes of a decision tree, and their parser, which reads the mapping of a specification."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainValidator,
    Tag,
    WithJsonSchema,
)

from otel_eval.errors import ConfigError, did_you_mean, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.scorers.build import create_scorer
from otel_eval.scorers.cel import Program
from otel_eval.scorers.parameters import AsWritten, FullText, Name, Text
from otel_eval.scorers.values import text_of
from otel_eval.validation import (
    MAPPING,
    OTHER,
    TEXT,
    Flag,
    Items,
    ReadAs,
    Record,
    Some,
    Words,
    kind_of,
    one_of,
    own_words,
    tag,
)

PARTS: Final = ("input", "output", "calls", "reference")
"""The parts of a run that may be shown to a judge."""


@dataclass(frozen=True, slots=True)
class NodeVerdict:
    """A possible result of a decision, and what follows: exactly one of a score, a node and a
    scorer.

    Attributes:
        verdict: true or false for a binary decision, one of the texts of a choice.
        score: 0 to 10.
        then: the name of the next node.
        scorer: the scorer that gives the score.
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
        cel: the source of the node's expression, or None; `program` is the compiled expression.
        asks: the instructions or criteria for a judge, or None.
        reads: what is shown to the judge: some of `PARTS`, and labels.
        label: the name of a task's output in expressions, with `_` for blanks, or "".
        children: the names of the nodes that read a task's output.
        verdicts: the verdicts of a decision; `by_verdict` maps their values to them.
    """

    name: str
    kind: str
    cel: str | None = None
    asks: str | None = None
    reads: tuple[str, ...] = ()
    label: str = ""
    children: tuple[str, ...] = ()
    verdicts: tuple[NodeVerdict, ...] = ()
    program: Program | None = None
    by_verdict: Mapping[bool | str, NodeVerdict] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self, "by_verdict", {verdict.verdict: verdict for verdict in self.verdicts}
        )

    @property
    def successors(self) -> tuple[str, ...]:
        """The names of the nodes that it leads to, each once."""
        led = [
            *self.children,
            *(verdict.then for verdict in self.verdicts if verdict.then is not None),
        ]
        return tuple(dict.fromkeys(led))

    @property
    def named(self) -> frozenset[str]:
        """The names of what it reads: parts of a run, and labels."""
        return frozenset(self.reads) if self.program is None else self.program.reading.names


_NO_SUCCESSOR: Final = (
    "is not the name of a node or a scorer; write e.g. name, or {scorer: {type: tool_errors}}"
)


def _build_further_scorer(spec: Any) -> Scorer:
    """Build the scorer to which a verdict leads."""
    scorer = create_scorer(spec)
    # it would be ignored: every run that reaches the scorer is scored
    if getattr(scorer, "sample", 1.0) < 1:
        raise ConfigError("sample: a tree is sampled as a whole; write sample beside its root")
    return scorer


@dataclass
class _Further:
    """`{scorer: specification}`."""

    scorer: Annotated[
        Scorer, PlainValidator(_build_further_scorer), WithJsonSchema({"type": "object"})
    ]


def _kind_of_successor(value: object) -> str | None:
    return OTHER if isinstance(value, Scorer) and not isinstance(value, type) else kind_of(value)


_Successor = Annotated[
    str | Scorer,
    ReadAs(
        one_of(
            {
                TEXT: Annotated[Name, Words(_NO_SUCCESSOR)],
                MAPPING: Annotated[_Further, Record(), AfterValidator(lambda end: end.scorer)],
                OTHER: Annotated[Any, WithJsonSchema({"type": "object"})],
            },
            _kind_of_successor,
        )
    ),
    Words(_NO_SUCCESSOR),
]
_Score = Annotated[
    float,
    Field(strict=True, ge=0, le=10),
    Words("is not a score from 0 to 10; write e.g. 10"),
    AsWritten,
]


_VerdictValue = Annotated[
    bool | str,
    ReadAs(one_of({OTHER: Flag, TEXT: FullText})),
    Words("is not a verdict; write true, false or a text in quotes"),
]


@dataclass
class WrittenVerdict:
    """A verdict as it is written among the children of a decision."""

    verdict: _VerdictValue
    score: _Score | None = None
    then: _Successor | None = None

    def __post_init__(self) -> None:
        """Check what follows.

        Raises:
            ConfigError: nothing does, or two things.
        """
        if (self.score is None) == (self.then is None):
            problem = "has no score" if self.then is None else "has both a score and a successor"
            raise ValueError(
                f"the verdict {text_of(self.verdict)!r} {problem}; write score: 0 to 10, or then: a"
                " node"
            )

    def read(self) -> NodeVerdict:
        """The verdict of a node."""
        if isinstance(self.then, str):
            return NodeVerdict(self.verdict, self.score, then=self.then)
        return NodeVerdict(self.verdict, self.score, scorer=self.then)


@dataclass
class _VerdictNode(WrittenVerdict):
    """A verdict that is a node, so that several decisions may have it."""

    type: Literal["verdict"] = "verdict"


_Reads = Annotated[
    Items[Annotated[str, Field(strict=True)]],
    Words("is not a list of what is read; write e.g. [output]"),
]


@dataclass(kw_only=True)
class _Written:
    """What tasks and decisions have in common, as it is written."""

    type: str
    cel: Text | None = None
    reads: _Reads | None = None

    asks_by: ClassVar[str] = "criteria"

    @property
    def asks(self) -> str | None:
        """The instructions or criteria for a judge."""
        asks: str | None = getattr(self, self.asks_by)
        return asks

    def __post_init__(self) -> None:
        """Check how the node is decided.

        Raises:
            ConfigError: neither by an expression nor by a judge, or by both; or an expression has
                `reads`.
        """
        if (self.cel is None) == (self.asks is None):
            problem = (
                f"missing; write an expression, or {self.asks_by} for a judge"
                if self.cel is None
                else f"stands beside {self.asks_by}; keep one"
            )
            raise ConfigError(f"cel: {problem}")
        if self.cel is not None and self.reads is not None:
            raise ConfigError("reads: an expression determines what it reads; leave reads out")


_NO_TASK_CHILD: Final = (
    "is not the name of a task, binary or choice; name one; a verdict follows a decision only"
)


@dataclass(kw_only=True)
class _Task(_Written):
    asks_by: ClassVar[str] = "instructions"

    type: Literal["task"]
    instructions: Text | None = None
    output_label: Annotated[str, Field(strict=True)] | None = None
    children: Annotated[
        Some[Annotated[Name, Words(_NO_TASK_CHILD)]],
        Words("is not a list of the nodes that read the output; write e.g. [checked]"),
    ]


_Child = Annotated[
    str | WrittenVerdict,
    ReadAs(one_of({TEXT: Name, MAPPING: Annotated[WrittenVerdict, Record()]})),
    Words("is not a verdict; write e.g. {verdict: true, then: name-of-a-node}"),
]
_EXAMPLES: Final = {
    "binary": "[{verdict: true, score: 10}, {verdict: false, score: 0}]",
    "choice": "[{verdict: good, score: 10}, {verdict: bad, score: 0}]",
}


_NO_VERDICTS: Final = (
    "is not a list of verdicts; write e.g. [{verdict: …, score: 10}, {verdict: …, score: 0}]"
)


@dataclass(kw_only=True)
class _Decision(_Written):
    type: Literal["binary", "choice"]
    criteria: Text | None = None
    children: Annotated[Items[_Child], Words(_NO_VERDICTS)] = ()


_KINDS: Final = ("task", "binary", "choice", "verdict")


def _check_kind(value: object) -> object:
    if not isinstance(value, Mapping):
        raise own_words("is not a node; write a mapping, e.g. {type: task, cel: …, children: […]}")
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise ConfigError(
            f"type: {redacted_repr(kind)} is not a kind of node; {did_you_mean(kind, _KINDS)}"
        )
    return value


WrittenNode = Annotated[
    Annotated[_Task, Record(), Tag(tag("task"))]
    | Annotated[_Decision, Record(), Tag(OTHER)]
    | Annotated[_VerdictNode, Record(), Tag(tag("verdict"))],
    Discriminator(lambda node: tag(node["type"]) if node["type"] in ("task", "verdict") else OTHER),
    BeforeValidator(_check_kind),
]
"""A node as it is written."""
WrittenNodes = Annotated[
    dict[Text, WrittenNode],
    Field(min_length=1),
    Words(
        "is not a mapping of names to nodes; write e.g. {found: {type: binary, cel: …, children:"
        " …}}"
    ),
]
"""The nodes of a tree as they are written; which nodes they lead to is not checked."""


_WANTED: Final = {
    "binary": "one verdict true and one false",
    "choice": "one or more texts, each once",
}
_LEAST: Final = {"binary": 2, "choice": 1}
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# The variables of expressions, the names of CEL's types, and its reserved words (language
# definition, "Syntax").
_RESERVED: Final = frozenset(
    {
        *PARTS,
        "run",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "false",
        "for",
        "function",
        "if",
        "import",
        "in",
        "let",
    }
    | {"loop", "package", "namespace", "null", "return", "true", "var", "void", "while"}
    | {
        "bool",
        "bytes",
        "double",
        "dyn",
        "int",
        "list",
        "map",
        "null_type",
        "string",
        "type",
        "uint",
    }
)


def linked_nodes(written_nodes: Mapping[str, WrittenNode]) -> dict[str, Node]:
    """The nodes without the verdicts that are nodes themselves; each leads to nodes that exist.

    Raises:
        ConfigError: with every problem of every node, as `.name.key: …`.
    """
    problems = link_problems(written_nodes)
    if problems:
        raise ConfigError(*problems)
    verdicts = {
        name: node.read() for name, node in written_nodes.items() if isinstance(node, _VerdictNode)
    }
    nodes = {
        name: _linked(name, node, verdicts)
        for name, node in written_nodes.items()
        if not isinstance(node, _VerdictNode)
    }
    used_ids = {id(verdict) for node in nodes.values() for verdict in node.verdicts}
    unused = [name for name, verdict in verdicts.items() if id(verdict) not in used_ids]
    if unused:
        raise ConfigError(
            *(
                f".{name}: no decision has this verdict; name it among the children of one"
                for name in unused
            )
        )
    return nodes


def _linked(name: str, node: _Task | _Decision, verdicts: Mapping[str, NodeVerdict]) -> Node:
    """The node of a written one, whose names are those of other nodes."""
    reads = tuple(dict.fromkeys(map(_variable, node.reads or ())))
    linked = Node(name, node.type, node.cel, node.asks, reads)
    if isinstance(node, _Task):
        children = tuple(dict.fromkeys(node.children))
        return replace(linked, label=_variable(_label(name, node)), children=children)
    children_verdicts = tuple(
        verdicts[child] if isinstance(child, str) else child.read() for child in node.children
    )
    return replace(linked, verdicts=children_verdicts)


def _variable(label: str) -> str:
    """The name of an output in expressions and in what judges see: its label, with `_` for
    blanks.
    """
    return "_".join(label.split())


def _label(name: str, node: _Task) -> str:
    """The label of a task's output as it is written; the name of the task if there is none."""
    return name if node.output_label is None else node.output_label


NodesByName = Mapping[str, WrittenNode | None]
"""Nodes; None for those that are invalid by themselves."""


def link_problems(nodes: NodesByName) -> list[str]:
    """Every problem of the names by which nodes lead to others, as `.name.key: …`; cycles
    are found later.
    """
    return [
        f".{name}.{problem}"
        for name, node in nodes.items()
        if node is not None
        for problem in _problems_of(name, node, nodes)
    ]


def _problems_of(name: str, node: WrittenNode, nodes: NodesByName) -> Iterator[str]:
    if isinstance(node, _VerdictNode):
        yield from _successor_problems("then", node, nodes)
    elif isinstance(node, _Task):
        yield from _task_problems(name, node, nodes)
    else:
        problems = [
            problem
            for at, child in enumerate(node.children)
            for problem in _child_problems(f"children[{at}]", child, node, nodes)
        ]
        yield from problems or _verdict_problems(node, nodes)


def _task_problems(name: str, node: _Task, nodes: NodesByName) -> Iterator[str]:
    """Problems of a task's label and children."""
    label = _label(name, node)
    variable = _variable(label)
    if not _IDENTIFIER.fullmatch(variable) or variable in _RESERVED:
        yield (
            f"output_label: {redacted_repr(label)} is not a name of letters, digits, _ and blanks"
            " that is free in expressions; write e.g. found"
        )
    for at, child in enumerate(node.children):
        if isinstance(nodes.get(child), _VerdictNode):
            yield f"children[{at}]: {redacted_repr(child)} {_NO_TASK_CHILD}"
        elif child not in nodes:
            yield _unknown_node_problem(f"children[{at}]", child, nodes)


def _child_problems(
    key: str, child: str | WrittenVerdict, node: _Decision, nodes: NodesByName
) -> Iterator[str]:
    """Problems of one child of a decision."""
    if isinstance(child, WrittenVerdict):
        yield from _successor_problems(f"{key}.then", child, nodes)
    elif child not in nodes:
        yield _unknown_node_problem(key, child, nodes)
    elif not isinstance(nodes[child], _VerdictNode | None):
        example = "true" if node.type == "binary" else "…"
        yield (
            f"{key}: {redacted_repr(child)} is no verdict; write {{verdict: {example}, then:"
            f" {child}}}"
        )


def _verdict_problems(node: _Decision, nodes: NodesByName) -> Iterator[str]:
    """Problems of the verdicts of a decision as a whole."""
    children = [nodes[child] if isinstance(child, str) else child for child in node.children]
    values = [child.verdict for child in children if isinstance(child, WrittenVerdict)]
    if len(values) < len(children):  # one of them is invalid by itself
        return
    expected = bool if node.type == "binary" else str
    if (
        not all(isinstance(value, expected) for value in values)
        or len({*values}) < len(values)
        or len(values) < _LEAST[node.type]
    ):
        yield (
            f"children: {json.dumps(values, ensure_ascii=False)} are not {_WANTED[node.type]};"
            f" write e.g. {_EXAMPLES[node.type]}"
        )


def _successor_problems(key: str, verdict: WrittenVerdict, nodes: NodesByName) -> Iterator[str]:
    """Problems of the name of the node to which a verdict leads."""
    if not isinstance(verdict.then, str):
        return
    if verdict.then not in nodes:
        yield _unknown_node_problem(key, verdict.then, nodes)
    elif isinstance(nodes[verdict.then], _VerdictNode):
        yield f"{key}: {redacted_repr(verdict.then)} is a verdict itself; write its score here"


def _unknown_node_problem(key: str, name: str, nodes: NodesByName) -> str:
    return f"{key}: there is no node {redacted_repr(name)}; {did_you_mean(name, nodes.keys())}"
