"""The fields of the run and of its calls that expressions may use, and functions that limit their
own memory.

The evaluator frees no text or list before an evaluation ends, so every function charges what it
creates to a budget. Sizes are in bytes and were measured with cel-expr-python 0.1.3: a text takes
its length in UTF-8 when a function creates it, and again when it is passed to or from a function
written in Python. The functions over texts are those of CEL's strings extension
(https://pkg.go.dev/github.com/google/cel-go/ext#Strings), whose own implementation sets no limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import astuple, dataclass
from operator import or_
from typing import Any, Final

from otel_eval.errors import ConfigError, did_you_mean
from otel_eval.scorers.cel.tree import RECORD, Expr

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
        gathers: whether it builds lists, which takes time in the square of their length.
    """

    names: frozenset[str] = frozenset()
    run: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    attributes: frozenset[str] = frozenset()
    gathers: bool = False

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
            *_seen(root, frozenset()),
        ]
    )
    problems = [what for kind, what in facts if kind == "problem"]
    if problems:
        raise ConfigError(*problems)
    variables, run, calls, attributes = (
        frozenset(what for each, what in facts if each == kind)
        for kind in ("variable", "run", "calls", "attribute")
    )
    return FieldsRead(variables, run, calls, attributes, _GATHERS in facts)


_Fact = tuple[str, str]
_GATHERS: Final[_Fact] = ("gathers", "")
# the fields of a call that is used as a whole
_WHOLE_CALL: Final = [("calls", name) for name in CALL_FIELDS]


def _seen(node: Expr, bound: frozenset[str]) -> Iterator[_Fact]:
    """Yield what the node and its descendants read, and problems; `bound` are the variables of
    enclosing comprehensions.
    """
    looked_at, ends_here = _looked_at(node, bound)
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
    if node.kind == "comprehension" and node.parts[1].kind == "list":
        yield _GATHERS
    for at, part in enumerate(node.parts):
        # the range is outside of the scope of these variables
        yield from _seen(part, bound | node.binds if at else bound)


def _looked_at(node: Expr, bound: frozenset[str]) -> tuple[list[_Fact], bool]:
    """Return the field that the node reads, and whether its parts need no further inspection."""
    operand, field = _field(node) or (node, "")
    if operand is node:
        return [], False
    if _is_run(operand, bound):
        whole = [("problem", f"run.attributes: {_NAME_IT}")] if field == "attributes" else []
        return [("variable", "run"), *_noted("run", "run", field, RUN_FIELDS), *whole], True
    owner, part = _field(operand) or (operand, "")
    if part == "attributes" and _is_run(owner, bound):
        return [("variable", "run"), ("run", "attributes"), ("attribute", field)], True
    is_call = operand.type == RECORD and operand.kind != "struct"
    return _noted("calls", "calls[]", field, CALL_FIELDS) if is_call else [], False


