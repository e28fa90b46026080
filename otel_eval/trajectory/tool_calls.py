"""The calls of a trace's tool spans. `deduplicate` decides which spans describe the same call."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import attrgetter
from typing import Any, Final

from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.tool_spans import SpanState, ToolSpan, arguments_in_attributes
from otel_eval.conventions.values import frozen
from otel_eval.model import UNRECORDED, Kind, ToolError, Unnamed
from otel_eval.trajectory.classify import ClassifiedTrace


class ToolCallBuilder:
    """A call while it is read from one or several spans.

    Attributes:
        index: the outermost span's index.
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

    def __init__(
        self,
        index: int,
        table: ReadTable,
        name: str,
        scope: str,
        start: int,
        end: int,
        span_id: bytes,
    ) -> None:
        self.index: Final = index
        self.table: Final = table
        self.name = name
        self.scope: Final = scope
        self.start: Final = start
        self.end: Final = end
        self.span_id: Final = span_id
        self.call_id = self.attribute_id = self.message = ""
        self.error: ToolError | None = None
        self.arguments: Any = UNRECORDED
        self.result: Any = UNRECORDED
        self.unnamed = self.unsure = self.certain = False
        self.refusal: bool | None = False
        self.unread: ToolSpan | None = None

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


MOMENT: Final = attrgetter("start", "end", "span_id")
"""The key by which builders of calls are ordered in time, as `ClassifiedTrace.moment`."""


def named(arguments: Any) -> bool:
    """Whether the arguments are an object, and so need no names from elsewhere."""
    return isinstance(arguments, dict)


def in_an_object(arguments: Any) -> Any:
    """Recorded arguments as `ToolCall` holds them: nothing at all is how a call without arguments
    is written, and another bare value becomes `Unnamed`.
    """
    if arguments is UNRECORDED or named(arguments):
        return arguments
    return {} if arguments in (None, "") else Unnamed(__value__=arguments)


def call_builders(spans: ClassifiedTrace) -> dict[int, ToolCallBuilder]:
    """A builder for each tool span that is a call, by index; the kind of artefacts that are no
    calls becomes `OTHER`. The content of calls is not read yet. Ancestors are found then, see
    `ClassifiedTrace.link`.
    """
    calls: dict[int, ToolCallBuilder] = {}
    may_be_plain = not (spans.plan.wants_content_of_calls or spans.trace.logs)
    starts, ids, size, tool = spans.starts, spans.tree.ids, spans.tree.size, Kind.TOOL
    for index in [index for index, kind in enumerate(spans.kinds) if kind is tool]:
        span, table = spans.readers[index], spans.tables[index]
        scope = spans.resource_scopes[index].scope_name
        reader = spans.plan.tool_reader(table)
        is_plain = may_be_plain and not span.dropped_attributes
        succeeded = reader.succeeded(span) if is_plain else None
        tool_span, call_id = None, ""
        if succeeded is not None:
            fields, call_id = succeeded
        else:
            tool_span = reader.read(span, spans.logs(index))
            fields = tool_span.fields
            if not _is_call(spans, index, tool_span):
                spans.kinds[index] = Kind.OTHER
                continue
        call = calls[index] = ToolCallBuilder(
            index,
            table,
            fields.name,
            scope,
            start=starts[index],
            end=span.end_ns,
            span_id=ids[index],
        )
        call.call_id = call.attribute_id = call_id
        call.unnamed, call.unread = fields.unnamed, tool_span
        call.certain = not table.convention.failures_in_results
        if size[index] > 1:
            spans.has_spans_below_calls = True
    spans.tools = list(calls)
    spans.link()
    return calls


def _is_call(spans: ClassifiedTrace, index: int, tool_span: ToolSpan) -> bool:
    """Whether a tool span stands for a call; the trace learns of pauses and of requests that were
    not executed.
    """
    state, name = tool_span.state(), tool_span.fields.name
    if state is SpanState.PAUSED:
        spans.pauses[index] = name
    elif state is SpanState.NOT_EXECUTED:
        spans.unexecuted[index] = name
    return state is SpanState.CALL


def read_contents(calls: Iterable[ToolCallBuilder]) -> None:
    """Read the content of calls, as far as it is needed, and whether they failed."""
    for call in calls:
        if call.unread is not None:
            content = call.unread.content()
            call.name, call.unnamed = content.name, content.unnamed
            call.call_id, call.attribute_id = content.call_id, content.attribute_id
            call.arguments, call.result = content.arguments, content.result
            call.error, call.refusal = content.error, content.refusal
            call.certain, call.unsure = content.certain, content.unsure
            call.unread = None


def mcp_name(call: ToolCallBuilder) -> str:
    """The tool's name, or the one by which an MCP server knows it."""
    return call.table.name_in_mcp(call.name)


def arguments_key(spans: ClassifiedTrace, call: ToolCallBuilder) -> Hashable:
    """Equal for equal arguments by name, None without any; also where no scorer needs them, as two
    spans may be one call.

    It is kept by index, so arguments that are needed must be complete.
    """
    keys = spans.argument_keys
    if call.index not in keys:
        arguments = (
            call.arguments if "arguments" in spans.plan.needs else recorded_arguments(spans, call)
        )
        keys[call.index] = frozen(arguments) if named(arguments) else None
    return keys[call.index]


def recorded_arguments(spans: ClassifiedTrace, call: ToolCallBuilder) -> Any:
    """The arguments in the attributes of the call's span, also if no scorer needs them."""
    if call.index not in spans.arguments:
        spans.arguments[call.index] = arguments_in_attributes(call.table, spans.readers[call.index])
    return spans.arguments[call.index]


def call_id_of(spans: ClassifiedTrace, call: ToolCallBuilder) -> str:
    """The id of a call, also if it stands in the call's content alone and no scorer needs that."""
    if call.call_id or spans.plan.wants_content_of_calls:
        return call.call_id
    if call.index not in spans.call_ids:
        spans.call_ids[call.index] = _tool_span(spans, call).id_in_content()
    return spans.call_ids[call.index]


def has_result(spans: ClassifiedTrace, call: ToolCallBuilder) -> bool:
    """Whether a result of the call was recorded, also if no scorer needs it."""
    return call.result is not UNRECORDED or _tool_span(spans, call).has_result()


def _tool_span(spans: ClassifiedTrace, call: ToolCallBuilder) -> ToolSpan:
    reader = spans.plan.tool_reader(call.table)
    return reader.read(spans.readers[call.index], spans.logs(call.index))
