"""Constructors of nodes that are added to a checked expression. Their names begin with `@`, which no written name does."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from otel_eval.scorers.cel.tree import Node
from otel_eval.wire import sized, varint

__all__ = [
    "TRUE",
    "bind",
    "call",
    "constant",
    "either",
    "fold",
    "guarded",
    "ident",
    "is_bind",
    "kind_of",
    "lazily",
    "list_of",
    "without_lazy",
]

# The item of a comprehension over nothing. The evaluator recognises `cel.bind` by the first and evaluates its value late.
_LAZY, _NOTHING = "#unused", "@nothing"
_BOOL, _INT, _STRING, _BYTES = 2, 3, 6, 7  # of a constant
TRUE: Final = Node("const", rest=(varint(_BOOL << 3) + b"\x01",))
_FALSE: Final = Node("const", rest=(varint(_BOOL << 3) + b"\x00",))
_EMPTY: Final[dict[str, Node]] = {
    "string": Node("const", rest=(sized(_STRING, b""),)),
    "bytes": Node("const", rest=(sized(_BYTES, b""),)),
    "list": Node("list"),
    "map": Node("struct", rest=()),
}


def constant(number: int) -> Node:
    """A whole number of at least 0."""
    return Node("const", rest=(varint(_INT << 3) + varint(number),))


def ident(name: str, of: bytes = b"") -> Node:
    """A variable."""
    return Node("ident", name, type=of, rest=(sized(1, name.encode()),))


def call(function: str, *arguments: Node) -> Node:
    """A call of a function that is no member."""
    return Node("call", function, arguments, places=((0, 3),) * len(arguments), rest=(sized(2, function.encode()),))


def list_of(items: list[Node]) -> Node:
    """A list."""
    return Node("list", parts=tuple(items), places=((0, 1),) * len(items))


def either(condition: Node, then: Node, otherwise: Node) -> Node:
    """`condition ? then : otherwise`."""
    return call("_?_:_", condition, then, otherwise)


def guarded(check: Node, node: Node) -> Node:
    """The node, where a check that is true or an error is no error. The check comes first."""
    return either(check, node, _FALSE)


def kind_of(node: Node, kind: str) -> Node:
    """Whether the node is a `string`, `bytes`, `list` or `map`. By an example: a variable may have the name of a type."""
    return call("_==_", call("type", node), call("type", _EMPTY[kind]))


def bind(name: str, value: Node, within: Node) -> Node:
    """The value is evaluated, and then what is made of it under its name; an error is a value, which may not matter."""
    return _comprehension(_NOTHING, name, Node("list"), value, _FALSE, ident(name), within)


def lazily(name: str, value: Node, within: Node) -> Node:
    """The same, but the value is evaluated where and when it is first asked for, and once."""
    made = _comprehension(_LAZY, name, Node("list"), value, _FALSE, ident(name), within)
    return guarded(_CLEARED, made)


def is_bind(node: Node) -> bool:
    """Whether the node is `bind`, `lazily` or `cel.bind`: all are comprehensions over nothing."""
    return node.kind == "comprehension" and not node.binds.isdisjoint((_NOTHING, _LAZY))


def without_lazy(root: Node) -> Node:
    """The expression with `bind` for each `cel.bind`."""
    made = replace(root, parts=tuple(map(without_lazy, root.parts)))
    if not (root.kind == "comprehension" and _LAZY in root.binds):
        return made
    (name,) = root.binds - {_LAZY}
    return replace(bind(name, made.parts[1], made.parts[4]), type=root.type)


def fold(item: str, total: str, over: Node, step: Node) -> Node:
    """What `step`, a whole number made from `total` and `item`, comes to after all items of a list."""
    return _comprehension(item, total, over, constant(0), TRUE, step, ident(total))


def _comprehension(item: str, accumulated: str, *parts: Node) -> Node:
    names = sized(1, item.encode()) + sized(3, accumulated.encode())
    places = tuple((0, number) for number in (2, 4, 5, 6, 7))
    return Node("comprehension", parts=parts, binds=frozenset({item, accumulated}), places=places, rest=(names,))


# A comprehension that ends early, as `exists` does, leaves its item where cel-expr-python 0.1.3 looks whether a late value
# at the same depth was evaluated already, and takes the item for the value. One that ends by itself clears the place.
_CLEARED: Final = _comprehension(_NOTHING, "@cleared", Node("list"), TRUE, TRUE, ident("@cleared"), ident("@cleared"))
