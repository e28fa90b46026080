"""What the tool spans of one table say of themselves, beside the content of the call.

Knows fields and marks of a table; knows no tree. Most spans of a tool differ in nothing but ids, times and content, so
what is read here is remembered by the bytes it was read from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.conventions.decode import text_of
from otel_eval.conventions.messages import NO_ID
from otel_eval.conventions.reader import MEMO_BYTES, MEMO_LIMIT, ReadTable
from otel_eval.conventions.table import Field
from otel_eval.ports import View, Wanted

__all__ = ["FAILURE_WORDS", "ToolReader", "ToolWords"]


@dataclass(frozen=True, slots=True)
class ToolWords:
    """What a tool span says of itself.

    Attributes:
        name: the tool's name.
        is_call: False for artefacts that are no calls.
        error_type: the class of error that was recorded, or "".
        failed: a mark of failure is there.
        unnamed: nothing names the tool, so that `name` is the span's.
    """

    name: str
    is_call: bool
    error_type: str
    failed: bool
    unnamed: bool = False


# A result is opened although nobody needs it only if it could say that the call failed.
FAILURE_WORDS: Final = ("rror", "ERROR")
_RAW_FAILURE_WORDS: Final = tuple(word.encode() for word in FAILURE_WORDS)


class ToolReader:
    """Reads the tool spans of one table, of their content only what is needed.

    Attributes:
        content: the attributes that hold arguments, result and call id.
        everything: these and what `words` looks at.
        plain: for whoever can tell without decoding that a call did not fail: what to make a fingerprint of, where ids and
            results are, words that a result must not hold, (span's name, fingerprint) → tool's name of what surely is a
            call that did not fail as far as these attributes say, and texts that are no ids. None of it holds
            where values are JSON text.
    """

    def __init__(self, table: ReadTable, needs: frozenset[str]) -> None:
        marks = (*table.convention.errors, *table.convention.not_call_marks)
        held = [Field.CALL_ID, Field.RESULT, *([Field.ARGUMENTS, Field.PARAMETERS] if "arguments" in needs else [])]
        self.table: Final = table
        self.content: Final = table.keys_wanted(*held)
        self._said: Final = Wanted(table.keys_wanted(Field.TOOL_NAME, Field.ERROR_TYPE).keys | {mark.key for mark in marks})
        self.everything: Final = Wanted(self.content.keys | self._said.keys)
        self._known: Final[dict[tuple[str, bytes], ToolWords]] = {}
        self._names: Final[dict[tuple[str, bytes], str]] = {}
        keys = table.keys_wanted(Field.CALL_ID), table.keys_wanted(Field.RESULT)
        self.plain: Final = (self._said, *keys, _RAW_FAILURE_WORDS, self._names, (table.nothing | NO_ID) - {""})

    def words(self, view: View) -> ToolWords:
        """What the span says of itself."""
        fingerprint = getattr(view, "fingerprint", None)
        mark = None if fingerprint is None else fingerprint(self._said)
        if mark is None:
            return self.read(view.attributes(self._said), view.name)
        return self._known.get((view.name, mark)) or self._remember(view, mark)

    def _remember(self, view: View, mark: bytes) -> ToolWords:
        name = view.name
        words = self.read(view.attributes(self._said), name)
        if len(self._known) >= MEMO_LIMIT:
            self._known.clear()
            self._names.clear()
        if len(mark) + len(name) <= MEMO_BYTES:
            self._known[name, mark] = words
            if words.is_call and not words.error_type and not words.failed:
                self._names[name, mark] = words.name
        return words

    def read(self, attributes: Mapping[str, Any], span_name: str) -> ToolWords:
        """The same of attributes that were read already."""
        table = self.table
        told = table.tool_name(attributes, span_name)
        name = told or span_name
        error = table.value(attributes, Field.ERROR_TYPE)
        return ToolWords(
            name,
            table.is_call(attributes, name),
            "" if error is None else text_of(error),
            table.marked(attributes, table.convention.errors),
            not told,
        )
