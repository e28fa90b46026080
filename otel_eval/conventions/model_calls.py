"""What model spans and their events record: messages, earlier calls in the history, and why the
model stopped.

Events (and log records joined to a span) have three sources: the events of older GenAI conventions,
the log records of coding agents, and content that AWS's distribution of OpenTelemetry (ADOT) moves
from a span into the body of a log record (aws-opentelemetry-distro 0.21 llo_handler.py). Such a
body holds `input.messages` and `output.messages`; each message has a role and, as `content`, the
value of one attribute of the span or the attributes of one of its events.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import chain
from typing import Any, Final, NamedTuple

from otel_eval.conventions.fields import ReadTable
from otel_eval.conventions.message_formats import RESULT_WRAPPERS
from otel_eval.conventions.messages import (
    Mention,
    ToolRequest,
    ToolResult,
    known_id,
    may_mention,
    message_text,
    nested,
    read_messages,
)
from otel_eval.conventions.messages import messages_by_number as numbered
from otel_eval.conventions.table import OFFERED_TOOLS, Field, Side
from otel_eval.conventions.values import SPACES, decode, parse_json, unwrap
from otel_eval.interfaces import SpanEvent, Wanted

# OpenTelemetry semantic conventions 1.28-1.36 docs/gen-ai/gen-ai-events.md; 1.27 for
# gen_ai.content.*.
_SIDES: Final = {
    "gen_ai.choice": Side.OUTPUT,
    "gen_ai.assistant.message": Side.HISTORY,
    "gen_ai.content.completion": Side.OUTPUT,
    "gen_ai.content.prompt": Side.HISTORY,
}
_TOOL_MESSAGE: Final = "gen_ai.tool.message"
_USER_MESSAGE: Final = "gen_ai.user.message"
_USER_ROLES: Final = frozenset({"user", "human"})
# azure-ai-inference, azure-ai-agents and Azure's tracers for LangChain.
_PACKED: Final = "gen_ai.event.content"
# 1.37 and later: one event holds a whole inference; AWS ADOT moves the same into the body of log
# records.
_DETAILS: Final = {
    "gen_ai.output.messages": Side.OUTPUT,
    "gen_ai.input.messages": Side.HISTORY,
    "gen_ai.completion": Side.OUTPUT,
    "gen_ai.prompt": Side.HISTORY,
    "output": Side.OUTPUT,
    "input": Side.HISTORY,
}
# Claude Code's log records: a tool's input with the id of its call, and the model's answer.
_CLAUDE_TOOL_RESULT: Final = "tool_result"
_CLAUDE_RESPONSE: Final = "assistant_response"


def read_event(event: SpanEvent) -> Iterator[tuple[Side, list[Mention]]]:
    """The tool requests and results in an event, with the side of the conversation they are on.

    An empty list means that messages were recorded and hold neither.
    """
    content = _content(event)
    if event.name == _TOOL_MESSAGE:
        yield Side.HISTORY, _tool_results(content)
        return
    if event.name == _CLAUDE_TOOL_RESULT and "tool_input" in content:
        yield (
            Side.HISTORY,
            [ToolRequest("", known_id(content.get("tool_use_id")), decode(content["tool_input"]))],
        )
        return
    side = _SIDES.get(event.name)
    if side is not None and not (content.keys() & _DETAILS.keys()):
        yield side, read_messages(content)
        if "tool.result" in content:
            yield Side.HISTORY, read_messages({"tool.result": content["tool.result"]})
        return
    for key, part in _DETAILS.items():
        # Free text does not show whether there were calls, and neither does empty text.
        if key in content and not isinstance(decode(content[key], literals=False), str):
            yield part, read_messages(content[key])


def is_choice(message: Any) -> bool:
    """Whether a message in a list of events is an answer of the model."""
    return isinstance(message, dict) and _SIDES.get(message.get("event.name", "")) is Side.OUTPUT


def output_of(event: SpanEvent) -> Iterator[Any]:
    """The output messages in the event, as recorded."""
    content = _content(event)
    yield from (
        content[key] for key, side in _DETAILS.items() if side is Side.OUTPUT and key in content
    )
    if _SIDES.get(event.name) is Side.OUTPUT:
        yield content


def _content(event: SpanEvent) -> dict[str, Any]:
    """Attributes and body of the event in one, with the message that some pack into one attribute
    as JSON text.
    """
    # The body overrides attributes, and messages that ADOT moved override both.
    content = {**event.attributes}
    if isinstance(event.body, dict):
        content |= {**event.body, **adot_messages(event)}
    packed = decode(content[_PACKED], literals=False) if _PACKED in content else None
    return {**content, **packed} if isinstance(packed, dict) else content


def _tool_results(content: dict[str, Any]) -> list[Mention]:
    """The results in a tool message, or its whole content as one result."""
    mentions = read_messages({"content": content.get("content")})
    if mentions or "content" not in content:
        return mentions
    unwrapped = unwrap(content["content"], RESULT_WRAPPERS)
    call_id = known_id(content.get("id")) or known_id(content.get("tool_call_id"))
    return [
        ToolResult(
            call_id=call_id,
            name=str(content.get("name", "")),
            result=unwrapped.value,
            failed=unwrapped.failed,
        )
    ]


def text_in_events(events: Iterable[SpanEvent], side: Field) -> Any:
    """The text of the last event of the user (`Field.INPUT`) or of the model (`Field.OUTPUT`), or
    None.
    """
    text = None
    for event in events:
        value, roles = _event_text(event, user=side is Field.INPUT)
        if value not in (None, {}):
            text = message_text(decode(value), roles, last=True)
    return text


def _event_text(event: SpanEvent, *, user: bool) -> tuple[Any, frozenset[str]]:
    """The messages or the text in the event, and the roles to look for in them (none: any)."""
    name, whole = (
        ("gen_ai.user.message", "gen_ai.input.messages")
        if user
        else ("gen_ai.choice", "gen_ai.output.messages")
    )
    roles = _USER_ROLES if user else frozenset[str]()
    content = _content(event)
    if whole in content:
        return content[whole], roles
    if event.name == name:
        return content.get("content", content.get("message")), frozenset()
    if event.name == _CLAUDE_RESPONSE and not user:
        return content.get("response"), frozenset()
    value, single = adot_text(event, user=user)
    return value, frozenset() if single else roles


# LangGraph's `interrupt` (GraphInterrupt), and pydantic-ai's request for an approval.
_PAUSE: Final = re.compile(r"(?:\w+\.)*(?:GraphInterrupt|NodeInterrupt|ApprovalRequired)(?:\(|$)")
# pydantic-ai's request for a result from elsewhere.
_DEFERRAL: Final = re.compile(r"(?:\w+\.)*CallDeferred(?:\(|$)")


def is_pause(*texts: str) -> bool:
    """Whether the type or the message of an exception shows that a tool raised it in order to wait
    for a person: no call was made yet.
    """
    return any(_PAUSE.match(text) for text in texts)


def is_deferral(*texts: str) -> bool:
    """Whether the type or the message of an exception shows that a tool left the call to the
    program that runs the agent.
    """
    return any(_DEFERRAL.match(text) for text in texts)


def exception_of(events: Iterable[SpanEvent]) -> tuple[str, str]:
    """Type and message of the last recorded exception, "" where there is none."""
    exception = ("", "")
    for event in events:
        if event.name == "exception":
            exception = (
                str(event.attributes.get("exception.type", "")),
                str(event.attributes.get("exception.message", "")),
            )
    return exception


# These record all messages of a side in one attribute. Others record text of users, which is not
# parsed for calls.
_ADOT_ONE_ATTRIBUTE: Final = (
    "amazon.opentelemetry.distro.instrumentation.",
    "opentelemetry.instrumentation.genai.",
)
_ADOT_SIDES: Final = {"input": "gen_ai.input.messages", "output": "gen_ai.output.messages"}


def adot_messages(event: SpanEvent) -> dict[str, Any]:
    """GenAI attribute → the messages that ADOT moved out of it; empty for instrumentations with
    other attributes.
    """
    if not event.name.startswith(_ADOT_ONE_ATTRIBUTE):
        return {}
    messages_of = {
        key: [message for content in _contents(event, side) for message in _listed(content)]
        for side, key in _ADOT_SIDES.items()
    }
    return {key: messages for key, messages in messages_of.items() if messages}


def adot_call_fields(event: SpanEvent) -> Iterator[tuple[Field, Any]]:
    """The arguments and the result that ADOT moved out of a tool span, and the id of the call where
    an event held it.
    """
    for side, field in (("input", Field.ARGUMENTS), ("output", Field.RESULT)):
        content = next(_contents(event, side), None)
        if isinstance(content, dict) and "id" in content:
            yield Field.CALL_ID, content["id"]
        value = _inner(content)
        if value is not None:
            yield field, value


def adot_text(event: SpanEvent, *, user: bool) -> tuple[Any, bool]:
    """The input of the run (the first content) or its output (the last), or None; and whether it is
    a single message.
    """
    contents = [*_contents(event, "input" if user else "output")]
    if not contents:
        return None, False
    content = contents[0 if user else -1]
    return _inner(content), isinstance(content, dict)


def _contents(event: SpanEvent, side: str) -> Iterator[Any]:
    """The contents of one side, without system messages."""
    of_side = event.body.get(side) if isinstance(event.body, dict) else None
    messages = of_side.get("messages") if isinstance(of_side, dict) else None
    for message in messages if isinstance(messages, list) else ():
        if (
            isinstance(message, dict)
            and message.get("role") != "system"
            and message.get("content") is not None
        ):
            yield message["content"]


def _inner(content: Any) -> Any:
    """The content of an event's attributes, else the value itself."""
    return content.get("content", content.get("message")) if isinstance(content, dict) else content


