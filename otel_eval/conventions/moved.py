"""Content that AWS's distribution of OpenTelemetry (ADOT) moved from a span into the body of a log record.

Source: aws-opentelemetry-distro 0.21 llo_handler.py. The body holds `input.messages` and `output.messages`; each message has a
role and, as `content`, the value of one attribute of the span or the attributes of one of its events.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_eval.conventions.decode import decode
from otel_eval.conventions.table import Field
from otel_eval.ports import SpanEvent

__all__ = ["moved_call", "moved_messages", "moved_speech"]

# These record all messages of a side as one attribute. Elsewhere a content can be what a user wrote: it is not read as messages.
_WHOLE: Final = ("amazon.opentelemetry.distro.instrumentation.", "opentelemetry.instrumentation.genai.")
_SIDES: Final = {"input": "gen_ai.input.messages", "output": "gen_ai.output.messages"}


def moved_messages(event: SpanEvent) -> dict[str, Any]:
    """Attribute → the messages that it held before they were moved; empty where the instrumentation has other attributes."""
    if not event.name.startswith(_WHOLE):
        return {}
    found = {key: [each for content in _contents(event, side) for each in _listed(content)] for side, key in _SIDES.items()}
    return {key: messages for key, messages in found.items() if messages}


def moved_call(event: SpanEvent) -> Iterator[tuple[Field, Any]]:
    """The arguments and the result of a tool span, and its call's id where an event of the span held it."""
    for side, field in (("input", Field.ARGUMENTS), ("output", Field.RESULT)):
        content = next(_contents(event, side), None)
        if isinstance(content, dict) and "id" in content:
            yield Field.CALL_ID, content["id"]
        value = _inner(content)
        if value is not None:
            yield field, value


def moved_speech(event: SpanEvent, *, asked: bool) -> tuple[Any, bool]:
    """What the run was asked (the first content) or what it answered (the last), or None; and whether it is a single message."""
    contents = [*_contents(event, "input" if asked else "output")]
    if not contents:
        return None, False
    content = contents[0 if asked else -1]
    return _inner(content), isinstance(content, dict)


def _contents(event: SpanEvent, side: str) -> Iterator[Any]:
    """The contents of one side but for what the system said."""
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
