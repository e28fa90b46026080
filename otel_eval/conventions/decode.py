"""Turn what an attribute holds into a plain JSON value.

Knows JSON, JSON within JSON and Python literals; knows no attribute name and no wrapper. Never raises: text that
cannot be read, or that nests deeper than `MAX_DEPTH`, stays text.
"""

from __future__ import annotations

import ast
import json
import math
import re
from typing import Any, Final

__all__ = ["MAX_DEPTH", "decode", "literal", "text_of"]

MAX_DEPTH: Final = 64
# Longer literals are left as text: Python's own parser takes far more memory than the JSON one.
_MAX_LITERAL: Final = 262_144
_OPENING: Final = ("{", "[", "(")
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
        return json.loads(text, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        return text


def _finite(text: str) -> float | str:
    number = float(text)
    return number if math.isfinite(number) else text


def _literal(text: str) -> Any:
    stripped = text.strip()
    if not stripped.startswith(_OPENING):
        return text
    value = literal(stripped)
    return value if isinstance(value, (dict, list)) else text


def literal(text: str) -> Any:
    """The value of a Python literal, or the very same text."""
    if len(text) > _MAX_LITERAL or too_deep(text) or _ODD_ESCAPE.search(text):
        return text
    try:
        return plain(ast.literal_eval(text))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text


def too_deep(text: str) -> bool:
    """Whether brackets in the text nest deeper than `MAX_DEPTH` (brackets inside strings count too, which is safe)."""
    if text.count("[") + text.count("{") + text.count("(") <= MAX_DEPTH:
        return False
    depth = deepest = 0
    for match in re.finditer(r"[\[\]{}()]", text):
        depth += 1 if match[0] in _OPENING else -1
        deepest = max(deepest, depth)
        if deepest > MAX_DEPTH:
            return True
    return False


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


def text_of(value: Any) -> str:
    """An attribute's value as the text that rules compare: booleans as `true` and `false`, nothing for containers."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else ""
