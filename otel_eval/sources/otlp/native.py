"""The optional shortcut in C: whether it is there, and what is used if it is not.

Knows how the extension is found and put to use. Knows no wire format; what the extension gives equals what Python gives.
`OTEL_EVAL_PURE=1` in the environment does without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final

from otel_eval.ports import View

__all__ = ["NATIVE", "frame", "shortcut"]


def _load() -> ModuleType | None:
    if os.environ.get("OTEL_EVAL_PURE") == "1":
        return None
    try:
        return import_module("otel_eval._native")
    except ImportError:  # it was installed without a compiler
        return None


_extension: Final = _load()

NATIVE: Final = _extension is not None
"""Whether spans are read by the extension."""

frame: Final[Callable[[bytes, Callable[[bytes, bytes], Any]], list[tuple[Any, list[Any]]] | None] | None] = (
    None if _extension is None else _extension.frame
)
"""(envelope, spans) of each scope of a request; None where something in it is unusual."""


def shortcut(view: Callable[[bytes], View], decode: Callable[[bytes], Any], error: type[Exception]) -> Callable[[bytes], View]:
    """Python's view of a span, or what reads equal things faster and asks `view` and `decode` about anything unusual."""
    if _extension is None:
        return view
    _extension.configure(view, decode, error)
    made: Callable[[bytes], View] = _extension.view
    return made
