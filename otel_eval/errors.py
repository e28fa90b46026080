"""The errors that this package raises on purpose, and the parts of their messages: quoted values, suggested words.

OtelEvalError
├── ConfigError      the configuration is invalid: raised at start, never later
├── InputError       a file or a payload is malformed; a retry cannot help
├── Overloaded       there is no room now; the client should retry later
└── RequestTooLarge  a request exceeds a limit for one request; a retry cannot help
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice
from typing import Any, Final, TypeVar

__all__ = [
    "ConfigError",
    "InputError",
    "OtelEvalError",
    "Overloaded",
    "RequestTooLarge",
    "collect_errors",
    "did_you_mean",
    "holds_credentials",
    "nearest",
    "redacted",
    "redacted_repr",
]

T = TypeVar("T")


class OtelEvalError(Exception):
    """Base of every error this package raises on purpose."""


class ConfigError(OtelEvalError, ValueError):
    """A configuration or a scorer's specification cannot be used.

    The message is one line that names the key, the value received, what would be right and the remedy:
    ``evaluations[0].scorers[1].max_ms: -5 is not a positive number of milliseconds; write e.g. 30000``.
    Several problems are joined by `; `. Line ends and what a terminal would obey are escaped.

    Args:
        problems: one or more.
        where: prefix of the whole message, usually the name of the file.

    Attributes:
        problems: each problem by itself.
    """

    def __init__(self, *problems: str, where: str = "") -> None:
        self.problems = tuple(map(_printable, problems))
        super().__init__(_printable(where) + "; ".join(self.problems))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class InputError(OtelEvalError, ValueError):
    """Bytes or a file that cannot be read as traces. Sending the same again cannot help."""


class Overloaded(OtelEvalError):
    """Intake is full for now.

    Attributes:
        retry_after_s: how long the client should wait before it retries, in seconds.
    """

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class RequestTooLarge(OtelEvalError):
    """A request is, or would take, more than one request may; sending it again cannot help."""


def collect_errors(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Call every function and return the results; errors are raised together after the last call.

    Raises:
        ConfigError: at least one call raised it; has the problems of all of them, each once.
    """
    found: list[T] = []
    problems: list[str] = []
    for call in calls:
        try:
            found.append(call())
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(*dict.fromkeys(problems))
    return found


_MOST_SHOWN: Final = 80
_DEEPEST: Final = 4  # more does not fit in what is shown
_MOST_BITS: Final = 13_000  # about as many as Python writes in decimal digits
_SECRET_KEY: Final = re.compile(r"header|(?<!max_)token|secret|passw|credential|authorization|api[_-]?key", re.IGNORECASE)
# What keys look like where no name marks them: `Bearer x`, the beginnings that providers give theirs.
_SECRET_TEXT: Final = re.compile(r"(?i:\b(?:bearer|basic)\s+)[^\s'\"]+|\b(?:sk-|pk-|gh[pousr]_|xox[abp]-|AKIA|eyJ)[\w.+/=-]{6,}")
_URL: Final = re.compile(r"(?<=://)[^\s'\"]+")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


class _Word(str):
    """A placeholder for a part that is left out; it is written without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


_HIDDEN: Final = _Word("***")


def redacted_repr(value: Any) -> str:
    """A value as a message quotes it: on one line, at most 80 characters, without keys and passwords.

    >>> redacted_repr({"headers": {"x-tenant": "a"}, "endpoint": "http://me:pw@h"})
    "{'headers': ***, 'endpoint': 'http://***@h'}"
    """
    try:
        text = ascii(value) if isinstance(value, bytes) else repr(_shortened(value, _DEEPEST))
    except Exception:  # noqa: BLE001 - the `repr` of an object of the user's may do anything
        text = f"a {type(value).__name__}"
    text = _SECRET_TEXT.sub(_HIDDEN, _URL.sub(lambda found: redacted(found[0]), " ".join(text.splitlines())))
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def redacted(url: str) -> str:
    """A URL as log lines and errors name it: user, password and query are replaced by `***`.

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


def _shortened(value: Any, depth: int) -> Any:
    """The value without its secrets, cut to about the length that is shown."""
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
        left = depth - 1
        return {_shortened(key, left): _HIDDEN if _is_secret(key, inner) else _shortened(inner, left) for key, inner in some}
    return type(value)(_shortened(each, depth - 1) for each in value[:_MOST_SHOWN])


def _begun(text: str) -> str:
    """The beginning of a text, longer than what is shown, so that no secret is cut before it is recognised."""
    return text[: 4 * _MOST_SHOWN]


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(key, str) and value is not None and bool(_SECRET_KEY.search(key))


_LONGEST_WORD: Final = 80  # characters that are compared


def nearest(word: Any, known: Iterable[Any], *, alike: float = 0.6) -> str | None:
    """The known word that is most like `word`, ignoring case if need be; None if none is, or `word` is no text.

    Args:
        alike: how similar the words must be, from 0 to 1 (the ratio of `difflib`).
    """
    words = [each for each in known if isinstance(each, str)]
    if not isinstance(word, str):
        return None
    near = get_close_matches(word[:_LONGEST_WORD], words, n=1, cutoff=alike)
    if near:
        return near[0]
    small = {each.casefold(): each for each in words}  # IN_ORDER is far from in_order
    near = get_close_matches(word[:_LONGEST_WORD].casefold(), small, n=1, cutoff=alike)
    return small[near[0]] if near else None


def did_you_mean(word: Any, known: Sequence[Any]) -> str:
    """The end of an error message for an unknown word: `did you mean 'x'?`, or the list of all known words."""
    near = nearest(word, known)
    return f"did you mean {near!r}?" if near else f"choose one of {', '.join(sorted(map(str, known)))}"