def _listed(content: Any) -> list[Any]:
    value = decode(content, literals=False)
    return value if isinstance(value, list) else []


class _KnownHistory(NamedTuple):
    """A history that was read.

    Attributes:
        start: what a longer history of the same conversation begins with: the text without its last
            bracket, or all parts of flattened messages.
        mentions: the tool requests and results in the messages.
        last: the number of the last of the flattened messages.
    """

    start: Any
    mentions: Sequence[Mention] = ()
    last: str = ""


_NO_TEXT: Final = _KnownHistory("")
_NO_PARTS: Final = _KnownHistory([])

_SHORT: Final = 4096  # characters: of longer texts, only what they add to earlier ones is read
# A message of text in these parts alone holds neither requests nor results, unless its role does.
_TOOL_ROLES: Final = frozenset({"tool", "function"})
_PLAIN_PARTS: Final = frozenset(
    {"role", "content", "finish_reason", "message.role", "message.content"}
)


def _is_plain(message: Mapping[str, Any]) -> bool:
    """Whether a flattened message is text of a user or a model."""
    return _PLAIN_PARTS.issuperset(message) and _TOOL_ROLES.isdisjoint(
        (message.get("role"), message.get("message.role"))
    )


def may_mention_in(value: Any) -> bool:
    """Whether messages, as text, decoded or flattened, may hold a request or a result."""
    if isinstance(value, str):
        return may_mention(value)
    return (
        not isinstance(value, dict)
        or not _is_text(value)
        or any(key.partition(".")[2] not in _PLAIN_PARTS for key in value)
    )