def _noted(kind: str, owner: str, field: str, known: tuple[str, ...]) -> list[_Fact]:
    unknown = (
        [("problem", f"{owner}.{field}: there is no such field; {did_you_mean(field, known)}")]
        if field not in known
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


BUDGET: Final = 64 * 2**20
# characters that repeated searches may read: about four seconds at worst
MOST_SEARCHED: Final = 5 * 2**28
MOST_TEXT: Final = 4 * 2**20
# parts of a text, and items of a list that an expression builds lists from
MOST_GATHERED: Final = 1000
TOO_LARGE: Final = "too large"

_LIST, _ITEM, _GATHERED = 80, 34, 16
_MAP, _ENTRY = 200, 160
_PASSED_ITEM: Final = 112  # for each item of a list that is passed to or from Python


class Memory:
    """The memory budget of an evaluation, and the texts that it searches.

    Args:
        before: the memory of an earlier evaluation, with which the count of searched characters is
            shared.
    """

    __slots__ = ("left", "searched", "texts")

    def __init__(self, before: Memory | None = None) -> None:
        self.left = BUDGET
        # a list, so that it can be shared
        self.searched: list[int] = before.searched if before else [0]
        self.texts: list[str] = []

    def use(self) -> None:
        """Charge evaluations in this context to this budget from now on."""
        _MEMORY.set(self)


_MEMORY: Final[ContextVar[Memory]] = ContextVar("memory")


def spend(size: int) -> bool:
    """Charge `size` bytes and return true.

    Raises:
        ValueError: the budget is exceeded, now or by an earlier charge. The value must then not be
            created.
    """
    memory = _MEMORY.get()
    memory.left -= size
    if memory.left < 0:
        raise ValueError(f"{TOO_LARGE}: more than {BUDGET >> 20} MiB of memory")
    return True


def text_size(*texts: str) -> int:
    """Return the bytes of texts in UTF-8."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def list_size(items: int) -> int:
    """Return the bytes of a list, without its items."""
    return _LIST + _ITEM * items


def map_size(entries: int) -> int:
    """Return the bytes of a map, without its keys and values."""
    return _MAP + _ENTRY * entries


def passed_size(texts: list[str]) -> int:
    """Return the bytes of a list of texts that is passed to or from Python."""
    return text_size(*texts) + _PASSED_ITEM * len(texts)


def _sum(size: int, signs: int) -> bool:
    """Check and charge a sum of `size` bytes with `signs` operators `+`, before it is evaluated."""
    return _fits(size) and spend(size * signs)


def _fits(size: int) -> bool:
    if size > MOST_TEXT:  # in Python it may take four times as much
        raise ValueError(f"{TOO_LARGE}: a text or list of more than {MOST_TEXT >> 20} MiB")
    return spend(0)


def _gather(items: int) -> bool:
    """Check a list of `items` items from which a list is to be built, which takes time in the
    square of their number.
    """
    if items > MOST_GATHERED:
        raise ValueError(f"{TOO_LARGE}: a list of {items} items")
    return spend(0)


def _gathered(items: int) -> bool:
    """Charge for a list of `items` items that was built item by item; each step copied all items
    before.
    """
    return spend(_LIST + _GATHERED * items * (items + 1))


def _hold(text: str) -> int:
    """Keep a text for `_find` and return its number, from 1."""
    spend(2 * text_size(text))
    texts = _MEMORY.get().texts
    texts.append(text)
    return len(texts)


def _find(number: int, sought: str) -> bool:
    """Whether `sought` is in a kept text. Python takes about half the time of the evaluator if
    there are many near matches.
    """
    memory = _MEMORY.get()
    text = memory.texts[number - 1]
    memory.searched[0] += len(text)
    if memory.searched[0] > MOST_SEARCHED:
        raise ValueError(f"{TOO_LARGE}: more than {MOST_SEARCHED} characters to search")
    spend(text_size(sought))
    return sought[:1] in text and sought in text  # a search for one character is many times faster


MOST_CHARACTERS: Final = 2**18

_LOWER: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def _split(text: str, separator: str) -> list[str]:
    """Return the parts between separators, or the characters if the separator is empty."""
    if (text.count(separator) + 1 if separator else len(text)) > MOST_GATHERED:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_GATHERED} parts")
    parts = text.split(separator) if separator else list(text)
    spend(text_size(text, separator) + passed_size(parts))
    return parts


def _join(parts: list[str], separator: str) -> str:
    if sum(map(len, parts)) + len(separator) * len(parts) > MOST_CHARACTERS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_CHARACTERS} characters")
    spend(passed_size(parts) + text_size(separator))
    return _made(separator.join(parts))


def _replace(text: str, old: str, new: str) -> str:
    if len(text) + text.count(old) * len(new) > MOST_CHARACTERS:
        raise ValueError(f"{TOO_LARGE}: a text of more than {MOST_CHARACTERS} characters")
    return _made(text.replace(old, new), text, old, new)


def _trim(text: str) -> str:
    return _made(text.strip(), text)


def _lower(text: str) -> str:
    return _made(text.translate(_LOWER), text)


def _made(text: str, *taken: str) -> str:
    """Charge for a text and for those that it was made from, and return it; a text from Python is
    copied twice.
    """
    spend(2 * text_size(text) + text_size(*taken))
    return text


def extensions(cel: Any) -> list[Any]:
    """Return the functions for an environment of the module `cel`: those of expressions, and those
    that `rewrite` adds.
    """
    text, texts, number, truth = (
        cel.Type.STRING,
        cel.Type.List(cel.Type.STRING),
        cel.Type.INT,
        cel.Type.BOOL,
    )
    members = [
        ("split", _split, texts, [text, text]),
        ("join", _join, text, [texts, text]),
        ("replace", _replace, text, [text, text, text]),
        ("trim", _trim, text, [text]),
        ("lowerAscii", _lower, text, [text]),
    ]
    added = [
        ("@spend", spend, truth, [number]),
        ("@sum", _sum, truth, [number, number]),
        ("@fits", _fits, truth, [number]),
        ("@gather", _gather, truth, [number]),
        ("@gathered", _gathered, truth, [number]),
        ("@hold", _hold, number, [text]),
        ("@find", _find, truth, [number, text]),
    ]
    return [
        extension(cel, "otel_eval", members, is_member=True),
        extension(cel, "otel_eval_memory", added),
    ]


def extension(
    cel: Any,
    name: str,
    functions: list[tuple[str, Any, Any, list[Any]]],
    *,
    is_member: bool = False,
) -> Any:
    """Return an extension of functions, each given as its name, implementation, return type and
    parameter types.
    """
    overloads = [
        (
            called,
            cel.Overload(
                f"otel_eval_{called.removeprefix('@')}",
                returned,
                taken,
                is_member=is_member,
                impl=function,
            ),
        )
        for called, function, returned, taken in functions
    ]
    return cel.CelExtension(
        name, [cel.FunctionDecl(called, [overload]) for called, overload in overloads]
    )
