"""What an expression may use: the fields of the run and of its calls, and functions, with the memory that these may take.

The evaluator frees no text and no list before the evaluation ends, so that every function charges what it makes. Sizes are in
bytes and were measured with cel-expr-python 0.1.3: a text takes its length in UTF-8 wherever a function makes it, and again
where it is passed to or from a function written in Python. The functions over texts are those of CEL's strings extension
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
    "agent", "name", "service", "conversation", "duration_ms", "model_calls", "input_tokens", "output_tokens", "input", "output",
    "attributes",
)  # fmt: skip
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
    """What is looked at.

    Attributes:
        names: the variables: `run`, `calls`, `reference`, labels.
        run, calls: the fields of the run and of calls.
        attributes: those under `run.attributes`.
        gathers: whether it builds lists, which costs the square of their length.
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
        """In the words of a scorer's `needs`."""
        looked_at = {f"run.{name}" for name in self.run} | {f"calls.{name}" for name in self.calls}
        return frozenset(_NEEDED[name] for name in looked_at if name in _NEEDED)


def read(root: Expr) -> FieldsRead:
    """What the expression looks at.

    Raises:
        ConfigError: it looks at a field that there is not, or at the run as a whole.
    """
    facts = dict.fromkeys([*(_WHOLE_CALL if RECORD in root.type and root.kind != "struct" else ()), *_seen(root, frozenset())])
    problems = [what for kind, what in facts if kind == "problem"]
    if problems:
        raise ConfigError(*problems)
    variables, run, calls, attributes = (
        frozenset(what for each, what in facts if each == kind) for kind in ("variable", "run", "calls", "attribute")
    )
    return FieldsRead(variables, run, calls, attributes, _GATHERS in facts)


_Fact = tuple[str, str]
_GATHERS: Final[_Fact] = ("gathers", "")
_WHOLE_CALL: Final = [("calls", name) for name in CALL_FIELDS]  # where a call is looked at, not a field of it


def _seen(node: Expr, bound: frozenset[str]) -> Iterator[_Fact]:
    """What the node and all below it look at, and problems; `bound` are the variables of comprehensions around it."""
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
        yield "problem", "calls[]: a call cannot be compared as a whole; compare fields such as its name"
    if any(RECORD in part.type and _takes(node, part) for part in node.parts):
        yield from _WHOLE_CALL
    if node.kind == "comprehension" and node.parts[1].kind == "list":
        yield _GATHERS
    for at, part in enumerate(node.parts):
        yield from _seen(part, bound | node.binds if at else bound)  # the range is outside


def _looked_at(node: Expr, bound: frozenset[str]) -> tuple[list[_Fact], bool]:
    """The field that the node looks at, and whether there is nothing further to be seen."""
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
        [("problem", f"{owner}.{field}: there is no such field; {did_you_mean(field, known)}")] if field not in known else []
    )
    return [(kind, field), *unknown]


def _field(node: Expr) -> tuple[Expr, str] | None:
    """Of `x.field`, `x["field"]`, `has(x.field)` and `"field" in x`: x and the field."""
    if node.kind == "select":
        return node.parts[0], node.name
    if node.kind != "call" or len(node.parts) != 2 or node.name not in _BY_KEY:
        return None
    operand, key = node.parts if node.name == "_[_]" else node.parts[::-1]
    return (operand, key.name) if key.kind == "const" and key.name else None


def _is_run(node: Expr, bound: frozenset[str]) -> bool:
    return node.kind == "ident" and node.name == "run" and "run" not in bound


def _is_dotted(node: Expr, bound: frozenset[str]) -> bool:
    """Whether it is `run.attributes.user.tier`, which looks for an attribute `user`."""
    if node.kind != "select" or node.parts[0].kind != "select":
        return False
    owner = _field(node.parts[0].parts[0])
    return owner is not None and owner[1] == "attributes" and _is_run(owner[0], bound)


def _compares(node: Expr) -> bool:
    """Whether it compares calls; to ask for a key in one is no comparison."""
    if node.kind != "call" or node.name not in _COMPARES or len(node.parts) != 2:
        return False
    one, other = (part.type for part in node.parts)
    return RECORD in one or (RECORD in other and (node.name != "@in" or other != RECORD))


def _takes(node: Expr, part: Expr) -> bool:
    """Whether the node takes the part, which holds calls, as a value."""
    if node.kind == "call":
        return node.name in _BY_KEY and part.type == RECORD and _field(node) is None
    return node.kind in ("list", "struct") and not _is_step(node)


def _is_step(node: Expr) -> bool:
    """Whether it may be the list of one that `filter` and `map` add to what they gather."""
    return node.kind == "list" and len(node.parts) == 1 and node.parts[0].kind == "ident"


