"""Messages and tool call fields in span events and in log records joined to a span.

Three sources: the events of older GenAI conventions, the log records of coding agents, and content that AWS's distribution of
OpenTelemetry (ADOT) moves from a span into the body of a log record (aws-opentelemetry-distro 0.21 llo_handler.py). Such a body
holds `input.messages` and `output.messages`; each message has a role and, as `content`, the value of one attribute of the span or
the attributes of one of its events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from otel_eval.conventions.message_formats import RESULT_WRAPPERS
from otel_eval.conventions.messages import ToolRequest, ToolResult, known_id, message_text, read_messages
from otel_eval.conventions.table import Field, Side
from otel_eval.conventions.values import decode, unwrap
from otel_eval.interfaces import SpanEvent

__all__ = ["adot_call_fields", "adot_messages", "adot_text", "exception_of", "output_of", "read_event", "text_in_events"]

# OpenTelemetry semantic conventions 1.28-1.36 docs/gen-ai/gen-ai-events.md; 1.27 for gen_ai.content.*.
_SIDES: Final = {
    "gen_ai.choice": Side.OUTPUT,
    "gen_ai.assistant.message": Side.HISTORY,
    "gen_ai.content.completion": Side.OUTPUT,
    "gen_ai.content.prompt": Side.HISTORY,
}
_TOOL_MESSAGE: Final = "gen_ai.tool.message"
_USER_ROLES: Final = frozenset({"user", "human"})
# azure-ai-inference, azure-ai-agents and Azure's tracers for LangChain.
_PACKED: Final = "gen_ai.event.content"
# 1.37 and later: one event holds a whole inference; AWS ADOT moves the same into the body of log records.
_DETAILS: Final = {
    "gen_ai.output.messages": Side.OUTPUT,
    "gen_ai.input.messages": Side.HISTORY,
    "gen_ai.completion": Side.OUTPUT,
    "gen_ai.prompt": Side.HISTORY,
    "output": Side.OUTPUT,
    "input": Side.HISTORY,
}
# Claude Code's log records: a tool's input with the id of its call, and the model's answer.
_CLAUDE_TOOL_RESULT: Final = "tool_result"
_CLAUDE_RESPONSE: Final = "assistant_response"


def read_event(event: SpanEvent) -> Iterator[tuple[Side, list[ToolRequest | ToolResult]]]:
    """The tool requests and results in an event, with the side of the conversation they are on.

    An empty list means that messages were recorded and hold neither.
    """
    held = _content(event)
    if event.name == _TOOL_MESSAGE:
        yield Side.HISTORY, _tool_results(held)
        return
    if event.name == _CLAUDE_TOOL_RESULT and "tool_input" in held:
        yield Side.HISTORY, [ToolRequest("", known_id(held.get("tool_use_id")), decode(held["tool_input"]))]
        return
    side = _SIDES.get(event.name)
    if side is not None and not (held.keys() & _DETAILS.keys()):
        yield side, read_messages(held)
        if "tool.result" in held:
            yield Side.HISTORY, read_messages({"tool.result": held["tool.result"]})
        return
    for key, part in _DETAILS.items():
        # Free text does not tell whether there were calls, and neither does an empty one.
        if key in held and not isinstance(decode(held[key], literals=False), str):
            yield part, read_messages(held[key])


def output_of(event: SpanEvent) -> Iterator[Any]:
    """The output messages in the event, as recorded."""
    held = _content(event)
    yield from (held[key] for key, side in _DETAILS.items() if side is Side.OUTPUT and key in held)
    if _SIDES.get(event.name) is Side.OUTPUT:
        yield held


def _content(event: SpanEvent) -> dict[str, Any]:
    """Attributes and body of the event in one, with the message that some pack into one attribute as JSON text."""
    # Later ones win: the body over attributes, and messages that ADOT moved over both.
    held = {**event.attributes, **(event.body if isinstance(event.body, dict) else {}), **adot_messages(event)}
    packed = decode(held.get(_PACKED), literals=False)
    return {**held, **packed} if isinstance(packed, dict) else held


def _tool_results(held: dict[str, Any]) -> list[ToolRequest | ToolResult]:
    """The results in a tool message, or its whole content as one result."""
    found = read_messages({"content": held.get("content")})
    if found or "content" not in held:
        return found
    taken = unwrap(held["content"], RESULT_WRAPPERS)
    call_id = known_id(held.get("id")) or known_id(held.get("tool_call_id"))
    return [ToolResult(call_id=call_id, name=str(held.get("name", "")), result=taken.value, failed=taken.failed)]


def text_in_events(events: Iterable[SpanEvent], wanted: Field) -> Any:
    """The text of the last event of the user (`Field.INPUT`) or of the model (`Field.OUTPUT`), or None."""
    found = None
    for event in events:
        value, roles = _event_text(event, user=wanted is Field.INPUT)
        if value is not None:
            found = message_text(decode(value), roles, last=True)
    return found


def _event_text(event: SpanEvent, *, user: bool) -> tuple[Any, frozenset[str]]:
    """The messages or the text in the event, and the roles to look for in them (none: any)."""
    name, whole = ("gen_ai.user.message", "gen_ai.input.messages") if user else ("gen_ai.choice", "gen_ai.output.messages")
    roles = _USER_ROLES if user else frozenset[str]()
    held = _content(event)
    if whole in held:
        return held[whole], roles
    if event.name == name:
        return held.get("content", held.get("message")), frozenset()
    if event.name == _CLAUDE_RESPONSE and not user:
        return held.get("response"), frozenset()
    value, single = adot_text(event, user=user)
    return value, frozenset() if single else roles


def exception_of(events: Iterable[SpanEvent]) -> tuple[str, str]:
    """Type and message of the last recorded exception, "" where there is none."""
    found = ("", "")
    for event in events:
        if event.name == "exception":
            found = (str(event.attributes.get("exception.type", "")), str(event.attributes.get("exception.message", "")))
    return found


# These record all messages of a side as one attribute. Contents of others may be text of a user, which is not parsed for calls.
_ADOT_ONE_ATTRIBUTE: Final = ("amazon.opentelemetry.distro.instrumentation.", "opentelemetry.instrumentation.genai.")
_ADOT_SIDES: Final = {"input": "gen_ai.input.messages", "output": "gen_ai.output.messages"}


def adot_messages(event: SpanEvent) -> dict[str, Any]:
    """GenAI attribute → the messages that ADOT moved out of it; empty for instrumentations with other attributes."""
    if not event.name.startswith(_ADOT_ONE_ATTRIBUTE):
        return {}
    found = {key: [each for content in _contents(event, side) for each in _listed(content)] for side, key in _ADOT_SIDES.items()}
    return {key: messages for key, messages in found.items() if messages}


def adot_call_fields(event: SpanEvent) -> Iterator[tuple[Field, Any]]:
    """The arguments and the result that ADOT moved out of a tool span, and the id of the call where an event held it."""
    for side, field in (("input", Field.ARGUMENTS), ("output", Field.RESULT)):
        content = next(_contents(event, side), None)
        if isinstance(content, dict) and "id" in content:
            yield Field.CALL_ID, content["id"]
        value = _inner(content)
        if value is not None:
            yield field, value


def adot_text(event: SpanEvent, *, user: bool) -> tuple[Any, bool]:
    """The input of the run (the first content) or its output (the last), or None; and whether it is a single message."""
    contents = [*_contents(event, "input" if user else "output")]
    if not contents:
        return None, False
    content = contents[0 if user else -1]
    return _inner(content), isinstance(content, dict)


def _contents(event: SpanEvent, side: str) -> Iterator[Any]:
    """The contents of one side, without system messages."""
    held = event.body.get(side) if isinstance(event.body, dict) else None
    messages = held.get("messages") if isinstance(held, dict) else None
    for message in messages if isinstance(messages, list) else ():
        if isinstance(message, dict) and message.get("role") != "system" and message.get("content") is not None:
            yield message["content"]


def _inner(content: Any) -> Any:
    """The content of an event's attributes, else the value itself."""
    return content.get("content", content.get("message")) if isinstance(content, dict) else content


def _listed(content: Any) -> list[Any]:
    value = decode(content, literals=False)
    return value if isinstance(value, list) else []
