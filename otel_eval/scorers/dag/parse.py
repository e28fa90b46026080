"""The nodes of a decision tree, and reading them from the mapping of a specification."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from otel_eval.errors import ConfigError, collect_errors, did_you_mean, nearest, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.scorers.build import create_scorer
from otel_eval.scorers.cel import Program
from otel_eval.scorers.parameters import STRING, Schema, check_keys, each_of, invalid_value, text
from otel_eval.scorers.tool_names import tool

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
        said: the words of an explanation by verdict; by None for the output of a task.
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


_KINDS: Final = {
    "task": ("cel", "instructions", "reads", "output_label", "children"),
    "binary": ("cel", "criteria", "reads", "children"),
    "choice": ("cel", "criteria", "reads", "children"),
    "verdict": ("verdict", "score", "then"),
}
_VERDICT: Final[Schema] = {
    "type": "object",
    "properties": {
        "verdict": {"type": ["boolean", "string"]},
        "score": {"type": "number", "minimum": 0, "maximum": 10},
        "then": {"anyOf": [STRING, {"type": "object"}]},
    },
    "required": ["verdict"],
}
NODE: Final[Schema] = {
    "type": "object",
    "properties": {
        "type": {"enum": [*_KINDS]},
        **dict.fromkeys(("cel", "instructions", "criteria", "output_label"), STRING),
        "reads": {"type": "array"},
        "children": {"type": "array", "items": {"anyOf": [STRING, _VERDICT]}},
        **_VERDICT["properties"],
    },
    "required": ["type"],
    "additionalProperties": False,
}
"""The JSON Schema of a node."""
_ASKS: Final = {"task": "instructions", "binary": "criteria", "choice": "criteria"}
_EXAMPLES: Final = {
    "binary": "[{verdict: true, score: 10}, {verdict: false, score: 0}]",
    "choice": "[{verdict: good, score: 10}, {verdict: bad, score: 0}]",
}
_MOST_NODES: Final = 200
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
TYPES: Final = frozenset({"bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"})
"""The names of CEL's types: nothing else can be called so."""
# What expressions know already, and the reserved words of CEL (language definition, "Syntax").
_RESERVED: Final = TYPES | frozenset(
    {*PARTS, "run", "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let"}
    | {"loop", "package", "namespace", "null", "return", "true", "var", "void", "while"}
)


@dataclass(frozen=True, slots=True)
class NodeSpec:
    """A node as it is written, each value of its key usable by itself.

    Attributes:
        cel: the expression's source, not yet checked.
        children: names; of a decision also verdicts.
    """

    kind: str
    cel: str | None = None
    asks: str | None = None
    reads: tuple[str, ...] = ()
    label: str = ""
    children: tuple[str | Verdict, ...] = ()


def parse_nodes(key: str, value: Any) -> tuple[dict[str, NodeSpec | Verdict | None], list[str]]:
    """The nodes by name, None for one that cannot be used, and the problems of these.

    Raises:
        ConfigError: they are no nodes at all.
    """
    if not isinstance(value, Mapping) or not value:
        raise invalid_value(
            key, value, "a mapping of names to nodes", f"write e.g. {key}: {{found: {{type: binary, cel: …, children: …}}}}"
        )
    if len(value) > _MOST_NODES:
        raise ConfigError(f"{key}: {len(value)} nodes are more than {_MOST_NODES}; let a verdict lead to a scorer of type dag")
    found: dict[str, NodeSpec | Verdict | None] = {}
    problems: list[str] = []
    for name, given in value.items():
        try:
            found[name] = _named(key, name, given)
        except ConfigError as error:
            found[name] = None
            problems += error.problems
    return found, problems


def _named(key: str, name: Any, given: Any) -> NodeSpec | Verdict:
    if not isinstance(name, str) or not name.strip():
        raise invalid_value(key, name, "the name of a node", "write a text")
    return _node(f"{key}.{name}", name, given)


def _node(key: str, name: str, given: Any) -> NodeSpec | Verdict:
    if not isinstance(given, Mapping):
        raise invalid_value(key, given, "a node", "write a mapping, e.g. {type: task, cel: …, children: […]}")
    kind = given.get("type")
    if kind is None:
        raise ConfigError(f"{key}.type: missing; write one of {', '.join(_KINDS)}")
    if not isinstance(kind, str) or kind not in _KINDS:
        said = str(invalid_value(f"{key}.type", kind, "a kind of node", did_you_mean(kind, [*_KINDS])))
        raise ConfigError(said, *_problems_as(nearest(kind, _KINDS), key, name, given))
    if kind == "verdict":
        return _verdict(key, {k: v for k, v in given.items() if k != "type"})
    reading: list[Callable[[], Any]] = [
        partial(check_keys, given, ("type", *_KINDS[kind]), f"{key}."),
        partial(_how, key, kind, given),
        partial(_reads, f"{key}.reads", given),
        partial(_label, f"{key}.output_label", name, given) if kind == "task" else str,
        partial(_children, f"{key}.children", kind, given),
    ]
    _, (cel, asks), reads, label, children = collect_errors(reading)
    return NodeSpec(kind, cel, asks, reads, label, children)


