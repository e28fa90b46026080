"""Read a tool span: which tool it calls, whether it is a call at all, how the call ended, and what
of its content is needed.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from enum import Enum
from itertools import chain
from typing import Any, Final

from otel_eval.conventions.fields import MEMO_LIMIT, ReadTable, is_small
from otel_eval.conventions.messages import known_id
from otel_eval.conventions.model_calls import (
    adot_call_fields,
    exception_of,
    is_deferral,
    is_pause,
)
from otel_eval.conventions.table import Field
from otel_eval.conventions.values import Unwrapped, named_arguments, text_of, unwrap
from otel_eval.interfaces import SpanEvent, SpanReader, Wanted
from otel_eval.model import UNRECORDED, ToolError
from otel_eval.records import record

# Some write a stack trace into the status; the message is then that of the recorded exception.
_TRACEBACK: Final = "Traceback (most recent call last)"
_NOTHING: Final = Unwrapped(UNRECORDED)
_CONTENT: Final = (Field.ARGUMENTS, Field.RESULT, Field.CALL_ID)
_RESULT: Final = (Field.RESULT, Field.CALL_ID)
_ERROR: Final = 2  # the code of a status


@record
class ToolFields:
    """What a tool span records about its call, apart from content and ids.

    Attributes:
        name: the tool's name.
        is_call: False for artefacts of the instrumentation, and for a call that waits.
        is_paused: the tool waits for a person.
        is_refused: whether marks show that the framework refused a call that failed; None: there
            are none.
        is_request: the span is written for each request; without a result no call was made.
        error_type: the recorded class of error, or "".
        failed: whether the span has a mark of failure.
        unnamed: whether no attribute names the tool, so that `name` is the span's name.
        succeeded: whether it is a call, and none of this shows a failure.
    """

    name: str
    is_call: bool
    error_type: str
    failed: bool
    unnamed: bool = False
    is_paused: bool = False
    is_request: bool = False
    is_refused: bool | None = None
    succeeded: bool = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(
            self,
            "succeeded",
            self.is_call and not (self.error_type or self.failed or self.is_request),
        )


# A result that no scorer reads is decoded only if it contains one of these, because then it may
# show that the call failed.
FAILURE_WORDS: Final = ("rror", "ERROR")


class ToolSpanReader:
    """Reads the tool spans of one table, and of their content only what scorers need.

    Most spans of a tool differ only in ids, times and content, so their `ToolFields` are memoised
    by the undecoded bytes of the attributes they are made of.

    Attributes:
        content: the attributes that hold arguments, result and call id.
        everything: `content` and the attributes that `read_fields` reads.
    """

    def __init__(self, table: ReadTable, needs: frozenset[str]) -> None:
        marks = (
            *table.convention.errors,
            *table.convention.not_call_marks,
            *table.convention.refusal_marks,
            *table.convention.pause_marks,
            *table.convention.request_marks,
        )
        content = [
            Field.CALL_ID,
            Field.RESULT,
            *([Field.ARGUMENTS, Field.PARAMETERS] if "arguments" in needs else []),
        ]
        self.table: Final = table
        self.needs: Final = needs
        self.content: Final = table.keys_wanted(*content)
        described_by = table.keys_wanted(Field.TOOL_NAME, Field.ERROR_TYPE).keys | {
            mark.key for mark in marks
        }
        self._described_by: Final = Wanted(described_by, named=True)
        self.everything: Final = Wanted(self.content.keys | self._described_by.keys)
        self._known: Final[dict[Hashable, ToolFields]] = {}
        self._call_id: Final = table.keys_wanted(Field.CALL_ID)
        self._result: Final = table.keys_wanted(Field.RESULT)
        self._id_and_result: Final = table.keys_wanted(Field.CALL_ID, Field.RESULT)
        self._no_ids: Final = table.placeholder_texts - {""}
        # In other tables ids must be decoded, or whether there is a result shows only once it is.
        convention = table.convention
        self._is_raw_read: Final = not (
            convention.json_encoded
            or convention.failures_unrecorded
            or (convention.failures_in_results and convention.truncated)
        )
        stand_ins = {
            text
            for key in ("*", *self._result.keys)
            for text in convention.placeholders.get(key, ())
        }
        words = {*FAILURE_WORDS, *convention.masks, *stand_ins} - {""}
        self._words: Final = tuple(
            word
            for word in sorted(words)
            if not any(other in word for other in words - {word})  # it is found with the other
        )

    def succeeded(self, span: SpanReader) -> tuple[ToolFields, str] | None:
        """The fields of the span and the id of its call, if the call certainly succeeded and
        nothing else must be decoded.

        None if the span must be decoded to find out: the result is only searched for
        `FAILURE_WORDS` and for texts that stand for none.
        """
        if not self._is_raw_read or span.status_code == _ERROR:
            return None
        fields = self._known.get(span.fingerprint(self._described_by))
        # an event may hold the tool's name or the result
        if fields is None or not fields.succeeded or (self.table.events and span.events()):
            return None
        ids: list[str] = []
        is_unknown = self.table.convention.failures_in_results
        for key, value in span.attributes(self._id_and_result).items():
            if not isinstance(value, str):
                return None
            for word in self._words:
                if word in value:
                    return None
            if key in self._call_id.keys:
                ids.append(value)
            if value and key in self._result.keys:
                is_unknown = False
        call_id = ids[0] if ids else ""
        if is_unknown or len(ids) > 1 or call_id in self._no_ids:
            return None
        return fields, known_id(call_id)

    def read_fields(self, span: SpanReader) -> ToolFields:
        """The fields of the span."""
        mark = span.fingerprint(self._described_by)
        if mark is None:
            return self._fields(span.attributes(self._described_by), span.name)
        return self._known.get(mark) or self._remember(span, mark)

    def _remember(self, span: SpanReader, mark: Hashable) -> ToolFields:
        """Read the span and memoise the result, unless its key is too long."""
        fields = self._fields(span.attributes(self._described_by), span.name)
        if len(self._known) >= MEMO_LIMIT:
            self._known.clear()
        if is_small(mark):
            self._known[mark] = fields
        return fields

    def read(self, span: SpanReader, logs: Sequence[SpanEvent] = ()) -> ToolSpan:
        """Read a span, with the log records joined to it."""
        if not logs:
            attributes: Mapping[str, Any] = span.attributes(self.content)
            return ToolSpan(self, span, self.read_fields(span), attributes)
        attributes = _with_logs(span.attributes(self.everything), logs)
        return ToolSpan(self, span, self._fields(attributes, span.name), attributes, logs)

    def _fields(self, attributes: Mapping[str, Any], span_name: str) -> ToolFields:
        """Read the fields from attributes that are already decoded."""
        table = self.table
        recorded = table.tool_name(attributes, span_name)
        name = recorded or span_name
        error = table.value(attributes, Field.ERROR_TYPE)
        is_paused = table.is_paused(attributes)
        return ToolFields(
            name=name,
            is_call=table.is_call(attributes, name) and not is_paused,
            error_type="" if error is None else text_of(error),
            failed=table.marked(attributes, table.convention.errors),
            unnamed=not recorded,
            is_paused=is_paused,
            is_request=table.marked(attributes, table.convention.request_marks),
            is_refused=table.is_marked_refused(attributes),
        )


class SpanState(Enum):
    """What a tool span stands for."""

    CALL = "a call"
    PAUSED = (
        "a call that waits for a person; it is made, and has another span, when the run goes on"
    )
    NOT_EXECUTED = "a request that was not executed"
    NO_CALL = "an artefact, or a call that was left to the program that runs the agent"


@record
class CallContent:
    """What a span records of its call.

    Attributes:
        name: the tool's name; `unnamed`: it is only the span's own.
        call_id: the id of the call; `attribute_id` if that is known without its content.
        arguments: a JSON value as recorded; one that is no object still needs its names.
        certain: the span itself shows whether the call failed, whatever its result holds.
        unsure: a failure might show in a result, and none was recorded.
        refusal: see `ToolCall.refusal`.
    """

    name: str
    unnamed: bool
    call_id: str
    attribute_id: str
    arguments: Any
    result: Any
    error: ToolError | None
    refusal: bool | None
    certain: bool
    unsure: bool


class ToolSpan:
    """A tool span: its fields, and the attributes of its content."""

    __slots__ = ("_attributes", "_exception", "_logs", "_needs", "_span", "_table", "fields")

    def __init__(
        self,
        reader: ToolSpanReader,
        span: SpanReader,
        fields: ToolFields,
        attributes: Mapping[str, Any],
        logs: Sequence[SpanEvent] = (),
    ) -> None:
        self.fields = fields
        self._table, self._needs = reader.table, reader.needs
        self._span, self._attributes, self._logs = span, attributes, logs
        self._exception: tuple[str, str] | None = None

    def exception(self) -> tuple[str, str]:
        """Type and message of the last recorded exception; its events are decoded once."""
        if self._exception is None:
            self._exception = exception_of(self._span.events())
        return self._exception

    def state(self) -> SpanState:
        """What the span stands for."""
        fields = self.fields
        if not fields.is_call:
            return SpanState.PAUSED if fields.is_paused else SpanState.NO_CALL
        if self._may_have_raised():
            raised = fields.error_type, *self.exception()
            if is_pause(*raised):
                return SpanState.PAUSED
            if is_deferral(*raised):
                return SpanState.NO_CALL
        if fields.is_request and not self._has_outcome():
            return SpanState.NOT_EXECUTED
        return SpanState.CALL

    def _may_have_raised(self) -> bool:
        """Whether the span may be that of a tool that raised."""
        if self.fields.error_type or self._has_failed_status():
            return True
        # Some end the span as if it had succeeded, without a result.
        return self._table.convention.failures_in_results and not self._has_outcome()

    def _has_outcome(self) -> bool:
        """Whether the span records a result or shows a failure."""
        return (
            self._table.value(self._attributes, Field.RESULT) is not None
            or bool(self.fields.error_type)
            or self.fields.failed
            or self._has_failed_status()
        )

    def _has_failed_status(self) -> bool:
        """Whether the span's status shows a failure of this call; it may be that of another
        span.
        """
        return self._span.status_code == 2 and not (
            self._table.convention.statuses_spread and not any(self.exception())
        )

    def has_result(self) -> bool:
        """Whether a result of the call was recorded, also if no scorer needs it."""
        return Field.RESULT in self._raw_fields()

    def content(self) -> CallContent:
        """What the span records of its call, as far as it is needed, and whether it failed."""
        table, convention, needs = self._table, self._table.convention, self._needs
        is_needed = not needs.isdisjoint(("arguments", "results"))
        hidden = convention.failures_unrecorded or convention.failures_in_results
        # An event or a log record can hold the only result that shows that the call failed.
        reads_events = is_needed or bool(self._logs or table.events)
        raw_fields = self._raw_fields() if reads_events else self._in_attributes(_RESULT)
        if table.events:
            self.fields = _with_events(self.fields, raw_fields)
        raw = raw_fields.get(Field.RESULT)
        is_read = raw is not None and (is_needed or _may_show_failure(raw))
        unwrapped = unwrap(raw, table.result_wrappers) if is_read else _NOTHING
        attribute_id = known_id(raw_fields.get(Field.CALL_ID))
        arguments, id_beside = UNRECORDED, ""
        if "arguments" in needs:
            arguments, id_beside = self._arguments(raw_fields.get(Field.ARGUMENTS))
        call_id = attribute_id or id_beside or known_id(unwrapped.call_id)
        error = self._error(failed=unwrapped.failed)
        refusal: bool | None = False
        if error is not None and self.fields.is_refused is not None:
            refusal = self.fields.is_refused
        elif error is not None and convention.refusals:
            if raw is not None and not is_read:
                unwrapped = unwrap(raw, table.result_wrappers)
            refusal = _refusal(table, error.message, unwrapped.value)
        # A status that may be another span's says nothing.
        hidden = hidden or (self._span.status_code == 2 and error is None)
        # What showed a failure may have been among the attributes that the sender left out.
        dropped = bool(self._span.dropped_attributes)
        return CallContent(
            name=self.fields.name,
            unnamed=self.fields.unnamed,
            call_id=call_id,
            attribute_id=attribute_id,
            arguments=arguments,
            result=unwrapped.value if "results" in needs else UNRECORDED,
            error=error,
            refusal=refusal,
            certain=not (hidden or dropped),
            unsure=convention.failures_unrecorded or dropped or (hidden and raw is None),
        )

    def id_in_content(self) -> str:
        """The id of the call if that stands in its arguments or its result alone, else ""."""
        table = self._table
        in_attributes = self._span.attributes(table.keys_wanted(Field.ARGUMENTS))
        for raw, wrappers in (
            (self._in_attributes((Field.RESULT,)).get(Field.RESULT), table.result_wrappers),
            (table.value(in_attributes, Field.ARGUMENTS), table.convention.wrappers),
        ):
            call_id = known_id(unwrap(raw, wrappers).call_id) if raw is not None else ""
            if call_id:
                return call_id
        return ""

    def _arguments(self, raw: Any) -> tuple[Any, str]:
        """The arguments, and the id of the call if that stands among them."""
        if raw is None:
            return UNRECORDED, ""
        unwrapped = unwrap(raw, self._table.convention.wrappers)
        value = named_arguments(unwrapped, self._table.value(self._attributes, Field.PARAMETERS))
        # Nothing at all is how a call without arguments is written.
        return {} if value is None or value == "" else value, known_id(unwrapped.call_id)

    def _raw_fields(self) -> dict[Field, Any]:
        """The raw values of the fields: attributes first, then the events that the table names,
        then what was moved from the span.
        """
        table, raw = self._table, self._in_attributes(_CONTENT)
        if not table.fields_in_events <= raw.keys():
            for event in chain(self._span.events(), self._logs):
                for content_field, value in table.fields_of(event):
                    raw.setdefault(content_field, value)
                if table.fields_in_events <= raw.keys():
                    break  # what follows is not decoded
        for event in self._logs:
            for content_field, value in adot_call_fields(event):
                raw.setdefault(content_field, value)
        return raw

    def _in_attributes(self, fields: Iterable[Field]) -> dict[Field, Any]:
        return {
            content_field: value
            for content_field in fields
            if (value := self._table.value(self._attributes, content_field)) is not None
        }

    def _error(self, *, failed: bool) -> ToolError | None:
        error_type = self.fields.error_type
        if not (error_type or failed or self.fields.failed or self._has_failed_status()):
            return None
        message = self._span.status_message
        trace_back = _TRACEBACK in message
        if not error_type or not message or trace_back:
            exception_type, exception_message = self.exception()
            error_type = error_type or exception_type
            message = exception_message or message if trace_back else message or exception_message
        return ToolError(error_type or "_OTHER", message)


def arguments_in_attributes(table: ReadTable, span: SpanReader) -> Any:
    """The arguments in the attributes of a tool span, also if no scorer needs them."""
    attributes = span.attributes(table.keys_wanted(Field.ARGUMENTS, Field.PARAMETERS))
    raw = table.value(attributes, Field.ARGUMENTS)
    if raw is None:
        return UNRECORDED
    return named_arguments(
        unwrap(raw, table.convention.wrappers), table.value(attributes, Field.PARAMETERS)
    )


def result_text(result: Any) -> str:
    """The result as text, for comparison with the texts of frameworks; "" if it is unrecorded."""
    if isinstance(result, str):
        return result
    return "" if result is UNRECORDED else json.dumps(result, default=str)


def _refusal(table: ReadTable, message: str, result: Any) -> bool | None:
    """Whether a call that failed was refused; None if a later message may show it."""
    text = result_text(result)
    return any(map(table.is_refusal, (message, text))) or (False if text else None)


def _with_logs(attributes: Mapping[str, Any], logs: Sequence[SpanEvent]) -> Mapping[str, Any]:
    """The span's attributes with those of its log records where it has none: content captured as
    events only.
    """
    merged: dict[str, Any] = {}
    for event in logs:
        merged.update(event.attributes)
    return {**merged, **attributes} if merged else attributes


def _with_events(fields: ToolFields, raw_fields: Mapping[Field, Any]) -> ToolFields:
    """The fields of the span, with those that only its events hold."""
    name = text_of(raw_fields.get(Field.TOOL_NAME)) if fields.unnamed else ""
    error = fields.error_type or text_of(raw_fields.get(Field.ERROR_TYPE))
    if not name and error == fields.error_type:
        return fields
    return replace(
        fields, name=name or fields.name, unnamed=fields.unnamed and not name, error_type=error
    )


def _may_show_failure(result: Any) -> bool:
    return not isinstance(result, str) or any(word in result for word in FAILURE_WORDS)
