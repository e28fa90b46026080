"""Trajectories of runs that were never traced, from the messages of the conversation.

The messages may be those of OpenAI's Chat Completions and Responses, of Anthropic's Messages and of
LangChain, as JSON or as the objects of these packages. Requests of one message are parallel; no
call has a time; a call without an answer has no result.
"""

from __future__ import annotations

import json
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

from otel_eval.conventions.messages import (
    Mention,
    ToolRequest,
    ToolResult,
    message_text,
    read_messages,
)
from otel_eval.errors import InputError
from otel_eval.model import UNRECORDED, ToolCall, ToolError, Trajectory
from otel_eval.trajectory.tool_calls import in_an_object

_ASKING: Final = frozenset({"user", "human"})
_ANSWERING: Final = frozenset({"assistant", "ai", "model"})
_ROLES: Final = _ASKING | _ANSWERING | {"system", "developer", "tool", "function"}
# Items of OpenAI's Responses that a model made; those that follow one another are one answer.
_RESULT_ITEMS: Final = ("_output", "approval_response")
_HEX: Final = "016x"


def trajectory_from_messages(messages: Any, *, agent: str = "") -> Trajectory:
    """Return the run that the messages of a conversation record.

    Args:
        messages: a list of messages in one of the forms, or an object with a list as `messages`,
            such as the state of a LangGraph graph. Requests are paired with the answers that
            follow them: by id, else by the tool's name, else in order.
        agent: the agent's name, which messages do not record.

    Raises:
        InputError: it is no list of messages.

    >>> run = trajectory_from_messages(
    ...     [
    ...         {"role": "user", "content": "Weather in Paris?"},
    ...         {
    ...             "role": "assistant",
    ...             "tool_calls": [
    ...                 {
    ...                     "id": "call_1",
    ...                     "type": "function",
    ...                     "function": {"name": "weather", "arguments": '{"city": "Paris"}'},
    ...                 }
    ...             ],
    ...         },
    ...         {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
    ...         {"role": "assistant", "content": "It is sunny."},
    ...     ]
    ... )
    >>> [(call.name, call.arguments, call.result) for call in run.calls]
    [('weather', {'city': 'Paris'}, 'sunny')]
    """
    try:
        listed = [_as_json(message) for message in _listed(messages)]
    except RecursionError:
        raise InputError("the messages are nested too deeply") from None
    if not listed or not all(map(is_message, listed)):
        raise InputError("not a list of messages; give each message a role or a type")
    calls, unknown = _ConversationCalls(), ""
    last_of_calls, model_calls = -1, 0
    for first, end in _answers(listed):
        answer = listed[first:end]
        model_calls += any(map(_is_made_by_model, answer))
        mentions = _each_once(read_messages(answer, plain=True))
        requests = [mention for mention in mentions if isinstance(mention, ToolRequest)]
        if not all(request.name for request in requests):
            unknown = "a tool was called whose name is not in the messages"
        message = format(first + 1, _HEX) if len(requests) > 1 else ""
        for mention in mentions:
            if isinstance(mention, ToolResult):
                calls.answer(mention)
            elif mention.name:
                calls.add(mention, message)
        if mentions:
            last_of_calls = end - 1
    digest = blake2b(
        json.dumps(listed, sort_keys=True, default=str).encode("utf-8", "backslashreplace"),
        digest_size=16,
    ).hexdigest()
    return Trajectory(
        calls=tuple(calls.made(agent)),
        trace_id=digest,
        span_id=digest[:16],
        agent=agent,
        model_calls=model_calls,
        input=_text(listed, _ASKING, last=False),
        output=_text(listed[last_of_calls + 1 :], _ANSWERING, last=True),
        calls_unknown=unknown,
    )


def is_message(value: Any) -> bool:
    """Whether a JSON value is a message, or an item of OpenAI's Responses."""
    if not isinstance(value, dict):
        return False
    role, kind = value.get("role"), value.get("type")
    if isinstance(role, str):
        return role in _ROLES
    if value.get("lc") == 1 and isinstance(value.get("kwargs"), dict):  # LangChain's `dumps`
        return True
    return isinstance(kind, str) and (
        kind in _ROLES or kind in ("message", "reasoning") or "_call" in kind or kind == "remove"
    )


