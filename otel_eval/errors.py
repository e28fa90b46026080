"""The exceptions of this package, and the parts of their messages: redacted values, suggestions for
misspelt words.

OtelEvalError
├── ConfigError      the configuration is invalid: raised at start, never later
├── InputError       a file or a payload is malformed; a retry cannot help
├── Overloaded       a queue or a memory limit is full (backpressure); the client should retry later
└── RequestTooLarge  a request exceeds a limit for one request; a retry cannot help
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

T = TypeVar("T")


class OtelEvalError(Exception):
    """The base class of every exception of this package."""


class ConfigError(OtelEvalError, ValueError):
    """A configuration or the specification of a scorer is invalid.

    The message is one line that names the key, the value received, what would be right and the
    remedy: ``evaluations[0].scorers[1].max_ms: -5 is not a positive number of milliseconds; write
    e.g. 30000``. Several problems are joined by `; `. Line ends and other control characters are
    escaped.

    Args:
        problems: one or more messages.
        where: prefix of the whole message, usually the name of the file with a colon and a blank.
        lines: the line of the file for each problem, where it is known.

    Attributes:
        problems: each problem by itself.
        is_located: whether it is known where the problems are.
    """

    def __init__(self, *problems: str, where: str = "", lines: Sequence[int | None] = ()) -> None:
        self.problems = tuple(map(printable, problems))
        self.is_located = bool(where)
        self._where = printable(where)
        self._lines = tuple(lines) or (None,) * len(self.problems)
        super().__init__(self._where + "; ".join(self.problems))

    def problem_lines(self) -> list[str]:
        """A line of text for each problem, with the file and the line in it.

        >>> ConfigError(
        ...     "a: unknown key", "b: is missing", where="x.yaml: ", lines=[3, None]
        ... ).problem_lines()
        ['x.yaml line 3: a: unknown key', 'x.yaml: b: is missing']
        """
        file = self._where.removesuffix(": ")
        return [
            f"{self._where}{problem}" if line is None else f"{file} line {line}: {problem}"
            for line, problem in zip(self._lines, self.problems, strict=True)
        ]


def printable(text: str) -> str:
    """The text on one line, with escapes for control characters: names come from traces and must
    not control a terminal.
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class InputError(OtelEvalError, ValueError):
    """Bytes or a file that cannot be read as traces; a retry cannot help."""


class StartCancelled(OtelEvalError):
    """A stop was requested while a server started; every part of it is stopped."""


class Overloaded(OtelEvalError):
    """Input is refused for now (backpressure); the client should retry in a second."""


class RequestTooLarge(OtelEvalError):
    """A request exceeds the limit of size or memory for one request. A retry cannot help."""


