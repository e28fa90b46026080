"""Values and URLs as messages and log lines quote them: shortened, without secrets."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any, Final

__all__ = ["holds_credentials", "redacted", "redacted_repr"]

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
        text = ascii(value) if isinstance(value, bytes) else repr(_plain(value, _DEEPEST))
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


def _plain(value: Any, depth: int) -> Any:
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
        return {_plain(key, depth - 1): _HIDDEN if _is_secret(key, inner) else _plain(inner, depth - 1) for key, inner in some}
    return type(value)(_plain(each, depth - 1) for each in value[:_MOST_SHOWN])


def _begun(text: str) -> str:
    """The beginning of a text, longer than what is shown, so that no secret is cut before it is recognised."""
    return text[: 4 * _MOST_SHOWN]


def _is_secret(key: Any, value: Any) -> bool:
    return isinstance(key, str) and value is not None and bool(_SECRET_KEY.search(key))
