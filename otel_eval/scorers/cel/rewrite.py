"""Rewrite a checked expression so that its evaluation is bounded: loop invariants are hoisted, and
memory is charged.

An invariant is evaluated once, at its first use: what the loop would not have evaluated, as for an
empty list or behind `&&`, is not evaluated either. Around everything that takes memory, calls of
functions of `vocabulary` are added, which raise an error before a text or a list is made that
exceeds the memory that is left. As `||` and `exists` continue after an error, everything that is
evaluated later checks again. Whether a value may be larger in Python than in the evaluator is
decided before evaluation (`is_light`): values share their parts in the evaluator, but not in
Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial, reduce
from itertools import count
from typing import Final

from otel_eval.scorers.cel.tree import (
    TRUE,
    Expr,
    bind,
    call,
    constant,
    either,
    fold,
    guarded,
    ident,
    is_bind,
    kind_of,
    lazily,
    list_of,
    without_lazy,
)
from otel_eval.scorers.cel.vocabulary import list_size, map_size

# to hoist; others cost no more than a variable
_COSTLY: Final = frozenset({"call", "list", "struct", "comprehension"})

_LONG: Final = 4096  # bytes of a text above which a search takes longer than a call of Python
# hoisted expressions of a loop: each nests within another, and the evaluator limits depth
_MOST: Final = 12


def hoisted(root: Expr) -> Expr:
    """Return the expression with each loop-invariant part moved before the outermost loop that it
    does not depend on.
    """
    return _Hoisting().of(without_lazy(root))


class _Hoisting:
    def __init__(self) -> None:
        self._numbers = count()

    def of(self, node: Expr) -> Expr:
        if node.kind != "comprehension":
            return replace(node, parts=tuple(map(self.of, node.parts)))
        found: dict[str, Expr] = {}
        over, start, condition, step, result = node.parts
        repeated = [self._without_invariants(part, node.binds, found) for part in (condition, step)]
        made = replace(node, parts=tuple(map(self.of, (over, start, *repeated, result))))
        for name, value in reversed(found.items()):
            made = lazily(name, self.of(value), made)
        return made

    def _without_invariants(
        self, node: Expr, bound: frozenset[str], found: dict[str, Expr]
    ) -> Expr:
        """Replace the largest parts in which no variable of `bound` is free by new variables, and
        add these parts to `found`.
        """
        if (
            len(found) < _MOST
            and node.kind in _COSTLY
            and node.parts
            and bound.isdisjoint(_free(node))
        ):
            name = f"@invariant{next(self._numbers)}"
            found[name] = node
            return ident(name, node.type)
        within = (
            [bound, bound, *[bound | node.binds] * 3]
            if node.kind == "comprehension"
            else [bound] * len(node.parts)
        )
        parts = (
            self._without_invariants(part, names, found)
            for part, names in zip(node.parts, within, strict=True)
        )
        made = replace(node, parts=tuple(parts))
        if (
            node.name == "contains"
            and len(found) < _MOST
            and bound.isdisjoint(_free(node.parts[0]))
        ):
            return self._searched(made, found)
        return made

    def _searched(self, node: Expr, found: dict[str, Expr]) -> Expr:
        """Pass a long text that the loop searches repeatedly to Python once, where searching is
        faster.
        """
        text, sought = node.parts
        name = f"@searched{next(self._numbers)}"
        is_long = call("_>_", call("size", call("bytes", text)), constant(_LONG))
        found[name] = either(
            kind_of(text, "string"), either(is_long, call("@hold", text), constant(0)), constant(0)
        )
        return either(
            call("_==_", ident(name), constant(0)), node, call("@find", ident(name), sought)
        )


def _free(node: Expr) -> frozenset[str]:
    """Return the free variables of the node."""
    if node.kind == "ident":
        return frozenset({node.name})
    if node.kind != "comprehension":
        return frozenset[str]().union(*map(_free, node.parts))
    over, start, *inner = map(_free, node.parts)
    return over | start | (frozenset[str]().union(*inner) - node.binds)


# Prefixes of serialized types.
TEXT, BYTES, LIST, MAP = b"\x18\x05", b"\x18\x06", b"\x32", b"\x3a"
# bool, int, …, times, null
NUMBERS: Final = (b"\x18\x01", b"\x18\x02", b"\x18\x03", b"\x18\x04", b"\x28", b"\x20", b"\x10")
_SCALARS: Final = (TEXT, BYTES, *NUMBERS)


def is_light(node: Expr) -> bool:
    """Whether a node outside of loops has a value without repeated parts, so that it is no larger
    than the run in Python, too.
    """
    if node.kind == "ident":
        return not node.name.startswith("@")
    if node.kind == "const" or node.type.startswith(_SCALARS) or node.name == "split":
        return True
    if node.kind == "select" or node.name in ("_[_]", "dyn"):
        return is_light(node.parts[0])
    if node.kind != "comprehension" or is_bind(node):
        return False
    over, _, _, step, _ = node.parts
    while step.kind == "call" and step.name == "_?_:_":
        step = step.parts[1]
    if step.kind != "call" or step.name != "_+_" or not step.parts[1].parts:
        return False
    item = step.parts[1].parts[0]
    return is_light(over) and (item.type.startswith(NUMBERS) or _is_part(item, node.binds))


def _is_part(node: Expr, items: frozenset[str]) -> bool:
    """Whether the node is a distinct part of each item, or a text no longer than it: together these
    are as large as the items.
    """
    while node.kind == "select" or (
        node.kind == "call" and node.name in ("_[_]", "trim", "lowerAscii")
    ):
        node = node.parts[0]
    return node.kind == "ident" and node.name in items


_ACCUMULATED: Final = "@result"  # the compiler's name for the accumulator of `filter` and `map`
_IN_PYTHON: Final = frozenset(
    {"split", "replace", "trim", "lowerAscii", "join", "fits", "@hold", "@find"}
)
_OPEN: Final = call("@spend", constant(0))

# evaluating them twice costs less than binding them
_CHEAP: Final = frozenset({"ident", "const", "select"})
# Charges for the time of regular expressions, chosen so that an evaluation takes about five seconds
# at most.
_PATTERN: Final = 32  # bytes charged for each byte of the pattern
_MATCHED: Final = 4  # bytes of text for which one byte is charged


def charged(root: Expr) -> Expr:
    """Return the expression with memory charges added; unchanged if it takes no memory."""
    return _Charging().of(root, repeated=False)


class _Charging:
    def __init__(self) -> None:
        self._numbers = count()

    def of(self, node: Expr, *, repeated: bool) -> Expr:
        """Return the node with charges; `repeated` is whether it is within a loop."""
        if node.kind == "comprehension":
            return self._comprehension(node, repeated=repeated)
        if _accumulates(node):
            total, item = node.parts
            inner = tuple(self.of(part, repeated=True) for part in item.parts)
            return replace(node, parts=(total, replace(item, parts=inner)))
        if _is_sum(node):
            return self._sum(node, [self.of(part, repeated=repeated) for part in _summands(node)])
        made = replace(node, parts=tuple(self.of(part, repeated=repeated) for part in node.parts))
        if node.kind == "call":
            return self._call(made, node.parts, repeated=repeated)
        if repeated and node.parts and node.kind in ("list", "struct"):
            size = (
                list_size(len(node.parts))
                if node.kind == "list"
                else map_size(len(node.parts) // 2)
            )
            return guarded(call("@spend", constant(size)), made)
        return made

    def _call(self, node: Expr, parts: tuple[Expr, ...], *, repeated: bool) -> Expr:
        if node.name == "matches" and parts[1].kind != "const":
            return self._matches(node)
        if node.name == "join" and (repeated or not is_light(parts[0])):
            return self._join(node)
        # then the check of that part comes first
        already = any(part.name in _IN_PYTHON or _is_sum(part) for part in parts)
        return guarded(_OPEN, node) if node.name in _IN_PYTHON and not already else node

    def _sum(self, node: Expr, summands: list[Expr]) -> Expr:
        """Guard a sum by the size of all its summands. Few nodes may be added per summand, since
        depth is limited.
        """
        if any(part.kind not in _CHEAP for part in summands):
            return self._evaluated(
                summands, lambda known: guarded(_sum_check(known), _replaced(node, iter(known)))
            )
        return guarded(_sum_check(summands), node)

    def _matches(self, node: Expr) -> Expr:
        """Charge for a pattern that is not constant: it is compiled each time and, in a loop,
        matched with a text repeatedly.
        """

        def within(known: list[Expr]) -> Expr:
            size = call(
                "_+_",
                call("_*_", _size(known[1]), constant(_PATTERN)),
                call("_/_", _size(known[0]), constant(_MATCHED)),
            )
            return guarded(call("@spend", size), replace(node, parts=tuple(known)))

        return self._evaluated([*node.parts], within)

    def _evaluated(self, values: list[Expr], within: Callable[[list[Expr]], Expr]) -> Expr:
        """Return `within`, given values that are evaluated once and in order, so that of several
        errors the first is raised.
        """
        variable = ident(self._name())
        used = [part for part in values if part.kind != "const"]
        if len(used) == 1:
            value, items = used[0], [replace(variable, type=used[0].type)]
        else:
            value = list_of(used)
            items = [
                replace(call("_[_]", variable, constant(at)), type=part.type)
                for at, part in enumerate(used)
            ]
        rest = iter(items)
        return bind(
            variable.name,
            value,
            within([part if part.kind == "const" else next(rest) for part in values]),
        )

    def _join(self, node: Expr) -> Expr:
        """Guard `join`: the list is passed to Python only if its parts together do not exceed the
        limit for a text.
        """
        parts, separator = node.parts
        name, item, total = self._name(), self._name(), self._name()
        size = fold(item, total, ident(name), call("_+_", ident(total), _text_size(ident(item))))
        return bind(
            name, parts, guarded(call("@fits", size), replace(node, parts=(ident(name), separator)))
        )

    def _comprehension(self, node: Expr, *, repeated: bool) -> Expr:
        over, start = (self.of(part, repeated=repeated) for part in node.parts[:2])
        condition, step = (self.of(part, repeated=True) for part in node.parts[2:4])
        result = self.of(node.parts[4], repeated=repeated)
        if start.kind == "list" and not is_bind(node):
            over = self._gathered(over)
            result = guarded(call("@gathered", call("size", result)), result)
        return replace(node, parts=(over, start, condition, step, result))

    def _gathered(self, over: Expr) -> Expr:
        if over.kind == "ident":
            return guarded(_gather(over), over)
        variable = ident(self._name(), over.type)
        return bind(variable.name, over, guarded(_gather(variable), variable))

    def _name(self) -> str:
        return f"@charged{next(self._numbers)}"


def _accumulates(node: Expr) -> bool:
    """Whether the node is the step of `filter` or `map`, or the counter of `exists_one`."""
    return (
        node.kind == "call"
        and node.name == "_+_"
        and node.parts[0].kind == "ident"
        and node.parts[0].name == _ACCUMULATED
    )


def _is_sum(node: Expr) -> bool:
    """Whether the node is a `+` that makes, or may make, a text or a list."""
    return (
        node.kind == "call"
        and node.name == "_+_"
        and not node.type.startswith(NUMBERS)
        and not _accumulates(node)
    )


def _summands(node: Expr) -> list[Expr]:
    return [each for part in node.parts for each in _summands(part)] if _is_sum(node) else [node]


def _replaced(node: Expr, summands: Iterator[Expr]) -> Expr:
    """Return the sum with its summands replaced, in order."""
    if not _is_sum(node):
        return next(summands)
    return replace(node, parts=tuple(_replaced(part, summands) for part in node.parts))


def _sum_check(summands: list[Expr]) -> Expr:
    """Return a check for a sum: each `+` makes a value that is at most as long as all summands
    together.
    """
    total = reduce(partial(call, "_+_"), map(_size, summands))
    return call("@sum", total, constant(len(summands) - 1))


def _size(node: Expr) -> Expr:
    """Return an expression for the bytes that a copy of the value takes; 0 for numbers."""
    if node.kind == "const":
        return constant(len(node.rest[0]))
    if node.type.startswith(NUMBERS):
        return constant(0)
    sizes: dict[bytes, tuple[str, Expr]] = {
        TEXT: ("string", _text_size(node)),
        BYTES: ("bytes", call("size", node)),
        LIST: ("list", call("_*_", call("size", node), constant(list_size(1) - list_size(0)))),
    }
    known = next(
        (size for begins, (_, size) in sizes.items() if node.type.startswith(begins)), None
    )
    return known or reduce(
        lambda other, kind: either(kind_of(node, kind[0]), kind[1], other),
        reversed(sizes.values()),
        constant(0),
    )


def _text_size(text: Expr) -> Expr:
    return call("size", call("bytes", text))


def _gather(value: Expr) -> Expr:
    """Return a check of the list or map from which a list is built."""
    check = call("@gather", call("size", value))
    if value.type.startswith((LIST, MAP)):
        return check
    return either(kind_of(value, "list"), check, either(kind_of(value, "map"), check, TRUE))
