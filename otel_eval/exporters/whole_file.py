"""A file of text that is there whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from secrets import token_hex
from types import TracebackType
from typing import Final, Self, TextIO

from otel_eval.errors import InputError


class WholeFile:
    """A file of UTF-8 text, written beside its path and renamed at the end of a `with` block.

    If the block raises, what was at the path before stays. A pipe or device is written at once.

    Args:
        path: where the file will be; a link is followed.

    Raises:
        InputError: the folder is missing or read-only, or the file cannot be written; on entering
            the block, so that nothing is computed in vain, or later.
    """

    def __init__(self, path: str) -> None:
        self._path: Final = path
        self._target = self._partial = os.path.realpath(path)
        self._stream: TextIO | None = None
        self._is_discarded = False

    def __enter__(self) -> Self:
        try:
            if os.path.isfile(self._target) or not os.path.exists(self._target):
                folder = os.path.dirname(self._target)
                self._partial = os.path.join(folder, f".otel-eval-{token_hex(8)}")
            self._stream = open(
                self._partial, "w", encoding="utf-8", errors="backslashreplace", newline="\n"
            )
        except OSError as error:
            raise self._problem(error) from None
        return self

    def write(self, text: str) -> None:
        """Add text."""
        if self._stream is None:
            raise ValueError("write within the block of `with`")
        try:
            self._stream.write(text)
        except OSError as error:
            raise self._problem(error) from None

    def discard(self) -> None:
        """Write no file at the end of the block: what was at the path before stays."""
        self._is_discarded = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        is_whole = False
        try:
            if self._stream is not None:
                self._stream.close()
            is_whole = kind is None and not self._is_discarded
            if is_whole and self._partial != self._target:
                os.replace(self._partial, self._target)
        except OSError as problem:
            is_whole = False
            if kind is None:
                raise self._problem(problem) from None
        finally:
            if not is_whole and self._partial != self._target:
                with suppress(OSError):
                    os.unlink(self._partial)

    def _problem(self, error: OSError) -> InputError:
        return InputError(f"{self._path}: {error.strerror or error}")


def write_whole(path: str, text: str) -> None:
    """Write a text to a file, which is there whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    with WholeFile(path) as file:
        file.write(text)
