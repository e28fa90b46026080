"""The functions that expressions have beside those of CEL itself, and the memory that one evaluation may take.

The evaluator frees no text and no list before the evaluation ends, so that every function charges what it makes. Sizes are in
bytes and were measured with cel-expr-python 0.1.3: a text takes its length in UTF-8 wherever a function makes it, and again
where it is passed to or from a function written in Python. The functions over texts are those of CEL's strings extension
(https://pkg.go.dev/github.com/google/cel-go/ext#Strings), whose own implementation sets no limit.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

__all__ = [
    "BUDGET",
    "MOST_CHARACTERS",
    "MOST_GATHERED",
    "MOST_TEXT",
    "TOO_LARGE",
    "Memory",
    "checks",
    "declared",
    "list_size",
    "map_size",
    "passed_size",
    "spend",
    "text_size",
]

BUDGET: Final = 64 * 2**20
MOST_SEARCHED: Final = 5 * 2**28  # characters of texts that are searched for different things: some four seconds at worst
MOST_TEXT: Final = 4 * 2**20
MOST_GATHERED: Final = 1000  # parts of a text, and items of a list that an expression builds lists from
TOO_LARGE: Final = "too large"

_LIST, _ITEM, _GATHERED = 80, 34, 16
_MAP, _ENTRY = 200, 160
_PASSED_ITEM: Final = 112  # of a list that is handed to or from Python


class Memory:
    """What is left for an evaluation, and the texts that it searches."""

    __slots__ = ("left", "searched", "texts")

    def __init__(self) -> None:
        self.left = BUDGET
        self.searched = 0
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
    memory.searched += len(text)
    if memory.searched > MOST_SEARCHED:
        raise ValueError(f"{TOO_LARGE}: more than {MOST_SEARCHED} characters to search")
    spend(text_size(sought))
    return sought[:1] in text and sought in text  # one character is found many times faster


def checks(cel: Any) -> Any:
    """The functions that charge and search, for an environment of the module `cel`; see `charges` and `invariants`."""
    number, truth, text = cel.Type.INT, cel.Type.BOOL, cel.Type.STRING
    functions = [
        ("@spend", spend, truth, [number]),
        ("@sum", _sum, truth, [number, number]),
        ("@fits", _fits, truth, [number]),
        ("@gather", _gather, truth, [number]),
        ("@collect_errors", _gathered, truth, [number]),
        ("@hold", _hold, number, [text]),
        ("@find", _find, truth, [number, text]),
    ]
    return cel.CelExtension(
        "otel_eval_memory",
        [
            cel.FunctionDecl(name, [cel.Overload(f"otel_eval_{name[1:]}", returned, taken, impl=function)])
            for name, function, returned, taken in functions
        ],
    )


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


def declared(cel: Any) -> Any:
    """The functions, for an environment of the module `cel`."""
    text, texts = cel.Type.STRING, cel.Type.List(cel.Type.STRING)
    functions = [
        ("split", _split, texts, [text, text]),
        ("join", _join, text, [texts, text]),
        ("replace", _replace, text, [text, text, text]),
        ("trim", _trim, text, [text]),
        ("lowerAscii", _lower, text, [text]),
    ]
    return cel.CelExtension(
        "otel_eval",
        [
            cel.FunctionDecl(name, [cel.Overload(f"otel_eval_{name}", returned, taken, is_member=True, impl=function)])
            for name, function, returned, taken in functions
        ],
    )
