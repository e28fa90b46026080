"""Suggests the known word that an unknown one was probably meant to be."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any, Final

__all__ = ["did_you_mean", "nearest"]

_LONGEST: Final = 80  # characters that are compared


def nearest(word: Any, known: Iterable[Any], *, alike: float = 0.6) -> str | None:
    """The known word that is most like `word`, ignoring case if need be; None if none is, or `word` is no text.

    Args:
        alike: how similar the words must be, from 0 to 1 (the ratio of `difflib`).
    """
    words = [each for each in known if isinstance(each, str)]
    if not isinstance(word, str):
        return None
    near = get_close_matches(word[:_LONGEST], words, n=1, cutoff=alike)
    if near:
        return near[0]
    small = {each.casefold(): each for each in words}  # IN_ORDER is far from in_order
    near = get_close_matches(word[:_LONGEST].casefold(), small, n=1, cutoff=alike)
    return small[near[0]] if near else None


def did_you_mean(word: Any, known: Sequence[Any]) -> str:
    """The end of an error message for an unknown word: `did you mean 'x'?`, or the list of all known words."""
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"choose one of {', '.join(sorted(map(str, known)))}"