def _problems_as(kind: str | None, key: str, name: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    """What else is wrong with a node, if it was meant to be of that kind."""
    try:
        if kind is not None:
            _node(key, name, {**given, "type": kind})
    except ConfigError as error:
        return error.problems
    return ()


def _how(key: str, kind: str, given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """The expression or what a judge is asked."""
    asks = _ASKS[kind]
    if ("cel" in given) == (asks in given):
        said = f"stands beside {asks}; keep one" if "cel" in given else f"missing; write an expression, or {asks} for a judge"
        raise ConfigError(f"{key}.cel: {said}")
    if "cel" in given:
        if "reads" in given:
            raise ConfigError(f"{key}.reads: an expression determines what it reads; leave reads out")
        return text(f"{key}.cel", given["cel"]), None
    return None, text(f"{key}.{asks}", given[asks])


def _reads(key: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    value = given.get("reads", ())
    if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
        raise invalid_value(key, value, "a list of what is read", f"write e.g. {key}: [output]")
    return tuple(dict.fromkeys(value))


def _label(key: str, name: str, given: Mapping[str, Any]) -> str:
    label = given.get("output_label", name)
    if isinstance(label, str) and _IDENTIFIER.fullmatch(label) and label not in _RESERVED:
        return label
    if isinstance(label, str) and label in _RESERVED:
        raise ConfigError(f"{key}: {redacted_repr(label)} means something else in expressions; write e.g. {key}: found_{label}")
    remedy = f"write e.g. {key}: headings"
    raise invalid_value(key, label, "a name of letters, digits and _", remedy)


def _children(key: str, kind: str, given: Mapping[str, Any]) -> tuple[str | Verdict, ...]:
    value = given.get("children", ())
    if kind == "task":
        if isinstance(value, str) or not isinstance(value, Sequence) or not all(isinstance(each, str) for each in value):
            raise invalid_value(key, value, "a list of names of nodes", f"write e.g. {key}: [checked]")
        if not value:
            raise ConfigError(f"{key}: missing; a task is no end, name the nodes that read its output")
        return tuple(dict.fromkeys(value))
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise invalid_value(key, value, "a list of verdicts", f"write e.g. {key}: {_EXAMPLES[kind]}")
    return each_of(key, value, _child)


def _child(key: str, given: Any) -> str | Verdict:
    if isinstance(given, str):
        return given
    if isinstance(given, Mapping) and "type" not in given:
        return _verdict(key, given)
    raise invalid_value(key, given, "a verdict", "write e.g. {verdict: true, then: name-of-a-node}")


def _verdict(key: str, given: Mapping[str, Any]) -> Verdict:
    reading: list[Callable[[], Any]] = [partial(check_keys, given, _KINDS["verdict"], f"{key}.")]
    reading += [partial(read, f"{key}.{word}", given) for word, read in (("verdict", _said), ("score", _score), ("then", _then))]
    _, said, score, then = collect_errors(reading)
    if (score is None) == (then is None):
        wrongly = (
            "has both a score and a successor; keep one"
            if then is not None
            else "has no score; write score: 0 to 10, or then: a node"
        )
        raise ConfigError(f"{key}: the verdict {words(said)!r} {wrongly}")
    return Verdict(said, score, then if isinstance(then, str) else None, then if isinstance(then, Scorer) else None)


def _said(key: str, given: Mapping[str, Any]) -> bool | str:
    said = given.get("verdict")
    if isinstance(said, bool) or (isinstance(said, str) and said.strip()):
        return said
    if said is None:
        raise ConfigError(f"{key}: missing; write true, false or a text")
    raise invalid_value(key, said, "a verdict", "write true, false or a text in quotes")


def _score(key: str, given: Mapping[str, Any]) -> float | None:
    score = given.get("score")
    if score is None:
        return None
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 10:
        raise invalid_value(key, score, "a score from 0 to 10", f"write e.g. {key}: 10")
    return score


def _then(key: str, given: Mapping[str, Any]) -> str | Scorer | None:
    then = given.get("then")
    if then is None or (isinstance(then, str) and then) or (isinstance(then, Scorer) and not isinstance(then, type)):
        return then
    if not isinstance(then, Mapping) or {*then} != {"scorer"}:
        raise invalid_value(
            key, then, "the name of a node or a scorer", f"write e.g. {key}: name, or {key}: {{scorer: {{type: tool_errors}}}}"
        )
    try:
        further = create_scorer(then["scorer"])
    except ConfigError as error:
        raise ConfigError(*(f"{key}.scorer.{problem}" for problem in error.problems)) from error
    if getattr(further, "sample", 1.0) < 1:  # it would be asked about every run that comes to it, and cost so much
        raise ConfigError(f"{key}.scorer.sample: a tree is sampled as a whole; write sample beside its root")
    return further
