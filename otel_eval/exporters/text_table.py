"""Tables of plain text for terminals: aligned columns, and text that cannot control a terminal."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Final

from otel_eval.scorers.tool_names import shortened

WIDTH: Final = 100
"""Columns of text that is not written to a terminal."""


def columns(
    header: Sequence[str] | None,
    rows: Iterable[Sequence[str]],
    *,
    indent: int = 0,
    width: int = WIDTH,
    widest: int = 32,
) -> list[str]:
    """Indented lines of aligned columns of at most `widest` characters; the last column wraps
    within the rest of the width. Without a header there are the rows only.
    """
    table = [] if header is None else [tuple(header)]
    table += [tuple(map(plain, row)) for row in rows]
    widths = [min(widest, max(map(len, column))) for column in list(zip(*table, strict=True))[:-1]]
    last_column = indent + sum(widths) + 2 * len(widths)
    lines = []
    for row in table:
        start = " " * indent + "".join(
            f"{shortened(cell, size):<{size}}  " for cell, size in zip(row, widths, strict=False)
        )
        wrapped = textwrap.wrap(
            row[-1], max(20, width - last_column), max_lines=4, placeholder=" …"
        ) or [""]
        lines += [
            (start + wrapped[0]).rstrip(),
            *(" " * last_column + more for more in wrapped[1:]),
        ]
    return lines


def plain(text: str) -> str:
    """The text on one line, without control characters: names come from traces and must not control
    the terminal.
    """
    return "".join(c if c.isprintable() else " " for c in text)
