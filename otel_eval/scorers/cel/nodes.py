"""Constructors of nodes that are added to a checked expression. Their names begin with `@`, which no written name does."""

from __future__ import annotations

from typing import Final

from otel_eval.scorers.cel.tree import Node
from otel_eval.wire import sized, varint

__all__ = ["TRUE", "bind", "call", "constant", "either", "fold", "guarded", "ident", "is_bind", "kind_of", "list_of"]

_UNUSED: Final = "#unused"  # the item of a comprehension over nothing, as `cel.bind` writes it
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
    """`cel.bind(name, value, within)`: the value is evaluated where and when it is first asked for, and once."""
    return _comprehension(_UNUSED, name, Node("list"), value, _FALSE, ident(name), within)


def is_bind(node: Node) -> bool:
    """Whether the node is `cel.bind`, which the compiler writes as a comprehension."""
    return node.kind == "comprehension" and _UNUSED in node.binds


def fold(item: str, total: str, over: Node, step: Node) -> Node:
    """What `step`, a whole number made from `total` and `item`, comes to after all items of a list."""
    return _comprehension(item, total, over, constant(0), TRUE, step, ident(total))


def _comprehension(item: str, accumulated: str, *parts: Node) -> Node:
    names = sized(1, item.encode()) + sized(3, accumulated.encode())
    places = tuple((0, number) for number in (2, 4, 5, 6, 7))
    return Node("comprehension", parts=parts, binds=frozenset({item, accumulated}), places=places, rest=(names,))
