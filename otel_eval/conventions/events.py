"""Messages that arrive as events: span events of the older conventions, and log records joined to a span.

Knows the events' names and where they hold messages; knows no tree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from otel_eval.conventions.decode import decode
from otel_eval.conventions.messages import Answered, Asked, known_id, read_messages, said
from otel_eval.conventions.moved import moved_messages, moved_speech
from otel_eval.conventions.table import Field, Side
from otel_eval.conventions.wrappers import RESULT_WRAPPERS, unwrap
from otel_eval.ports import SpanEvent

__all__ = ["exception_of", "output_of", "read_event", "said_in_events"]

# OpenTelemetry semantic conventions 1.28-1.36 docs/gen-ai/gen-ai-events.md; 1.27 for gen_ai.content.*.
_SIDES: Final = {
    "gen_ai.choice": Side.OUTPUT,
    "gen_ai.assistant.message": Side.HISTORY,
    "gen_ai.content.completion": Side.OUTPUT,
    "gen_ai.content.prompt": Side.HISTORY,
}
_ANSWER: Final = "gen_ai.tool.message"
_ASKERS: Final = frozenset({"user", "human"})
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


# Claude Code's log records: what a tool was given, beside its call's id, and what the model answered.
_TOOL_RESULT: Final = "tool_result"
_ASSISTANT: Final = "assistant_response"


def read_event(event: SpanEvent) -> Iterator[tuple[Side, list[Asked | Answered]]]:
    """The calls and answers in an event, with the part of the conversation they belong to.

    An empty list says that messages were recorded and held neither.
    """
    held = _held(event)
    if event.name == _ANSWER:
        yield Side.HISTORY, _answers(held)
        return
    if event.name == _TOOL_RESULT and "tool_input" in held:
        yield Side.HISTORY, [Asked("", known_id(held.get("tool_use_id")), decode(held["tool_input"]))]
        return
    side = _SIDES.get(event.name)
    if side is not None and not (held.keys() & _DETAILS.keys()):
        yield side, read_messages(held)
        if "tool.result" in held:
            yield Side.HISTORY, read_messages({"tool.result": held["tool.result"]})
        return
    for key, part in _DETAILS.items():
        # Free text says nothing of calls, and an empty one does not say that there were none.
        if key in held and not isinstance(decode(held[key], literals=False), str):
            yield part, read_messages(held[key])


def output_of(event: SpanEvent) -> Iterator[Any]:
    """The output messages that the event holds, as they were recorded."""
    held = _held(event)
    yield from (held[key] for key, side in _DETAILS.items() if side is Side.OUTPUT and key in held)
    if _SIDES.get(event.name) is Side.OUTPUT:
        yield held


def _held(event: SpanEvent) -> dict[str, Any]:
    """What the event holds: attributes, body, and the message that some put into one attribute as JSON text."""
    held = {**event.attributes, **(event.body if isinstance(event.body, dict) else {}), **moved_messages(event)}
    packed = decode(held.get(_PACKED), literals=False)
    return {**held, **packed} if isinstance(packed, dict) else held


def _answers(held: dict[str, Any]) -> list[Asked | Answered]:
    found = read_messages({"content": held.get("content")})
    if found or "content" not in held:
        return found
    taken = unwrap(held["content"], RESULT_WRAPPERS)
    call_id = known_id(held.get("id")) or known_id(held.get("tool_call_id"))
    return [Answered(call_id=call_id, name=str(held.get("name", "")), result=taken.value, failed=taken.failed)]


def said_in_events(events: Iterable[SpanEvent], wanted: Field) -> Any:
    """What the last event of the user (`Field.INPUT`) or of the model (`Field.OUTPUT`) says, or None."""
    found = None
    for event in events:
        value, roles = _speech(event, asked=wanted is Field.INPUT)
        if value is not None:
            found = said(decode(value), roles, last=True)
    return found


def _speech(event: SpanEvent, *, asked: bool) -> tuple[Any, frozenset[str]]:
    """The messages or the text that the event holds, and the roles to look for in them."""
    name, whole = ("gen_ai.user.message", "gen_ai.input.messages") if asked else ("gen_ai.choice", "gen_ai.output.messages")
    roles = _ASKERS if asked else frozenset[str]()
    held = _held(event)
    if whole in held:
        return held[whole], roles
    if event.name == name:
        return held.get("content", held.get("message")), frozenset()
    if event.name == _ASSISTANT and not asked:
        return held.get("response"), frozenset()
    value, single = moved_speech(event, asked=asked)
    return value, frozenset() if single else roles


def exception_of(events: Iterable[SpanEvent]) -> tuple[str, str]:
    """Type and message of the last recorded exception, "" where there is none."""
    found = ("", "")
    for event in events:
        if event.name == "exception":
            found = (str(event.attributes.get("exception.type", "")), str(event.attributes.get("exception.message", "")))
    return found
