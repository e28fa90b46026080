"""The syntax tree of a checked expression, read from the form in which the compiler hands it out.

Knows the messages of CEL's published `syntax.proto` and `checked.proto` (https://github.com/google/cel-spec, v0.24) and
as much of the wire format as they need; knows no variable and no value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

__all__ = ["RECORD", "Node", "is_plain", "parse"]

RECORD: Final = bytes.fromhex("3a080a02180512020a00")
"""The type map(string, dyn), as a message: that of `run` and of each call."""

_KINDS: Final = {3: "const", 4: "ident", 5: "select", 6: "call", 7: "list", 8: "struct", 9: "comprehension"}
_STRING: Final = 6  # of a constant
# Of a type: dyn, null; and the primitive ones: bool, int64, double, string.
_PLAIN: Final = ((1, b""), (2, 0), (3, 1), (3, 2), (3, 4), (3, 5))
_LIST, _MAP, _TEXT = 6, 7, b"\x18\x05"
# Which fields of each kind hold its name and its parts.
_NAME: Final = {"ident": 1, "select": 2, "call": 2}
_PARTS: Final = {"select": (1,), "call": (1, 3), "list": (1,), "comprehension": (2, 4, 5, 6, 7)}


@dataclass(frozen=True, slots=True)
class Node:
    """An expression within an expression.

    Attributes:
        kind: one of const, ident, select, call, list, struct, comprehension.
        name: of the variable, field or function; the text of a constant that is a text; else "".
        parts: the expressions it is made of, in order: operand or target first. A comprehension's are its range, and
            the start, condition, step and result of what it gathers.
        type: its type as a message, b"" if it has none.
        binds: the variables that a comprehension binds.
    """

    kind: str
    name: str = ""
    parts: tuple[Node, ...] = ()
    type: bytes = field(default=b"", repr=False)
    binds: frozenset[str] = frozenset()


def parse(serialized: bytes) -> Node:
    """The root of a serialized `CheckedExpr`, which may be wrapped in an `Any`."""
    parts = _fields(serialized)
    if parts and parts[0][0] == 1:  # type_url
        parts = _fields(_bytes(parts, 2))
    types = {_number(entry, 1): _bytes(entry, 2) for entry in (_fields(_as_bytes(value)) for key, value in parts if key == 3)}
    return _node(_bytes(parts, 4), types)


def is_plain(root: Node) -> bool:
    """Whether what it gives is the same after it was a value of Python: nothing unsigned, no time, no bytes, no key but texts."""
    return _is_plain_type(root.type) and all(is_plain(part) for part in root.parts)


def _is_plain_type(of: bytes) -> bool:
    parts = _fields(of)
    if not parts or parts[0] in _PLAIN:
        return True
    kind, inner = parts[0][0], _fields(_as_bytes(parts[0][1]))
    if kind == _MAP and _bytes(inner, 1) != _TEXT:
        return False  # in Python, 1 and true are one key
    return kind in (_LIST, _MAP) and _is_plain_type(_bytes(inner, 2 if kind == _MAP else 1))


Fields = list[tuple[int, "int | bytes"]]


def _node(raw: bytes, types: dict[int, bytes]) -> Node:
    parts = _fields(raw)
    kind, inner = next(((_KINDS[key], _fields(_as_bytes(value))) for key, value in parts if key in _KINDS), ("const", []))
    of_type = types.get(_number(parts, 2), b"")
    if kind == "const":
        return Node(kind, _text(inner, _STRING), type=of_type)
    if kind == "struct":
        return Node(kind, parts=tuple(_entries(inner, types)), type=of_type)
    below = tuple(_node(_as_bytes(value), types) for wanted in _PARTS.get(kind, ()) for key, value in inner if key == wanted)
    if kind == "comprehension":
        return Node(kind, parts=below, type=of_type, binds=frozenset({_text(inner, 1), _text(inner, 3), _text(inner, 8)} - {""}))
    return Node(kind, _text(inner, _NAME.get(kind, 0)), below, of_type)


def _entries(inner: Fields, types: dict[int, bytes]) -> Iterator[Node]:
    for key, entry in inner:
        if key == 2:
            yield from (_node(_as_bytes(value), types) for part, value in _fields(_as_bytes(entry)) if part in (3, 4))


def _fields(raw: bytes) -> Fields:
    found: Fields = []
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire == 0:
            number, at = _varint(raw, at)
            found.append((tag >> 3, number))
            continue
        size = 8 if wire == 1 else 4
        if wire == 2:
            size, at = _varint(raw, at)
        found.append((tag >> 3, raw[at : at + size]))
        at += size
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _as_bytes(value: int | bytes) -> bytes:
    return value if isinstance(value, bytes) else b""


def _bytes(parts: Fields, wanted: int) -> bytes:
    return next((value for key, value in parts if key == wanted and isinstance(value, bytes)), b"")


def _number(parts: Fields, wanted: int) -> int:
    return next((value for key, value in parts if key == wanted and isinstance(value, int)), 0)


def _text(parts: Fields, wanted: int) -> str:
    return _bytes(parts, wanted).decode("utf-8", "replace")
