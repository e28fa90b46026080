"""How a value that cannot be used is told to whoever wrote it: shortened, without secrets, with what was meant.

Knows values and words; knows no key of anything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, TypeVar

from otel_eval.errors import ConfigError

__all__ = ["did_you_mean", "gathered", "holds_credentials", "nearest", "redacted", "shown"]

T = TypeVar("T")

_MOST_SHOWN: Final = 80
_DEEPEST: Final = 4  # more does not fit in what is shown
_MOST_BITS: Final = 13_000  # about as many as Python writes in decimal digits
_SECRET_KEY: Final = re.compile(r"header|(?<!max_)token|secret|passw|credential|authorization|api[_-]?key", re.IGNORECASE)
# What keys look like where no name marks them: `Bearer x`, the beginnings that providers give theirs.
_SECRET_TEXT: Final = re.compile(r"(?i:\b(?:bearer|basic)\s+)[^\s'\"]+|\b(?:sk-|pk-|gh[pousr]_|xox[abp]-|AKIA|eyJ)[\w.+/=-]{6,}")
_URL: Final = re.compile(r"(?<=://)[^\s'\"]+")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


class _Word(str):
    """Stands in a shown value for what is not shown."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_HIDDEN: Final = _Word("***")


def shown(value: Any) -> str:
    """A value as a message quotes it: on one line, not longer than a line's share, no key or password in it.

    >>> shown({"headers": {"x-tenant": "a"}, "endpoint": "http://me:pw@h"})
    "{'headers': ***, 'endpoint': 'http://***@h'}"
    """
    try:
        text = ascii(value) if isinstance(value, bytes) else repr(_plain(value, _DEEPEST))
    except Exception:  # noqa: BLE001 - an object of somebody else's, whose own words are of no use then
        text = f"a {type(value).__name__}"
    text = _SECRET_TEXT.sub(_HIDDEN, _URL.sub(lambda found: redacted(found[0]), " ".join(text.splitlines())))
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def redacted(url: str) -> str:
    """An endpoint as log lines and errors name it: what may be a user, a password or a key is hidden.

    >>> redacted("https://me:p@w@h:4318/v1?key=x"), redacted("http://h:4317"), redacted("me:pw@h:4317")
    ('https://***@h:4318/v1?***', 'http://h:4317', '***@h:4317')
    """
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    _, user, place = rest.rpartition("@")  # a password may hold anything, an @ too
    return scheme + mark + (f"{_HIDDEN}@" if user else "") + _QUERY.sub(lambda found: found[0][0] + _HIDDEN, place)


def holds_credentials(url: str) -> bool:
    """Whether a URL holds a user, a password or a query, which is where keys are written.

    >>> holds_credentials("http://me:pw@h"), holds_credentials("http://h?key=x"), holds_credentials("http://h/v1")
    (True, True, False)
    """
    return "?" in url or "@" in (url.partition("://")[2] or url).partition("/")[0]


def _plain(value: Any, depth: int) -> Any:
    """The part of a value that there is room for."""
    if isinstance(value, str):
        return value if isinstance(value, _Word) or len(value) <= _MOST_SHOWN else _begun(value)
    if isinstance(value, int):
        return value if value.bit_length() < _MOST_BITS else _Word("a number of thousands of digits")
    if type(value) not in (dict, list, tuple):
        return value
    if not depth:
        return _Word("…")
    if isinstance(value, dict):
        some = islice(value.items(), _MOST_SHOWN)
        return {_plain(key, depth - 1): _HIDDEN if _is_secret(key, inner) else _plain(inner, depth - 1) for key, inner in some}
    return type(value)(_plain(each, depth - 1) for each in value[:_MOST_SHOWN])


def _begun(text: str) -> str:
    """Its beginning; a word that would be cut is whole, or what tells that it is a secret might be lost."""
    return text[: 4 * _MOST_SHOWN]


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(key, str) and value is not None and bool(_SECRET_KEY.search(key))


def nearest(word: Any, known: Iterable[Any], *, alike: float = 0.6) -> str | None:
    """The known word that was probably meant. What is no text was written by mistake, and is not near to anything."""
    words = [each for each in known if isinstance(each, str)]
    if not isinstance(word, str):
        return None
    near = get_close_matches(word[:_MOST_SHOWN], words, n=1, cutoff=alike)
    if near:
        return near[0]
    small = {each.casefold(): each for each in words}  # IN_ORDER is far from in_order
    near = get_close_matches(word[:_MOST_SHOWN].casefold(), small, n=1, cutoff=alike)
    return small[near[0]] if near else None


def did_you_mean(word: Any, known: Sequence[Any]) -> str:
    """The remedy for a word that is not known: the nearest one, or all there are."""
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"choose one of {', '.join(sorted(map(str, known)))}"


def gathered(readings: Iterable[Callable[[], T]]) -> list[T]:
    """What each reading gives.

    Raises:
        ConfigError: some reading did; the problems of all of them, none twice.
    """
    found: list[T] = []
    problems: list[str] = []
    for reading in readings:
        try:
            found.append(reading())
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return found
