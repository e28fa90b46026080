"""Read tool calls, their results and texts out of recorded messages in any of the formats of `message_formats`.

Never raises; looks no deeper than `MAX_DEPTH`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from otel_eval.conventions.message_formats import CONTAINERS, REQUESTS, RESULT_WRAPPERS, RESULTS, MessageShape
from otel_eval.conventions.values import MAX_DEPTH, decode, decode_text, unwrap_decoded, value_at
from otel_eval.model import UNRECORDED

NO_ID: Final = frozenset({"", "<not specified>", "unknown", "None", "null"})
# Keys whose text may be messages as JSON: events and flattened families write them so. The content of a message proper is never
# parsed for calls, whatever it looks like: a user could inject calls by writing them into a prompt.
_TEXT_HOLDERS: Final = frozenset(
    {"message", "messages", "parts", "tool_calls", "tool.result", "gen_ai.input.messages", "gen_ai.output.messages"}
)


# An object in one of these lists is a request, even if so much of it is missing that no shape matches.
_LISTS_OF_REQUESTS: Final = frozenset({"tool_calls", "toolCalls"})
_REQUEST_KEYS: Final = ("function_call", "functionCall", "toolUse", "toolRequest", "tool_call")
_ANSWER_KEYS: Final = frozenset({"result", "output", "response", "content"})
_JOINED_IDS: Final = re.compile(r"call_[A-Za-z]*\d[A-Za-z0-9]*call_[A-Za-z0-9]+")  # not `call_recall_1`
_WRAPPERS_OF_RESULTS: Final = (*RESULT_WRAPPERS, "vercel_output")


@dataclass(slots=True)  # neither this nor the next is frozen: messages hold many, and they are made at a third of the cost
class ToolRequest:
    """A tool call that a model requested. `arguments` is a JSON value or `UNRECORDED`; `name` is "" where it was not recorded."""

    name: str
    call_id: str = ""
    arguments: Any = UNRECORDED


@dataclass(slots=True)
class ToolResult:
    """What a tool returned for a call. `result` is a JSON value or `UNRECORDED`."""

    call_id: str = ""
    name: str = ""
    result: Any = UNRECORDED
    failed: bool = False


def read_messages(value: Any, *, plain: bool = False) -> list[ToolRequest | ToolResult]:
    """Every tool request and tool result in the messages, in order.

    Args:
        value: messages as an attribute holds them: JSON text, or lists and objects.
        plain: whether the value is already decoded by `decode`.
    """
    found: list[ToolRequest | ToolResult] = []
    # Entries: (value, key it was found under, depth). An explicit stack, since hostile nesting could exhaust recursion.
    stack: list[tuple[Any, str, int]] = [(value if plain else decode(value), "", 0)]
    while stack:
        each, key, depth = stack.pop()
        if isinstance(each, list):
            if depth < MAX_DEPTH:
                stack += [(one, key, depth + 1) for one in reversed(each)]
        elif isinstance(each, dict):
            mention = _mention(each, key)
            if mention is not None:
                found.append(mention)
            elif depth < MAX_DEPTH:
                stack += [(each[k], k, depth + 1) for k in reversed(each) if k in CONTAINERS]
        elif isinstance(each, str) and (key in _TEXT_HOLDERS or (key == "content" and depth == 1)):
            stack.extend(_held_in_text(each, key, depth))
    return found


def _held_in_text(text: str, key: str, depth: int) -> Iterator[tuple[Any, str, int]]:
    """The messages in a text that is a JSON list or object, as an entry for the stack."""
    if depth < MAX_DEPTH and text[:1] in ("[", "{"):
        value = decode(text, literals=False)
        if not isinstance(value, str):
            yield value, key, depth + 1


def _mention(value: dict[str, Any], key: str) -> ToolRequest | ToolResult | None:
    """The request or result that an object is; results first, since some also match a shape of a request."""
    candidates = _SHAPES.candidates(value, key)
    for shape in candidates:
        if _matches(shape, value):
            return _result(value, shape) if shape.is_result else _request(value, shape)
    # A request without a usable name still counts as one: then calls are known to be missing.
    if key in _LISTS_OF_REQUESTS and _ANSWER_KEYS.isdisjoint(value):
        return ToolRequest("")
    # An object without candidates has none of these keys, since they are keys of shapes.
    hollow = bool(candidates) and any(isinstance(value.get(each), dict) and value[each] for each in _REQUEST_KEYS)
    return ToolRequest("") if hollow else None


def _matches(shape: MessageShape, value: dict[str, Any]) -> bool:
    """Whether an object that was found where the shape may stand has it."""
    for name, texts in shape.equals:
        if value.get(name, "") not in texts:
            return False
    return all(value_at(value, path) is not None for path in shape.needs)


def _index_keys(shape: MessageShape) -> list[tuple[str, str]]:
    """A key that every object of the shape has, with each text that it may hold ("": any)."""
    for name, texts in shape.equals:
        if "" not in texts:  # such a key may also be missing
            return [(name, text) for text in texts]
    return [(shape.needs[0].split(".")[0], "")]


class _ShapeIndex:
    """Shapes indexed by a key that an object of that shape must have, and where possible by the text under it.

    There are two dozen shapes, and most objects in a message match none; trying each shape would be most of the work.
    """

    def __init__(self, shapes: Sequence[MessageShape]) -> None:
        self._shapes: Final = shapes
        self._by_key: Final[dict[str, list[int]]] = {}
        self._by_text: Final[dict[str, dict[str, list[int]]]] = {}
        self._within: Final[dict[str, list[int]]] = {}
        for number, shape in enumerate(shapes):
            if shape.within:
                self._within.setdefault(shape.within, []).append(number)
                continue
            for key, text in _index_keys(shape):
                numbers = self._by_text.setdefault(key, {}).setdefault(text, []) if text else self._by_key.setdefault(key, [])
                numbers.append(number)

    def candidates(self, value: dict[str, Any], key: str) -> Sequence[MessageShape]:
        """The shapes that the object may have, in the order of the tables, since it may have several; `key` holds it."""
        numbers = [*self._within[key]] if key in self._within else []
        for name, numbers_of in self._by_text.items():
            text = value.get(name)
            if isinstance(text, str) and text in numbers_of:
                numbers += numbers_of[text]
        if not self._by_key.keys().isdisjoint(value):
            numbers += [number for held in self._by_key.keys() & value.keys() for number in self._by_key[held]]
        return [self._shapes[number] for number in sorted(numbers)] if numbers else ()


_SHAPES: Final = _ShapeIndex((*RESULTS, *REQUESTS))


def _request(value: dict[str, Any], shape: MessageShape) -> ToolRequest:
    payload = _first(value, shape.payload)
    arguments = UNRECORDED if payload is None else decode_text(payload)
    call_id = known_id(_text(value, shape.call_id))
    # OpenInference for JavaScript joins the parallel calls of a streamed answer: `call_1call_2`, `{…}{…}` and the names.
    if _JOINED_IDS.fullmatch(call_id) or _is_joined(arguments):
        return ToolRequest("")
    return ToolRequest(_text(value, shape.name), call_id, arguments)


def _is_joined(arguments: Any) -> bool:
    """Whether they are several JSON objects in one text; code as text may hold `}{` as well, but seldom begins with `{`."""
    return isinstance(arguments, str) and arguments[:1] == "{" and arguments[-1:] == "}" and "}{" in arguments


def _result(value: dict[str, Any], shape: MessageShape) -> ToolResult:
    payload = _first(value, shape.payload)
    taken = unwrap_decoded(decode_text(payload), _WRAPPERS_OF_RESULTS)
    failed = taken.failed or any(_is_failure(value_at(value, path)) for path in shape.error)
    return ToolResult(
        call_id=known_id(_text(value, shape.call_id)),
        name=_text(value, shape.name),
        result=UNRECORDED if payload is None else taken.value,
        failed=failed,
    )


def _is_failure(status: Any) -> bool:
    """Whether a status field marks a result as failed."""
    return status is True or (
        isinstance(status, str) and status.lower() in ("error", "true", "tool-error", "error-text", "error-json")
    )


def _first(value: dict[str, Any], paths: Iterable[str]) -> Any:
    """The value at the first path where there is one, or None."""
    for path in paths:
        inner = value_at(value, path)
        if inner is not None:
            return inner
    return None


def _text(value: dict[str, Any], paths: Iterable[str]) -> str:
    """The same as text; "" for none."""
    inner = _first(value, paths)
    return str(inner) if isinstance(inner, (str, int)) else ""


def known_id(text: Any) -> str:
    """A call id without the quotes that some write around it; "" for placeholders and for anything but text."""
    if not isinstance(text, str) or text in NO_ID:
        return ""
    return text[1:-1] if text[0] == '"' == text[-1] and len(text) > 2 else text


_POSITIONAL_ID: Final = re.compile(r"(.+)_\d+", re.DOTALL)
_Mention = TypeVar("_Mention", ToolRequest, ToolResult)


def without_positional_id(mention: _Mention) -> _Mention:
    """The mention without an id that consists of the tool's name and a number; a result gets the name from it."""
    found = _POSITIONAL_ID.fullmatch(mention.call_id)
    if found is None or mention.name not in ("", found[1]):
        return mention
    return replace(mention, name=found[1], call_id="")


