"""Read tool spans as calls: name, arguments, result and failure. `deduplicate` decides which spans
describe the same call.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final

from otel_eval.conventions import Field
from otel_eval.conventions.fields import FAILURE_WORDS, ReadTable, ToolFields, ToolReader
from otel_eval.conventions.messages import known_id
from otel_eval.conventions.model_calls import (
    adot_call_fields,
    exception_of,
    is_deferral,
    is_pause,
)
from otel_eval.conventions.values import Unwrapped, frozen, named_arguments, text_of, unwrap
from otel_eval.interfaces import SpanEvent, SpanReader
from otel_eval.model import UNRECORDED, Kind, ToolError
from otel_eval.trajectory.classify import ClassifiedTrace

# Some write a stack trace into the status; the message is then that of the recorded exception.
_TRACEBACK: Final = "Traceback (most recent call last)"
_NOTHING: Final = Unwrapped(UNRECORDED)
_CONTENT: Final = (Field.ARGUMENTS, Field.RESULT, Field.CALL_ID)
_RESULT: Final = (Field.RESULT, Field.CALL_ID)


@dataclass(slots=True)
class ToolCallBuilder:
    """A call while it is read from one or several spans.

    Attributes:
        place: the outermost span's place.
        table: the table that knew the span.
        scope: the span's instrumentation scope.
        unnamed: `name` is only the span's own.
        arguments: a JSON value as recorded; one that is no object still needs its names (see
            `named`).
        unsure: a failure might show in a result, and none was recorded.
        certain: the span itself shows whether the call failed, whatever its result holds.
        attribute_id: the call's id, if that is known without the content of the call.
        message: hex id of the model call that requested it, if other requests of that left no span.
        refusal: see `ToolCall.refusal`.
        unread: the span, until `read_contents` has read the call's content.
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
    attribute_id: str = ""
    message: str = ""
    refusal: bool | None = False
    unread: _ToolSpan | None = None

    def inherit(self, other: ToolCallBuilder) -> None:
        """Take over what only the other span of the same call recorded."""
        if other.error and (self.error is None or self.refusal is None or other.refusal):
            self.refusal = self.refusal or other.refusal
        if self.arguments is UNRECORDED or (not named(self.arguments) and named(other.arguments)):
            self.arguments = other.arguments
        if self.result is UNRECORDED:
            self.result = other.result
        self.call_id = self.call_id or other.call_id
        self.attribute_id = self.attribute_id or other.attribute_id
        self.message = self.message or other.message
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
    reader: SpanReader
    table: ReadTable
    fields: ToolFields
    attributes: Mapping[str, Any]
    _exception: tuple[str, str] | None = None

    def exception(self) -> tuple[str, str]:
        """Type and message of the last recorded exception; its events are decoded once."""
        if self._exception is None:
            self._exception = exception_of(self.reader.events())
        return self._exception


def call_builders(spans: ClassifiedTrace) -> dict[int, ToolCallBuilder]:
    """A builder for each tool span that is a call, by place; the kind of artefacts that are no
    calls becomes `OTHER`. The content of calls is not read yet.
    """
    calls: dict[int, ToolCallBuilder] = {}
    is_plain = not (spans.plan.wants_content_of_calls or spans.trace.logs)
    for place, classification in enumerate(spans.classifications):
        if classification.kind is not Kind.TOOL:
            continue
        call = _call_builder(spans, place, classification.table, is_plain=is_plain)
        if call is None:
            spans.kinds[place] = Kind.OTHER
        else:
            calls[place] = call
    spans.tools = list(calls)
    return calls


def read_contents(spans: ClassifiedTrace, calls: Iterable[ToolCallBuilder]) -> None:
    """Read the content of calls, as far as it is needed, and whether they failed."""
    for call in calls:
        if call.unread is not None:
            _read_content(spans, call.unread, call)
            call.unread = None


def _call_builder(
    spans: ClassifiedTrace, place: int, table: ReadTable, *, is_plain: bool
) -> ToolCallBuilder | None:
    reader, span_id, scope = (
        spans.readers[place],
        spans.tree.ids[place],
        spans.resource_scopes[place].scope_name,
    )
    tool_reader = spans.plan.tool_reader(table)
    is_whole = is_plain and not reader.dropped_attributes
    succeeded = tool_reader.succeeded(reader) if is_whole else None
    if succeeded is not None:
        fields, call_id = succeeded
        call = ToolCallBuilder(
            place, table, fields.name, scope, reader.start_ns, reader.end_ns, span_id, call_id
        )
        call.attribute_id = call_id
        call.unnamed, call.certain = fields.unnamed, not table.convention.failures_in_results
        return call
    span = _tool_span(spans, place, tool_reader)
    if _is_paused(span):
        spans.pauses[place] = span.fields.name
        return None
    if not span.fields.is_call or _is_deferred(span):
        return None
    if span.fields.is_request and not _has_outcome(span):
        spans.unexecuted[place] = span.fields.name
        return None
    call = ToolCallBuilder(
        place, table, span.fields.name, scope, reader.start_ns, reader.end_ns, span_id
    )
    call.unread = span
    return call


