"""Read the fields of a span (tool name, arguments, result, …) by the rows of the table that
recognised it.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final

from otel_eval.conventions.message_formats import RESULT_WRAPPERS
from otel_eval.conventions.table import (
    FINISH_REASONS,
    KEPT_MESSAGES,
    RESPONSE_ID,
    Convention,
    Field,
    Mark,
    MessageRow,
    Side,
)
from otel_eval.conventions.values import SPACES, decode, first_of, text_of
from otel_eval.globs import any_glob, captured, glob
from otel_eval.interfaces import SpanEvent, Wanted

# Memo keys beyond these limits come from attributes with free text: there memory matters more than
# speed.
MEMO_LIMIT: Final = 4096
MEMO_BYTES: Final = 1024


def is_small(fingerprint: Hashable) -> bool:
    """Whether a memo keeps an entry for a fingerprint, which is input and may be long."""
    return len(fingerprint if isinstance(fingerprint, bytes) else repr(fingerprint)) <= MEMO_BYTES


_UUID: Final = 36  # characters
_RANDOM_ID: Final = re.compile(r"[_-][0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_NAMES: Final = frozenset({Field.TOOL_NAME, Field.AGENT_NAME})


class ReadTable:
    """A convention with its globs compiled and its attributes grouped by what is decoded
    together.
    """

    def __init__(self, convention: Convention) -> None:
        self.convention = convention
        self.name = convention.name
        self.events = tuple((glob(row.event), row) for row in convention.events)
        self.fields_in_events = frozenset(row.field for row in convention.events)
        self.result_wrappers = (*convention.wrappers, *RESULT_WRAPPERS)
        self._fields = {
            Field.FINISH_REASONS: FINISH_REASONS,
            Field.RESPONSE_ID: RESPONSE_ID,
            **convention.fields,
        }
        self._encoded = convention.json_encoded
        self.placeholder_texts = frozenset(
            text for texts in convention.placeholders.values() for text in texts
        )
        self._longest_placeholder = max(map(len, self.placeholder_texts), default=-1)
        paths = convention.tool_name_at
        self._tool_name_at = first_of(*paths) if paths else None
        self.may_lack_names = bool(paths) or Field.TOOL_NAME in self.fields_in_events
        self._masks = convention.masks
        self._takes_all = not (convention.placeholders or convention.truncated or convention.masks)
        self._wanted: dict[tuple[Field, ...], Wanted] = {}
        self._title = convention.title
        self._span_names = tuple(glob(pattern) for pattern in convention.span_name)
        self._agent_names = tuple(glob(pattern) for pattern in convention.agent_span_name)
        self._marks = {
            mark: glob(mark.value.lower())  # marks are compared without case
            for mark in (
                *convention.errors,
                *convention.not_call_marks,
                *convention.refusal_marks,
                *convention.pause_marks,
                *convention.resume_marks,
                *convention.request_marks,
                *convention.unreliable_finish_reasons,
            )
        }
        # finish reasons and texts of results are compared without case
        self._tool_finishes = any_glob(map(str.lower, convention.tool_finish_reasons))
        self._mcp_names = tuple(glob(pattern) for pattern in convention.mcp_names)
        self._not_requests = any_glob(convention.not_requests)
        self._client_tools = any_glob(convention.client_tools)
        self._client_types = any_glob(convention.client_tool_types)
        self._refusals = any_glob(map(str.lower, convention.refusals))
        self._output_results = any_glob(map(str.lower, convention.output_results))
        self._repeats = any_glob(convention.repeats)
        self.finish_wanted = Wanted(
            frozenset(
                {
                    *self._fields[Field.FINISH_REASONS],
                    *(mark.key for mark in convention.unreliable_finish_reasons),
                }
            )
        )
        self.pause_wanted = Wanted(frozenset(mark.key for mark in convention.pause_marks))
        self.resume_wanted = Wanted(frozenset(mark.key for mark in convention.resume_marks))
        self.tokens_wanted = self.keys_wanted(Field.INPUT_TOKENS, Field.OUTPUT_TOKENS)
        self.outputs_wanted = self._messages_of(Side.OUTPUT)
        self.histories_wanted = self._messages_of(Side.HISTORY)
        rows = [(row, row.key.endswith(".")) for row in convention.messages]
        self._output_rows = tuple(row for row in rows if row[0].side is Side.OUTPUT)
        self._history_rows = tuple(row for row in rows if row[0].side is Side.HISTORY)

    def _messages_of(self, side: Side) -> Wanted:
        """The attributes that hold messages of a side, with those that are needed to interpret
        them.
        """
        keys = {row.key for row in self.convention.messages if row.side is side}
        prefixes = tuple(key for key in keys if key.endswith("."))
        exact = self._marked(keys.difference(prefixes)) | self._keys(Field.FIRST_NEW_MESSAGE)
        return Wanted(exact | {KEPT_MESSAGES} if side is Side.OUTPUT else exact, prefixes)

    def _keys(self, *fields: Field) -> frozenset[str]:
        """The attributes that hold these fields, with those that are needed to interpret them."""
        keys = {key for wanted_field in fields for key in self._fields.get(wanted_field, ())}
        if self._title and not _NAMES.isdisjoint(fields):
            keys.add(self._title)
        return self._marked(keys)

    def _marked(self, keys: set[str]) -> frozenset[str]:
        """The attributes, and those that mark a value of theirs as truncated."""
        return frozenset(keys) | {
            mark for key, mark in self.convention.truncated.items() if key in keys
        }

    def keys_wanted(self, *fields: Field) -> Wanted:
        """The attributes of these fields; the same object for the same fields, so that sources
        prepare its look-up once.
        """
        wanted = self._wanted.get(fields)
        if wanted is None:
            wanted = self._wanted[fields] = Wanted(self._keys(*fields))
        return wanted

    def value(self, read: Mapping[str, Any], wanted_field: Field) -> Any:
        """The recorded value of a field: the first of its attributes that is neither a placeholder,
        cut nor masked; else None.
        """
        for key in self._fields.get(wanted_field, ()) if read else ():
            value = read.get(key)
            if value is not None and (self._takes_all or self._is_recorded(read, key, value)):
                return decode(value, literals=False) if self._encoded else value
        return None

    def recorded(self, read: Mapping[str, Any], key: str) -> Any:
        """The value of an attribute that is neither a placeholder, cut nor masked; else None."""
        value = read.get(key)
        return (
            value
            if value is not None and (self._takes_all or self._is_recorded(read, key, value))
            else None
        )

    def _is_recorded(self, read: Mapping[str, Any], key: str, value: Any) -> bool:
        """Whether the value of an attribute is neither a placeholder, cut nor masked."""
        if isinstance(value, str) and (
            self.is_masked(value)
            or (
                len(value) <= self._longest_placeholder  # first, or long texts are hashed
                and value in self.placeholder_texts
                and self.is_placeholder(key, value)
            )
        ):
            return False
        return not (self.convention.truncated and self.is_cut(read, key))

    def is_cut(self, read: Mapping[str, Any], key: str) -> bool:
        """Whether another attribute marks this one as truncated."""
        mark = self.convention.truncated.get(key)
        return mark is not None and text_of(read.get(mark)).lower() == "true"

    def is_masked(self, value: Any) -> bool:
        """Whether the instrumentation replaced a part of the value, for instance a password."""
        if isinstance(value, str):
            for mask in self._masks:
                if mask in value:
                    return True
        return False

    def text(self, read: Mapping[str, Any], wanted_field: Field) -> str:
        """`value` as text, "" for none."""
        value = self.value(read, wanted_field)
        return "" if value is None else text_of(value)

    def is_placeholder(self, key: str, value: Any) -> bool:
        """Whether the value stands for "not recorded"."""
        placeholders = self.convention.placeholders
        return isinstance(value, str) and (
            value in placeholders.get(key, ()) or value in placeholders.get("*", ())
        )

    def output_rows(self, read: Mapping[str, Any]) -> Sequence[tuple[MessageRow, Any]]:
        """The rows of messages that were produced in a span, each with its value, or with its
        family by what follows the prefix, if that is recorded; `read` are the attributes of
        `outputs_wanted`.
        """
        rows, keys = self._output_rows, self.outputs_wanted.keys
        return self._recorded_rows(rows, keys, read, masked_too=False) if read else ()

    def history_rows(self, read: Mapping[str, Any]) -> Sequence[tuple[MessageRow, Any]]:
        """The same of messages from before a span, also of those of which a part was replaced;
        `read` are the attributes of `histories_wanted`.
        """
        rows, keys = self._history_rows, self.histories_wanted.keys
        return self._recorded_rows(rows, keys, read, masked_too=True) if read else ()

    def _recorded_rows(
        self,
        rows: Sequence[tuple[MessageRow, bool]],
        keys: frozenset[str],
        read: Mapping[str, Any],
        *,
        masked_too: bool,
    ) -> list[tuple[MessageRow, Any]]:
        """The same of rows, each with whether it is a family; `keys` are those of no family."""
        recorded: list[tuple[MessageRow, Any]] = []
        has_families = not keys.issuperset(read)
        for row, is_family in rows:
            if not is_family:
                value = read.get(row.key)
                if value is None or (isinstance(value, str) and value.strip(SPACES) == "null"):
                    continue
                if (
                    self._takes_all
                    or self._is_recorded(read, row.key, value)
                    or (masked_too and self.is_masked(value))
                ):
                    recorded.append((row, value))
            elif has_families:
                family = {
                    key[len(row.key) :]: value
                    for key, value in read.items()
                    if key.startswith(row.key)
                }
                if any(_shows_content(row.key, part) for part in family):
                    recorded.append((row, family))
        return recorded

    def fields_of(self, event: SpanEvent) -> Iterator[tuple[Field, Any]]:
        """The fields of a tool span that one of its events or log records holds."""
        body = event.body if isinstance(event.body, dict) else {}
        for pattern, row in self.events:
            match = pattern.fullmatch(event.name)
            if match is not None:
                # `*` as the key takes the value from the event's name, as in Letta's
                # `start_search_execution`.
                named = (
                    next((group for group in match.groups() if group), None)
                    if row.key == "*"
                    else None
                )
                value = event.attributes.get(row.key, body.get(row.key, named))
                if value is not None and not self.is_placeholder(row.key, value):
                    yield row.field, value

    def tool_name(self, read: Mapping[str, Any], span_name: str) -> str:
        """The tool's name: from its attribute, else from the part of the span's name that the table
        marks, else "".
        """
        recorded = self.value(read, Field.TOOL_NAME)
        if self._tool_name_at is not None and recorded is not None:
            whole = decode(recorded, literals=False)
            recorded = self._tool_name_at(whole) if isinstance(whole, dict) else None
        name = "" if recorded is None else text_of(recorded)
        return name or captured(self._span_names, self._titled(read, span_name))

    def agent_name(self, read: Mapping[str, Any], span_name: str) -> str:
        """The agent's name: from its attribute, else from the part of the span's name that the
        table marks, else ""; without the random id that a framework appends, as in `Crew_<uuid>`.
        """
        name = self.text(read, Field.AGENT_NAME) or captured(
            self._agent_names, self._titled(read, span_name)
        )
        return name if len(name) <= _UUID else _RANDOM_ID.sub("", name)

    def _titled(self, read: Mapping[str, Any], span_name: str) -> str:
        """The span's name with its values filled in, where the table has an attribute for it."""
        return text_of(read.get(self._title)) or span_name

    def name_in_mcp(self, name: str) -> str:
        """The name by which an MCP server knows the tool, if the table has a pattern for it; else
        the name itself.
        """
        for pattern in self._mcp_names:
            if match := pattern.fullmatch(name):
                return match.groups()[-1] or name
        return name

    def is_mcp_tool(self, name: str) -> bool:
        """Whether the name, or its last part, is the one by which an MCP server knows the tool."""
        return any(pattern.fullmatch(name) for pattern in self._mcp_names)

    def is_call(self, read: Mapping[str, Any], name: str) -> bool:
        """False for spans that look like tool calls and are artefacts of the instrumentation."""
        return name not in self.convention.not_calls and not self.marked(
            read, self.convention.not_call_marks
        )

    def is_paused(self, read: Mapping[str, Any]) -> bool:
        """Whether a tool or agent span is marked as waiting for a person."""
        return self.marked(read, self.convention.pause_marks)

    def is_request(self, name: str) -> bool:
        """False for names that a model requests and no tool answers, such as output tools and
        handoffs.
        """
        return bool(name) and not self._not_requests.fullmatch(name)

    def is_client_tool(self, name: str, offered_type: str) -> bool:
        """Whether the program around the agent runs the tool.

        Args:
            name: the tool's name.
            offered_type: the type under which the model call lists it, or "".
        """
        return bool(
            self._client_tools.fullmatch(name) or self._client_types.fullmatch(offered_type)
        )

    def is_refusal(self, result: str) -> bool:
        """Whether a result is the framework's text for a tool that it did not run."""
        return self._refusals.fullmatch(result[:MEMO_BYTES].lower()) is not None

    def is_marked_refused(self, read: Mapping[str, Any]) -> bool | None:
        """Whether a tool span is marked as that of a call that was refused; None if it has no such
        attribute.
        """
        marks = self.convention.refusal_marks
        return self.marked(read, marks) if any(mark.key in read for mark in marks) else None

    def is_output(self, result: str) -> bool:
        """Whether a result is the framework's text for a request that was the run's output."""
        return self._output_results.fullmatch(result[:MEMO_BYTES].lower()) is not None

    def asks_for_tools(self, finish_reason: str) -> bool:
        """Whether a model call with this finish reason ended in order to call tools."""
        return self._tool_finishes.fullmatch(finish_reason.lower()) is not None

    def is_repeated_by(self, scope: str) -> bool:
        """Whether spans of the scope record the model calls of this client beside its own."""
        return self._repeats.fullmatch(scope) is not None

    def marked(self, read: Mapping[str, Any], marks: Sequence[Mark]) -> bool:
        """Whether one of the marks is present."""
        present = [mark for mark in marks if mark.key in read] if read else []
        return bool(present) and any(
            self._marks[mark].fullmatch(text_of(self._decoded(read[mark.key])).lower())
            for mark in present
        )

    def _decoded(self, value: Any) -> Any:
        return decode(value, literals=False) if self._encoded else value


def _shows_content(prefix: str, part: str) -> bool:
    """Whether a part of flattened messages is there only where their content is captured."""
    return (
        part.rpartition(".")[2] not in ("role", "finish_reason")
        or "tool_call" in part
        or "tool_call" in prefix
    )


NO_TABLE: Final = ReadTable(
    Convention(name="", source="", rules=(), fields=dict.fromkeys(Field, ()))
)
"""The table of spans that no convention recognises: nothing is read from them."""
