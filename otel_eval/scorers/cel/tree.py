"""The syntax tree of a checked expression, read from the compiler's serialized form and written back to it.

Names of nodes that are added begin with `@`, which no written name does. Source: CEL's `syntax.proto` and `checked.proto`
(https://github.com/google/cel-spec, v0.24).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from typing import Final

from otel_eval.wire import WireField, fields, read_varint, sized, varint

RECORD: Final = bytes.fromhex("3a080a02180512020a00")
"""The type map(string, dyn), as a message: that of `run` and of each call."""

_KINDS: Final = {3: "const", 4: "ident", 5: "select", 6: "call", 7: "list", 8: "struct", 9: "comprehension"}
_NUMBERS: Final = {kind: number for number, kind in _KINDS.items()}
_ID: Final = 2  # of an expression
_STRING: Final = 6  # of a constant
# Types as messages: none, dyn, null; and the primitive ones: bool, int64, double, string.
_PLAIN: Final = (b"", b"\x0a\x00", b"\x10\x00", b"\x18\x01", b"\x18\x02", b"\x18\x04", b"\x18\x05")
_LIST, _MAP, _TEXT = 6, 7, b"\x18\x05"
# Which fields of each kind hold its name and its parts.
_NAME: Final = {"ident": 1, "select": 2, "call": 2, "struct": 1}
_PARTS: Final[dict[str, tuple[int, ...]]] = {"select": (1,), "call": (1, 3), "list": (1,), "comprehension": (2, 4, 5, 6, 7)}
_ENTRY: Final = 2  # of a struct
_ENTRY_PARTS: Final[tuple[int, ...]] = (3, 4)  # key and value
_VARIABLES: Final = (1, 3, 8)  # of a comprehension: the item, what is accumulated, the second item
_TYPE_URL: Final = b"type.googleapis.com/cel.expr.CheckedExpr"
_CHECKED: Final = 4  # of a checked expression: the expression


@dataclass(frozen=True, slots=True)
class Expr:
    """An expression within an expression.

    Attributes:
        kind: one of const, ident, select, call, list, struct, comprehension.
        name: of the variable, field, function or message; the text of a constant that is a text; else "".
        parts: the expressions it is made of, in order: operand or target first. A comprehension's are its range, and
            the start, condition, step and result of what it accumulates.
        type: its type as a message, b"" if it has none.
        binds: the variables that a comprehension binds.
        id: under which the compiler keeps its type and what its name refers to; 0 for a node that was added later.
        places: for each part, the index in `rest` and the number of the field that it stands in.
        rest: the serialized fields that are no parts: of each entry of a struct, of any other kind as a whole.
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
    """The root of a serialized `CheckedExpr`, which may be wrapped in an `Any`.

    Raises:
        ValueError: it is none.
    """
    checked = _unwrapped(serialized)
    types = {_number(entry, 1): _content(entry, 2) for entry in _contents(checked, 3)}
    return _node(_content(checked, _CHECKED), types)


def rewritten(serialized: bytes, root: Expr) -> bytes:
    """The serialized `CheckedExpr` with another root, wrapped in an `Any`.

    Its new nodes have neither types nor references: the evaluator finds what they name by the name.
    """
    fresh = count(max(node.id for node in nodes(root)) + 1)
    checked = _without(_unwrapped(serialized), (_CHECKED,)) + sized(_CHECKED, _encoded(root, fresh))
    return sized(1, _TYPE_URL) + sized(2, checked)


def nodes(root: Expr) -> Iterator[Expr]:
    """The node and all below it."""
    yield root
    for part in root.parts:
        yield from nodes(part)


def is_plain(root: Expr) -> bool:
    """Whether what it gives is the same after it was a value of Python: nothing unsigned, no time, no bytes, no key but texts."""
    return _is_plain_type(root.type) and all(is_plain(part) for part in root.parts)


def _is_plain_type(of: bytes) -> bool:
    if of in _PLAIN:
        return True
    kind, content = next((each.number, _cut(of, each)) for each in _fields(of))
    if kind == _MAP and _content(content, 1) != _TEXT:
        return False  # in Python, 1 and true are one key
    return kind in (_LIST, _MAP) and _is_plain_type(_content(content, 2 if kind == _MAP else 1))


def _unwrapped(serialized: bytes) -> bytes:
    is_any = any(each.number == 1 for each in islice(_fields(serialized), 1))
    return _content(serialized, 2) if is_any else serialized  # an Any begins with its type_url