class Histories:
    """Reads the message histories of one trace, each part that several histories repeat only once.

    An agent sends the whole conversation to the model with each request, so n requests record about
    n² / 2 messages; reading only what a history adds keeps the cost linear. Requests and results in
    a repeated part are the same objects each time: do not change them.
    """

    def __init__(self) -> None:
        self._known: Final[dict[Hashable, _KnownHistory]] = {}
        self._messages: Final[dict[Hashable, Sequence[Mention]]] = {}
        self._events: Final[dict[Hashable, Sequence[tuple[Side, Sequence[Mention]]]]] = {}

    def of_text(self, conversation: Hashable, text: str) -> Sequence[Mention]:
        """The tool requests and results in messages that are recorded as one text.

        Args:
            conversation: a key; texts with equal keys are likely to continue one another.
            text: the attribute's value.
        """
        history = self._known.get(conversation)
        if history is None and len(text) < _SHORT and not may_mention(text):
            return ()
        tail = (
            text[len(history.start) :].strip(SPACES)
            if history and text.startswith(history.start)
            else ""
        )
        if history and tail == "]":
            return history.mentions
        # the added elements as a list of their own
        added = parse_json("[" + tail[1:]) if tail[:1] == "," else None
        if not history or not added or not isinstance(added, list):
            history, added = _NO_TEXT, parse_json(text.strip(SPACES))
        if isinstance(added, str):
            literals = text.startswith("[")  # else a list within a JSON string
            return read_messages(decode(text, literals=literals))
        mentions = [*history.mentions, *read_messages(added, plain=True)]
        if added and isinstance(added, list):
            self._known[conversation] = _KnownHistory(text.rstrip(SPACES)[:-1], mentions)
        return mentions

    def of_family(self, conversation: Hashable, family: Mapping[str, Any]) -> Sequence[Mention]:
        """The tool requests and results in flattened messages: a mapping from part, without the
        common prefix, to value.
        """
        parts, history = [*family.items()], self._known.get(conversation, _NO_PARTS)
        size = len(history.start)
        added = (
            numbered(parts[size:], after=history.last) if parts[:size] == history.start else None
        )
        if added is None:
            history, added = _NO_PARTS, numbered(parts)
        if added is None:
            return read_messages(nested(family), plain=True)
        mentions = [*history.mentions, *chain.from_iterable(map(self._message, added.values()))]
        if added and _is_text(family):
            self._known[conversation] = _KnownHistory(parts, mentions, next(reversed(added)))
        return mentions

    def _message(self, message: dict[str, Any]) -> Sequence[Mention]:
        """The requests and results in one flattened message; equal messages of text are read
        once.
        """
        if not _is_text(message):
            return read_messages([nested(message)], plain=True)
        if _is_plain(message):
            return ()
        key = tuple(message.items())
        mentions = self._messages.get(key)
        if mentions is None:
            mentions = self._messages[key] = read_messages([nested(message)], plain=True)
        return mentions

    def of_user_event(self, event: SpanEvent) -> Sequence[Mention]:
        """The results of tools in a message of the user."""
        text = event.attributes.get("content")
        if event.name != _USER_MESSAGE or not isinstance(text, str) or not may_mention(text):
            return ()
        key = (event.name, text)
        results = self._messages.get(key)
        if results is None:
            mentions = read_messages({"content": text})
            results = [mention for mention in mentions if isinstance(mention, ToolResult)]
            self._messages[key] = results
        return results

    def of_event(self, event: SpanEvent) -> Sequence[tuple[Side, Sequence[Mention]]]:
        """The tool requests and results in an event, as `read_event` returns them."""
        if event.body is not None or not _is_text(event.attributes):
            return [*read_event(event)]
        key = (event.name, tuple(event.attributes.items()))
        mentions = self._events.get(key)
        if mentions is None:
            mentions = [*read_event(event)]
            # equal outputs of a model are two outputs, not one repeated
            if all(side is not Side.OUTPUT for side, _ in mentions):
                self._events[key] = mentions
        return mentions


