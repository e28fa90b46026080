"""The nodes of a decision tree, and their parser, which reads the mapping of a specification."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, TypeVar

from otel_eval.errors import ConfigError, collect_errors, did_you_mean, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.scorers.build import create_scorer
from otel_eval.scorers.cel import Program
from otel_eval.scorers.parameters import STRING, Schema, check_keys, each_of, invalid_value, text
from otel_eval.scorers.tool_names import tool
from otel_eval.scorers.values import text_of

_T = TypeVar("_T")

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
        verdicts: the verdicts of a decision; `by_verdict` maps their values to them. `verdict_type`
            is the type of these values, so that 1 is not accepted as true.
        explained: the text for the explanation, by verdict; by None for a task.
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
    verdict_type: type = field(init=False, repr=False, compare=False)
    explained: Mapping[bool | str | None, str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        explained = {
            each.verdict: f"{tool(self.name)}: {tool(text_of(each.verdict))}"
            for each in self.verdicts
        }
        object.__setattr__(self, "by_verdict", {each.verdict: each for each in self.verdicts})
        object.__setattr__(self, "verdict_type", bool if self.kind == "binary" else str)
        object.__setattr__(self, "explained", {None: tool(self.name), **explained})

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
_WANTED: Final = {
    "binary": "one verdict true and one false",
    "choice": "one or more texts, each once",
}
_LEAST: Final = {"binary": 2, "choice": 1}
_MOST_NODES: Final = 200
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


@dataclass(frozen=True, slots=True)
class _Known:
    """The names of all nodes, and the verdicts that were defined as nodes of their own, with their
    names.
    """

    names: tuple[Any, ...]
    verdicts: Mapping[str, NodeVerdict]
    verdict_names: frozenset[str]

    def check(self, key: str, name: str) -> None:
        """Raise `ConfigError` if no node has this name."""
        if name not in self.names:
            raise ConfigError(
                f"{key}: there is no node {redacted_repr(name)}; {did_you_mean(name, self.names)}"
            )


def parse_nodes(key: str, value: Any) -> dict[str, Node]:
    """Parse the nodes and check that the nodes to which each leads exist.

    Raises:
        ConfigError: with every problem of every node.
    """
    if not isinstance(value, Mapping) or not value:
        raise invalid_value(
            key,
            value,
            "a mapping of names to nodes",
            f"write e.g. {key}: {{found: {{type: binary, cel: …, children: …}}}}",
        )
    if len(value) > _MOST_NODES:
        raise ConfigError(
            f"{key}: {len(value)} nodes are more than {_MOST_NODES}; let a verdict lead to a scorer"
            " of type dag"
        )
    ends = {
        name: given
        for name, given in value.items()
        if isinstance(given, Mapping) and given.get("type") == "verdict"
    }
    known = _Known(tuple(value), {}, frozenset(ends))
    verdicts = _each(key, ends, partial(_named_verdict, known))
    known = replace(known, verdicts=verdicts)
    others = {name: given for name, given in value.items() if name not in ends}
    found = _each(key, others, partial(_node, known))
    used = {id(verdict) for node in found.values() for verdict in node.verdicts}
    unused = [name for name, verdict in verdicts.items() if id(verdict) not in used]
    if unused:
        raise ConfigError(
            *(
                f"{key}.{name}: no decision has this verdict; name it among the children of one"
                for name in unused
            )
        )
    return found


def _each(
    key: str, given: Mapping[Any, Any], reader: Callable[[str, str, Any], _T]
) -> dict[str, _T]:
    return dict(
        zip(
            given,
            collect_errors(
                partial(_named, key, name, reader, node) for name, node in given.items()
            ),
            strict=True,
        )
    )


def _named(key: str, name: Any, reader: Callable[[str, str, Any], _T], given: Any) -> _T:
    if not isinstance(name, str) or not name.strip():
        raise invalid_value(key, name, "the name of a node", "write a text")
    return reader(f"{key}.{name}", name, given)


def _node(known: _Known, key: str, name: str, given: Any) -> Node:
    if not isinstance(given, Mapping):
        raise invalid_value(
            key, given, "a node", "write a mapping, e.g. {type: task, cel: …, children: […]}"
        )
    kind = given.get("type")
    if not isinstance(kind, str) or kind not in _KINDS:
        raise invalid_value(f"{key}.type", kind, "a kind of node", did_you_mean(kind, [*_KINDS]))
    reading: list[Callable[[], Any]] = [
        partial(check_keys, given, ("type", *_KINDS[kind]), f"{key}."),
        partial(_how, key, kind, given),
        partial(_reads, f"{key}.reads", given),
        partial(_label, f"{key}.output_label", name, given) if kind == "task" else str,
        partial(
            _task_children if kind == "task" else _verdicts,
            known,
            f"{key}.children",
            kind,
            given.get("children", ()),
        ),
    ]
    _, (cel, asks), reads, label, follow = collect_errors(reading)
    children, verdicts = (follow, ()) if kind == "task" else ((), follow)
    return Node(name, kind, cel, asks, reads, label, children, verdicts)


def _how(key: str, kind: str, given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return the expression, or the instructions or criteria for a judge; the other one is None."""
    asks = _ASKS[kind]
    if ("cel" in given) == (asks in given):
        problem = (
            f"stands beside {asks}; keep one"
            if "cel" in given
            else f"missing; write an expression, or {asks} for a judge"
        )
        raise ConfigError(f"{key}.cel: {problem}")
    if "cel" in given:
        if "reads" in given:
            raise ConfigError(
                f"{key}.reads: an expression determines what it reads; leave reads out"
            )
        return text(f"{key}.cel", given["cel"]), None
    return None, text(f"{key}.{asks}", given[asks])


