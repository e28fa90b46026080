"""Tables, and Markdown for comments on a change: names are escaped, and the length is limited."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from otel_eval.exporters.text_table import Layout, columns, plain

LIMIT: Final = 60_000
"""Characters of a comment, below the limits of the hosts of code."""

_ESCAPES: Final = str.maketrans(
    {letter: f"\\{letter}" for letter in "\\`*_{}[]!~$"}
    | {letter: f"&#{ord(letter)};" for letter in "&<>|"}
    # a blank without width, so that the text is no reference to an issue or a person
    | {"#": "\\#\u200b", "@": "@\u200b"}
)
_ADDRESS: Final = re.compile(r"://|www\.", re.IGNORECASE)
# what begins a list, a rule or a heading
_BLOCK: Final = re.compile(r"\A(\d{0,9})(?=[.)](?:\s|\Z)|[-+]\s|---|=)")


def escape(text: str) -> str:
    r"""The text on one line, with all escaped that Markdown or HTML would interpret. It links
    to nothing and mentions nobody.

    >>> escape("<b> *x* |")
    '&#60;b&#62; \\*x\\* &#124;'
    """
    safe = plain(" ".join(text.split())).translate(_ESCAPES)
    safe = _ADDRESS.sub(
        lambda match: "&#58;//" if match[0] == "://" else f"{match[0][:3]}&#46;", safe
    )
    return _BLOCK.sub(r"\1\\", safe)


class Table(NamedTuple):
    """A table that can be written as text or as Markdown."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def text_lines(self, layout: Layout, widest: int) -> list[str]:
        """The lines for a terminal, with columns of at most `widest` characters; [] without
        rows.
        """
        return columns(self.header, self.rows, layout=layout, widest=widest) if self.rows else []

    def markdown_lines(self) -> list[str]:
        """The lines of Markdown with escaped cells, and an empty line after it; [] without rows."""
        if not self.rows:
            return []
        return [
            f"| {' | '.join(self.header)} |",
            f"|{'---|' * len(self.header)}",
            *(f"| {' | '.join(map(escape, row))} |" for row in self.rows),
            "",
        ]


class Comment:
    """A comment of at most 60,000 characters; of the lines that do not fit there is the number.

    Args:
        mark: what tells comments of one kind from others; the first line holds it, so that a later
            run in CI can replace the comment. "" for a part of a comment.
    """

    def __init__(self, mark: str = "") -> None:
        self._lines: Final[list[str]] = []
        self._length = 0
        self._left_out = 0
        if mark:
            self.add(f"<!-- {mark} -->")

    def add(self, *lines: str) -> None:
        """Add lines of Markdown."""
        for line in lines:
            # what follows the first line that does not fit is left out, too
            if self._left_out or self._length + len(line) + 1 > LIMIT - 100:
                self._left_out += bool(line)
            else:
                self._lines.append(line)
                self._length += len(line) + 1

    def extend(self, part: Comment) -> None:
        """Add the lines of a part."""
        self.add(*part._lines)
        self._left_out += part._left_out

    def text(self) -> str:
        """The whole comment."""
        closing = [f"\n{self._left_out:,} more lines are not shown."] if self._left_out else []
        return "\n".join([*self._lines, *closing]) + "\n"
