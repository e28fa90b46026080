"""Decode the syntax tree of a checked expression from the compiler's serialized form, and encode it
again.

Names in added nodes begin with `@`, which no name in a source text does. Source: CEL's
`syntax.proto` and `checked.proto` (https://github.com/google/cel-spec, v0.24).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Final

from otel_eval.wire import WireField, fields, read_varint, sized, varint

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
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
_ID: Final = 2  # of an expression
_STRING: Final = 6  # of a constant
# Serialized types: none, dyn, null, and the primitive types bool, int64, double, string.
_PLAIN: Final = (b"", b"\x0a\x00", b"\x10\x00", b"\x18\x01", b"\x18\x02", b"\x18\x04", b"\x18\x05")
_LIST, _MAP, _TEXT = 6, 7, b"\x18\x05"
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
_TYPE_URL: Final = b"type.googleapis.com/cel.expr.CheckedExpr"
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
        id: the key of its type and reference in the compiler's tables; 0 for an added node.
        places: for each part, its index in `rest` and its field number.
        rest: the serialized fields other than parts: one item for each entry of a struct, one item
            for any other kind.
    """

    kind: str
    name: str = ""
    parts: tuple[Expr, ...] = ()
    type: bytes = field(default=b"", repr=False)
    binds: frozenset[str] = frozenset()
    id: int = field(default=0, repr=False)
    places: tuple[tuple[int, int], ...] = field(default=(), repr=False)
    rest: tuple[bytes, ...] = field(default=(b"",), repr=False)


def parse(serialized: bytes) -> Expr:
    """Decode a serialized `CheckedExpr`, which may be wrapped in an `Any`, and return its root.

    Raises:
        ValueError: it is not a `CheckedExpr`.
    """
    checked = _unwrapped(serialized)
    types = {_number(entry, 1): _content(entry, 2) for entry in _contents(checked, 3)}
    return _node(_content(checked, _CHECKED), types)


def rewritten(serialized: bytes, root: Expr) -> bytes:
    """Return the serialized `CheckedExpr` with a different root, wrapped in an `Any`.

    Added nodes have neither types nor references: the evaluator resolves them by name.
    """
    fresh = count(max(node.id for node in nodes(root)) + 1)
    checked = _without(_unwrapped(serialized), (_CHECKED,)) + sized(_CHECKED, _encoded(root, fresh))
    return sized(1, _TYPE_URL) + sized(2, checked)


def nodes(root: Expr) -> Iterator[Expr]:
    """Yield the node and all its descendants."""
    yield root
    for part in root.parts:
        yield from nodes(part)


def is_plain(root: Expr) -> bool:
    """Whether the value is unchanged by conversion to Python and back: no unsigned numbers, times
    or bytes, only string keys.
    """
    return _is_plain_type(root.type) and all(is_plain(part) for part in root.parts)


def _is_plain_type(of: bytes) -> bool:
    if of in _PLAIN:
        return True
    kind, content = next((each.number, _cut(of, each)) for each in _fields(of))
    if kind == _MAP and _content(content, 1) != _TEXT:
        return False  # in Python, 1 and true are the same key
    return kind in (_LIST, _MAP) and _is_plain_type(_content(content, 2 if kind == _MAP else 1))


def _unwrapped(serialized: bytes) -> bytes:
    is_any = any(each.number == 1 for each in islice(_fields(serialized), 1))
    # an `Any` begins with its type_url, field 1
    return _content(serialized, 2) if is_any else serialized


def _node(raw: bytes, types: dict[int, bytes]) -> Expr:
    kind, content = next(
        ((_KINDS[each.number], _cut(raw, each)) for each in _fields(raw) if each.number in _KINDS),
        ("const", b""),
    )
    number = _number(raw, _ID)
    of_type = types.get(number, b"")
    if kind == "const":
        return Expr(kind, _text(content, _STRING), type=of_type, id=number, rest=(content,))
    groups, numbers = [content], _PARTS.get(kind, ())
    if kind == "struct":
        groups, numbers = _contents(content, _ENTRY), _ENTRY_PARTS
    found = [
        ((at, wanted), _node(part, types))
        for at, group in enumerate(groups)
        for wanted in numbers
        for part in _contents(group, wanted)
    ]
    rest = tuple(_without(group, numbers) for group in groups)
    binds = (
        frozenset({_text(content, each) for each in _VARIABLES} - {""})
        if kind == "comprehension"
        else frozenset[str]()
    )
    parts, places = tuple(part for _, part in found), tuple(place for place, _ in found)
    return Expr(
        kind, _text(content, _NAME.get(kind, 0)), parts, of_type, binds, number, places, rest
    )


def _encoded(node: Expr, fresh: Iterator[int]) -> bytes:
    messages = [[each] for each in node.rest]
    for (at, number), part in zip(node.places, node.parts, strict=True):
        messages[at].append(sized(number, _encoded(part, fresh)))
    content = [b"".join(message) for message in messages]
    if node.kind == "struct":
        content = [sized(1, node.name.encode()), *(sized(_ENTRY, entry) for entry in content)]
    return (
        varint(_ID << 3)
        + varint(node.id or next(fresh))
        + sized(_NUMBERS[node.kind], b"".join(content))
    )


def _fields(message: bytes) -> Iterator[WireField]:
    return fields(message, 0, len(message))