def collect_errors(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Call every function and return the results; errors are raised together after the last call.

    Raises:
        ConfigError: at least one call raised it; has the problems of all calls, each once.
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
MOST_BITS: Final = 13_000
"""Bits of an integer, near Python's limit for conversion to decimal digits."""
_SECRET_KEY: Final = re.compile(
    r"header|(?<!max_)token|secret|passw|credential|authorization|api[_-]?key", re.IGNORECASE
)
# Secrets that are recognised without a name: `Bearer x`, and the prefixes that providers give their
# keys.
_SECRET_TEXT: Final = re.compile(
    r"(?i:\b(?:bearer|basic)\s+)[^\s'\"]+|\b(?:sk-|pk-|gh[pousr]_|xox[abp]-|AKIA|eyJ)[\w.+/=-]{6,}"
)
_URL: Final = re.compile(r"(?<=://)[^\s'\"]+")
_QUERY: Final = re.compile(r"[?#].*", re.DOTALL)


_HIDDEN: Final = "***"


class _Redacting(reprlib.Repr):
    """Representations of bounded length, without the values of keys that mark secrets."""

    def __init__(self) -> None:
        super().__init__()
        self.fillvalue = "…"
        self.maxlevel = 3  # more would not fit into the shown text
        # Longer than the shown text, so that no secret is truncated before it is recognised.
        self.maxlist = self.maxtuple = self.maxstring = self.maxother = 4 * _MOST_SHOWN

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        if level <= 0:
            return "{…}"
        pairs = islice(x.items(), _MOST_SHOWN)
        shown = ", ".join(
            f"{self.repr1(key, level - 1)}: {self._inner(key, value, level - 1)}"
            for key, value in pairs
        )
        return f"{{{shown}}}"

    def _inner(self, key: Any, value: Any, level: int) -> str:
        is_secret = isinstance(key, str) and value is not None and _SECRET_KEY.search(key)
        return _HIDDEN if is_secret else self.repr1(value, level)

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() < MOST_BITS else "a number of thousands of digits"


_redacting: Final = _Redacting()


def redacted_repr(value: Any) -> str:
    """The representation of a value for messages: on one line, at most 80 characters, without keys
    and passwords.

    >>> redacted_repr({"headers": {"x-tenant": "a"}, "endpoint": "http://me:pw@h"})
    "{'headers': ***, 'endpoint': 'http://***@h'}"
    """
    text = _redacting.repr(value)
    text = _SECRET_TEXT.sub(
        _HIDDEN, _URL.sub(lambda found: redacted(found[0]), " ".join(text.splitlines()))
    )
    return text if len(text) <= _MOST_SHOWN else text[: _MOST_SHOWN - 1] + "…"


def redacted(url: str) -> str:
    """A URL for log lines and errors: user, password and query are replaced by `***`.

    >>> (
    ...     redacted("https://me:p@w@h:4318/v1?key=x"),
    ...     redacted("http://h:4317"),
    ...     redacted("me:pw@h:4317"),
    ... )
    ('https://***@h:4318/v1?***', 'http://h:4317', '***@h:4317')
    """
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    _, user, place = rest.rpartition("@")  # a password may contain an @
    return (
        scheme
        + mark
        + (f"{_HIDDEN}@" if user else "")
        + _QUERY.sub(lambda found: found[0][0] + _HIDDEN, place)
    )


def holds_credentials(url: str) -> bool:
    """Whether a URL has a user, a password or a query, which may be secrets.

    >>> (
    ...     holds_credentials("http://me:pw@h"),
    ...     holds_credentials("http://h?key=x"),
    ...     holds_credentials("http://h/v1"),
    ... )
    (True, True, False)
    """
    return "?" in url or "@" in (url.partition("://")[2] or url).partition("/")[0]


_LONGEST_WORD: Final = 80  # characters that are compared


def nearest(word: Any, known: Iterable[Any], *, alike: float = 0.6) -> str | None:
    """The known word that is most similar to `word`, ignoring case; None if none is similar, or
    `word` is not a text.

    Args:
        alike: how similar the words must be, from 0 to 1 (the ratio of `difflib`).
    """
    if not isinstance(word, str):
        return None
    from difflib import get_close_matches  # deferred: needed for mistakes only

    # IN_ORDER is far from in_order
    small = {each.casefold(): each for each in known if isinstance(each, str)}
    near = get_close_matches(word[:_LONGEST_WORD].casefold(), small, n=1, cutoff=alike)
    return small[near[0]] if near else None


def did_you_mean(word: Any, known: Collection[Any]) -> str:
    """The end of an error message for an unknown word: `did you mean 'x'?`, or the list of all
    known words.
    """
    near = nearest(word, known)
    return (
        f"did you mean {near!r}?" if near else f"choose one of {', '.join(sorted(map(str, known)))}"
    )


_NONE: Final[Mapping[str, str]] = {}


def unknown_keys(
    given: Iterable[Any],
    known: Collection[Any],
    within: str = "",
    *,
    remedies: Mapping[str, str] = _NONE,
) -> list[str]:
    """A problem for each unknown key; `within` is the key of the mapping, with a dot.

    Args:
        remedies: what to write instead of a key, where that is known better than by its spelling.
    """
    return [
        f"{within}{key}: unknown key; {remedies.get(key) or did_you_mean(key, known)}"
        for key in given
        if key not in known
    ]


def wrong_keys(
    given: Collection[Any], known: Mapping[str, bool], *, remedies: Mapping[str, str] = _NONE
) -> list[str]:
    """A problem for each unknown key, and for each required one that is neither given nor misspelt.

    >>> wrong_keys(["nmae", "at"], {"name": True, "path": True})
    ["nmae: unknown key; did you mean 'name'?", "at: unknown key; did you mean 'path'?"]

    Args:
        known: whether each key is required.
        remedies: as in `unknown_keys`.
    """
    misspelt = {nearest(key, known) for key in given if key not in known and key not in remedies}
    missing = [
        key for key, required in known.items() if required and key not in {*given, *misspelt}
    ]
    return [
        *unknown_keys(given, known, remedies=remedies),
        *(f"{key}: is missing; add it" for key in missing),
    ]
