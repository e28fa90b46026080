"""Which fields of the run and of its calls, and which other variables, an expression reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from otel_eval.errors import ConfigError
from otel_eval.scorers.cel.tree import RECORD, Expr
from otel_eval.scorers.spec.parameters import did_you_mean

__all__ = ["CALL_FIELDS", "RUN_FIELDS", "FieldsRead", "read"]

RUN_FIELDS: Final = (
    "agent", "name", "service", "conversation", "duration_ms", "model_calls", "input_tokens", "output_tokens", "input", "output",
    "attributes",
)  # fmt: skip
CALL_FIELDS: Final = (
    "name",
    "arguments",
    "result",
    "error",
    "duration_ms",
    "start_ms",
    "agent",
)

_NEEDED: Final = {
    "run.input": "content",
    "run.output": "content",
    "run.input_tokens": "tokens",
    "run.output_tokens": "tokens",
    "calls.arguments": "arguments",
    "calls.result": "results",
}
_NAME_IT: Final = 'name the attribute, as run.attributes["user.tier"]'
_COMPARES: Final = frozenset({"_==_", "_!=_", "@in"})
_BY_KEY: Final = frozenset({"_[_]", "@in"})


@dataclass(frozen=True, slots=True)
class FieldsRead:
    """What is looked at.

    Attributes:
        names: the variables: `run`, `calls`, `reference`, labels.
        run, calls: the fields of the run and of calls.
        attributes: those under `run.attributes`.
        gathers: whether it builds lists, which costs the square of their length.
    """

    names: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    gathers: bool = False

    def __or__(self, other: FieldsRead) -> FieldsRead:
        return FieldsRead(
            self.names | other.names,
            self.run | other.run,
            self.calls | other.calls,
            self.attributes | other.attributes,
            self.gathers or other.gathers,
        )

    @property
    def needs(self) -> frozenset[str]:
        """In the words of a scorer's `needs`."""
        looked_at = {f"run.{name}" for name in self.run} | {f"calls.{name}" for name in self.calls}
        return frozenset(_NEEDED[name] for name in looked_at if name in _NEEDED)


def read(root: Expr) -> FieldsRead:
    """What the expression looks at.

    Raises:
        ConfigError: it looks at a field that there is not, or at the run as a whole.
    """
    seen = _FieldCollector()
    if RECORD in root.type and root.kind != "struct":
        seen.whole()
    seen.visit(root, frozenset())
    if seen.problems:
        raise ConfigError(*dict.fromkeys(seen.problems))
    names, attributes = frozenset(seen.names), frozenset(seen.attributes)
    return FieldsRead(names, frozenset(seen.run), frozenset(seen.calls), attributes, seen.gathers)


class _FieldCollector:
    def __init__(self) -> None:
        self.names: set[str] = set()
        self.run: set[str] = set()
        self.calls: set[str] = set()
        self.attributes: set[str] = set()
        self.gathers = False
        self.problems: list[str] = []

    def visit(self, node: Expr, bound: frozenset[str]) -> None:
        """The node and all below it; `bound` are the variables of comprehensions around it."""
        looked_at = _field(node)
        if looked_at is not None and self._look(*looked_at, bound):
            return
        if _is_dotted(node, bound):
            self.problems.append(f"run.attributes.{node.parts[0].name}.{node.name}: {_NAME_IT}")
        if node.kind == "ident" and node.name not in bound:
            self._name(node.name)
        if _compares(node):
            self.problems.append("calls[]: a call cannot be compared as a whole; compare fields such as its name")
        if any(RECORD in part.type and _takes(node, part) for part in node.parts):
            self.whole()
        self.gathers = self.gathers or (node.kind == "comprehension" and node.parts[1].kind == "list")
        for at, part in enumerate(node.parts):
            self.visit(part, bound | node.binds if at else bound)  # the range is outside

    def _name(self, name: str) -> None:
        self.names.add(name)
        if name == "run":
            self.problems.append("run: cannot be looked at as a whole; name a field such as run.output")

    def _look(self, operand: Expr, field: str, bound: frozenset[str]) -> bool:
        """Note that a field is looked at; True if there is nothing further to be seen."""
        if _is_run(operand, bound):
            self.names.add("run")
            self._note("run", field, RUN_FIELDS, self.run)
            if field == "attributes":
                self.problems.append(f"run.attributes: {_NAME_IT}")
            return True
        within = _field(operand)
        if within is not None and within[1] == "attributes" and _is_run(within[0], bound):
            self.names.add("run")
            self.run.add("attributes")
            self.attributes.add(field)
            return True
        if operand.type == RECORD and operand.kind != "struct":
            self._note("calls[]", field, CALL_FIELDS, self.calls)
        return False

    def _note(self, owner: str, field: str, known: tuple[str, ...], seen: set[str]) -> None:
        seen.add(field)
        if field not in known:
            self.problems.append(f"{owner}.{field}: there is no such field; {did_you_mean(field, known)}")

    def whole(self) -> None:
        """A call is looked at, not a field of it."""
        self.calls.update(CALL_FIELDS)


def _field(node: Expr) -> tuple[Expr, str] | None:
    """Of `x.field`, `x["field"]`, `has(x.field)` and `"field" in x`: x and the field."""
    if node.kind == "select":
        return node.parts[0], node.name
    if node.kind != "call" or len(node.parts) != 2 or node.name not in _BY_KEY:
        return None
    operand, key = node.parts if node.name == "_[_]" else node.parts[::-1]
    return (operand, key.name) if key.kind == "const" and key.name else None


def _is_run(node: Expr, bound: frozenset[str]) -> bool:
    return node.kind == "ident" and node.name == "run" and "run" not in bound


def _is_dotted(node: Expr, bound: frozenset[str]) -> bool:
    """Whether it is `run.attributes.user.tier`, which looks for an attribute `user`."""
    if node.kind != "select" or node.parts[0].kind != "select":
        return False
    owner = _field(node.parts[0].parts[0])
    return owner is not None and owner[1] == "attributes" and _is_run(owner[0], bound)


def _compares(node: Expr) -> bool:
    """Whether it compares calls; to ask for a key in one is no comparison."""
    if node.kind != "call" or node.name not in _COMPARES or len(node.parts) != 2:
        return False
    one, other = (part.type for part in node.parts)
    return RECORD in one or (RECORD in other and (node.name != "@in" or other != RECORD))


def _takes(node: Expr, part: Expr) -> bool:
    """Whether the node takes the part, which holds calls, as a value."""
    if node.kind == "call":
        return node.name in _BY_KEY and part.type == RECORD and _field(node) is None
    return node.kind in ("list", "struct") and not _is_step(node)


def _is_step(node: Expr) -> bool:
    """Whether it may be the list of one that `filter` and `map` add to what they gather."""
    return node.kind == "list" and len(node.parts) == 1 and node.parts[0].kind == "ident"
