"""The optional shortcut in C for reading bytes: whether it is there, and what is used if it is not.

Knows how the extension is put to use. Knows no wire format; what the extension gives equals what Python gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from otel_eval.interfaces import SpanReader
from otel_eval.native import extension

__all__ = ["NATIVE", "frame", "shortcut", "weigh"]


_extension: Final = extension("_native")

NATIVE: Final = _extension is not None
"""Whether spans are read by the extension."""

frame: Final[Callable[[bytes, Callable[[bytes, bytes], Any], int], list[tuple[Any, list[Any]]] | None] | None] = (
    None if _extension is None else _extension.frame
)
"""(envelope, spans) of each scope of a request; None where something in it is unusual, or has more attributes than a number."""

weigh: Final[Callable[[bytes, tuple[int, ...], int], int] | None] = None if _extension is None else _extension.weigh
"""What is in a request, weighed by the costs of its parts; counted up to a number."""


def shortcut(
    view: Callable[[bytes], SpanReader], decode: Callable[[bytes], Any], error: type[Exception]
) -> Callable[[bytes], SpanReader]:
    """Python's view of a span, or what reads equal things faster and asks `view` and `decode` about anything unusual."""
    if _extension is None:
        return view
    _extension.configure(view, decode, error)
    made: Callable[[bytes], SpanReader] = _extension.view
    return made
