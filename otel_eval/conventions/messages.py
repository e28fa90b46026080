"""Read tool calls, their results and texts out of recorded messages in any of the formats of
`message_formats`.

Never raises; looks no deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar

from otel_eval.conventions.message_formats import (
    CONTAINERS,
    HOSTED_MARKS,
    HOSTED_TYPES,
    REQUESTS,
    RESULT_WRAPPERS,
    RESULTS,
    MessageShape,
)
from otel_eval.conventions.values import (
    MAX_DEPTH,
    decode,
    decode_text,
    first_of,
    frozen,
    unwrap_decoded,
)
from otel_eval.conventions.values import plain as as_json
from otel_eval.model import HOSTED_TOOLS, UNRECORDED
from otel_eval.records import record

NO_ID: Final = frozenset({"", "<not specified>", "unknown", "None", "null"})
# Keys whose text may be messages as JSON: events and flattened families write them so. The content
# of a message proper is never parsed for calls, whatever it looks like: a user could inject calls
# by writing them into a prompt.
_TEXT_HOLDERS: Final = frozenset(
    {
        "message",
        "messages",
        "parts",
        "tool_calls",
        "tool.result",
        "function",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
    }
)


# An object in one of these lists is a request, even if so much of it is missing that no shape
# matches.
_LISTS_OF_REQUESTS: Final = frozenset({"tool_calls", "toolCalls"})
# LangChain keeps what the model's client gave beside what it made of that; some record the first
# alone.
_COPIES: Final = "additional_kwargs"
_REQUEST_KEYS: Final = frozenset(
    {"function_call", "functionCall", "toolUse", "toolRequest", "tool_call"}
)
_ANSWER_KEYS: Final = frozenset({"result", "output", "response", "content"})
# not `call_recall_1`
_JOINED_IDS: Final = re.compile(r"call_[A-Za-z]*\d[A-Za-z0-9]*call_[A-Za-z0-9]+")
_OPENING: Final = ("[", "{")
_WRAPPERS_OF_RESULTS: Final = (*RESULT_WRAPPERS, "vercel_output")


@record
class ToolRequest:
    """A tool call that a model requested. `arguments` is a JSON value or `UNRECORDED`; `name` is ""
    where it was not recorded.

    Attributes:
        hosted: the model's provider, or its client within the model call, ran the tool.
        failed: whether that is known to have failed.
    """

    name: str
    call_id: str = ""
    arguments: Any = UNRECORDED
    hosted: bool = False
    failed: bool = False

    @property
    def identity(self) -> Hashable:
        """Equal for a request and its repetition in another message."""
        return self.call_id or (self.name, frozen(self.arguments))


Meaning = Literal["", "refused", "output"]


@record
class ToolResult:
    """What a tool returned for a call. `result` is a JSON value or `UNRECORDED`.

    Attributes:
        failed: whether a mark shows that the call failed.
        marked: whether there is a mark that shows whether it failed.
        meaning: what the text showed where it was not kept: that the framework refused the call, or
            that the request was the run's output.
    """

    call_id: str = ""
    name: str = ""
    result: Any = UNRECORDED
    failed: bool = False
    marked: bool = False
    meaning: Meaning = ""


Mention = ToolRequest | ToolResult


# Each shape and each list of requests has a key or a text with one of these in it; only escapes of
# JSON and Python could hide it. There is one expression for each beginning, because plain text is
# searched in a tenth of the time: most texts hold none of the beginnings.
_WORDS_OF_TOOLS: Final = re.compile(
    r"tool(?:_[cru]|_name(?:_\d|\\*[\"'])|-[cre]|[CNRU]|\.m|[\"'\\])"
)
_WORDS_OF_FUNCTIONS: Final = re.compile(r"unction(?:_[cr]|[CR]|[\"'\\])")
_WORDS_OF_CALLS: Final = re.compile(r"call(?:_id|_output|[\"'\\])")
_ESCAPES: Final = re.compile(r"\\(?:u00|[xNU0-7])")


def may_mention(text: str) -> bool:
    """Whether a text may hold a request or a result; searching takes a third of the time of
    decoding.
    """
    return bool(
        ("tool" in text and _WORDS_OF_TOOLS.search(text))
        or ("unction" in text and _WORDS_OF_FUNCTIONS.search(text))
        or ("call" in text and _WORDS_OF_CALLS.search(text))
        or ("\\" in text and _ESCAPES.search(text))
    )


def read_messages(value: Any, *, plain: bool = False) -> list[Mention]:
    """Every tool request and tool result in the messages, in order.

    Args:
        value: messages as an attribute holds them: JSON text, or lists and objects.
        plain: whether the value is already decoded by `decode`.
    """
    mentions: list[Mention] = []
    _read(value if plain else decode(value), "", 0, mentions)
    return mentions


def _read(value: Any, key: str, depth: int, mentions: list[Mention]) -> None:
    """Add the requests and results in a decoded value that was found under the key; recurses to
    `MAX_DEPTH` at most.
    """
    if isinstance(value, dict):
        _read_object(value, key, depth, mentions)
    elif isinstance(value, list):
        for item in value if depth < MAX_DEPTH else ():
            if isinstance(item, dict):
                _read_object(item, key, depth + 1, mentions)
            else:
                _read(item, key, depth + 1, mentions)
    elif isinstance(value, str):
        _read_text(value, key, depth, mentions)


def _read_object(value: dict[str, Any], key: str, depth: int, mentions: list[Mention]) -> None:
    """Add the request or result that an object is, or those in it."""
    if key == "trajectory":
        mentions += _trajectory(value)
        return
    shapes = _SHAPES.candidates(value, key)
    mention = _mention(value, key, shapes) if shapes or key in _LISTS_OF_REQUESTS else None
    if mention is not None:
        mentions.append(mention)
        return
    for name, part in value.items() if depth < MAX_DEPTH else ():
        if (
            name in CONTAINERS
            and (not isinstance(part, str) or part[:1] in _OPENING)
            and not (name == _COPIES and value.get("tool_calls"))
        ):
            _read(part, name, depth + 1, mentions)


def _read_text(text: str, key: str, depth: int, mentions: list[Mention]) -> None:
    """Add what a text holds that is JSON where messages may be written so."""
    if text[:1] in _OPENING and (key in _TEXT_HOLDERS or (key == "content" and depth == 1)):
        messages = decode(text, literals=False)
        if depth < MAX_DEPTH and not isinstance(messages, str):
            _read(messages, key, depth + 1, mentions)


def _trajectory(value: dict[str, Any]) -> Iterator[Mention]:
    """The calls of a program of DSPy, numbered: `tool_name_0`, `tool_args_0`, `observation_0`."""
    for key, name in value.items():
        number = key.removeprefix("tool_name_")
        if number != key and isinstance(name, str):
            yield ToolRequest(name, "", value.get(f"tool_args_{number}", UNRECORDED))
            observation = value.get(f"observation_{number}")
            if isinstance(observation, str) and observation.startswith("Execution error in "):
                yield ToolResult("", name, failed=True, marked=True)
            elif observation is not None:
                yield ToolResult("", name, observation)


def _mention(value: dict[str, Any], key: str, shapes: _Shapes) -> Mention | None:
    """Read an object as a result or else a request, since some results also match a shape of a
    request; None if it is neither.

    Args:
        value: the object.
        key: the one under which it was found.
        shapes: those that it may have.
    """
    for shape in shapes:
        if shape.matches(value):
            return shape.read(value)
    # A request without a usable name still counts as one: then calls are known to be missing.
    if key in _LISTS_OF_REQUESTS and _ANSWER_KEYS.isdisjoint(value):
        return ToolRequest("")
    # They are keys of shapes, so an object that may have no shape has none of them.
    is_hollow = not _REQUEST_KEYS.isdisjoint(value) and any(
        isinstance(value[name], dict) and value[name] for name in _REQUEST_KEYS & value.keys()
    )
    return ToolRequest("") if is_hollow else None


class _ShapeReader:
    """Reads objects of one shape; the functions that find its parts are made once.

    Attributes:
        number: its place in the order of the tables.
        read: returns the request or result that an object of the shape is.
    """

    def __init__(self, number: int, shape: MessageShape) -> None:
        self.number: Final = number
        self.shape: Final = shape
        self.read: Final[Callable[[dict[str, Any]], Mention]] = (
            self._result if shape.is_result else self._request
        )
        self._needs: Final = [first_of(path) for path in shape.needs]
        self._lacks: Final = [first_of(path) for path in shape.lacks]
        self._call_id: Final = first_of(*shape.call_id)
        self._name: Final = first_of(*shape.name)
        self._payload: Final = first_of(*shape.payload)
        self._errors: Final = [first_of(path) for path in shape.error]
        self._hosted_types: Final = HOSTED_TYPES | HOSTED_TOOLS

    def matches(self, value: dict[str, Any]) -> bool:
        """Whether an object that was found where the shape may stand has it."""
        for name, texts in self.shape.equals:
            if value.get(name, "") not in texts:
                return False
        for needed in self._needs:
            if needed(value) is None:
                return False
        if self.shape.text and not isinstance(self._payload(value), str):
            return False
        return not self._lacks or all(lacked(value) is None for lacked in self._lacks)

    def _request(self, value: dict[str, Any]) -> ToolRequest:
        payload = self._payload(value)
        arguments = UNRECORDED if payload is None else decode_text(payload)
        call_id = known_id(_text(self._call_id(value)))
        # OpenInference for JavaScript joins the parallel calls of a streamed answer:
        # `call_1call_2`, `{…}{…}` and the names.
        if ("call_" in call_id[1:] and _JOINED_IDS.fullmatch(call_id)) or _is_joined(arguments):
            return ToolRequest("")
        name = _text(self._name(value))
        hosted = (
            name in HOSTED_TOOLS
            or _text(value.get("type")) in self._hosted_types
            or (
                not HOSTED_MARKS.isdisjoint(value)
                and any(value.get(mark) is True for mark in HOSTED_MARKS)
            )
        )
        failed = True in [_has_failed(error(value)) for error in self._errors]
        return ToolRequest(name, call_id, arguments, hosted, failed)

    def _result(self, value: dict[str, Any]) -> ToolResult:
        payload = self._payload(value)
        result = UNRECORDED if payload is None else decode_text(payload)
        failed = marked = False
        if isinstance(result, (dict, list)):  # no wrapper of results is text
            unwrapped = unwrap_decoded(result, _WRAPPERS_OF_RESULTS)
            result, failed, marked = unwrapped.value, unwrapped.failed, unwrapped.marked
        for error in self._errors:
            mark = _has_failed(error(value))
            failed, marked = failed or mark is True, marked or mark is not None
        call_id, name = known_id(_text(self._call_id(value))), _text(self._name(value))
        return ToolResult(call_id, name, result, failed, marked)


_Shapes = tuple[_ShapeReader, ...]
_NUMBER: Final = attrgetter("number")


def _index_keys(shape: MessageShape) -> list[tuple[str, str]]:
    """A key that every object of the shape has, with each text that it may hold ("": any)."""
    for name, texts in shape.equals:
        if "" not in texts:  # such a key may also be missing
            return [(name, text) for text in texts]
    return [(shape.needs[0].split(".")[0], "")]


class _ShapeIndex:
    """Shapes indexed by a key that an object of that shape must have, and where possible by the
    text under it.

    There are two dozen shapes, and most objects in a message match none; trying each shape would be
    most of the work.
    """

    def __init__(self, shapes: Sequence[MessageShape]) -> None:
        self._by_key: Final[dict[str, _Shapes]] = {}
        self._within: Final[dict[str, _Shapes]] = {}
        by_text: dict[str, dict[str, _Shapes]] = {}
        for number, shape in enumerate(shapes):
            reader = (_ShapeReader(number, shape),)
            if shape.within:
                self._within[shape.within] = self._within.get(shape.within, ()) + reader
                continue
            for key, text in _index_keys(shape):
                shapes_of = by_text.setdefault(key, {}) if text else self._by_key
                shapes_of[text or key] = shapes_of.get(text or key, ()) + reader
        self._by_text: Final = tuple(by_text.items())
        self._keys: Final = frozenset(self._by_key)

    def candidates(self, value: dict[str, Any], key: str) -> _Shapes:
        """The shapes that an object under the key may have, in the order of the tables: the first
        that matches counts.
        """
        shapes = self._within.get(key, ())
        for name, shapes_of in self._by_text:
            if name in value and isinstance(text := value[name], str) and text in shapes_of:
                shapes = _in_order_of_tables(shapes, shapes_of[text])
        if not self._keys.isdisjoint(value):
            for name in self._keys & value.keys():
                shapes = _in_order_of_tables(shapes, self._by_key[name])
        return shapes


def _in_order_of_tables(shapes: _Shapes, further: _Shapes) -> _Shapes:
    return tuple(sorted(shapes + further, key=_NUMBER)) if shapes else further


_SHAPES: Final = _ShapeIndex((*RESULTS, *REQUESTS))


def _is_joined(arguments: Any) -> bool:
    """Whether the arguments are several JSON objects in one text; code may also hold `}{`, but
    seldom begins with `{`.
    """
    return (
        isinstance(arguments, str)
        and "}{" in arguments
        and arguments[0] == "{"
        and arguments[-1] == "}"
    )


_FAILED: Final = frozenset({"error", "true", "tool-error", "error-text", "error-json", "failed"})
_SUCCEEDED: Final = frozenset({"success", "false", "text", "json"})


def _has_failed(status: Any) -> bool | None:
    """Whether a status field marks a result as failed; None if it shows neither."""
    if isinstance(status, bool):
        return status
    if isinstance(status, dict):  # the error itself
        return True
    text = status.lower() if isinstance(status, str) else ""
    return True if text in _FAILED else False if text in _SUCCEEDED else None


def _text(value: Any) -> str:
    """A name or an id as text; "" for any other value."""
    return str(value) if isinstance(value, (str, int)) else ""


def known_id(text: Any) -> str:
    """A call id without the quotes that some write around it; "" for placeholders and for anything
    but text.
    """
    if not isinstance(text, str) or text in NO_ID:
        return ""
    return text[1:-1] if text[0] == '"' == text[-1] and len(text) > 2 else text


_POSITIONAL_ID: Final = re.compile(r"(.+)_\d+", re.DOTALL)
_AnyMention = TypeVar("_AnyMention", bound=Mention)


def without_positional_id(mention: _AnyMention) -> _AnyMention:
    """The mention without an id that consists of the tool's name and a number; a result gets the
    name from it.
    """
    match = _POSITIONAL_ID.fullmatch(mention.call_id)
    if match is None or mention.name not in ("", match[1]):
        return mention
    return replace(mention, name=match[1], call_id="")


def nested(family: Mapping[str, Any]) -> Any:
    """Rebuild a flattened family of attributes: `0.role`, `0.tool_calls.1.name` become a list of
    objects.

    Levels whose keys are all digits become lists; indices that are missing (attribute limits) close
    up.
    """
    root: dict[str, Any] = {}
    # where objects are whose first key is a number, outer ones first
    numbered: list[tuple[dict[str, Any], str]] = []
    for key, value in family.items():
        node, name = root, ""
        for part in key.split(".", MAX_DEPTH):
            child = node.get(name)
            if not isinstance(child, dict):
                child = node[name] = {}
                if part.isdecimal():
                    numbered.append((node, name))
            node, name = child, part
        node[name] = value if isinstance(value, str) else as_json(value)
    for node, name in reversed(numbered):
        child = node[name]
        if isinstance(child, dict) and all(map(_is_number, child)):
            node[name] = [child[number] for number in sorted(child, key=_in_order)]
    return root.get("", {})


def messages_by_number(
    parts: Sequence[tuple[str, Any]], *, after: str = ""
) -> dict[str, dict[str, Any]] | None:
    """The parts of flattened messages by their numbers, in order; None if a part has no number, or
    one that is not after this.
    """
    messages: dict[str, dict[str, Any]] = {}
    for key, value in parts:
        number, _, part = key.partition(".")
        message = messages.get(number)
        if message is None and _is_number(number) and _in_order(number) > _in_order(after):
            message = messages[number] = {}
        if message is None or not part:
            return None
        message[part] = value
    return {number: messages[number] for number in sorted(messages, key=_in_order)}


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii()


def _in_order(number: str) -> tuple[int, str]:
    return len(number), number


# Keys under which an object holds messages, each with another key that it must have: LangChain's
# runs, OpenAI's responses, the arguments of smolagents' `run`.
_MESSAGE_KEYS: Final = (
    ("messages", ""),
    ("choices", ""),
    ("generations", ""),
    ("inputs", "tags"),
    ("outputs", "tags"),
    ("outputs", "kwargs"),
    ("output", "parallel_tool_calls"),
    ("task", "additional_args"),
    ("input", "model"),
    ("raw", "tasks_output"),
    ("contents", "model"),
)
_ASKING: Final = frozenset({"user", "human", "system", "developer"})
# An object with one of these keys and no other only wraps the input: BeeAI's agents, DSPy's ReAct.
_ENVELOPES: Final = frozenset({"input", "input_args"})


def message_text(value: Any, roles: frozenset[str], *, last: bool) -> Any:
    """The text of the last (or first) message with one of these roles that has text.

    Without such a message: "" if one of them is explicitly empty, else the value itself, or None if
    that is one message of which only the role is recorded, as where content is not captured. A
    question before a message without text, such as a request for a tool that waits for an approval,
    is no answer.

    Args:
        value: decoded messages in any format, or a plain answer, which is returned as it is.
        roles: lower-case roles; none: any role.
        last: whether to search from the end.
    """
    messages = value
    if isinstance(value, dict):
        if value.keys() == {"role"}:
            return None
        if len(value) == 1 and value.keys() <= _ENVELOPES:
            return message_text(next(iter(value.values())), roles, last=last)
        messages = next(
            (
                value[key]
                for key, mark in _MESSAGE_KEYS
                if key in value and (not mark or mark in value)
            ),
            [value],
        )
        if isinstance(messages, dict):
            return message_text(messages, roles, last=last)
        if isinstance(messages, str):
            return messages
    if not isinstance(messages, list):
        return value
    text = _found_text(reversed(messages) if last else messages, roles, last=last)
    return value if text is None else text


def _found_text(messages: Iterable[Any], roles: frozenset[str], *, last: bool) -> str | None:
    """The first text; "" if none has text and one of the messages is explicitly empty, else
    None.
    """
    empty = is_silent = False
    for message in messages:
        text: Any = None
        if isinstance(message, list):
            text = message_text(message, roles, last=last)
        elif isinstance(message, dict) and (
            _role(message) in roles if roles else not is_silent or _role(message) not in _ASKING
        ):
            text = _content_text(message) or ("" if _is_empty(message) else None)
        if isinstance(text, str) and text:
            return text
        empty, is_silent = empty or text == "", True
    return "" if empty else None


def _role(message: dict[str, Any]) -> str:
    """The lower-case role of a message, also of one inside an envelope."""
    inner = message.get("kwargs", message.get("data", message.get("message")))
    message_itself = inner if isinstance(inner, dict) else message
    return str(
        message_itself.get("role", message.get("role", message_itself.get("type", "")))
    ).lower()


def _is_empty(message: dict[str, Any]) -> bool:
    """Whether the message holds an empty text and nothing else, such as a tool call."""
    parts = message.get("parts")
    if isinstance(parts, list):
        return bool(parts) and all(
            isinstance(part, dict) and part.get("type") == "text" for part in parts
        )
    return message.get("content") == "" and not any(
        message.get(key) for key in ("tool_calls", "function_call")
    )


def _content_text(message: Any, depth: int = 0) -> str:
    """The text of a message, of all its text parts joined by line breaks."""
    if isinstance(message, str):
        return message
    if isinstance(message, list) and depth < 8:
        return "\n".join(filter(None, (_content_text(part, depth + 1) for part in message)))
    if not isinstance(message, dict) or depth >= 8:
        return ""
    for key in ("text", "content", "parts", "message", "kwargs", "data", "message.content"):
        text = _content_text(message[key], depth + 1) if key in message else ""
        if text:
            return text
    return ""