def nested(flat: Mapping[str, Any], prefix: str) -> Any:
    """Rebuild a flattened family of attributes: `{p}0.role`, `{p}0.tool_calls.1.name` become a list of objects.

    Levels whose keys are all digits become lists; indices that are missing (attribute limits) close up.
    """
    root: dict[str, Any] = {}
    for key in flat:
        if key.startswith(prefix):
            _place(root, key[len(prefix):].split("."), flat[key])  # fmt: skip
    return _listed(root, 0)


def _place(node: dict[str, Any], parts: list[str], value: Any) -> None:
    """Set a value in nested dictionaries; levels beyond `MAX_DEPTH` are left out."""
    for part in parts[:-1][:MAX_DEPTH]:
        child = node.get(part)
        if not isinstance(child, dict):
            child = node[part] = {}
        node = child
    node[parts[-1]] = value


def _listed(node: Any, depth: int) -> Any:
    """Turn dictionaries whose keys are all digits into lists, in the order of the numbers."""
    if not isinstance(node, dict) or depth > MAX_DEPTH + 2:
        return node
    read = {key: _listed(value, depth + 1) if isinstance(value, dict) else value for key, value in node.items()}
    if all(map(_is_number, read)) and read:
        return [read[key] for key in sorted(read, key=lambda text: (len(text), text))]
    return read