def is_conversation(value: Any) -> bool:
    """Whether a JSON value is a list of messages, or an object with one as `messages`."""
    listed = value.get("messages") if isinstance(value, dict) else value
    return isinstance(listed, list) and bool(listed) and all(map(is_message, listed))


def _listed(messages: Any) -> Sequence[Any]:
    if isinstance(messages, Mapping):
        messages = messages.get("messages")
    if isinstance(messages, str | bytes) or not isinstance(messages, Sequence):
        return ()
    return messages


def _as_json(message: Any) -> Any:
    """A message as plain JSON values; the objects of the packages write themselves."""
    if isinstance(message, Mapping):
        return {str(key): _as_json(value) for key, value in message.items()}
    if isinstance(message, list | tuple):
        return [_as_json(value) for value in message]
    write = getattr(message, "model_dump", None) or getattr(message, "to_dict", None)
    return write() if callable(write) and not isinstance(message, type) else message


def _answers(listed: Sequence[Mapping[str, Any]]) -> Iterator[tuple[int, int]]:
    """Where messages begin and end; consecutive items of one answer of the Responses API are one
    message.
    """
    first = 0
    while first < len(listed):
        end = first + 1
        if _is_made_item(listed[first]):
            while end < len(listed) and _is_made_item(listed[end]):
                end += 1
        yield first, end
        first = end


def _is_made_item(value: Mapping[str, Any]) -> bool:
    """Whether an item of OpenAI's Responses was made by the model."""
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "message":
        return value.get("role") in _ANSWERING
    return kind == "reasoning" or ("_call" in kind and not kind.endswith(_RESULT_ITEMS))


def _is_made_by_model(value: Mapping[str, Any]) -> bool:
    inner = value.get("kwargs", value.get("data"))
    message = inner if isinstance(inner, dict) and "role" not in value else value
    role = message.get("role", message.get("type", value.get("type")))
    return role in _ANSWERING or _is_made_item(value)


def _each_once(mentions: Sequence[Mention]) -> list[Mention]:
    """The mentions of one message, without requests that it holds in two forms."""
    ids = set[str]()
    unique: list[Mention] = []
    for mention in mentions:
        if isinstance(mention, ToolRequest) and mention.call_id:
            if mention.call_id in ids:
                continue
            ids.add(mention.call_id)
        unique.append(mention)
    return unique


def _text(listed: Sequence[Any], roles: frozenset[str], *, last: bool) -> Any:
    """The first or last text of one of the roles, or `UNRECORDED`."""
    text = message_text(list(listed), roles, last=last) if listed else None
    return text if isinstance(text, str) and text else UNRECORDED


class _ConversationCalls:
    """The requests of a conversation, each with its answer."""

    def __init__(self) -> None:
        self._requests: list[tuple[ToolRequest, str]] = []
        self._answers: dict[int, ToolResult] = {}
        # numbers of requests that are not answered yet, by id and by name
        self._by_id: defaultdict[str, deque[int]] = defaultdict(deque)
        self._by_name: defaultdict[str, deque[int]] = defaultdict(deque)
        self._open: deque[int] = deque()

    def add(self, request: ToolRequest, message: str) -> None:
        """Add a request of a message."""
        number = len(self._requests)
        self._requests.append((request, message))
        if request.call_id:
            self._by_id[request.call_id].append(number)
        self._by_name[request.name].append(number)
        self._open.append(number)

    def answer(self, result: ToolResult) -> None:
        """Give an answer to the first open request that it fits."""
        if result.call_id and result.call_id in self._by_id:
            numbers = self._by_id[result.call_id]
        elif result.call_id:
            return  # of a request before the list began
        else:
            numbers = self._by_name[result.name] if result.name else self._open
        while numbers and numbers[0] in self._answers:
            numbers.popleft()
        if numbers:
            self._answers[numbers.popleft()] = result

    def made(self, agent: str) -> Iterator[ToolCall]:
        """The calls in order."""
        for number, (request, message) in enumerate(self._requests):
            answer = self._answers.get(number)
            has_failed = request.failed or (answer is not None and answer.failed)
            yield ToolCall(
                name=request.name,
                arguments=in_an_object(request.arguments),
                result=UNRECORDED if answer is None else answer.result,
                error=ToolError("_OTHER") if has_failed else None,
                call_id=request.call_id,
                agent_path=(agent,) if agent else (),
                failure_unknown=not has_failed and (answer is None or not answer.marked),
                message=message,
                refusal=None if has_failed else False,
            )
