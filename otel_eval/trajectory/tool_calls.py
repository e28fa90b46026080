"""Read tool spans as calls: name, arguments, result and failure. Which spans describe one call is decided in `deduplicate`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from otel_eval.conventions import Field
from otel_eval.conventions.fields import FAILURE_WORDS, ReadTable, ToolFields, ToolReader
from otel_eval.conventions.messages import known_id
from otel_eval.conventions.model_calls import adot_call_fields, exception_of, is_pause
from otel_eval.conventions.values import Unwrapped, frozen, named_arguments, text_of, unwrap
from otel_eval.interfaces import SpanEvent, SpanReader, TooLarge, steps_of
from otel_eval.model import UNRECORDED, Kind, ToolError
from otel_eval.trajectory.classify import ClassifiedTrace

# Some write a stack trace into the status; the message is then that of the recorded exception.
_TRACEBACK: Final = "Traceback (most recent call last)"
_NOTHING: Final = Unwrapped(UNRECORDED)
_CONTENT: Final = (Field.ARGUMENTS, Field.RESULT, Field.CALL_ID)
_RESULT: Final = (Field.RESULT, Field.CALL_ID)


@dataclass(slots=True)
class ToolCallBuilder:
    """A call as far as it is known.

    Attributes:
        place: the outermost span's place.
        table: the table that knew the span.
        scope: the span's instrumentation scope.
        unnamed: `name` is only the span's own.
        arguments: a JSON value as recorded; one that is no object still needs its names (see `named`).
        unsure: a failure might show in a result, and none was recorded.
        certain: the span itself shows whether the call failed, whatever its result holds.
    """

    place: int
    table: ReadTable
    name: str
    scope: str
    start: int
    end: int
    span_id: bytes
    call_id: str = ""
    error: ToolError | None = None
    arguments: Any = UNRECORDED
    result: Any = UNRECORDED
    unnamed: bool = False
    unsure: bool = False
    certain: bool = False

    def inherit(self, other: ToolCallBuilder) -> None:
        """Take over what only the other span of the same call recorded."""
        if self.arguments is UNRECORDED or (not named(self.arguments) and named(other.arguments)):
            self.arguments = other.arguments
        if self.result is UNRECORDED:
            self.result = other.result
        self.call_id = self.call_id or other.call_id
        self.error = self.error or other.error
        self.certain = self.certain or other.certain
        self.unsure = (self.unsure or other.unsure) and not self.certain


def named(arguments: Any) -> bool:
    """Whether the arguments are an object, and so need no names from elsewhere."""
    return isinstance(arguments, dict)


@dataclass(slots=True)
class _ToolSpan:
    """A tool span with all that is read of it: its fields, and the attributes of its content."""

    place: int
    view: SpanReader
    table: ReadTable
    fields: ToolFields
    read: Mapping[str, Any]


def call_builders(read: ClassifiedTrace) -> dict[int, ToolCallBuilder]:
    """One draft per tool span that is a call, by place; artefacts that are none become other spans."""
    found: dict[int, ToolCallBuilder] = {}
    is_plain = not (read.plan.wants_content_of_calls or read.trace.logs)
    for place, reading in enumerate(read.readings):
        if reading.kind is not Kind.TOOL:
            continue
        draft = _draft(read, place, reading.table, is_plain=is_plain)
        if draft is None:
            read.kinds[place] = Kind.OTHER
        else:
            found[place] = draft
    read.tools = list(found)
    return found


def _draft(read: ClassifiedTrace, place: int, table: ReadTable, *, is_plain: bool) -> ToolCallBuilder | None:
    view, span_id, scope = read.views[place], read.tree.ids[place], read.resource_scopes[place].scope_name
    reader = read.plan.tool_readers[table.name]
    succeeded = reader.succeeded(view) if is_plain else None
    if succeeded is not None:
        fields, call_id = succeeded
        draft = ToolCallBuilder(place, table, fields.name, scope, view.start_ns, view.end_ns, span_id, call_id)
        draft.unnamed, draft.certain = fields.unnamed, not table.convention.failures_in_results
        return draft
    span = _tool_span(read, place, reader)
    if not span.fields.is_call or _is_paused(span):
        return None
    draft = ToolCallBuilder(place, table, span.fields.name, scope, view.start_ns, view.end_ns, span_id)
    with suppress(TooLarge):  # no step is left then, which is seen when the runs are built
        _read_content(read, span, draft)
    return draft


def _is_paused(span: _ToolSpan) -> bool:
    """Whether the tool waits for a person. The call is made when the run goes on, and has a span of its own then."""
    failed = bool(span.fields.error_type) or span.view.status_code == 2
    # Some end the span as if it had succeeded, without a result.
    if not failed and not (span.table.convention.failures_in_results and span.table.value(span.read, Field.RESULT) is None):
        return False
    return is_pause(span.fields.error_type, *exception_of(span.view.events()))


def _read_content(read: ClassifiedTrace, span: _ToolSpan, draft: ToolCallBuilder) -> None:
    table, content, needs = span.table, read.plan.wants_content_of_calls, read.plan.needs
    unrecorded = table.convention.failures_unrecorded
    hidden = unrecorded or table.convention.failures_in_results
    # An event or a log record can hold the only result that shows that the call failed.
    read_all = content or bool(read.trace.logs or table.events)
    recorded = _recorded(read, span) if read_all else _held(span, _RESULT)
    if table.events:
        span.fields = _with_events(span.fields, recorded)
    raw = recorded.get(Field.RESULT)
    is_read = raw is not None and (content or _may_show_failure(raw))
    if content or is_read:
        read.steps.take(steps_of(raw) + steps_of(recorded.get(Field.ARGUMENTS)))
    taken = unwrap(raw, table.result_wrappers) if is_read else _NOTHING
    draft.name, draft.unnamed = span.fields.name, span.fields.unnamed
    draft.call_id = known_id(recorded.get(Field.CALL_ID))
    if "arguments" in needs:
        _read_arguments(draft, recorded.get(Field.ARGUMENTS), table.value(span.read, Field.PARAMETERS))
    if "results" in needs:
        draft.result = taken.value
    draft.call_id = draft.call_id or known_id(taken.call_id)
    draft.error = _error(span, failed=taken.failed)
    draft.certain, draft.unsure = not hidden, unrecorded or (hidden and raw is None)


def _tool_span(read: ClassifiedTrace, place: int, reader: ToolReader) -> _ToolSpan:
    view = read.views[place]
    if not read.trace.logs:
        return _ToolSpan(place, view, reader.table, reader.read_fields(view), view.attributes(reader.content))
    attributes = _with_logs(view.attributes(reader.everything), read.logs(place))
    return _ToolSpan(place, view, reader.table, reader.read(attributes, view.name), attributes)


def _with_logs(attributes: Mapping[str, Any], logs: Sequence[SpanEvent]) -> Mapping[str, Any]:
    """The span's attributes with those of its log records where it has none: content captured as events only."""
    merged: dict[str, Any] = {}
    for event in logs:
        merged.update(event.attributes)
    return {**merged, **attributes} if merged else attributes


