"""Two kinds of glob patterns: those of configurations (`*`, `?`, `[…]`), and those of conventions,
whose `*` captures text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate


def glob_matcher(*patterns: str) -> Callable[[str], object]:
    """A function that is truthy for texts that one of the patterns (`*`, `?`, `[…]`) matches
    completely; case-sensitive.
    """
    return re.compile("|".join(map(translate, patterns))).match if patterns else lambda text: None


def glob(pattern: str) -> re.Pattern[str]:
    """Compile a pattern of `*` (any text, captured) and `|` (or); all other characters match
    themselves.

    Each `*` but the last matches as little as possible and never backtracks (an atomic group), so
    that matching takes time in proportion to the length of the text, whatever the pattern.
    """
    return re.compile("|".join(map(_expression, pattern.split("|"))), re.DOTALL)


_NOTHING = re.compile("(?!)")


def any_glob(patterns: Iterable[str]) -> re.Pattern[str]:
    """Compile patterns of `glob` as one that matches what any of them does."""
    alternatives = "|".join(patterns)
    return glob(alternatives) if alternatives else _NOTHING


def _expression(pattern: str) -> str:
    """The regular expression of one alternative."""
    # Only the end of the text follows the last `*`, so it may backtrack: that takes linear time.
    # The others are atomic groups, since two that backtrack into one another take quadratic time.
    first, *further_parts = map(re.escape, pattern.split("*"))
    middle = "".join(f"(?>(.*?){part})" for part in further_parts[:-1])
    return first + middle + "".join(f"(.*){part}" for part in further_parts[-1:])


def captured(patterns: Iterable[re.Pattern[str]], text: str) -> str:
    """The first non-empty text that a `*` captures in the first pattern that matches the whole
    text; else "".
    """
    for pattern in patterns:
        match = pattern.fullmatch(text)
        if match is not None:
            return next((group for group in match.groups() if group), "")
    return ""


Alternatives = tuple[tuple[str, ...], ...]


def alternatives_of(pattern: str) -> Alternatives:
    """The literal parts between the `*` of each alternative of a glob, for `fits`."""
    return tuple(tuple(alternative.split("*")) for alternative in pattern.split("|"))


def fits(alternatives: Alternatives, text: str) -> bool:
    """Whether a glob matches the whole text, without captures: on long texts this takes a tenth of
    the time of a regex.
    """
    for parts in alternatives:  # noqa: SIM110 - a generator costs more than the search
        if _has_in_order(parts, text):
            return True
    return False


def _has_in_order(parts: tuple[str, ...], text: str) -> bool:
    """Whether the text begins and ends with the outer parts and has the others in order between
    them, without overlap.
    """
    if len(parts) == 1:
        return text == parts[0]
    first, *middle, last = parts
    if len(middle) == 1 and not (first or last):  # most patterns of long texts
        return middle[0] in text
    if not (text.startswith(first) and text.endswith(last)):
        return False
    at = len(first)
    for part in middle:
        # The first occurrence is the best one: it leaves the most text for the parts that follow.
        position = text.find(part, at)
        if position < 0:
            return False
        at = position + len(part)
    # The end matched already; it must not overlap the part before it.
    return at <= len(text) - len(last)
