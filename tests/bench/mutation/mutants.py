"""Small changes of a module, one at a time: typical typing errors.

Knows operators, comparisons, conditions, constants and words of Python; knows no test and no
scorer.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
NAMED = {"min": "max", "max": "min", "any": "all", "all": "any"}
GUARDS = (
    "strict",
    "slots",
    "repr",
    "frozen",
    "kw_only",
)  # of zip and dataclasses: they catch mistakes of ours, and change no outcome
WORD = re.compile(r"[a-z][a-z0-9_]*")  # a key or a label; sentences are read by people


class Mutant(NamedTuple):
    """A module with one change, and the lines of the original that hold it."""

    module: str
    lines: range
    change: str
    source: str
    nth: int  # of the same change in lines that read the same

    @property
    def name(self) -> str:
        """What tells it from the others as long as its line reads the same, wherever the line
        goes.
        """
        return f"{self.module} {self.nth} {self.change}"


def mutants(module: str, source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its tree."""
    written = source.splitlines()
    tree = ast.parse(source)
    seen: Counter[str] = Counter()
    idle = {
        id(below) for each in ast.walk(tree) for part in _idle(each) for below in ast.walk(part)
    }
    for at, node in enumerate(ast.walk(tree)):
        if isinstance(node, (ast.expr, ast.stmt, ast.comprehension)) and id(node) not in idle:
            for way in range(2):
                if _changed(other := deepcopy(node), way):
                    first, last = _lines(node)
                    change = (
                        f"{_short(node)}  ->  {_short(other)}   in: {written[first - 1].strip()}"
                    )
                    seen[change] += 1
                    yield Mutant(
                        module,
                        range(first, last + 1),
                        change,
                        _source(source, at, way),
                        seen[change],
                    )


def _source(source: str, at: int, way: int) -> str:
    """The module with its n-th node changed."""
    tree = ast.parse(source)
    _changed(list(ast.walk(tree))[at], way)
    return ast.unparse(tree)


def _idle(node: ast.AST) -> Iterator[ast.AST]:
    """Parts that are never evaluated, or that are sentences."""
    for key in ("annotation", "returns"):
        if part := getattr(node, key, None):
            yield part
    match node:
        case (
            ast.Subscript(value=ast.Name(id="Literal"))
            | ast.Assign(targets=[ast.Name(id="__all__")])
        ):
            yield node
        case ast.Call(func=ast.Name(id="zip" | "dataclass" | "field")):
            yield from (option.value for option in node.keywords if option.arg in GUARDS)
        case ast.JoinedStr():
            yield from (part for part in node.values if isinstance(part, ast.Constant))


def _changed(node: ast.AST, way: int) -> bool:
    """Change the node in its n-th way; False if it has no such way."""
    if isinstance(node, ast.Constant):
        return _constant(node, way)
    if isinstance(node, ast.Compare):
        return way < len(node.ops) and _compared(node, way)
    return way == 0 and _other(node)


def _constant(node: ast.Constant, way: int) -> bool:
    match node.value:
        case bool() if way == 0:
            node.value = not node.value
        case bool():
            return False
        case int() | float():
            node.value += 1 - 2 * way
        case str() if way == 0 and WORD.fullmatch(node.value):
            node.value += "_"
        case _:
            return False
    return True


def _compared(node: ast.Compare, way: int) -> bool:
    node.ops[way] = COMPARED[type(node.ops[way])]()
    return True


def _other(node: ast.AST) -> bool:
    match node:
        case ast.BinOp() | ast.AugAssign() if type(node.op) in COMPUTED:
            node.op = COMPUTED[type(node.op)]()
        case ast.BoolOp():
            node.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            node.op = ast.UAdd()  # as a condition: what it was without "not"
            node.operand = ast.Call(ast.Name("bool", ast.Load()), [node.operand], [])
        case ast.If() | ast.While() | ast.IfExp() if isinstance(
            node.test, (ast.Name, ast.Attribute, ast.Call, ast.NamedExpr)
        ):
            node.test = ast.UnaryOp(ast.Not(), node.test)
        case ast.comprehension(
            ifs=[ast.Name() | ast.Attribute() | ast.Call() | ast.NamedExpr() as test, *_]
        ):
            node.ifs[0] = ast.UnaryOp(ast.Not(), test)
        case ast.Call(func=ast.Name(id=name)) if name in NAMED:
            node.func = ast.Name(NAMED[name], ast.Load())
        case _:
            return False
    return True


def _lines(node: ast.expr | ast.stmt | ast.comprehension) -> tuple[int, int]:
    """The first and the last line of what changes: of a statement, its condition."""
    here = (
        node.ifs[0]
        if isinstance(node, ast.comprehension)
        else node.test
        if isinstance(node, (ast.If, ast.While))
        else node
    )
    return here.lineno, here.end_lineno or here.lineno


def _short(node: ast.AST) -> str:
    return ast.unparse(node).splitlines()[0]
