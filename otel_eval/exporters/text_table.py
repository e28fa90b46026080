"""Tables of plain text for terminals: aligned columns, colours, and text that cannot control a
terminal.
"""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple, TextIO

from otel_eval.scorers.tool_names import shortened

WIDTH: Final = 100
"""Columns of text that is not written to a terminal."""
GREEN: Final = "\x1b[32m"
RED: Final = "\x1b[31m"
YELLOW: Final = "\x1b[33m"
_RESET: Final = "\x1b[0m"
_NARROWEST: Final = 40


class Layout(NamedTuple):
    """How text is laid out.

    Attributes:
        width: the columns that it may take.
        colors: whether words may have colours.
    """

    width: int = WIDTH
    colors: bool = False

    def colored(self, text: str, color: str) -> str:
        """The text in this colour, if there are colours."""
        return f"{color}{text}{_RESET}" if self.colors and color else text


PLAIN_LAYOUT: Final = Layout()
_NO_COLORS: Final[Mapping[str, str]] = {}


def layout_of(stream: TextIO) -> Layout:
    """The width of the terminal, with colours unless `NO_COLOR` is set; for anything else plain
    text of 100 columns.
    """
    if not stream.isatty():
        return PLAIN_LAYOUT
    width = WIDTH
    with suppress(OSError, ValueError):  # a terminal that is none, such as a notebook
        width = max(_NARROWEST, os.get_terminal_size(stream.fileno()).columns)
    # consoles of Windows may not understand colours; https://no-color.org
    is_dumb = os.environ.get("TERM") == "dumb" or os.name == "nt"
    return Layout(width, not is_dumb and not os.environ.get("NO_COLOR"))


def columns(
    header: Sequence[str] | None,
    rows: Iterable[Sequence[str]],
    *,
    indent: int = 0,
    layout: Layout = PLAIN_LAYOUT,
    widest: int = 32,
    colors: Mapping[str, str] = _NO_COLORS,
    colored: int = -1,
) -> list[str]:
    """Indented lines of aligned columns; the last column wraps within the rest of the width.

    Args:
        header: the names of the columns; None for the rows only.
        rows: the cells of each row.
        indent: blanks before each line.
        layout: the width of the lines, and whether they have colours.
        widest: the most characters of a column that is not the last.
        colors: the colours of words in the column `colored`, which is not the last; a cell that
            begins with one of these words has its colour.
        colored: the number of that column.
    """
    table = [] if header is None else [tuple(header)]
    table += [tuple(map(plain, row)) for row in rows]
    widths = [min(widest, max(map(len, column))) for column in list(zip(*table, strict=True))[:-1]]
    last_column = indent + sum(widths) + 2 * len(widths)
    lines = []
    for row in table:
        cells = [
            f"{shortened(cell, size):<{size}}" for cell, size in zip(row, widths, strict=False)
        ]
        if layout.colors and colored >= 0 and row is not header:
            color = next((colors[word] for word in colors if row[colored].startswith(word)), "")
            cells[colored] = layout.colored(cells[colored], color)
        wrapped = textwrap.wrap(
            row[-1], max(20, layout.width - last_column), max_lines=4, placeholder=" …"
        ) or [""]
        lines += [
            " ".join([" " * indent + "  ".join(cells), "", wrapped[0]]).rstrip(),
            *(" " * last_column + line for line in wrapped[1:]),
        ]
    return lines


def plain(text: str) -> str:
    """The text on one line, without control characters: names come from traces and must not control
    the terminal.
    """
    return "".join(c if c.isprintable() else " " for c in text)