def _is_number(text: str) -> bool:
    return text.isdecimal() and text.isascii()


# Keys under which an object holds messages, each with a key that must stand beside it: LangChain's runs, OpenAI's responses,
# the arguments of smolagents' `run`.
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

    Without such a message: "" if one of them is explicitly empty, else the value itself. A question before a message without
    text, such as a request for a tool that waits for an approval, is no answer.

    Args:
        value: decoded messages in any format, or a plain answer, which is returned as it is.
        roles: lower-case roles; none: any role.
        last: whether to search from the end.
    """
    messages = value
    if isinstance(value, dict):
        if len(value) == 1 and value.keys() <= _ENVELOPES:
            return message_text(next(iter(value.values())), roles, last=last)
        messages = next((value[key] for key, mark in _MESSAGE_KEYS if key in value and (not mark or mark in value)), [value])
        if isinstance(messages, dict):
            return message_text(messages, roles, last=last)
        if isinstance(messages, str):
            return messages
    if not isinstance(messages, list):
        return value
    found = _found_text(reversed(messages) if last else messages, roles, last=last)
    return value if found is None else found


def _found_text(messages: Iterable[Any], roles: frozenset[str], *, last: bool) -> str | None:
    """The first text; "" if none has text and one of the messages is explicitly empty, else None."""
    empty = is_silent = False
    for message in messages:
        found: Any = None
        if isinstance(message, list):
            found = message_text(message, roles, last=last)
        elif isinstance(message, dict) and (_role(message) in roles if roles else not is_silent or _role(message) not in _ASKING):
            found = _content_text(message) or ("" if _is_empty(message) else None)
        if isinstance(found, str) and found:
            return found
        empty, is_silent = empty or found == "", True
    return "" if empty else None


def _role(message: dict[str, Any]) -> str:
    """The lower-case role of a message, also of one inside an envelope."""
    inner = message.get("kwargs", message.get("data", message.get("message")))
    held = inner if isinstance(inner, dict) else message
    return str(held.get("role", message.get("role", held.get("type", "")))).lower()


def _is_empty(message: dict[str, Any]) -> bool:
    """Whether the message holds an empty text and nothing else, such as a tool call."""
    parts = message.get("parts")
    if isinstance(parts, list):
        return bool(parts) and all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
    return message.get("content") == "" and not any(message.get(key) for key in ("tool_calls", "function_call"))


def _content_text(message: Any, depth: int = 0) -> str:
    """The text of a message, of all its text parts joined by line breaks."""
    if isinstance(message, str):
        return message
    if isinstance(message, list) and depth < 8:
        return "\n".join(filter(None, (_content_text(each, depth + 1) for each in message)))
    if not isinstance(message, dict) or depth >= 8:
        return ""
    for key in ("text", "content", "parts", "message", "kwargs", "data", "message.content"):
        text = _content_text(message[key], depth + 1) if key in message else ""
        if text:
            return text
    return ""
