"""Walk through a JSON text of any size, holding a part of it: what is below the levels walked is decoded at once."""

from __future__ import annotations

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, Final, Protocol

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import MAX_DOCUMENT

__all__ = ["BrokenJson", "Cursor", "Pieces"]

_PIECE: Final = 2**20
_BLANK: Final = re.compile(r"[ \t\n\r]*")
_NEAR: Final = 16  # characters from the end: an error there may come from a value that is not all here yet
_MARK: Final = "\ufeff"


class BrokenJson(InputError):
    """The text is no JSON from some place on. What came before it can be used."""


class Pieces(Protocol):
    """Bytes to read one after another."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


class Cursor:
    """A place in a JSON text. After a key or an element its value is read before the next one."""

    def __init__(self, stream: Pieces) -> None:
        self._stream: Final = stream
        self._decoder: Final = getincrementaldecoder("utf-8")()
        self._scan: Final = json.JSONDecoder().raw_decode
        self._text, self._at = "", 0
        self._lines, self._column = 0, 0  # before the text
        self._ended = False
        self._more()
        self._at = len(_MARK) if self._text.startswith(_MARK) else 0

    def peek(self) -> str:
        """The next character that is not blank; "" at the end."""
        while True:
            self._at = _BLANK.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def value(self) -> Any:
        """The value here, decoded.

        Raises:
            BrokenJson: there is none.
        """
        self.peek()
        while True:
            try:
                value, end = self._scan(self._text, self._at)
            except json.JSONDecodeError as error:
                cut = error.pos + _NEAR >= len(self._text) or error.msg.startswith("Unterminated")
                if not cut or not self._more():
                    self._at = max(self._at, error.pos)
                    raise self._broken(error.msg) from None
                continue
            except RecursionError:
                raise BrokenJson("nested too deeply") from None
            except ValueError:
                raise self._broken("a number is too long") from None
            if end + _NEAR < len(self._text) or not self._is_number() or not self._more():  # "1" may become "1.5"
                self._at = end
                return value

    def _is_number(self) -> bool:
        return self._text[self._at] in "-0123456789"

    def members(self) -> Iterator[str]:
        """The keys of the object here, each before its value."""
        for _ in self._inside("{", "}"):
            if self.peek() != '"':
                raise self._broken("Expecting property name enclosed in double quotes")
            key = self.value()
            self._expect(":", "Expecting ':' delimiter")
            self.peek()
            yield key

    def elements(self) -> Iterator[int]:
        """The numbers of the elements of the list here, each before the element."""
        return self._inside("[", "]")

    def _inside(self, begin: str, end: str) -> Iterator[int]:
        self._expect(begin, f"Expecting {begin!r}")
        number = 0
        while self.peek() != end:
            if number:
                self._expect(",", "Expecting ',' delimiter")
                self.peek()
            yield number
            number += 1
        self._expect(end, f"Expecting {end!r}")

    def _expect(self, character: str, message: str) -> None:
        if self.peek() != character:
            raise self._broken(message)
        self._at += 1

    def _broken(self, message: str) -> BrokenJson:
        """An error at this place."""
        before = self._text[: self._at]
        lines = before.count("\n")
        column = len(before) - before.rfind("\n") if lines else self._column + len(before) + 1
        return BrokenJson(f"line {self._lines + lines + 1}, column {column}: not JSON: {message}")

    def _more(self) -> bool:
        """Read on, and forget what was passed; False at the end."""
        if self._ended:
            return False
        passed, rest = self._text[: self._at], self._text[self._at :]
        if len(rest) > MAX_DOCUMENT:
            raise BrokenJson(f"a part of it is greater than {MAX_DOCUMENT} bytes")
        lines = passed.count("\n")
        self._column = len(passed) - passed.rfind("\n") - 1 if lines else self._column + len(passed)
        self._lines += lines
        piece = self._stream.read(max(_PIECE, len(rest)))  # as much again, so that a long value is not scanned too often
        self._ended = not piece
        try:
            self._text, self._at = rest + self._decoder.decode(piece, final=not piece), 0
        except UnicodeDecodeError:
            raise BrokenJson("not UTF-8") from None
        return True