def _cut(message: bytes, field: WireField) -> bytes:
    return message[field.content : field.stop]


def _contents(message: bytes, wanted: int) -> list[bytes]:
    return [_cut(message, each) for each in _fields(message) if each.number == wanted]


def _content(message: bytes, wanted: int) -> bytes:
    return next(iter(_contents(message, wanted)), b"")


def _without(message: bytes, numbers: tuple[int, ...]) -> bytes:
    return b"".join(
        [message[each.start : each.stop] for each in _fields(message) if each.number not in numbers]
    )


def _number(message: bytes, wanted: int) -> int:
    # All tags here take one byte.
    return next(
        (
            read_varint(message, each.content)[0]
            for each in _fields(message)
            if message[each.start] == wanted << 3
        ),
        0,
    )


def _text(message: bytes, wanted: int) -> str:
    return _content(message, wanted).decode("utf-8", "replace")


# Item variables of comprehensions over an empty list. The evaluator recognises `cel.bind` by the
# first and binds lazily.
_LAZY, _NOTHING = "#unused", "@nothing"
_BOOL, _INT, _STRING_NODES, _BYTES = 2, 3, 6, 7  # of a constant
TRUE: Final = Expr("const", rest=(varint(_BOOL << 3) + b"\x01",))
_FALSE: Final = Expr("const", rest=(varint(_BOOL << 3) + b"\x00",))
_EMPTY: Final[dict[str, Expr]] = {
    "string": Expr("const", rest=(sized(_STRING_NODES, b""),)),
    "bytes": Expr("const", rest=(sized(_BYTES, b""),)),
    "list": Expr("list"),
    "map": Expr("struct", rest=()),
}


def constant(number: int) -> Expr:
    """Return a constant for an integer of at least 0."""
    return Expr("const", rest=(varint(_INT << 3) + varint(number),))


def ident(name: str, of: bytes = b"") -> Expr:
    """Return a reference to a variable."""
    return Expr("ident", name, type=of, rest=(sized(1, name.encode()),))


def call(function: str, *arguments: Expr) -> Expr:
    """Return a call of a function that is not a member function."""
    return Expr(
        "call",
        function,
        arguments,
        places=((0, 3),) * len(arguments),
        rest=(sized(2, function.encode()),),
    )


def list_of(items: list[Expr]) -> Expr:
    """Return a list literal."""
    return Expr("list", parts=tuple(items), places=((0, 1),) * len(items))


def either(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """Return `condition ? then : otherwise`."""
    return call("_?_:_", condition, then, otherwise)


def guarded(check: Expr, node: Expr) -> Expr:
    """Return the node, evaluated after a check, which must be true; an error of the check becomes
    the node's error.
    """
    return either(check, node, _FALSE)


def kind_of(node: Expr, kind: str) -> Expr:
    """Return a test for a `string`, `bytes`, `list` or `map`. It compares with a literal, as a
    variable may shadow a type.
    """
    return call("_==_", call("type", node), call("type", _EMPTY[kind]))


def bind(name: str, value: Expr, within: Expr) -> Expr:
    """Bind a name to a value, eagerly, within an expression; an error is bound like a value and
    matters only if used.
    """
    return _comprehension(_NOTHING, name, Expr("list"), value, _FALSE, ident(name), within)


def lazily(name: str, value: Expr, within: Expr) -> Expr:
    """Bind a name to a value lazily: it is evaluated at its first use, and only once."""
    made = _comprehension(_LAZY, name, Expr("list"), value, _FALSE, ident(name), within)
    return guarded(_CLEARED, made)


def is_bind(node: Expr) -> bool:
    """Whether the node is made by `bind`, `lazily` or `cel.bind`: all are comprehensions over an
    empty list.
    """
    return node.kind == "comprehension" and not node.binds.isdisjoint((_NOTHING, _LAZY))


def without_lazy(root: Expr) -> Expr:
    """Return the expression with each `cel.bind` replaced by `bind`."""
    made = replace(root, parts=tuple(map(without_lazy, root.parts)))
    if not (root.kind == "comprehension" and _LAZY in root.binds):
        return made
    (name,) = root.binds - {_LAZY}
    return replace(bind(name, made.parts[1], made.parts[4]), type=root.type)


def fold(item: str, total: str, over: Expr, step: Expr) -> Expr:
    """Return a fold over a list: `total` starts at 0 and is replaced by `step`, an integer, for
    each `item`.
    """
    return _comprehension(item, total, over, constant(0), TRUE, step, ident(total))


def _comprehension(item: str, accumulated: str, *parts: Expr) -> Expr:
    names = sized(1, item.encode()) + sized(3, accumulated.encode())
    places = tuple((0, number) for number in (2, 4, 5, 6, 7))
    return Expr(
        "comprehension",
        parts=parts,
        binds=frozenset({item, accumulated}),
        places=places,
        rest=(names,),
    )


# A comprehension that ends early, as `exists` does, leaves its item in the slot where
# cel-expr-python 0.1.3 looks up whether a lazy value at the same depth was evaluated, so that the
# item is used as the value. One that ends normally clears the slot.
_CLEARED: Final = _comprehension(
    _NOTHING, "@cleared", Expr("list"), TRUE, TRUE, ident("@cleared"), ident("@cleared")
)
