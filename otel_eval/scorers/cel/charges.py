"""Charge what an expression makes against the memory of its evaluation.

Around everything that takes memory, calls of the functions of `memory` are added. An error is raised before a text or a list
is made that exceeds what is left; as `||` and `exists` go on after an error, everything that is evaluated later asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import count
from typing import Final

from otel_eval.scorers.cel.memory import list_size, map_size
from otel_eval.scorers.cel.nodes import TRUE, bind, call, constant, either, fold, guarded, ident, is_bind, kind_of, list_of
from otel_eval.scorers.cel.tree import Node
from otel_eval.scorers.cel.weights import BYTES, LIST, MAP, NUMBERS, TEXT, Weights, below, weight

__all__ = ["charged"]

_ACCUMULATED: Final = "@result"  # of `filter` and `map`, as the compiler names it
_IN_PYTHON: Final = frozenset({"split", "replace", "trim", "lowerAscii", "join", "fits", "@hold", "@find"})
_OPEN: Final = call("@spend", constant(0))

_CHEAP: Final = frozenset({"ident", "const", "select"})  # to evaluate them twice costs less than to remember them
# What a regular expression costs beside memory, so that an evaluation takes some five seconds at most.
_PATTERN: Final = 32  # times its length
_MATCHED: Final = 4  # times less than the length of the text


def charged(root: Node) -> Node:
    """The expression with its charges; the same where it takes no memory."""
    return _Charging().of(root, {}, repeated=False)


class _Charging:
    def __init__(self) -> None:
        self._numbers = count()

    def of(self, node: Node, variables: Weights, *, repeated: bool) -> Node:
        """The node; `repeated` if it is within a loop."""
        if node.kind == "comprehension":
            return self._comprehension(node, variables, repeated=repeated)
        if _accumulates(node):
            total, item = node.parts
            inner = tuple(self.of(part, variables, repeated=True) for part in item.parts)
            return replace(node, parts=(total, replace(item, parts=inner)))
        if _is_sum(node):
            return self._sum(node, [self.of(part, variables, repeated=repeated) for part in _summands(node)])
        made = replace(node, parts=tuple(self.of(part, variables, repeated=repeated) for part in node.parts))
        if node.kind == "call":
            return self._call(made, variables, node.parts)
        if repeated and node.parts and node.kind in ("list", "struct"):
            size = list_size(len(node.parts)) if node.kind == "list" else map_size(len(node.parts) // 2)
            return guarded(call("@spend", constant(size)), made)
        return made

    def _call(self, node: Node, variables: Weights, parts: tuple[Node, ...]) -> Node:
        if node.name == "matches" and parts[1].kind != "const":
            return self._matches(node)
        if node.name == "join" and weight(parts[0], variables) is None:
            return self._join(node)
        already = any(part.name in _IN_PYTHON or _is_sum(part) for part in parts)  # then nothing is handed over
        return guarded(_OPEN, node) if node.name in _IN_PYTHON and not already else node

    def _sum(self, node: Node, summands: list[Node]) -> Node:
        """The sum of its summands, once the size of all of them is known; there may be no more than a few nodes around each."""
        if any(part.kind not in _CHEAP for part in summands):
            return self._evaluated(summands, lambda known: guarded(_sum_check(known), _replaced(node, iter(known))))
        return guarded(_sum_check(summands), node)

    def _matches(self, node: Node) -> Node:
        """A pattern that is not written out is compiled each time and, in a loop, looked for in the same text again."""

        def within(known: list[Node]) -> Node:
            size = call("_+_", call("_*_", _size(known[1]), constant(_PATTERN)), call("_/_", _size(known[0]), constant(_MATCHED)))
            return guarded(call("@spend", size), replace(node, parts=tuple(known)))

        return self._evaluated([*node.parts], within)

    def _evaluated(self, values: list[Node], within: Callable[[list[Node]], Node]) -> Node:
        """What is made of values that are evaluated once, in their order, so that of several errors the first is raised."""
        variable = ident(self._name())
        used = [part for part in values if part.kind != "const"]
        if len(used) == 1:
            value, items = used[0], [replace(variable, type=used[0].type)]
        else:
            value = list_of(used)
            items = [replace(call("_[_]", variable, constant(at)), type=part.type) for at, part in enumerate(used)]
        rest = iter(items)
        return bind(variable.name, value, within([part if part.kind == "const" else next(rest) for part in values]))

    def _join(self, node: Node) -> Node:
        """It is handed to Python only where all parts together are no longer than a text may be."""
        parts, separator = node.parts
        name, item, total = self._name(), self._name(), self._name()
        size = fold(item, total, ident(name), call("_+_", ident(total), _text_size(ident(item))))
        return bind(name, parts, guarded(call("@fits", size), replace(node, parts=(ident(name), separator))))

    def _comprehension(self, node: Node, variables: Weights, *, repeated: bool) -> Node:
        inner = below(node, variables)
        over, start = (self.of(part, variables, repeated=repeated) for part in node.parts[:2])
        condition, step = (self.of(part, inner, repeated=True) for part in node.parts[2:4])
        result = self.of(node.parts[4], inner, repeated=repeated)
        if start.kind == "list" and not is_bind(node):
            over = self._gathered(over)
            result = guarded(call("@gathered", call("size", result)), result)
        return replace(node, parts=(over, start, condition, step, result))

    def _gathered(self, over: Node) -> Node:
        if over.kind == "ident":
            return guarded(_gather(over), over)
        variable = ident(self._name(), over.type)
        return bind(variable.name, over, guarded(_gather(variable), variable))

    def _name(self) -> str:
        return f"@charged{next(self._numbers)}"


def _accumulates(node: Node) -> bool:
    """Whether it is the step of `filter` or `map`, or counts for `exists_one`."""
    return node.kind == "call" and node.name == "_+_" and node.parts[0].kind == "ident" and node.parts[0].name == _ACCUMULATED


def _is_sum(node: Node) -> bool:
    """Whether it makes a text or a list, or may."""
    return node.kind == "call" and node.name == "_+_" and not node.type.startswith(NUMBERS) and not _accumulates(node)


def _summands(node: Node) -> list[Node]:
    return [each for part in node.parts for each in _summands(part)] if _is_sum(node) else [node]


def _replaced(node: Node, summands: Iterator[Node]) -> Node:
    """The same sum of others."""
    if not _is_sum(node):
        return next(summands)
    return replace(node, parts=tuple(_replaced(part, summands) for part in node.parts))


def _sum_check(summands: list[Node]) -> Node:
    """Each sign makes something that is as long as all of it at most."""
    total = reduce(partial(call, "_+_"), map(_size, summands))
    return call("@sum", total, constant(len(summands) - 1))


def _size(node: Node) -> Node:
    """How many bytes it takes where it is copied, of a number none."""
    if node.kind == "const":
        return constant(len(node.rest[0]))
    if node.type.startswith(NUMBERS):
        return constant(0)
    sizes: dict[bytes, tuple[str, Node]] = {
        TEXT: ("string", _text_size(node)),
        BYTES: ("bytes", call("size", node)),
        LIST: ("list", call("_*_", call("size", node), constant(list_size(1) - list_size(0)))),
    }
    known = next((size for begins, (_, size) in sizes.items() if node.type.startswith(begins)), None)
    return known or reduce(
        lambda other, kind: either(kind_of(node, kind[0]), kind[1], other), reversed(sizes.values()), constant(0)
    )


def _text_size(text: Node) -> Node:
    return call("size", call("bytes", text))


def _gather(value: Node) -> Node:
    """The check of that from which a list is built."""
    check = call("@gather", call("size", value))
    if value.type.startswith((LIST, MAP)):
        return check
    return either(kind_of(value, "list"), check, either(kind_of(value, "map"), check, TRUE))
