"""Why a model call ended: whether it asked for tools, as far as its finish reasons tell."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from itertools import chain
from typing import Any, Final

from otel_eval.conventions.decode import decode
from otel_eval.conventions.events import output_of
from otel_eval.conventions.reader import ReadTable
from otel_eval.conventions.table import Field
from otel_eval.ports import SpanEvent

__all__ = ["Finish", "finish_of", "finish_of_messages"]

# Texts that tell nothing; Responses API's `completed` and `incomplete` are states, which do not tell of tools.
_NO_REASON: Final = frozenset(
    {"", "none", "null", "unknown", "unspecified", "finish_reason_unspecified", "other", "completed", "incomplete", "in_progress"}
)
# OpenAI and most others; Vercel and Gemini; Anthropic; Bedrock; Ollama.
_KEYS: Final = frozenset({"finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason"})
_WITHIN: Final = ("choices", "message", "candidates", "generations", "generation_info", "response_metadata", "raw", "kwargs")
_MOST: Final = 1000  # objects looked at in one value


class Finish(Enum):
    """How a model call ended."""

    UNKNOWN = "no finish reason that could be relied on was recorded"
    TOOLS = "in order to call tools"
    OTHER = "for another reason"


def finish_of(table: ReadTable, attributes: Mapping[str, Any]) -> Finish:
    """What the span's attributes tell.

    Args:
        table: the table that recognised the model span.
        attributes: those of `table.finish_wanted`.
    """
    return _finish(table, attributes, _texts(table.value(attributes, Field.FINISH_REASONS)))


def finish_of_messages(
    table: ReadTable, attributes: Mapping[str, Any], values: Iterable[Any], events: Iterable[SpanEvent]
) -> Finish:
    """What the span's output messages tell.

    Args:
        table: the table that recognised the model span.
        attributes: those of `table.finish_wanted`.
        values: the output messages, as attributes hold them.
        events: the span's events and log records.
    """
    held = chain(values, (output for event in events for output in output_of(event)))
    return _finish(table, attributes, (text for each in held for text in _within(decode(each, literals=False))))


def _finish(table: ReadTable, attributes: Mapping[str, Any], reasons: Iterable[str]) -> Finish:
    known = False
    for reason in reasons:
        if reason.lower() in _NO_REASON:
            continue
        if table.asks_for_tools(reason):
            return Finish.TOOLS  # what follows is not decoded
        known = True
    unreliable = table.marked(attributes, table.convention.unreliable_finish_reasons)
    return Finish.OTHER if known and not unreliable else Finish.UNKNOWN


def _texts(value: Any) -> list[str]:
    """One reason or several, as text, list, or JSON text of a list."""
    read = decode(value, literals=False)
    return [each for each in (read if isinstance(read, list) else [read]) if isinstance(each, str)]


def _within(value: Any) -> Iterator[str]:
    """The finish reasons in output messages, of whatever format."""
    stack, looked = [value], 0
    while stack and looked < _MOST:
        each, looked = stack.pop(), looked + 1
        if isinstance(each, list):
            stack.extend(each[:_MOST])
        elif isinstance(each, dict):
            yield from (each[key] for key in _KEYS & each.keys() if isinstance(each[key], str))
            stack.extend(each[key] for key in _WITHIN if key in each)
