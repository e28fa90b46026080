"""How heavy the value of an expression can be, as it is known before anything is evaluated.

Values share what they are made of: a list of a thousand references to one text takes little in the evaluator, and a thousand
times the text in Python, where nothing is shared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from otel_eval.scorers.cel.nodes import is_bind
from otel_eval.scorers.cel.tree import Node

__all__ = ["BYTES", "LIST", "MAP", "NUMBERS", "TEXT", "Weights", "below", "weight"]

# How types begin, as messages.
TEXT, BYTES, LIST, MAP = b"\x18\x05", b"\x18\x06", b"\x32", b"\x3a"
NUMBERS: Final = (b"\x18\x01", b"\x18\x02", b"\x18\x03", b"\x18\x04", b"\x28", b"\x20", b"\x10")  # bool, int, …, times, null
_SCALARS: Final = (TEXT, BYTES, *NUMBERS)
_HEAVIEST: Final = 4

Weights = Mapping[str, int | None]
"""Of the variables that comprehensions bind."""


def weight(node: Node, variables: Weights | None = None) -> int | None:
    """How many times the largest thing that was recorded, or the longest text, the value can be at most. None: unknown."""
    found = _weight(node, variables or {})
    return found if found is not None and found <= _HEAVIEST else None


def below(node: Node, variables: Weights) -> Weights:
    """The weights of variables within a comprehension: an item is as heavy as all items together at most."""
    value = node.parts[1 if is_bind(node) else 0]
    return {**variables, **dict.fromkeys(node.binds, weight(value, variables))}


def _weight(node: Node, variables: Weights) -> int | None:
    if node.kind == "ident":
        return variables.get(node.name, 1)
    if node.kind == "const" or node.type.startswith(_SCALARS):
        return 1
    if node.kind == "select":
        return _weight(node.parts[0], variables)
    if node.kind == "comprehension":
        return _accumulated(node, variables)
    if node.kind == "call":
        return _called(node, variables)
    return _sum(node.parts, variables)


def _called(node: Node, variables: Weights) -> int | None:
    if node.name == "split":
        return 1
    if node.name in ("_[_]", "dyn"):
        return _weight(node.parts[0], variables)
    if node.name in ("_?_:_", "_+_"):
        return _sum(node.parts[-2:], variables)
    return None


def _sum(nodes: tuple[Node, ...], variables: Weights) -> int | None:
    weights = [_weight(node, variables) for node in nodes]
    known = [each for each in weights if each is not None]
    return sum(known) if len(known) == len(weights) else None


def _accumulated(node: Node, variables: Weights) -> int | None:
    over, _, _, step, result = node.parts
    if is_bind(node):
        return _weight(result, below(node, variables))
    while step.kind == "call" and step.name == "_?_:_":
        step = step.parts[1]
    item = step.parts[1].parts[0] if step.kind == "call" and step.name == "_+_" and step.parts[1].parts else None
    if item is None:
        return None
    return _weight(over, variables) if item.type.startswith(NUMBERS) or _is_part(item, node.binds) else None


def _is_part(node: Node, items: frozenset[str]) -> bool:
    """Whether it is another part of each item, or a text of its length: all of these together are as heavy as the items."""
    while node.kind == "select" or (node.kind == "call" and node.name in ("_[_]", "trim", "lowerAscii")):
        node = node.parts[0]
    return node.kind == "ident" and node.name in items
