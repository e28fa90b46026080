"""The fields of the run and of its calls that expressions may use, and which of them one reads,
decoded from the compiler's serialized form.

Source: CEL's `syntax.proto` and `checked.proto` (https://github.com/google/cel-spec, v0.24).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import astuple, dataclass, field
from itertools import islice
from operator import or_
from typing import Any, Final

from otel_eval.errors import ConfigError, did_you_mean
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
    stack = [root]
    while stack:
        node = stack.pop()
        yield node
        stack += node.parts


def parse(serialized: bytes) -> Expr:
    """Decode a serialized `CheckedExpr`, which may be wrapped in an `Any`, and return its root.

    Raises:
        ValueError: it is not a `CheckedExpr`.
    """
    checked = _unwrapped(serialized)
    types = {_number(entry, 1): _content(entry, 2) for entry in _contents(checked, 3)}
    return _node(_content(checked, _CHECKED), types)


def _unwrapped(serialized: bytes) -> bytes:
    is_any = any(member.number == 1 for member in islice(_wire_fields(serialized), 1))
    # an `Any` begins with its type_url, field 1
    return _content(serialized, 2) if is_any else serialized


def _node(raw: bytes, types: dict[int, bytes]) -> Expr:
    """Decode an expression; `types` are serialized types by the ids of expressions."""
    kind, content = next(
        (
            (_KINDS[member.number], _content_of_field(raw, member))
            for member in _wire_fields(raw)
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


def _wire_fields(message: bytes) -> Iterator[WireField]:
    return fields(message, 0, len(message))


def _content_of_field(message: bytes, field: WireField) -> bytes:
    return message[field.content : field.stop]


def _contents(message: bytes, number: int) -> list[bytes]:
    """The contents of all fields of a message with this number."""
    return [
        _content_of_field(message, member)
        for member in _wire_fields(message)
        if member.number == number
    ]


def _content(message: bytes, number: int) -> bytes:
    return next(iter(_contents(message, number)), b"")


def _number(message: bytes, number: int) -> int:
    # All tags here take one byte.
    return next(
        (
            read_varint(message, member.content)[0]
            for member in _wire_fields(message)
            if message[member.start] == number << 3
        ),
        0,
    )


def _text(message: bytes, number: int) -> str:
    return _content(message, number).decode("utf-8", "replace")


RUN_FIELDS: Final = (
    "agent",
    "name",
    "service",
    "conversation",
    "duration_ms",
    "model_calls",
    "input_tokens",
    "output_tokens",
    "input",
    "output",
    "attributes",
)
CALL_FIELDS: Final = ("name", "arguments", "result", "error", "duration_ms", "start_ms", "agent")

_NEEDED: Final = {
    "run.input": "content",
    "run.output": "content",
    "run.input_tokens": "tokens",
    "run.output_tokens": "tokens",
    "calls.arguments": "arguments",
    "calls.result": "results",
}
_NAME_IT: Final = 'name the attribute, as run.attributes["user.tier"]'
_COMPARES: Final = frozenset({"_==_", "_!=_", "@in"})
_BY_KEY: Final = frozenset({"_[_]", "@in"})


@dataclass(frozen=True, slots=True)
class FieldsRead:
    """The variables and fields that an expression reads.

    Attributes:
        names: the variables: `run`, `calls`, `reference`, labels.
        run, calls: the fields of the run and of calls.
        attributes: the keys of `run.attributes`.
    """

    names: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()

    def __or__(self, other: FieldsRead) -> FieldsRead:
        return FieldsRead(*map(or_, astuple(self), astuple(other)))

    @property
    def needs(self) -> frozenset[str]:
        """The fields as items of a scorer's `needs`."""
        looked_at = {f"run.{name}" for name in self.run} | {f"calls.{name}" for name in self.calls}
        return frozenset(_NEEDED[name] for name in looked_at if name in _NEEDED)


def read(root: Expr) -> FieldsRead:
    """Return what the expression reads.

    Raises:
        ConfigError: it reads an unknown field, reads the run as a whole, or compares whole calls.
    """
    facts = dict.fromkeys(
        [
            *(_WHOLE_CALL if RECORD in root.type and root.kind != "struct" else ()),
            *_facts_read(root, frozenset()),
        ]
    )
    problems = [value for kind, value in facts if kind == "problem"]
    if problems:
        raise ConfigError(*problems)
    variables, run, calls, attributes = (
        frozenset(value for of_kind, value in facts if of_kind == kind)
        for kind in ("variable", "run", "calls", "attribute")
    )
    return FieldsRead(variables, run, calls, attributes)


_Fact = tuple[str, str]
# the fields of a call that is used as a whole
_WHOLE_CALL: Final = [("calls", name) for name in CALL_FIELDS]


