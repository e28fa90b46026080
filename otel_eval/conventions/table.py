"""The shape of a convention: how one instrumentation records agents, models and tools, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from otel_eval.conventions.message_formats import Wrapper
from otel_eval.model import Kind

__all__ = [
    "EVALUATION_MARKS",
    "FINISH_REASONS",
    "OWN_SCOPE",
    "TOOL_FINISH_REASONS",
    "UNRELIABLE",
    "Convention",
    "EventRow",
    "Field",
    "Mark",
    "MessageRow",
    "Rule",
    "Side",
]


class Field(StrEnum):
    """What can be read from a span."""

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
    INPUT_TOKENS = "input_tokens"
    OUTPUT_TOKENS = "output_tokens"
    FIRST_NEW_MESSAGE = "first_new_message"
    FINISH_REASONS = "finish_reasons"


class Side(StrEnum):
    """Which part of a conversation a message attribute holds."""

    OUTPUT = "output"
    """What was produced in this span; calls found here were asked for here."""

    HISTORY = "history"
    """What was known before: it names earlier calls and holds their results."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A span for which everything given here holds is of this kind.

    Attributes:
        kind: the kind.
        key: an attribute that must be present, or "".
        value: a glob that the attribute's text must match; alternatives are separated by `|`, and `{name}` in it stands
            for the span's own name.
        name: a glob that the span's name must match, or "".
        handoff: the span passes the conversation to another agent: it answers a model's request like a tool call, and
            is none.
    """

    kind: Kind
    key: str = ""
    value: str = "*"
    name: str = ""
    handoff: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """An attribute whose text, compared without case, fits a glob that says something, for instance that the call failed."""

    key: str
    value: str


@dataclass(frozen=True, slots=True)
class EventRow:
    """A field of a tool span that is recorded in an event (or log record).

    Attributes:
        event: a glob that the event's name must match.
        field: the field.
        key: the attribute, or the key of the record's body; "*": what the first `*` stands for in the event's name.
    """

    event: str
    field: Field
    key: str


@dataclass(frozen=True, slots=True)
class MessageRow:
    """Where messages are recorded.

    Attributes:
        key: an attribute; with a trailing `.` the common beginning of a flattened family.
        side: what they are to the span.
        conclusive: whether finding no tool call in them proves that none was asked for.
    """

    key: str
    side: Side = Side.OUTPUT
    conclusive: bool = True


FINISH_REASONS: Final = (
    "gen_ai.response.finish_reasons",  # OpenTelemetry GenAI; Semantic Kernel writes the singular
    "gen_ai.response.finish_reason",
    "llm.finish_reason",  # OpenInference
    "ai.response.finishReason",  # Vercel AI SDK
    "gen_ai.completion.0.finish_reason",  # OpenLLMetry, and what copied its flattened messages
    "llm.response.finish_reason",
    "llm.response.stop_reason",
    "gen_ai.response.stop_reason",
)
# OpenAI and Mistral; LangChain and pydantic-ai; Vercel; Anthropic, Bedrock; Semantic Kernel; LangChain4j.
TOOL_FINISH_REASONS: Final = ("tool_call*|tool-call*|tool_use*|tooluse*|function_call*|tool_execution*|finishreason.tool_call*",)
# Gemini ends with STOP and Ollama with `stop` whether or not they ask for a tool.
UNRELIABLE: Final = tuple(
    Mark(key, value)
    for value, keys in (
        ("*gemini*|*vertex*|*google*|gcp*|*ollama*", ("gen_ai.provider.name", "gen_ai.system", "llm.system", "llm.provider")),
        ("*gemini*", ("gen_ai.request.model", "gen_ai.response.model", "llm.model_name")),
    )
    for key in keys
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Convention:
    """How one instrumentation writes down what an agent did.

    Attributes:
        name: unique among the tables in use.
        source: the document and revision that each row was taken from.
        scopes: globs of instrumentation scope names; none: any scope.
        rules: what kind a span is; the first that holds wins.
        fields: attributes that hold a field, in order of preference.
        span_name: globs with one `*` that stands for the tool's name where no attribute has it; the first that fits.
        agent_span_name: the same for an agent's name.
        title: an attribute that holds the span's name with its values filled in, or ""; where it is recorded, it is read
            instead of the span's name for the two above.
        mcp_names: globs of tools' names whose last `*` is the name that an MCP server knows the tool by.
        errors: marks of a failed call beside the span's status.
        events: fields of tool spans that events hold.
        messages: message attributes of model and agent spans.
        wrappers: shapes to take arguments and results out of, tried in order: names of `message_formats.WRAPPERS`, or shapes of
            the table's own.
        not_calls: names of tool spans that are no calls.
        not_requests: globs of names asked for in messages that no tool ever answers, such as output tools and handoffs.
        not_call_marks: marks of spans that only pretend to be calls.
        placeholders: texts that stand for "not recorded", by attribute ("*": any).
        masks: texts that an instrumentation writes in place of a part of some content, such as a password; a value that
            holds one of them is not recorded.
        truncated: attribute → the attribute that is true where its value was cut; such a value is not recorded.
        json_encoded: every attribute value is JSON text.
        tool_spans: whether each tool call of a run leaves a span: then none means no call. False: it does not; None: unknown.
        tool_finish_reasons: globs, compared without case, of the finish reasons of a model call that ended in order to
            call tools.
        unreliable_finish_reasons: marks of model spans whose finish reason does not tell whether tools were asked for.
        own_content: which of `input` and `output` agent spans record wherever content is captured; of the others the first and
            last model call tell where the agent's span does not.
        failures_in_results: whether a failed call may show in its result only, so that without a result it is unknown
            whether it failed.
    """

    name: str
    source: str
    rules: tuple[Rule, ...]
    scopes: tuple[str, ...] = ()
    fields: Mapping[Field, tuple[str, ...]] = field(default_factory=dict)
    span_name: tuple[str, ...] = ()
    agent_span_name: tuple[str, ...] = ()
    title: str = ""
    mcp_names: tuple[str, ...] = ()
    errors: tuple[Mark, ...] = ()
    events: tuple[EventRow, ...] = ()
    messages: tuple[MessageRow, ...] = ()
    wrappers: tuple[str | Wrapper, ...] = ()
    not_calls: frozenset[str] = frozenset()
    not_requests: tuple[str, ...] = ()
    not_call_marks: tuple[Mark, ...] = ()
    placeholders: Mapping[str, frozenset[str]] = field(default_factory=dict)
    masks: tuple[str, ...] = ()
    truncated: Mapping[str, str] = field(default_factory=dict)
    json_encoded: bool = False
    tool_spans: bool | None = None
    tool_finish_reasons: tuple[str, ...] = TOOL_FINISH_REASONS
    unreliable_finish_reasons: tuple[Mark, ...] = UNRELIABLE
    own_content: tuple[Field, ...] = ()
    failures_in_results: bool = False


OWN_SCOPE: Final = "otel_eval"

EVALUATION_MARKS: Final = (
    # OpenInference spec/semantic_conventions.md @2026-08-21: span kinds.
    Mark("openinference.span.kind", "EVALUATOR"),
    # OpenTelemetry GenAI conventions, change #185: operation of evaluation spans (proposed).
    Mark("gen_ai.operation.name", "evaluation"),
)