def _reads(key: str, given: Mapping[str, Any]) -> tuple[str, ...]:
    value = given.get("reads", ())
    if (
        isinstance(value, str)
        or not isinstance(value, Sequence)
        or not all(isinstance(each, str) for each in value)
    ):
        raise invalid_value(key, value, "a list of what is read", f"write e.g. {key}: [output]")
    return tuple(dict.fromkeys(map(_variable, value)))


def _variable(label: str) -> str:
    """The name of an output in expressions and in what judges see: its label, with `_` for
    blanks.
    """
    return "_".join(label.split())


def _label(key: str, name: str, given: Mapping[str, Any]) -> str:
    label = given.get("output_label", name)
    variable = _variable(label) if isinstance(label, str) else ""
    if not _IDENTIFIER.fullmatch(variable) or variable in _RESERVED:
        raise invalid_value(
            key,
            label,
            "a name of letters, digits, _ and blanks that is free in expressions",
            f"write e.g. {key}: found",
        )
    return variable


def _task_children(known: _Known, key: str, kind: str, value: Any) -> tuple[str, ...]:
    del kind
    if isinstance(value, str) or not isinstance(value, Sequence) or not value:
        raise invalid_value(
            key, value, "a list of the nodes that read the output", f"write e.g. {key}: [checked]"
        )
    return tuple(dict.fromkeys(each_of(key, value, partial(_task_child, known))))


def _task_child(known: _Known, key: str, given: Any) -> str:
    if not isinstance(given, str) or given in known.verdict_names:
        raise invalid_value(
            key,
            given,
            "the name of a task, binary or choice",
            "name one; a verdict follows a decision only",
        )
    known.check(key, given)
    return given


def _verdicts(known: _Known, key: str, kind: str, value: Any) -> tuple[NodeVerdict, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise invalid_value(
            key, value, "a list of verdicts", f"write e.g. {key}: {_EXAMPLES[kind]}"
        )
    verdicts = each_of(key, value, partial(_child, known, kind))
    values = [each.verdict for each in verdicts]
    fit = all(isinstance(each, bool if kind == "binary" else str) for each in values)
    if not fit or len({*values}) < len(values) or len(values) < _LEAST[kind]:
        raise ConfigError(
            f"{key}: {json.dumps(values, ensure_ascii=False)} are not {_WANTED[kind]}; write e.g."
            f" {key}: {_EXAMPLES[kind]}"
        )
    return verdicts


def _child(known: _Known, kind: str, key: str, given: Any) -> NodeVerdict:
    if isinstance(given, Mapping) and "type" not in given:
        return _verdict(known, key, given)
    if isinstance(given, str) and given in known.verdicts:
        return known.verdicts[given]
    if isinstance(given, str):
        known.check(key, given)
        example = "true" if kind == "binary" else "…"
        raise ConfigError(
            f"{key}: {redacted_repr(given)} is no verdict; write {{verdict: {example}, then:"
            f" {given}}}"
        )
    raise invalid_value(key, given, "a verdict", "write e.g. {verdict: true, then: name-of-a-node}")


def _named_verdict(known: _Known, key: str, name: str, given: Mapping[str, Any]) -> NodeVerdict:
    del name
    return _verdict(known, key, {word: value for word, value in given.items() if word != "type"})


def _verdict(known: _Known, key: str, given: Mapping[str, Any]) -> NodeVerdict:
    reading: list[Callable[[], Any]] = [
        partial(check_keys, given, _KINDS["verdict"], f"{key}."),
        partial(_verdict_value, f"{key}.verdict", given.get("verdict")),
        partial(_score, f"{key}.score", given.get("score")),
        partial(_then, known, f"{key}.then", given.get("then")),
    ]
    _, value, score, then = collect_errors(reading)
    if (score is None) == (then is None):
        found = "has no score" if then is None else "has both a score and a successor"
        raise ConfigError(
            f"{key}: the verdict {text_of(value)!r} {found}; write score: 0 to 10, or then: a node"
        )
    return NodeVerdict(
        value,
        score,
        then if isinstance(then, str) else None,
        then if isinstance(then, Scorer) else None,
    )


def _verdict_value(key: str, value: Any) -> bool | str:
    if isinstance(value, bool) or (isinstance(value, str) and value.strip()):
        return value
    raise invalid_value(key, value, "a verdict", "write true, false or a text in quotes")


def _score(key: str, score: Any) -> float | None:
    if score is not None and (
        isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 10
    ):
        raise invalid_value(key, score, "a score from 0 to 10", f"write e.g. {key}: 10")
    return score


def _then(known: _Known, key: str, then: Any) -> str | Scorer | None:
    if isinstance(then, str) and then:
        known.check(key, then)
        if then in known.verdict_names:
            raise ConfigError(
                f"{key}: {redacted_repr(then)} is a verdict itself; write its score here"
            )
        return then
    if then is None or (isinstance(then, Scorer) and not isinstance(then, type)):
        return then
    if not isinstance(then, Mapping) or {*then} != {"scorer"}:
        raise invalid_value(
            key,
            then,
            "the name of a node or a scorer",
            f"write e.g. {key}: name, or {key}: {{scorer: {{type: tool_errors}}}}",
        )
    try:
        further = create_scorer(then["scorer"])
    except ConfigError as error:
        raise ConfigError(*(f"{key}.scorer.{problem}" for problem in error.problems)) from error
    # it would be ignored: every run that reaches the scorer is scored
    if getattr(further, "sample", 1.0) < 1:
        raise ConfigError(
            f"{key}.scorer.sample: a tree is sampled as a whole; write sample beside its root"
        )
    return further
