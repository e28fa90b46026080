"""Values as shorter JSON values: a text or the keys of an object that occurred before are numbers.

Each value is decoded by what came before it, so nothing has to be known in advance. The script of
the page decodes it (`unpacker`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SHORTEST: Final = 4  # UTF-16 units, as the script counts; a number of a shorter text saves nothing
_DIGITS: Final = "0123456789abcdefghijklmnopqrstuvwxyz"


class Packer:
    """Packs values in their order.

    * an object is `[keys, value, …]`, or with keys that occurred before `[number of the keys, …]`;
    * a list is `[-1, value, …]`;
    * a text that occurred before is `"~"` and its number in base 36; another one that begins with
      `~` has one more of it.
    """

    def __init__(self) -> None:
        self._texts: Final[dict[str, str]] = {}
        self._shapes: Final[dict[tuple[str, ...], int]] = {}

    def pack(self, value: Any) -> Any:
        """The value in its shorter form."""
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            keys = tuple(map(str, value))
            number: int | list[str] | None = self._shapes.get(keys)
            if number is None:
                self._shapes[keys] = len(self._shapes)
                number = list(keys)
            return [number, *map(self.pack, value.values())]
        if isinstance(value, list | tuple):
            return [-1, *map(self.pack, value)]
        return value if value is None or isinstance(value, bool | int | float) else str(value)

    def _text(self, text: str) -> str:
        """A text, or its number if it occurred before."""
        number = self._texts.get(text)
        if number is not None:
            return number
        if utf16_length(text) >= _SHORTEST:
            self._texts[text] = f"~{_base36(len(self._texts))}"
        return f"~{text}" if text.startswith("~") else text


def utf16_length(text: str) -> int:
    """The length of the text as a script sees it.

    >>> utf16_length("a\U0001f600")
    3
    """
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _base36(number: int) -> str:
    """A number of at least 0 in base 36."""
    digits = ""
    while True:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
        if not number:
            return digits
