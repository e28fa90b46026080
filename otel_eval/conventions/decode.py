"""Turn what an attribute holds into a plain JSON value.

Knows JSON, JSON within JSON and Python literals; knows no attribute name and no wrapper. Never raises: text that
cannot be read, or that nests deeper than `MAX_DEPTH`, stays text.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

__all__ = ["MAX_DEPTH", "decode", "frozen", "json_list", "literal", "literal_list", "rise", "text_of"]

MAX_DEPTH: Final = 64
# Longer literals, and those with more parts, are left as text: Python's own parser takes half a kilobyte for each part.
_MAX_LITERAL: Final = 262_144
_MAX_PARTS: Final = 4096
_OPENING: Final = ("{", "[", "(")
_CLOSING: Final = ("}", "]", ")")
_PARTS: Final = (*_OPENING, ",", ":")
# An escape that Python does not know makes its parser warn, and a warning is output that nobody asked for.
_ODD_ESCAPE: Final = re.compile(r"\\[^\n\\'\"abfnrtv0-7xNuU]")


def decode(value: Any, *, literals: bool = True) -> Any:
    """The value that a recorded one stands for.

    Text that is JSON is read, once more if the outcome is text that itself holds an object or array; else a Python
    literal of a container is read (as `repr` writes it); else the text is the value. NaN and infinities become
    their names, since JSON has none.

    Args:
        value: anything an attribute can hold.
        literals: whether Python literals are tried.
    """
    if not isinstance(value, str):
        return plain(value)
    read = _json(value)
    if isinstance(read, str) and read is not value and read.lstrip()[:1] in ("{", "["):
        inner = _json(read)
        return inner if isinstance(inner, (dict, list)) else read
    if read is value and literals:
        return _literal(value)
    return read


def _json(text: str) -> Any:
    """The JSON value of the text, or the very same text."""
    if too_deep(text):
        return text
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return text


def json_list(text: str, depth: int = 0) -> list[Any] | None:
    """The list that the text is in JSON; None if it is anything else, or too deep below `depth` brackets."""
    if too_deep(text, depth):
        return None
    try:
        value = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, list) else None


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


_DECODER: Final = json.JSONDecoder(parse_constant=str, parse_float=_finite)


def _literal(text: str) -> Any:
    stripped = text.strip()
    if not stripped.startswith(_OPENING):
        return text
    value = literal(stripped)
    return value if isinstance(value, (dict, list)) else text


def literal_list(text: str, depth: int, whole: str) -> list[Any] | None:
    """The list that the text is as a Python literal, below `depth` brackets of the text `whole`, whose end it is; else None."""
    value = literal(text, depth, whole)
    return value if isinstance(value, list) else None


def literal(text: str, depth: int = 0, whole: str = "") -> Any:
    """The value of a Python literal, or the very same text; `depth` and `whole` as for `literal_list`."""
    if _is_long(whole or text) or too_deep(text, depth) or _ODD_ESCAPE.search(text):
        return text
    try:
        return plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def _is_long(text: str) -> bool:
    return len(text) > _MAX_LITERAL or _count(text, _PARTS) > _MAX_PARTS


def too_deep(text: str, depth: int = 0) -> bool:
    """Whether brackets in the text nest deeper than `MAX_DEPTH` (brackets inside strings count too, which is safe).

    Args:
        text: the text.
        depth: how many brackets are open before it.
    """
    if depth + _count(text, _OPENING) <= MAX_DEPTH:
        return False
    for match in re.finditer(r"[\[\]{}()]", text):
        depth += 1 if match[0] in _OPENING else -1
        if depth > MAX_DEPTH:
            return True
    return False


def rise(text: str) -> int:
    """How many more brackets the text opens than it closes."""
    return _count(text, _OPENING) - _count(text, _CLOSING)


def _count(text: str, characters: Iterable[str]) -> int:
    return sum(map(text.count, characters))


def plain(value: Any, depth: int = 0) -> Any:
    """The value made of dicts with text keys, lists, text, numbers, booleans and None only."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= MAX_DEPTH:
        return "…"
    if isinstance(value, dict):
        return {str(key): plain(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each, depth + 1) for each in value]
    return str(value)


def frozen(value: Any) -> Any:
    """A hashable stand-in: two are equal if and only if the JSON values are."""
    if isinstance(value, Mapping):
        return "object", frozenset((key, frozen(below)) for key, below in value.items())
    if isinstance(value, list | tuple):
        return "array", tuple(frozen(below) for below in value)
    return value


def text_of(value: Any) -> str:
    """An attribute's value as the text that rules compare: booleans as `true` and `false`, nothing for containers."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else ""
