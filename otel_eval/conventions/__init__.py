"""How the instrumentations of agents record tool calls, models and agents: tables as data, and the readers that apply them."""

from __future__ import annotations

from otel_eval.conventions.builtin import TABLES
from otel_eval.conventions.fields import ReadTable, ToolFields, ToolReader
from otel_eval.conventions.message_formats import WRAPPERS
from otel_eval.conventions.messages import ToolRequest, ToolResult, nested, read_messages
from otel_eval.conventions.model_calls import Finish, Histories, finish_of, finish_of_messages
from otel_eval.conventions.reader import DROPPED, UNRECOGNIZED, Classification, Reader, Recognition, ScopeReader
from otel_eval.conventions.table import Convention, EventRow, Field, Mark, MessageRow, Rule, Side
from otel_eval.conventions.values import decode, unwrap

__all__ = [
    "DROPPED",
    "TABLES",
    "UNRECOGNIZED",
    "WRAPPERS",
    "Classification",
    "Convention",
    "EventRow",
    "Field",
    "Finish",
    "Histories",
    "Mark",
    "MessageRow",
    "ReadTable",
    "Reader",
    "Recognition",
    "Rule",
    "ScopeReader",
    "Side",
    "ToolFields",
    "ToolReader",
    "ToolRequest",
    "ToolResult",
    "decode",
    "finish_of",
    "finish_of_messages",
    "nested",
    "read_messages",
    "unwrap",
]
