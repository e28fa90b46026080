"""What the tool spans of one table say of themselves, beside the content of the call.

Knows fields and marks of a table; knows no tree. Most spans of a tool differ in nothing but ids, times and content, so
what is read here is remembered by the bytes it was read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.conventions.decode import text_of
from otel_eval.conventions.reader import MEMO_BYTES, MEMO_LIMIT, ReadTable
from otel_eval.conventions.table import Field
from otel_eval.ports import View, Wanted

__all__ = ["ToolReader", "ToolWords"]


@dataclass(frozen=True, slots=True)
class ToolWords:
    """What a tool span says of itself.

    Attributes:
        name: the tool's name.
        is_call: False for artefacts that are no calls.
        error_type: the class of error that was recorded, or "".
        failed: a mark of failure is there.
    """

    name: str
    is_call: bool
    error_type: str
    failed: bool


class ToolReader:
    """Reads the tool spans of one table, of their content only what is needed.

    Attributes:
        content: the attributes that hold arguments, result and call id.
        everything: these and what `words` looks at.
    """

    def __init__(self, table: ReadTable, needs: frozenset[str]) -> None:
        marks = (*table.convention.errors, *table.convention.not_call_marks)
        held = [Field.CALL_ID, Field.RESULT, *([Field.ARGUMENTS] if "arguments" in needs else [])]
        self._table: Final = table
        self.content: Final = table.keys_wanted(*held)
        self._wanted: Final = Wanted(table.keys_wanted(Field.TOOL_NAME, Field.ERROR_TYPE).keys | {mark.key for mark in marks})
        self.everything: Final = Wanted(self.content.keys | self._wanted.keys)
        self._known: Final[dict[tuple[str, bytes], ToolWords]] = {}

    def words(self, view: View) -> ToolWords:
        """What the span says of itself."""
        fingerprint = getattr(view, "fingerprint", None)
        mark = fingerprint(self._wanted) if fingerprint is not None else None
        name = view.name
        if mark is None:
            return self.read(view.attributes(self._wanted), name)
        known = self._known.get((name, mark))
        if known is None:
            known = self.read(view.attributes(self._wanted), name)
            if len(self._known) >= MEMO_LIMIT:
                self._known.clear()
            if len(mark) + len(name) <= MEMO_BYTES:
                self._known[name, mark] = known
        return known

    def read(self, attributes: Mapping[str, Any], span_name: str) -> ToolWords:
        """The same of attributes that were read already."""
        table = self._table
        name = table.tool_name(attributes, span_name) or span_name
        error = table.value(attributes, Field.ERROR_TYPE)
        return ToolWords(
            name,
            table.is_call(attributes, name),
            "" if error is None else text_of(error),
            table.marked(attributes, table.convention.errors),
        )