def _read_arguments(draft: ToolCallBuilder, raw: Any, parameters: Any) -> None:
    if raw is None:
        return
    found = unwrap(raw, draft.table.convention.wrappers)
    draft.call_id = draft.call_id or known_id(found.call_id)
    value = named_arguments(found, parameters)
    # Nothing at all is how a call without arguments is written.
    draft.arguments = {} if value is None or value == "" else value


def _recorded(read: ClassifiedTrace, span: _ToolSpan) -> dict[Field, Any]:
    """The raw values of the fields: attributes first, then the events that the table names, then what was moved from the span."""
    recorded = _held(span, _CONTENT)
    if not span.table.fields_in_events <= recorded.keys():
        for event in chain(span.view.events(), read.logs(span.place)):
            for each, value in span.table.fields_of(event):
                recorded.setdefault(each, value)
            if span.table.fields_in_events <= recorded.keys():
                break  # what follows is not decoded
    for event in read.logs(span.place):
        for each, value in adot_call_fields(event):
            recorded.setdefault(each, value)
    return recorded


def _held(span: _ToolSpan, fields: Iterable[Field]) -> dict[Field, Any]:
    return {each: value for each in fields if (value := span.table.value(span.read, each)) is not None}


def _with_events(fields: ToolFields, recorded: Mapping[Field, Any]) -> ToolFields:
    """The fields of the span, with those that only its events hold."""
    name = text_of(recorded.get(Field.TOOL_NAME)) if fields.unnamed else ""
    error = fields.error_type or text_of(recorded.get(Field.ERROR_TYPE))
    if not name and error == fields.error_type:
        return fields
    return replace(fields, name=name or fields.name, unnamed=fields.unnamed and not name, error_type=error)


def mcp_name(draft: ToolCallBuilder) -> str:
    """The tool's name, or the one by which an MCP server knows it."""
    return draft.table.name_in_mcp(draft.name)


def arguments_key(read: ClassifiedTrace, draft: ToolCallBuilder) -> Hashable:
    """Equal for equal arguments by name, None without any; also where no scorer needs them, as two spans may be one call.

    It is kept by place, so arguments that are needed must be complete.
    """
    known = read.argument_keys
    if draft.place not in known:
        arguments = draft.arguments if "arguments" in read.plan.needs else _recorded_arguments(read, draft)
        known[draft.place] = frozen(arguments) if named(arguments) else None
    return known[draft.place]


def _recorded_arguments(read: ClassifiedTrace, draft: ToolCallBuilder) -> Any:
    table, view = draft.table, read.views[draft.place]
    held = view.attributes(table.keys_wanted(Field.ARGUMENTS, Field.PARAMETERS))
    raw = table.value(held, Field.ARGUMENTS)
    if raw is None:
        return UNRECORDED
    read.steps.take(steps_of(raw))
    return named_arguments(unwrap(raw, table.convention.wrappers), table.value(held, Field.PARAMETERS))


def _may_show_failure(result: Any) -> bool:
    return not isinstance(result, str) or any(word in result for word in FAILURE_WORDS)


def _error(span: _ToolSpan, *, failed: bool) -> ToolError | None:
    view, error_type = span.view, span.fields.error_type
    if not (error_type or failed or span.fields.failed or view.status_code == 2):
        return None
    message = view.status_message
    trace_back = _TRACEBACK in message
    if not error_type or not message or trace_back:
        exception_type, exception_message = exception_of(view.events())
        error_type = error_type or exception_type
        message = exception_message or message if trace_back else message or exception_message
    return ToolError(error_type or "_OTHER", message)