def _is_paused(span: _ToolSpan) -> bool:
    """Whether the tool waits for a person. The call is made when the run goes on, and has a span of
    its own then.
    """
    if not span.fields.is_call:
        return span.fields.is_paused
    return _may_have_raised(span) and is_pause(span.fields.error_type, *span.exception())


def _is_deferred(span: _ToolSpan) -> bool:
    """Whether the tool left the call to the program that runs the agent."""
    return _may_have_raised(span) and is_deferral(span.fields.error_type, *span.exception())


def _may_have_raised(span: _ToolSpan) -> bool:
    """Whether the span may be that of a tool that raised."""
    if span.fields.error_type or _has_failed_status(span):
        return True
    # Some end the span as if it had succeeded, without a result.
    return span.table.convention.failures_in_results and not _has_outcome(span)


def _has_outcome(span: _ToolSpan) -> bool:
    """Whether the span records a result or shows a failure."""
    return (
        span.table.value(span.attributes, Field.RESULT) is not None
        or bool(span.fields.error_type)
        or span.fields.failed
        or _has_failed_status(span)
    )


def _has_failed_status(span: _ToolSpan) -> bool:
    """Whether the span's status shows a failure of this call; it may be that of another span."""
    return span.reader.status_code == 2 and not (
        span.table.convention.statuses_spread and not any(span.exception())
    )


def _read_content(spans: ClassifiedTrace, span: _ToolSpan, call: ToolCallBuilder) -> None:
    table, content, needs = span.table, spans.plan.wants_content_of_calls, spans.plan.needs
    unrecorded = table.convention.failures_unrecorded
    hidden = unrecorded or table.convention.failures_in_results
    # An event or a log record can hold the only result that shows that the call failed.
    read_all = content or bool(spans.trace.logs or table.events)
    recorded = _recorded(spans, span) if read_all else _held(span, _RESULT)
    if table.events:
        span.fields = _with_events(span.fields, recorded)
    raw = recorded.get(Field.RESULT)
    is_read = raw is not None and (content or _may_show_failure(raw))
    taken = unwrap(raw, table.result_wrappers) if is_read else _NOTHING
    call.name, call.unnamed = span.fields.name, span.fields.unnamed
    call.call_id = call.attribute_id = known_id(recorded.get(Field.CALL_ID))
    if "arguments" in needs:
        _read_arguments(
            call, recorded.get(Field.ARGUMENTS), table.value(span.attributes, Field.PARAMETERS)
        )
    if "results" in needs:
        call.result = taken.value
    call.call_id = call.call_id or known_id(taken.call_id)
    call.error = _error(span, failed=taken.failed)
    if call.error is not None and span.fields.is_refused is not None:
        call.refusal = span.fields.is_refused
    elif call.error is not None and table.convention.refusals:
        if raw is not None and not is_read:
            taken = unwrap(raw, table.result_wrappers)
        call.refusal = _refusal(table, call.error.message, taken.value)
    # A status that may be another span's says nothing.
    hidden = hidden or (span.reader.status_code == 2 and call.error is None)
    # What showed a failure may have been among the attributes that the sender left out.
    dropped = bool(span.reader.dropped_attributes)
    call.certain = not (hidden or dropped)
    call.unsure = unrecorded or dropped or (hidden and raw is None)


def _refusal(table: ReadTable, message: str, result: Any) -> bool | None:
    """Whether a call that failed was refused; None if a later message may show it."""
    text = result_text(result)
    return any(map(table.is_refusal, (message, text))) or (False if text else None)


def result_text(result: Any) -> str:
    """The result as text, for comparison with the texts of frameworks; "" if it is unrecorded."""
    if isinstance(result, str):
        return result
    return "" if result is UNRECORDED else json.dumps(result, default=str)


def _tool_span(spans: ClassifiedTrace, place: int, tool_reader: ToolReader) -> _ToolSpan:
    reader = spans.readers[place]
    if not spans.trace.logs:
        return _ToolSpan(
            place,
            reader,
            tool_reader.table,
            tool_reader.read_fields(reader),
            reader.attributes(tool_reader.content),
        )
    attributes = _with_logs(reader.attributes(tool_reader.everything), spans.logs(place))
    return _ToolSpan(
        place, reader, tool_reader.table, tool_reader.read(attributes, reader.name), attributes
    )


def _with_logs(attributes: Mapping[str, Any], logs: Sequence[SpanEvent]) -> Mapping[str, Any]:
    """The span's attributes with those of its log records where it has none: content captured as
    events only.
    """
    merged: dict[str, Any] = {}
    for event in logs:
        merged.update(event.attributes)
    return {**merged, **attributes} if merged else attributes


def _read_arguments(call: ToolCallBuilder, raw: Any, parameters: Any) -> None:
    if raw is None:
        return
    found = unwrap(raw, call.table.convention.wrappers)
    call.call_id = call.call_id or known_id(found.call_id)
    value = named_arguments(found, parameters)
    # Nothing at all is how a call without arguments is written.
    call.arguments = {} if value is None or value == "" else value


