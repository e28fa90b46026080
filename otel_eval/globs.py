"""Glob patterns: of configurations over names and texts, and of conventions, whose `*` captures what it stands for."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate

__all__ = ["Alternatives", "alternatives_of", "captured", "fits", "glob", "glob_matcher"]


def glob_matcher(*patterns: str) -> Callable[[str], object]:
    """Truthy for a text that one pattern of `*`, `?` and `[…]` matches as a whole; case, spaces and all Unicode count."""
    return re.compile("|".join(map(translate, patterns))).match if patterns else lambda text: None


def glob(pattern: str) -> re.Pattern[str]:
    """A pattern of `*` (any text, captured) and `|` (or); everything else stands for itself.

    Of several `*` each but the last takes as little as it can and is never tried again, so that a name costs time in
    proportion to its length, whatever the pattern.
    """
    return re.compile("|".join(map(_expression, pattern.split("|"))), re.DOTALL)


def _expression(pattern: str) -> str:
    first, *others = map(re.escape, pattern.split("*"))
    middle = "".join(f"(?>(.*?){part})" for part in others[:-1])
    return first + middle + "".join(f"(.*){part}" for part in others[-1:])


def captured(patterns: Iterable[re.Pattern[str]], text: str) -> str:
    """What the first `*` stands for that stands for anything, in the first pattern that matches the whole text, or ""."""
    for pattern in patterns:
        match = pattern.fullmatch(text)
        if match is not None:
            return next((group for group in match.groups() if group), "")
    return ""


Alternatives = tuple[tuple[str, ...], ...]


def alternatives_of(pattern: str) -> Alternatives:
    """The parts between the `*` of each alternative of a glob, for `fits`."""
    return tuple(tuple(each.split("*")) for each in pattern.split("|"))


def fits(alternatives: Alternatives, text: str) -> bool:
    """The same as `glob`, where nothing is captured: a search for words in long texts takes a tenth of the time."""
    for parts in alternatives:  # noqa: SIM110 - a generator costs more than the search
        if text == parts[0] if len(parts) == 1 else _has_in_order(parts, text):
            return True
    return False


def _has_in_order(parts: tuple[str, ...], text: str) -> bool:
    first, *middle, last = parts
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at = len(first)
    for part in middle:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return at <= len(text) - len(last)