_ONLY_TEXT: Final = frozenset({str})


def _is_text(values: Mapping[str, Any]) -> bool:
    """Whether all values are text, so that equal keys mean equal values: in Python 1 == True, but
    they differ in JSON.
    """
    return _ONLY_TEXT.issuperset(map(type, values.values()))


# Texts without information; `completed` and `incomplete` of the Responses API are states and mean
# nothing about tool calls.
_NO_REASON: Final = frozenset(
    {"", "none", "null", "n/a", "unknown", "unspecified", "finish_reason_unspecified", "other"}
    | {"completed", "incomplete", "in_progress"}
)
# OpenAI and most others; Vercel and Gemini; Anthropic; Bedrock; Ollama.
_KEYS: Final = frozenset(
    {"finish_reason", "finishReason", "stop_reason", "stopReason", "done_reason"}
)
_WITHIN: Final = (
    "choices",
    "message",
    "candidates",
    "generations",
    "generation_info",
    "response_metadata",
    "raw",
    "kwargs",
)
_MOST: Final = 1000  # objects visited in one value


class Finish(Enum):
    """How a model call ended."""

    UNKNOWN = "no finish reason that could be relied on was recorded"
    TOOLS = "in order to call tools"
    OTHER = "for another reason"


# A member of an enumeration is looked up in a tenth of the time by a name of its own.
_UNKNOWN: Final = Finish.UNKNOWN
_FINISH_REASONS: Final = Field.FINISH_REASONS


def finish_of(table: ReadTable, attributes: Mapping[str, Any]) -> Finish:
    """How the model call ended, by the span's attributes.

    Args:
        table: the table that recognised the model span.
        attributes: those of `table.finish_wanted`.
    """
    value = table.value(attributes, _FINISH_REASONS) if attributes else None
    return _UNKNOWN if value is None else _finish(table, attributes, _texts(value))


def finish_of_messages(
    table: ReadTable,
    attributes: Mapping[str, Any],
    values: Iterable[Any],
    events: Iterable[SpanEvent],
) -> Finish:
    """How the model call ended, by the span's output messages.

    Args:
        table: the table that recognised the model span.
        attributes: those of `table.finish_wanted`.
        values: the output messages of attributes, decoded or as text.
        events: the span's events and log records.
    """
    messages = chain(values, (output for event in events for output in output_of(event)))
    return _finish(table, attributes, (text for message in messages for text in _within(message)))