def _node(raw: bytes, types: dict[int, bytes]) -> Expr:
    kind, content = next(
        ((_KINDS[each.number], _cut(raw, each)) for each in _fields(raw) if each.number in _KINDS), ("const", b"")
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
    binds = frozenset({_text(content, each) for each in _VARIABLES} - {""}) if kind == "comprehension" else frozenset[str]()
    parts, places = tuple(part for _, part in found), tuple(place for place, _ in found)
    return Expr(kind, _text(content, _NAME.get(kind, 0)), parts, of_type, binds, number, places, rest)


def _encoded(node: Expr, fresh: Iterator[int]) -> bytes:
    messages = [[each] for each in node.rest]
    for (at, number), part in zip(node.places, node.parts, strict=True):
        messages[at].append(sized(number, _encoded(part, fresh)))
    content = [b"".join(message) for message in messages]
    if node.kind == "struct":
        content = [sized(1, node.name.encode()), *(sized(_ENTRY, entry) for entry in content)]
    return varint(_ID << 3) + varint(node.id or next(fresh)) + sized(_NUMBERS[node.kind], b"".join(content))


def _fields(message: bytes) -> Iterator[WireField]:
    return fields(message, 0, len(message))


def _cut(message: bytes, field: WireField) -> bytes:
    return message[field.content : field.stop]


def _contents(message: bytes, wanted: int) -> list[bytes]:
    return [_cut(message, each) for each in _fields(message) if each.number == wanted]


def _content(message: bytes, wanted: int) -> bytes:
    return next(iter(_contents(message, wanted)), b"")


def _without(message: bytes, numbers: tuple[int, ...]) -> bytes:
    return b"".join([message[each.start : each.stop] for each in _fields(message) if each.number not in numbers])


def _number(message: bytes, wanted: int) -> int:
    # All tags here take one byte.
    return next((read_varint(message, each.content)[0] for each in _fields(message) if message[each.start] == wanted << 3), 0)


def _text(message: bytes, wanted: int) -> str:
    return _content(message, wanted).decode("utf-8", "replace")


# The item of a comprehension over nothing. The evaluator recognises `cel.bind` by the first and evaluates its value late.
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
    """A whole number of at least 0."""
    return Expr("const", rest=(varint(_INT << 3) + varint(number),))


def ident(name: str, of: bytes = b"") -> Expr:
    """A variable."""
    return Expr("ident", name, type=of, rest=(sized(1, name.encode()),))


def call(function: str, *arguments: Expr) -> Expr:
    """A call of a function that is no member."""
    return Expr("call", function, arguments, places=((0, 3),) * len(arguments), rest=(sized(2, function.encode()),))


def list_of(items: list[Expr]) -> Expr:
    """A list."""
    return Expr("list", parts=tuple(items), places=((0, 1),) * len(items))


def either(condition: Expr, then: Expr, otherwise: Expr) -> Expr:
    """`condition ? then : otherwise`."""
    return call("_?_:_", condition, then, otherwise)


def guarded(check: Expr, node: Expr) -> Expr:
    """The node, where a check that is true or an error is no error. The check comes first."""
    return either(check, node, _FALSE)


def kind_of(node: Expr, kind: str) -> Expr:
    """Whether the node is a `string`, `bytes`, `list` or `map`. By an example: a variable may have the name of a type."""
    return call("_==_", call("type", node), call("type", _EMPTY[kind]))


def bind(name: str, value: Expr, within: Expr) -> Expr:
    """The value is evaluated, and then what is made of it under its name; an error is a value, which may not matter."""
    return _comprehension(_NOTHING, name, Expr("list"), value, _FALSE, ident(name), within)


def lazily(name: str, value: Expr, within: Expr) -> Expr:
    """The same, but the value is evaluated where and when it is first asked for, and once."""
    made = _comprehension(_LAZY, name, Expr("list"), value, _FALSE, ident(name), within)
    return guarded(_CLEARED, made)


def is_bind(node: Expr) -> bool:
    """Whether the node is `bind`, `lazily` or `cel.bind`: all are comprehensions over nothing."""
    return node.kind == "comprehension" and not node.binds.isdisjoint((_NOTHING, _LAZY))


def without_lazy(root: Expr) -> Expr:
    """The expression with `bind` for each `cel.bind`."""
    made = replace(root, parts=tuple(map(without_lazy, root.parts)))
    if not (root.kind == "comprehension" and _LAZY in root.binds):
        return made
    (name,) = root.binds - {_LAZY}
    return replace(bind(name, made.parts[1], made.parts[4]), type=root.type)


def fold(item: str, total: str, over: Expr, step: Expr) -> Expr:
    """What `step`, a whole number made from `total` and `item`, comes to after all items of a list."""
    return _comprehension(item, total, over, constant(0), TRUE, step, ident(total))


def _comprehension(item: str, accumulated: str, *parts: Expr) -> Expr:
    names = sized(1, item.encode()) + sized(3, accumulated.encode())
    places = tuple((0, number) for number in (2, 4, 5, 6, 7))
    return Expr("comprehension", parts=parts, binds=frozenset({item, accumulated}), places=places, rest=(names,))


# A comprehension that ends early, as `exists` does, leaves its item where cel-expr-python 0.1.3 looks whether a late value
# at the same depth was evaluated already, and takes the item for the value. One that ends by itself clears the place.
_CLEARED: Final = _comprehension(_NOTHING, "@cleared", Expr("list"), TRUE, TRUE, ident("@cleared"), ident("@cleared"))
