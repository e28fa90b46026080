"""What is to be read of each trace, prepared once.

Knows tables and needs; knows no trace.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from otel_eval.conventions import TABLES, Convention, Field, Reader, ReadTable, ToolReader
from otel_eval.globs import glob
from otel_eval.ports import Wanted

__all__ = ["ALL_NEEDS", "Plan"]

ALL_NEEDS: Final = frozenset({"arguments", "results", "content", "spans", "tokens"})

_AGENT_FIELDS: Final = (Field.AGENT_NAME, Field.CONVERSATION)
_TOKEN_FIELDS: Final = (Field.INPUT_TOKENS, Field.OUTPUT_TOKENS)


def _is_plain(convention: Convention) -> bool:
    return not convention.json_encoded and not convention.failures_in_results


@dataclass(frozen=True, slots=True)
class Plan:
    """What to read.

    Attributes:
        tables: the conventions, the first that knows a span wins.
        needs: what is read beyond names, times and errors of calls, any of `ALL_NEEDS`; call ids are read with
            "arguments" or "results".
        asked: further attributes that a trajectory shall carry.
        records_tool_spans: globs of instrumentation scopes that the configuration declares to record each tool call as
            a span.
        plain: table → `ToolReader.plain`, of the tables whose spans show failures themselves.
    """

    tables: tuple[Convention, ...] = TABLES
    needs: frozenset[str] = frozenset()
    asked: frozenset[str] = frozenset()
    records_tool_spans: tuple[str, ...] = ()
    reader: Reader = field(init=False, repr=False, compare=False)
    asked_wanted: Wanted = field(init=False, repr=False, compare=False)
    plain: Mapping[ReadTable, tuple[object, ...]] = field(init=False, repr=False, compare=False)
    _declared: tuple[re.Pattern[str], ...] = field(init=False, repr=False, compare=False)
    _tool: Mapping[str, ToolReader] = field(init=False, repr=False, compare=False)
    _agent: Mapping[str, Wanted] = field(init=False, repr=False, compare=False)
    _tokens: Mapping[str, Wanted] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        reader = Reader(self.tables)
        tools = {each.name: ToolReader(each, self.needs) for each in reader.tables}
        content = (Field.INPUT, Field.OUTPUT, Field.FIRST_NEW_MESSAGE) if "content" in self.needs else ()
        tokens = _TOKEN_FIELDS if "tokens" in self.needs else ()
        prepared = {
            "reader": reader,
            "asked_wanted": Wanted(self.asked),
            "plain": {each.table: each.plain for each in tools.values() if _is_plain(each.table.convention)},
            "_declared": tuple(glob(each) for each in self.records_tool_spans),
            "_tool": tools,
            "_agent": {each.name: each.keys_wanted(*_AGENT_FIELDS, *tokens, *content) for each in reader.tables},
            "_tokens": {each.name: each.keys_wanted(*_TOKEN_FIELDS) for each in reader.tables},
        }
        for name, value in prepared.items():
            object.__setattr__(self, name, value)

    @property
    def wants_content_of_calls(self) -> bool:
        """Whether anything of a call beyond name, times and error is needed."""
        return "arguments" in self.needs or "results" in self.needs

    def declared(self, scope: str) -> bool:
        """Whether the configuration declares that each tool call of the scope leaves a span."""
        return any(each.fullmatch(scope) for each in self._declared)

    def tool_reader(self, table: ReadTable) -> ToolReader:
        """How to read a tool span."""
        return self._tool[table.name]

    def agent_wanted(self, table: ReadTable) -> Wanted:
        """What to ask an agent span."""
        return self._agent[table.name]

    def tokens_wanted(self, table: ReadTable) -> Wanted:
        """What to ask a model span."""
        return self._tokens[table.name]