BUDGET: Final = 64 * 2**20
MOST_SEARCHED: Final = 5 * 2**28  # characters of texts that are searched for different things: some four seconds at worst
MOST_TEXT: Final = 4 * 2**20
MOST_GATHERED: Final = 1000  # parts of a text, and items of a list that an expression builds lists from
TOO_LARGE: Final = "too large"

_LIST, _ITEM, _GATHERED = 80, 34, 16
_MAP, _ENTRY = 200, 160
_PASSED_ITEM: Final = 112  # of a list that is handed to or from Python


class Memory:
    """What is left for an evaluation, and the texts that it searches.

    Args:
        before: of an evaluation whose searches count here as well.
    """

    __slots__ = ("left", "searched", "texts")

    def __init__(self, before: Memory | None = None) -> None:
        self.left = BUDGET
        self.searched: list[int] = before.searched if before else [0]  # a list, so that it can be shared
        self.texts: list[str] = []

    def use(self) -> None:
        """From now on, what is evaluated in this context is charged here."""
        _MEMORY.set(self)


_MEMORY: Final[ContextVar[Memory]] = ContextVar("memory")


def spend(size: int) -> bool:
    """Charge so many bytes; true.

    Raises:
        ValueError: that is more than is left, now or before. What is not charged must then not be made.
    """
    memory = _MEMORY.get()
    memory.left -= size
    if memory.left < 0:
        raise ValueError(f"{TOO_LARGE}: more than {BUDGET >> 20} MiB of memory")
    return True


def text_size(*texts: str) -> int:
    """The bytes of texts."""
    return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)


def list_size(items: int) -> int:
    """The bytes of a list, without what is in it."""
    return _LIST + _ITEM * items


def map_size(entries: int) -> int:
    """The bytes of a map, without what is in it."""
    return _MAP + _ENTRY * entries


def passed_size(texts: list[str]) -> int:
    """The bytes of a list of texts that is handed to or from Python."""
    return text_size(*texts) + _PASSED_ITEM * len(texts)


def _sum(size: int, signs: int) -> bool:
    """Before texts or lists of so many bytes in all are put together by so many signs."""
    return _fits(size) and spend(size * signs)


def _fits(size: int) -> bool:
    if size > MOST_TEXT:  # in Python it may take four times as much
        raise ValueError(f"{TOO_LARGE}: a text or list of more than {MOST_TEXT >> 20} MiB")
    return spend(0)


def _gather(items: int) -> bool:
    """Before a list is built from one of so many items: the time it takes grows with the square of their number."""
    if items > MOST_GATHERED:
        raise ValueError(f"{TOO_LARGE}: a list of {items} items")
    return spend(0)


def _gathered(items: int) -> bool:
    """After a list of so many items was built, one by one; each time, all those before were copied."""
    return spend(_LIST + _GATHERED * items * (items + 1))


def _hold(text: str) -> int:
    """A number from 1 under which `_find` knows a text."""
    spend(2 * text_size(text))
    texts = _MEMORY.get().texts
    texts.append(text)
    return len(texts)


def _find(number: int, sought: str) -> bool:
    """Whether something is in a text. Python takes about half the time of the evaluator where much of it is nearly found."""
    memory = _MEMORY.get()
    text = memory.texts[number - 1]
    memory.searched[0] += len(text)
    if memory.searched[0] > MOST_SEARCHED:
        raise ValueError(f"{TOO_LARGE}: more than {MOST_SEARCHED} characters to search")
    spend(text_size(sought))
    return sought[:1] in text and sought in text  # one character is found many times faster


MOST_CHARACTERS: Final = 2**18

_LOWER: Final = {letter: letter + 32 for letter in range(ord("A"), ord("Z") + 1)}


def _split(text: str, separator: str) -> list[str]:
    """The parts between separators; the characters, if the separator is empty."""
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
    """The text, charged together with those it was made from; a text from Python is copied twice."""
    spend(2 * text_size(text) + text_size(*taken))
    return text


def extensions(cel: Any) -> list[Any]:
    """The functions for an environment of the module `cel`: those of expressions, and those that `charged` and `hoisted` add."""
    text, texts, number, truth = cel.Type.STRING, cel.Type.List(cel.Type.STRING), cel.Type.INT, cel.Type.BOOL
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
    return [extension(cel, "otel_eval", members, is_member=True), extension(cel, "otel_eval_memory", added)]


def extension(cel: Any, name: str, functions: list[tuple[str, Any, Any, list[Any]]], *, is_member: bool = False) -> Any:
    """The functions, each with its name, what it is in Python, its type and those of its parameters."""
    overloads = [
        (called, cel.Overload(f"otel_eval_{called.removeprefix('@')}", returned, taken, is_member=is_member, impl=function))
        for called, function, returned, taken in functions
    ]
    return cel.CelExtension(name, [cel.FunctionDecl(called, [overload]) for called, overload in overloads])