def _finish(table: ReadTable, attributes: Mapping[str, Any], reasons: Iterable[str]) -> Finish:
    """TOOLS if a reason shows a request for tools, OTHER if another reason is reliable, else
    UNKNOWN.
    """
    is_known = False
    for reason in reasons:
        if reason.lower() in _NO_REASON:
            continue
        if table.asks_for_tools(reason):
            return Finish.TOOLS  # the rest need not be decoded
        is_known = True
    if not is_known or table.marked(attributes, table.convention.unreliable_finish_reasons):
        return _UNKNOWN
    return Finish.OTHER


def _texts(value: Any) -> list[str]:
    """One reason or several, as text, list, or JSON text of a list."""
    read = value if isinstance(value, list) else decode(value, literals=False)
    return [
        reason for reason in (read if isinstance(read, list) else [read]) if isinstance(reason, str)
    ]


def _within(value: Any) -> Iterator[str]:
    """The finish reasons in output messages of any format."""
    stack, looked = [decode(value, literals=False) if isinstance(value, str) else value], 0
    while stack and looked < _MOST:
        message, looked = stack.pop(), looked + 1
        if isinstance(message, list):
            stack.extend(message[:_MOST])
        elif isinstance(message, dict):
            yield from (
                message[key] for key in _KEYS & message.keys() if isinstance(message[key], str)
            )
            stack.extend(message[key] for key in _WITHIN if key in message)


class OfferedTools(NamedTuple):
    """The tools that a model call offered to the model.

    Attributes:
        names: all of them, or None if some are not known by name.
        outputs: those whose call is the run's output.
        types: the type or kind of each that has a name.
    """

    names: frozenset[str] | None = None
    outputs: frozenset[str] = frozenset()
    types: Mapping[str, str] = {}


_NOT_OFFERED: Final = OfferedTools()
_LISTS_OF_TOOLS: Final = ("function_tools", "output_tools")  # of pydantic-ai
_PROVIDERS_TOOLS: Final = ("native_tools", "builtin_tools")
OFFERED_WANTED: Final = Wanted(
    frozenset(key for key in OFFERED_TOOLS if not key.endswith(".")),
    tuple(key for key in OFFERED_TOOLS if key.endswith(".")),
)


def offered_tools(attributes: Mapping[str, Any]) -> OfferedTools:
    """The tools that a model span says were offered, by the first attribute that lists them.

    Args:
        attributes: those of `OFFERED_WANTED`.
    """
    for key in OFFERED_TOOLS if attributes else ():
        value = attributes.get(key)
        if key.endswith("."):
            family = {
                name[len(key) :]: attributes[name] for name in attributes if name.startswith(key)
            }
            value = nested(family) if family else None
        if value:
            return _offered(decode(value, literals=False))
    return _NOT_OFFERED


def _offered(tools_offered: Any) -> OfferedTools:
    if isinstance(tools_offered, dict):
        lists = {key: _definitions(tools_offered.get(key)) for key in _LISTS_OF_TOOLS}
        tools = [tool for listed in lists.values() for tool in listed]
        names = None if any(tools_offered.get(key) for key in _PROVIDERS_TOOLS) else _names(tools)
        outputs = _names(lists["output_tools"]) or ()
    else:
        tools, outputs = _definitions(tools_offered), ()
        names = _names(tools)
    types = {
        str(tool.get("name")): str(tool.get("kind") or tool.get("type") or "")
        for tool in tools
        if isinstance(tool, dict)
    }
    # An empty list is also written where no list was recorded.
    return OfferedTools(frozenset(names) if names else None, frozenset(outputs), types)


def _definitions(tools: Any) -> list[Any]:
    """The definitions in a list of tools, taken out of what they are wrapped in."""
    return [_definition(tool) for tool in tools] if isinstance(tools, list) else []


def _definition(recorded: Any) -> Any:
    tool = decode(recorded, literals=False) if isinstance(recorded, str) else recorded
    for key in ("tool", "json_schema", "function", "toolSpec"):
        inner = tool.get(key) if isinstance(tool, dict) else None
        inner = decode(inner, literals=False) if isinstance(inner, str) else inner
        tool = inner if isinstance(inner, dict) else tool
    return tool


def _names(tools: Sequence[Any]) -> list[str] | None:
    """The name of each tool; None if one has no name of its own, such as a tool of the provider."""
    names: list[str] = []
    for tool in tools:
        if not isinstance(tool, dict) or not isinstance(tool.get("name"), str):
            return None
        if str(tool.get("type", "function")) not in ("function", "custom", "object"):
            return None
        names.append(tool["name"])
    return names
