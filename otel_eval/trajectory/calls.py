"""Tool spans as calls in the making: what each one says about its arguments, result and failure.

Knows how to read one tool span; which spans describe the same call is decided elsewhere (`same_call`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from otel_eval.conventions import Field, unwrap
from otel_eval.conventions.events import exception_of
from otel_eval.conventions.messages import known_id
from otel_eval.conventions.wrappers import Taken
from otel_eval.model import UNRECORDED, ToolError
from otel_eval.native import maker
from otel_eval.ports import SpanEvent
from otel_eval.trajectory.survey import Survey, ToolSpan

__all__ = ["Draft", "drafts", "named", "recorded_arguments"]

# A result is opened although nobody needs it only if it could say that the call failed.
_FAILURE_WORDS: Final = ("rror", "ERROR")
_NOTHING: Final = Taken(UNRECORDED)
_CONTENT: Final = (Field.ARGUMENTS, Field.RESULT, Field.CALL_ID)


@dataclass(slots=True)
class Draft:
    """A call as far as it is known.

    Attributes:
        place: the outermost span's place.
        arguments: a JSON value as recorded; one that is no object still needs its names (see `named`).
    """

    place: int
    span: ToolSpan
    scope: str
    start: int
    end: int
    span_id: bytes
    call_id: str = ""
    error: ToolError | None = None
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED

    @property
    def name(self) -> str:
        """The tool's name."""
        return self.span.words.name

    def inherit(self, other: Draft) -> None:
        """Take over what only the other span of the same call recorded."""
        if self.arguments is UNRECORDED or (not named(self.arguments) and named(other.arguments)):
            self.arguments = other.arguments
        if self.result is UNRECORDED:
            self.result = other.result
        self.call_id = self.call_id or other.call_id
        self.error = self.error or other.error


def named(arguments: Any) -> bool:
    """Whether the arguments are an object, and so need no names from elsewhere."""
    return isinstance(arguments, dict)


_new_draft: Final = maker(Draft)


def drafts(read: Survey) -> dict[int, Draft]:
    """One draft per tool span, by place."""
    draft = _draft if read.plan.wants_content_of_calls else _draft_without_content
    return {place: draft(read, span) for place, span in read.tools.items()}


def _draft_without_content(read: Survey, span: ToolSpan) -> Draft:
    raw = span.table.value(span.read, Field.RESULT)
    taken = _NOTHING if raw is None else _result(span, raw, wanted=False)
    return _told(read, span, "", taken, UNRECORDED, UNRECORDED)


def _told(read: Survey, span: ToolSpan, call_id: str, taken: Taken, arguments: Any, result: Any) -> Draft:
    place = span.place
    view, scope = read.views[place], read.envelopes[place].scope_name
    call_id = call_id or known_id(span.table.value(span.read, Field.CALL_ID)) or known_id(taken.call_id)
    error = _error(read, span, failed=taken.failed)
    return _new_draft(place, span, scope, view.start_ns, view.end_ns, read.forest.ids[place], call_id, error, arguments, result)


def _draft(read: Survey, span: ToolSpan) -> Draft:
    needs = read.plan.needs
    recorded = _recorded(read, span)
    taken = _NOTHING if (raw := recorded.get(Field.RESULT)) is None else _result(span, raw, wanted=True)
    call_id, arguments = known_id(recorded.get(Field.CALL_ID)), UNRECORDED
    if "arguments" in needs and (raw := recorded.get(Field.ARGUMENTS)) is not None:
        found = unwrap(raw, span.table.convention.wrappers)
        call_id = call_id or known_id(found.call_id)
        # Nothing at all is how a call without arguments is written.
        arguments = {} if found.value is None or found.value == "" else found.value
    return _told(read, span, call_id, taken, arguments, taken.value if "results" in needs else UNRECORDED)


def _recorded(read: Survey, span: ToolSpan) -> dict[Field, Any]:
    """The raw values of the fields: attributes first, then the events that the table names."""
    recorded = {each: value for each in _CONTENT if (value := span.table.value(span.read, each)) is not None}
    if span.table.events and len(recorded) < len(_CONTENT):
        events: Iterable[SpanEvent] = (*read.views[span.place].events(), *read.logs(span.place))
        for event in events:
            if event.name in span.table.events:
                _from_event(span, event, recorded)
    return recorded


def _from_event(span: ToolSpan, event: SpanEvent, recorded: dict[Field, Any]) -> None:
    body = event.body if isinstance(event.body, dict) else {}
    for row in span.table.convention.events:
        if row.event == event.name and row.field not in recorded:
            value = event.attributes.get(row.key, body.get(row.key))
            if value is not None:
                recorded[row.field] = value


def recorded_arguments(read: Survey, draft: Draft) -> Any:
    """The arguments even where no scorer needs them: whether two spans are one call can depend on them."""
    if draft.arguments is not UNRECORDED or "arguments" in read.plan.needs:
        return draft.arguments
    table, view = draft.span.table, read.views[draft.place]
    raw = table.value(view.attributes(table.keys_wanted(Field.ARGUMENTS)), Field.ARGUMENTS)
    return UNRECORDED if raw is None else unwrap(raw, table.convention.wrappers).value


def _result(span: ToolSpan, raw: Any, *, wanted: bool) -> Taken:
    if not wanted and isinstance(raw, str) and _FAILURE_WORDS[0] not in raw and _FAILURE_WORDS[1] not in raw:
        return _NOTHING
    return unwrap(raw, span.table.result_wrappers)


def _error(read: Survey, span: ToolSpan, *, failed: bool) -> ToolError | None:
    view = read.views[span.place]
    error_type = span.words.error_type
    if not (error_type or failed or span.words.failed or view.status_code == 2):
        return None
    message = view.status_message
    if not error_type or not message:
        events: Sequence[SpanEvent] = view.events()
        exception_type, exception_message = exception_of(tuple(events))
        error_type, message = error_type or exception_type, message or exception_message
    return ToolError(error_type or "_OTHER", message)
