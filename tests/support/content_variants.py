"""Recorded traces with content switched off: for a trace, a scope, a span, an attribute or an event
at a time.

Content is what capture switches remove: messages, arguments, results, input, output and exception
text. Which attributes hold it is read from the convention tables.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

from otel_eval.conventions import TABLES, Field
from otel_eval.interfaces import ClosedTrace

_FIELDS = (Field.ARGUMENTS, Field.RESULT, Field.INPUT, Field.OUTPUT)
_ROWS = {row.key for table in TABLES for row in table.messages}
KEYS = {key for table in TABLES for field in _FIELDS for key in table.fields.get(field, ())} | _ROWS
PREFIXES = tuple(key for key in _ROWS if key.endswith("."))
_USAGE = {
    key
    for table in TABLES
    for field in (Field.INPUT_TOKENS, Field.OUTPUT_TOKENS)
    for key in table.fields.get(field, ())
}
# Written beside content, and as long as it: reasons for ending are there without it.
_KEPT = ("finish_reason",)
# Events that hold nothing else; of others, attributes do. What names a tool or says that it failed
# is no content.
_CONTENT_EVENTS = "gen_ai."
_OF_EVENTS = {"exception.message", "exception.stacktrace"} | {
    row.key for table in TABLES for row in table.events if row.field in _FIELDS
}


def is_content(key: str) -> bool:
    """Whether an attribute of a span holds content."""
    return (key in KEYS or key.startswith(PREFIXES)) and not key.endswith(_KEPT)


def variants(trace: ClosedTrace) -> Iterator[tuple[str, ClosedTrace]]:
    """The trace without some of its content, and what was left out."""
    spans = {span_id: frame[1] for span_id, frame in trace.frames.items()}
    scopes = {frame[2].scope_name for frame in trace.frames.values()}
    yield "everything", _without(trace, lambda span_id: True)
    for scope in sorted(scopes):
        yield (
            f"scope {scope}",
            _without(
                trace, lambda span_id, scope=scope: trace.frames[span_id][2].scope_name == scope
            ),
        )
    for span_id, span in spans.items():
        if _holds(trace, span_id):
            yield (
                f"span {span.name}",
                _without(trace, lambda each, span_id=span_id: each == span_id),
            )
        for key in span.given:
            if is_content(key):
                yield (
                    f"{key} of {span.name}",
                    _changed(trace, span_id, lambda span, key=key: _drop(span, key)),
                )
        for at, event in enumerate(span.given_events):
            if event.name.startswith(_CONTENT_EVENTS):
                yield (
                    f"event {event.name} of {span.name}",
                    _changed(trace, span_id, lambda span, at=at: _drop_event(span, at)),
                )
            elif event != _silent(event):
                yield (
                    f"content of {event.name} of {span.name}",
                    _changed(trace, span_id, lambda span, at=at: _silence(span, at)),
                )


def without_usage(trace: ClosedTrace) -> Iterator[tuple[str, ClosedTrace]]:
    """The trace without the tokens of one span, and without one of the two numbers."""
    for span_id, frame in trace.frames.items():
        used = sorted(_USAGE & frame[1].given.keys())
        for gone in [used, *([each] for each in used)] if used else []:
            yield (
                f"usage of {frame[1].name}",
                _changed(trace, span_id, lambda span, gone=gone: _drop_all(span, gone)),
            )


def samples(trace: ClosedTrace, random: Random, number: int) -> Iterator[tuple[str, ClosedTrace]]:
    """The trace with content off for spans chosen at random."""
    for _ in range(number):
        share = random.choice((0.1, 0.5, 0.9))
        chosen = {span_id for span_id in trace.frames if random.random() < share}
        yield (
            f"{len(chosen)} spans of {len(trace.frames)}",
            _without(trace, lambda span_id, chosen=chosen: span_id in chosen),
        )


def _holds(trace: ClosedTrace, span_id: bytes) -> bool:
    span = trace.frames[span_id][1]
    return any(map(is_content, span.given)) or bool(span.given_events) or span_id in trace.logs


def _without(trace: ClosedTrace, chosen: Callable[[bytes], bool]) -> ClosedTrace:
    frames = {
        span_id: (_off(frame) if chosen(span_id) else frame)
        for span_id, frame in trace.frames.items()
    }
    logs = {span_id: records for span_id, records in trace.logs.items() if not chosen(span_id)}
    return ClosedTrace(trace.trace_id, frames, trace.reason, logs)


def _off(frame: Any) -> Any:
    span = copy.copy(frame[1])
    span.given = {key: value for key, value in span.given.items() if not is_content(key)}
    span.status_message = ""
    span.given_events = [
        _silent(event) for event in span.given_events if not event.name.startswith(_CONTENT_EVENTS)
    ]
    return frame[0], span, frame[2]


def _silent(event: Any) -> Any:
    return type(event)(
        event.name,
        {key: value for key, value in event.attributes.items() if key not in _OF_EVENTS},
        None,
    )


def _changed(trace: ClosedTrace, span_id: bytes, change: Callable[[Any], None]) -> ClosedTrace:
    parent, span, resource_scope = trace.frames[span_id]
    changed = copy.copy(span)
    change(changed)
    return ClosedTrace(
        trace.trace_id,
        {**trace.frames, span_id: (parent, changed, resource_scope)},
        trace.reason,
        trace.logs,
    )


def _drop(span: Any, key: str) -> None:
    span.given = {each: value for each, value in span.given.items() if each != key}


def _drop_all(span: Any, keys: list[str]) -> None:
    span.given = {each: value for each, value in span.given.items() if each not in keys}


def _silence(span: Any, at: int) -> None:
    span.given_events = [
        _silent(event) if number == at else event for number, event in enumerate(span.given_events)
    ]


def _drop_event(span: Any, at: int) -> None:
    span.given_events = [event for number, event in enumerate(span.given_events) if number != at]