def _facts_read(node: Expr, bound: frozenset[str]) -> Iterator[_Fact]:
    """Yield what the node and its descendants read, and problems; `bound` are the variables of
    enclosing comprehensions.
    """
    looked_at, ends_here = _field_read(node, bound)
    yield from looked_at
    if ends_here:
        return
    if _is_dotted(node, bound):
        yield "problem", f"run.attributes.{node.parts[0].name}.{node.name}: {_NAME_IT}"
    if node.kind == "ident" and node.name not in bound:
        yield "variable", node.name
        if node.name == "run":
            yield "problem", "run: cannot be looked at as a whole; name a field such as run.output"
    if _compares(node):
        yield (
            "problem",
            "calls[]: a call cannot be compared as a whole; compare fields such as its name",
        )
    if any(RECORD in part.type and _takes(node, part) for part in node.parts):
        yield from _WHOLE_CALL
    for at, part in enumerate(node.parts):
        # the range is outside of the scope of these variables
        yield from _facts_read(part, bound | node.binds if at else bound)


def _field_read(node: Expr, bound: frozenset[str]) -> tuple[list[_Fact], bool]:
    """Return the field that the node reads, and whether its parts need no further inspection."""
    operand, field = _field(node) or (node, "")
    if operand is node:
        return [], False
    if _is_run(operand, bound):
        whole = [("problem", f"run.attributes: {_NAME_IT}")] if field == "attributes" else []
        return [("variable", "run"), *_field_facts("run", "run", field, RUN_FIELDS), *whole], True
    owner, part = _field(operand) or (operand, "")
    if part == "attributes" and _is_run(owner, bound):
        return [("variable", "run"), ("run", "attributes"), ("attribute", field)], True
    is_call = operand.type == RECORD and operand.kind != "struct"
    return _field_facts("calls", "calls[]", field, CALL_FIELDS) if is_call else [], False


def _field_facts(
    kind: str, owner: str, field: str, fields_of_owner: tuple[str, ...]
) -> list[_Fact]:
    """That a field of the run or of calls is read, and a problem if there is no such field."""
    unknown = (
        [("problem", f"there is no field {owner}.{field}; {did_you_mean(field, fields_of_owner)}")]
        if field not in fields_of_owner
        else []
    )
    return [(kind, field), *unknown]


def _field(node: Expr) -> tuple[Expr, str] | None:
    """Return x and the field for `x.field`, `x["field"]`, `has(x.field)` and `"field" in x`; None
    for any other node.
    """
    if node.kind == "select":
        return node.parts[0], node.name
    if node.kind != "call" or len(node.parts) != 2 or node.name not in _BY_KEY:
        return None
    operand, key = node.parts if node.name == "_[_]" else node.parts[::-1]
    return (operand, key.name) if key.kind == "const" and key.name else None


def _is_run(node: Expr, bound: frozenset[str]) -> bool:
    return node.kind == "ident" and node.name == "run" and "run" not in bound


def _is_dotted(node: Expr, bound: frozenset[str]) -> bool:
    """Whether the node is like `run.attributes.user.tier`, which reads `tier` of an attribute
    `user`.
    """
    if node.kind != "select" or node.parts[0].kind != "select":
        return False
    owner = _field(node.parts[0].parts[0])
    return owner is not None and owner[1] == "attributes" and _is_run(owner[0], bound)


def _compares(node: Expr) -> bool:
    """Whether the node compares whole calls; testing for a key in a call is no comparison."""
    if node.kind != "call" or node.name not in _COMPARES or len(node.parts) != 2:
        return False
    one, other = (part.type for part in node.parts)
    return RECORD in one or (RECORD in other and (node.name != "@in" or other != RECORD))


def _takes(node: Expr, part: Expr) -> bool:
    """Whether the node uses a part that contains calls as a value."""
    if node.kind == "call":
        return node.name in _BY_KEY and part.type == RECORD and _field(node) is None
    return node.kind in ("list", "struct") and not _is_step(node)


def _is_step(node: Expr) -> bool:
    """Whether the node may be the list of one item that `filter` and `map` append in each step."""
    return node.kind == "list" and len(node.parts) == 1 and node.parts[0].kind == "ident"


TOO_LARGE: Final = "too large"
MOST_ITEMS: Final = 2_000
"""Items of a list, which may be that of the calls, and parts of a text. `filter` and `map` take
time and memory in the square of a list's length, and how long it is the trace decides.
"""


def _split(text: str, separator: str) -> list[str]:
    """Return the parts between separators, or the characters if the separator is empty."""
    if (text.count(separator) + 1 if separator else len(text)) > MOST_ITEMS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_ITEMS} parts")
    return text.split(separator) if separator else list(text)


_LOWER: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def text_functions(cel: Any) -> Any:
    """Return the functions over texts, as an extension for an environment of the module `cel`.

    They are those of CEL's strings extension
    (https://pkg.go.dev/github.com/google/cel-go/ext#Strings), whose `split` has no limit.
    """
    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    functions = [
        ("split", _split, texts, [text, text]),
        ("join", lambda parts, separator: separator.join(parts), text, [texts, text]),
        ("replace", str.replace, text, [text, text, text]),
        ("trim", str.strip, text, [text]),
        ("lowerAscii", lambda letters: letters.translate(_LOWER), text, [text]),
    ]
    declarations = [
        cel.FunctionDecl(
            name,
            [
                cel.Overload(
                    f"otel_eval_{name}", returned, parameters, is_member=True, impl=function
                )
            ],
        )
        for name, function, returned, parameters in functions
    ]
    return cel.CelExtension("otel_eval", declarations)
