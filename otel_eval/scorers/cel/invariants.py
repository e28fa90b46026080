"""Move what does not depend on the item of a loop out of it, so that it is evaluated at most once.

It is evaluated when it is first asked for: what the loop would not have evaluated, as for
an empty list or behind `&&`, is not evaluated either, and an error is one where the value is used.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import Final

from otel_eval.scorers.cel.nodes import call, constant, either, ident, kind_of, lazily, without_lazy
from otel_eval.scorers.cel.tree import Node

__all__ = ["hoisted"]

_COSTLY: Final = frozenset({"call", "list", "struct", "comprehension"})  # the others cost as much as a variable

_LONG: Final = 4096  # bytes of a text, from which on the time to search it is more than that of a call of Python
_MOST: Final = 12  # of a loop: each stands within another, and the depth of what the evaluator reads is limited


def hoisted(root: Node) -> Node:
    """The expression with every loop-invariant expression before the outermost loop that it does not depend on."""
    return _Hoisting().of(without_lazy(root))


class _Hoisting:
    def __init__(self) -> None:
        self._numbers = count()

    def of(self, node: Node) -> Node:
        if node.kind != "comprehension":
            return replace(node, parts=tuple(map(self.of, node.parts)))
        found: dict[str, Node] = {}
        over, start, condition, step, result = node.parts
        repeated = [self._without_invariants(part, node.binds, found) for part in (condition, step)]
        made = replace(node, parts=tuple(map(self.of, (over, start, *repeated, result))))
        for name, value in reversed(found.items()):
            made = lazily(name, self.of(value), made)
        return made

    def _without_invariants(self, node: Node, bound: frozenset[str], found: dict[str, Node]) -> Node:
        """The node with variables in place of its largest parts in which none of `bound` is free; these go to `found`."""
        if len(found) < _MOST and node.kind in _COSTLY and node.parts and bound.isdisjoint(_free(node)):
            name = f"@invariant{next(self._numbers)}"
            found[name] = node
            return ident(name, node.type)
        within = [bound, bound, *[bound | node.binds] * 3] if node.kind == "comprehension" else [bound] * len(node.parts)
        parts = (self._without_invariants(part, names, found) for part, names in zip(node.parts, within, strict=True))
        made = replace(node, parts=tuple(parts))
        if node.name == "contains" and len(found) < _MOST and bound.isdisjoint(_free(node.parts[0])):
            return self._searched(made, found)
        return made

    def _searched(self, node: Node, found: dict[str, Node]) -> Node:
        """A long text in which the loop searches for different things is handed to Python once, which searches faster."""
        text, sought = node.parts
        name = f"@searched{next(self._numbers)}"
        is_long = call("_>_", call("size", call("bytes", text)), constant(_LONG))
        found[name] = either(kind_of(text, "string"), either(is_long, call("@hold", text), constant(0)), constant(0))
        return either(call("_==_", ident(name), constant(0)), node, call("@find", ident(name), sought))


def _free(node: Node) -> frozenset[str]:
    """The variables that the node does not bind itself."""
    if node.kind == "ident":
        return frozenset({node.name})
    if node.kind != "comprehension":
        return frozenset[str]().union(*map(_free, node.parts))
    over, start, *inner = map(_free, node.parts)
    return over | start | (frozenset[str]().union(*inner) - node.binds)
