"""What is kept of the messages of a span where their content is not: an attribute of one's own.

Names, ids and whether a request was answered; no arguments, results or texts. `written` makes the
attribute, for spans that are stored as cases, and `restored` reads it in place of messages.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.messages import Meaning, ToolRequest, ToolResult
from otel_eval.conventions.model_calls import OfferedTools
from otel_eval.conventions.tool_spans import result_text
from otel_eval.conventions.values import parse_json
from otel_eval.model import UNRECORDED
from otel_eval.trajectory.pairing import SpanMessages


def written(messages: SpanMessages, tables: Iterable[ReadTable]) -> str:
    """The value of the attribute, as JSON.

    Args:
        messages: those of one span.
        tables: they tell by the text of a result whether the framework refused the call.
    """
    earlier, results = messages.history()
    read_tables = tuple(tables)
    return json.dumps(
        {
            "recorded": messages.recorded,
            "broken": messages.broken,
            "requests": [_request_fields(request) for request in messages.requests],
            "answers": [_result_fields(result, read_tables) for result in messages.answers],
            "earlier": [_request_fields(request) for request in earlier],
            "results": [_result_fields(result, read_tables) for result in results],
        },
        separators=(",", ":"),
    )


def _request_fields(request: ToolRequest) -> list[Any]:
    return [request.name, request.call_id, request.hosted, request.failed]


def _result_fields(result: ToolResult, tables: Sequence[ReadTable]) -> list[Any]:
    meaning = result.meaning
    text = result_text(result.result)
    if text and any(table.is_refusal(text) for table in tables):
        meaning = "refused"
    elif text and any(table.is_output(text) for table in tables):
        meaning = "output"
    return [result.call_id, result.name, result.failed, result.marked, meaning]


def offered_value(offered: OfferedTools) -> str:
    """The value of the attribute that holds the names of the tools that were offered."""
    return json.dumps(
        {
            "function_tools": [
                {"name": name} for name in sorted((offered.names or frozenset()) - offered.outputs)
            ],
            "output_tools": [{"name": name} for name in sorted(offered.outputs)],
            "native_tools": [] if offered.names is not None else ["unknown"],
        },
        separators=(",", ":"),
    )


def restored(value: Any) -> SpanMessages | None:
    """The messages of a span with the attribute; None if the value is none of `written`."""
    read = parse_json(value) if isinstance(value, str) else None
    if not isinstance(read, dict):
        return None
    requests, earlier = (_requests(read.get(key)) for key in ("requests", "earlier"))
    answers, results = (_results(read.get(key)) for key in ("answers", "results"))
    if requests is None or earlier is None or answers is None or results is None:
        return None
    return SpanMessages(
        requests=requests,
        answers=answers,
        recorded=read.get("recorded") is True,
        broken=read.get("broken") is True,
        read_history=lambda: (*earlier, *results),
    )


def _requests(rows: Any) -> list[ToolRequest] | None:
    if not isinstance(rows, list) or not all(_is_row(row, 4) for row in rows):
        return None
    return [
        ToolRequest(name, call_id, UNRECORDED, hosted is True, failed is True)
        for name, call_id, hosted, failed in rows
    ]


def _results(rows: Any) -> list[ToolResult] | None:
    if not isinstance(rows, list) or not all(_is_row(row, 5) for row in rows):
        return None
    return [
        ToolResult(call_id, name, UNRECORDED, failed is True, marked is True, _meaning(meaning))
        for call_id, name, failed, marked, meaning in rows
    ]


def _meaning(text: Any) -> Meaning:
    return "refused" if text == "refused" else "output" if text == "output" else ""


def _is_row(row: Any, length: int) -> bool:
    return (
        isinstance(row, list)
        and len(row) == length
        and isinstance(row[0], str)
        and isinstance(row[1], str)
    )
