"""Decode the syntax tree of a checked expression from the compiler's serialized form.

Source: CEL's `syntax.proto` and `checked.proto` (https://github.com/google/cel-spec, v0.24).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from otel_eval.wire import WireField, fields, read_varint

RECORD: Final = bytes.fromhex("3a080a02180512020a00")
"""The serialized type map(string, dyn), which `run` and each call have."""

_KINDS: Final = {
    3: "const",
    4: "ident",
    5: "select",
    6: "call",
    7: "list",
    8: "struct",
    9: "comprehension",
}
_ID: Final = 2  # of an expression
_STRING: Final = 6  # of a constant
# The field numbers of the name and of the parts of each kind.
_NAME: Final = {"ident": 1, "select": 2, "call": 2, "struct": 1}
_PARTS: Final[dict[str, tuple[int, ...]]] = {
    "select": (1,),
    "call": (1, 3),
    "list": (1,),
    "comprehension": (2, 4, 5, 6, 7),
}
_ENTRY: Final = 2  # of a struct
_ENTRY_PARTS: Final[tuple[int, ...]] = (3, 4)  # key and value
_VARIABLES: Final = (1, 3, 8)  # of a comprehension: the item, what is accumulated, the second item
_CHECKED: Final = 4  # of a checked expression: the expression


@dataclass(frozen=True, slots=True)
class Expr:
    """A node of the syntax tree.

    Attributes:
        kind: one of const, ident, select, call, list, struct, comprehension.
        name: the name of the variable, field, function or message; the text of a string constant;
            otherwise "".
        parts: the subexpressions in order, operand or target first. Those of a comprehension are
            its range, and the initial value, condition, step and result of its accumulator.
        type: its serialized type, b"" if it has none.
        binds: the variables that a comprehension binds.
    """

    kind: str
    name: str = ""
    parts: tuple[Expr, ...] = ()
    type: bytes = field(default=b"", repr=False)
    binds: frozenset[str] = frozenset()


def nodes(root: Expr) -> Iterator[Expr]:
    """Yield the node and all below it."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += node.parts


def parse(serialized: bytes) -> Expr:
    """Decode a serialized `CheckedExpr`, which may be wrapped in an `Any`, and return its root.

    Raises:
        ValueError: it is not a `CheckedExpr`.
    """
    checked = _unwrapped(serialized)
    types = {_number(entry, 1): _content(entry, 2) for entry in _contents(checked, 3)}
    return _node(_content(checked, _CHECKED), types)


def _unwrapped(serialized: bytes) -> bytes:
    is_any = any(member.number == 1 for member in islice(_fields(serialized), 1))
    # an `Any` begins with its type_url, field 1
    return _content(serialized, 2) if is_any else serialized


def _node(raw: bytes, types: dict[int, bytes]) -> Expr:
    kind, content = next(
        (
            (_KINDS[member.number], _cut(raw, member))
            for member in _fields(raw)
            if member.number in _KINDS
        ),
        ("const", b""),
    )
    of_type = types.get(_number(raw, _ID), b"")
    if kind == "const":
        return Expr(kind, _text(content, _STRING), type=of_type)
    messages, numbers = [content], _PARTS.get(kind, ())
    if kind == "struct":
        messages, numbers = _contents(content, _ENTRY), _ENTRY_PARTS
    parts = tuple(
        _node(part, types)
        for message in messages
        for number in numbers
        for part in _contents(message, number)
    )
    variables = {_text(content, number) for number in _VARIABLES} - {""}
    binds = frozenset(variables if kind == "comprehension" else ())
    return Expr(kind, _text(content, _NAME.get(kind, 0)), parts, of_type, binds)


def _fields(message: bytes) -> Iterator[WireField]:
    return fields(message, 0, len(message))


def _cut(message: bytes, field: WireField) -> bytes:
    return message[field.content : field.stop]


def _contents(message: bytes, number: int) -> list[bytes]:
    return [_cut(message, member) for member in _fields(message) if member.number == number]


def _content(message: bytes, number: int) -> bytes:
    return next(iter(_contents(message, number)), b"")


def _number(message: bytes, number: int) -> int:
    # All tags here take one byte.
    return next(
        (
            read_varint(message, member.content)[0]
            for member in _fields(message)
            if message[member.start] == number << 3
        ),
        0,
    )


def _text(message: bytes, number: int) -> str:
    return _content(message, number).decode("utf-8", "replace")
