"""The shape of a convention: how one instrumentation records agents, models and tools, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, field
from enum import StrEnum
from typing import Final

from otel_eval.conventions.message_formats import Wrapper
from otel_eval.model import Kind
from otel_eval.records import record


class Field(StrEnum):
    """A piece of information that tables locate in spans."""

    TOOL_NAME = "tool_name"
    ARGUMENTS = "arguments"
    PARAMETERS = "parameters"
    RESULT = "result"
    CALL_ID = "call_id"
    ERROR_TYPE = "error_type"
    AGENT_NAME = "agent_name"
    INPUT = "input"
    OUTPUT = "output"
    CONVERSATION = "conversation_id"
    RESPONSE_ID = "response_id"
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    FIRST_NEW_MESSAGE = "first_new_message"
    FINISH_REASONS = "finish_reasons"


class Side(StrEnum):
    """Which messages of a conversation an attribute holds, seen from its span."""

    OUTPUT = "output"
    """Messages produced in this span: tool calls in them were requested here."""

    HISTORY = "history"
    """Messages from before this span: they hold earlier tool calls and their results."""


@record
class Rule:
    """A span that meets all given conditions is of this kind.

    Attributes:
        kind: the kind.
        key: an attribute that must be present, or "".
        value: a glob that the attribute's text must match; alternatives are separated by `|`, and
            `{name}` in it stands for the span's own name, or what the `*` of `name` stands for.
        name: a glob that the span's name must match, or "".
        handoff: the span passes the conversation to another agent: like a tool call it follows a
            model's request, but it is none.
        unread: the span is that of a tool call which cannot be read, so that a run with it is none
            without calls.
        artefact: the span is no tool call although it may have the standard attributes of one;
            without this, rules of other kinds do not apply to a span that has them.
    """

    kind: Kind
    key: str = ""
    value: str = "*"
    name: str = ""
    handoff: bool = False
    unread: bool = False
    artefact: bool = False


@record
class Mark:
    """An attribute whose text, compared without case, matches a glob and so marks something, for
    instance a failed call.
    """

    key: str
    value: str


@record
class EventRow:
    """A field of a tool span that is recorded in an event (or log record).

    Attributes:
        event: a glob that the event's name must match.
        field: the field.
        key: the attribute, or the key of the record's body; "*": what the first `*` stands for in
            the event's name.
    """

    event: str
    field: Field
    key: str


@record
class MessageRow:
    """Where messages are recorded.

    Attributes:
        key: an attribute; with a trailing `.` the common beginning of a flattened family.
        side: what they are to the span.
        conclusive: whether finding no tool call in them proves that none was requested.
        choices: whether they are events of which only the model's choices were produced in the
            span.
        made: whether the calls in them were made within the span.
    """

    key: str
    side: Side = Side.OUTPUT
    conclusive: bool = True
    choices: bool = False
    made: bool = False


FINISH_REASONS: Final = (
    "gen_ai.response.finish_reasons",  # OpenTelemetry GenAI; Semantic Kernel writes the singular
    "gen_ai.response.finish_reason",
    "llm.finish_reason",  # OpenInference
    "ai.response.finishReason",  # Vercel AI SDK
    "gen_ai.completion.0.finish_reason",  # OpenLLMetry, and what copied its flattened messages
    "llm.response.finish_reason",
    "llm.response.stop_reason",
    "anthropic.message.stop_reason",
    "gen_ai.response.stop_reason",
)
RESPONSE_ID: Final = ("gen_ai.response.id",)
# Attributes of spans that were stored without content: what is kept of the messages, see
# `trajectory.kept_messages`, and the tools that were offered, in the form of pydantic-ai.
KEPT_MESSAGES: Final = "otel_eval.messages"
KEPT_TOOLS: Final = "otel_eval.offered_tools"
# Where a model span holds the tools that the request offered; with a trailing `.` a family.
OFFERED_TOOLS: Final = (
    KEPT_TOOLS,
    "model_request_parameters",  # pydantic-ai, which also tells its output tools apart
    "gen_ai.tool.definitions",  # OpenTelemetry GenAI
    "gen_ai.request.tools",
    "llm.tools.",  # OpenInference
    "ai.prompt.tools",  # Vercel AI SDK
    "llm.request.functions.",  # OpenLLMetry
)
# `tool_calls`, `tool-calls`, `toolUse`, `TOOL_EXECUTION`, `FinishReason.TOOL_CALLS`,
# `FunctionCall`; some join several by commas.
TOOL_FINISH_REASONS: Final = ("*tool*|*function*call*",)
# Gemini ends with STOP and Ollama with `stop` whether or not they ask for a tool.
UNRELIABLE: Final = tuple(
    Mark(key, value)
    for value, keys in (
        (
            "*gemini*|*vertex*|*google*|gcp*|*ollama*",
            ("gen_ai.provider.name", "gen_ai.system", "llm.system", "llm.provider"),
        ),
        ("*gemini*", ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")),
    )
    for key in keys
)


@record
class Convention:
    """How one instrumentation records what an agent did.

    Attributes:
        name: unique among the tables in use.
        source: the document and revision that each row was taken from.
        scopes: globs of instrumentation scope names; none: any scope.
        rules: what kind a span is; the first that matches decides.
        fields: attributes that hold a field, in order of preference.
        span_name: globs of span names, tried in order, whose `*` is the tool's name where no
            attribute holds it.
        agent_span_name: the same for an agent's name.
        tool_name_at: where the tool's name is in the attribute that holds it, if that is an object:
            dotted paths, the first that is there; a span without a name then shows no known call.
        title: an attribute that holds the span's name with its values filled in, or ""; where it is
            recorded, the two above are matched against it instead of the span's name.
        mcp_names: globs of tool names whose last `*` is the tool's name on its MCP server.
        errors: marks of a failed call, in addition to the span's status.
        events: fields of tool spans that are recorded in events.
        messages: message attributes of model and agent spans.
        conclusive_events: whether finding no tool call in the messages of events proves that none
            was requested.
        positional_ids: whether an id in messages may be the tool's name and a position
            (`search_0`), which later ones repeat.
        wrappers: envelopes to take arguments and results out of, tried in order: names in
            `message_formats.WRAPPERS`, or wrappers of the table's own.
        not_calls: tool names of spans that are no calls.
        answers_by_tool: whether a run gives its answer by one of `not_calls`, which leaves a span
            too, so that a run that has no tool span at all has lost them.
        not_requests: globs of names requested in messages for which no tool runs, such as output
            tools and handoffs.
        client_tools: globs of names of tools that the program around the agent runs: a run may end
            in a request for one without that being a call of the run.
        client_tool_types: the same by the types under which model calls list the tools that they
            offer.
        not_call_marks: marks of tool spans that are no calls.
        refusals: globs, compared without case, of the results by which the framework tells the
            model that it did not run a tool: there is none of the name, or its arguments are
            invalid.
        output_results: the same of the results of requests that were the run's output.
        refusal_marks: marks of the spans of calls that failed because the framework did not run the
            tool; where only their keys are present, it did.
        results_in_user_events: whether the events of the user's messages hold results of tools,
            as JSON; in those of others such a text is the user's own.
        hosted_unrecorded: whether calls of tools that the model's provider runs leave no trace.
        pause_marks: marks of tool spans that made no call yet, and of agent spans that ended
            because they wait for a person.
        resume_marks: marks of model spans of a run that went on after a pause; the model call that
            asked before it then has its span after those of the calls that it asked for.
        request_marks: marks of tool spans that are written for each request for a tool that the
            model's provider runs: one without a result was not executed.
        placeholders: texts that stand for "not recorded", by attribute ("*": any).
        masks: texts that an instrumentation writes in place of a part of some content, such as a
            password; a value that contains one of them counts as not recorded.
        truncated: attribute → the attribute that is true where its value was cut; such a value
            counts as not recorded.
        json_encoded: every attribute value is JSON text.
        tool_spans: whether each tool call of a run leaves a span, so that no span means no call;
            None: unknown.
        tool_finish_reasons: globs, compared without case, of the finish reasons of a model call
            that requested tools.
        unreliable_finish_reasons: marks of model spans whose finish reason does not show whether
            tools were requested.
        own_content: which of `input` and `output` agent spans record whenever content is captured;
            one that is not listed is taken from the first or last model call if the agent's span
            lacks it.
        repeats: globs of scopes whose spans record the model calls of this client beside its own.
        failures_in_results: whether the result alone may show that a call failed, so that without a
            recorded result the outcome is unknown.
        failures_unrecorded: whether a failed call may look like any other, so that the outcome of a
            call without an error is unknown.
        pauses_unrecorded: whether a call that waits for a person's approval, or that was cancelled,
            may leave the span of one that returned nothing, so that it is unknown whether the last
            call of a run was made if it has no result.
        pauses_unanswered: whether a run that ends, and did not fail, in requests that nothing
            answers waits for a person or for its client.
        raised_unrecorded: whether a call that raised leaves no span, so that the calls are unknown
            unless each one that the model asked for left one.
        statuses_spread: whether a span may have the error of another one as its status, so that
            only an exception of its own shows that it failed.
    """

    _: KW_ONLY
    name: str
    source: str
    rules: tuple[Rule, ...]
    scopes: tuple[str, ...] = ()
    fields: Mapping[Field, tuple[str, ...]] = field(default_factory=dict)
    span_name: tuple[str, ...] = ()
    agent_span_name: tuple[str, ...] = ()
    tool_name_at: tuple[str, ...] = ()
    title: str = ""
    mcp_names: tuple[str, ...] = ()
    errors: tuple[Mark, ...] = ()
    events: tuple[EventRow, ...] = ()
    messages: tuple[MessageRow, ...] = ()
    conclusive_events: bool = True
    positional_ids: bool = False
    wrappers: tuple[str | Wrapper, ...] = ()
    not_calls: frozenset[str] = frozenset()
    answers_by_tool: bool = False
    not_requests: tuple[str, ...] = ()
    client_tools: tuple[str, ...] = ()
    client_tool_types: tuple[str, ...] = ()
    not_call_marks: tuple[Mark, ...] = ()
    refusals: tuple[str, ...] = ()
    output_results: tuple[str, ...] = ()
    refusal_marks: tuple[Mark, ...] = ()
    results_in_user_events: bool = False
    hosted_unrecorded: bool = False
    pause_marks: tuple[Mark, ...] = ()
    resume_marks: tuple[Mark, ...] = ()
    request_marks: tuple[Mark, ...] = ()
    placeholders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    truncated: Mapping[str, str] = field(default_factory=dict)
    json_encoded: bool = False
    tool_spans: bool | None = None
    tool_finish_reasons: tuple[str, ...] = TOOL_FINISH_REASONS
    unreliable_finish_reasons: tuple[Mark, ...] = UNRELIABLE
    own_content: tuple[Field, ...] = ()
    repeats: tuple[str, ...] = ()
    failures_in_results: bool = False
    failures_unrecorded: bool = False
    pauses_unrecorded: bool = False
    pauses_unanswered: bool = False
    raised_unrecorded: bool = False
    statuses_spread: bool = False


# The attributes that make a span a tool call: OpenTelemetry GenAI, execute_tool.
STANDARD_OPERATION: Final = ("gen_ai.operation.name", "execute_tool")
STANDARD_TOOL_NAME: Final = "gen_ai.tool.name"

# Never evaluated: spans of this package and of other evaluators.
OWN_SCOPE: Final = "otel_eval"
EVALUATION_MARKS: Final = (
    # OpenInference spec/semantic_conventions.md @2026-08-21: span kinds.
    Mark("openinference.span.kind", "EVALUATOR"),
    # OpenTelemetry GenAI conventions, change #185: operation of evaluation spans (proposed).
    Mark("gen_ai.operation.name", "evaluation"),
)