def _recorded(spans: ClassifiedTrace, span: _ToolSpan) -> dict[Field, Any]:
    """The raw values of the fields: attributes first, then the events that the table names, then
    what was moved from the span.
    """
    recorded = _held(span, _CONTENT)
    if not span.table.fields_in_events <= recorded.keys():
        for event in chain(span.reader.events(), spans.logs(span.place)):
            for each, value in span.table.fields_of(event):
                recorded.setdefault(each, value)
            if span.table.fields_in_events <= recorded.keys():
                break  # what follows is not decoded
    for event in spans.logs(span.place):
        for each, value in adot_call_fields(event):
            recorded.setdefault(each, value)
    return recorded


def _held(span: _ToolSpan, fields: Iterable[Field]) -> dict[Field, Any]:
    return {
        each: value
        for each in fields
        if (value := span.table.value(span.attributes, each)) is not None
    }


def _with_events(fields: ToolFields, recorded: Mapping[Field, Any]) -> ToolFields:
    """The fields of the span, with those that only its events hold."""
    name = text_of(recorded.get(Field.TOOL_NAME)) if fields.unnamed else ""
    error = fields.error_type or text_of(recorded.get(Field.ERROR_TYPE))
    if not name and error == fields.error_type:
        return fields
    return replace(
        fields, name=name or fields.name, unnamed=fields.unnamed and not name, error_type=error
    )


def mcp_name(call: ToolCallBuilder) -> str:
    """The tool's name, or the one by which an MCP server knows it."""
    return call.table.name_in_mcp(call.name)


def arguments_key(spans: ClassifiedTrace, call: ToolCallBuilder) -> Hashable:
    """Equal for equal arguments by name, None without any; also where no scorer needs them, as two
    spans may be one call.

    It is kept by place, so arguments that are needed must be complete.
    """
    known = spans.argument_keys
    if call.place not in known:
        arguments = (
            call.arguments if "arguments" in spans.plan.needs else recorded_arguments(spans, call)
        )
        known[call.place] = frozen(arguments) if named(arguments) else None
    return known[call.place]


def recorded_arguments(spans: ClassifiedTrace, call: ToolCallBuilder) -> Any:
    """The arguments in the attributes of the call's span, also if no scorer needs them."""
    if call.place not in spans.arguments:
        spans.arguments[call.place] = _recorded_arguments(spans, call)
    return spans.arguments[call.place]


def _recorded_arguments(spans: ClassifiedTrace, call: ToolCallBuilder) -> Any:
    table, reader = call.table, spans.readers[call.place]
    attributes = reader.attributes(table.keys_wanted(Field.ARGUMENTS, Field.PARAMETERS))
    raw = table.value(attributes, Field.ARGUMENTS)
    if raw is None:
        return UNRECORDED
    return named_arguments(
        unwrap(raw, table.convention.wrappers), table.value(attributes, Field.PARAMETERS)
    )


def call_id_of(spans: ClassifiedTrace, call: ToolCallBuilder) -> str:
    """The id of a call, also if it stands in the call's content alone and no scorer needs that."""
    if call.call_id or spans.plan.wants_content_of_calls:
        return call.call_id
    if call.place not in spans.call_ids:
        spans.call_ids[call.place] = _id_in_content(spans, call)
    return spans.call_ids[call.place]


def _id_in_content(spans: ClassifiedTrace, call: ToolCallBuilder) -> str:
    table = call.table
    recorded = _held(_tool_span(spans, call.place, spans.plan.tool_reader(table)), (Field.RESULT,))
    held = spans.readers[call.place].attributes(table.keys_wanted(Field.ARGUMENTS))
    for value, wrappers in (
        (recorded.get(Field.RESULT), table.result_wrappers),
        (table.value(held, Field.ARGUMENTS), table.convention.wrappers),
    ):
        found = known_id(unwrap(value, wrappers).call_id) if value is not None else ""
        if found:
            return found
    return ""


def has_result(spans: ClassifiedTrace, call: ToolCallBuilder) -> bool:
    """Whether a result of the call was recorded, also if no scorer needs it."""
    if call.result is not UNRECORDED:
        return True
    span = _tool_span(spans, call.place, spans.plan.tool_reader(call.table))
    return Field.RESULT in _recorded(spans, span)


def _may_show_failure(result: Any) -> bool:
    return not isinstance(result, str) or any(word in result for word in FAILURE_WORDS)


def _error(span: _ToolSpan, *, failed: bool) -> ToolError | None:
    reader, error_type = span.reader, span.fields.error_type
    if not (error_type or failed or span.fields.failed or _has_failed_status(span)):
        return None
    message = reader.status_message
    trace_back = _TRACEBACK in message
    if not error_type or not message or trace_back:
        exception_type, exception_message = span.exception()
        error_type = error_type or exception_type
        message = exception_message or message if trace_back else message or exception_message
    return ToolError(error_type or "_OTHER", message)
