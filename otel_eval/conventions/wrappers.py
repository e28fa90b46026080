"""Take arguments and results out of the envelopes that frameworks put around them.

Knows shapes, as data; knows no attribute name. A shape is recognised by its keys alone, so a table names the ones
its instrumentation uses, and a tool whose real argument is called `kwargs` is safe everywhere else. A table may also
describe a shape of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from otel_eval.conventions.decode import MAX_DEPTH, decode, literal, text_of
from otel_eval.model import UNRECORDED

__all__ = ["RESULT_WRAPPERS", "TEXT_WRAPPERS", "WRAPPERS", "Taken", "Wrapper", "by_name", "unwrap"]

_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Wrapper:
    """An object that only wraps a value.

    Attributes:
        needs: keys it must have, each with a type of its value or with texts that it may be, separated by `|` ("*": any).
        only: every key it may have; None: any.
        take: where the value is, dotted; the first that is there and not null.
        call_id, error: where they are, dotted, or "".
        failed: the text (in any case) that `error` has for a failure.
    """

    needs: tuple[tuple[str, str | type], ...]
    take: tuple[str, ...]
    only: frozenset[str] | None = None
    call_id: str = ""
    error: str = ""
    failed: str = "error"


@dataclass(slots=True)
class Taken:
    """What was inside, and what the wrappers said on the way; `positional` are arguments of a Python call without names."""

    value: Any
    call_id: str = ""
    failed: bool = False
    positional: tuple[Any, ...] = ()


_PYTHON_CALL: Final = frozenset({"args", "kwargs", "sanitize_inputs_outputs", "self", "tags", "metadata"})

WRAPPERS: Final[dict[str, Wrapper]] = {
    # Function wrappers record the Python call: smolagents, LlamaIndex, Traceloop's decorators.
    "python_call": Wrapper((("kwargs", dict), ("args", list)), ("kwargs",), only=_PYTHON_CALL),
    "kwargs": Wrapper((("kwargs", dict),), ("kwargs",), only=frozenset({"kwargs"})),
    # LangChain callbacks: on_tool_start(serialized, input_str, inputs=…).
    "langchain_tool_start": Wrapper((("input_str", _ANY),), ("inputs", "input_str"), call_id="kwargs.tool_call_id"),
    "langchain_input": Wrapper((("input", str),), ("input",), only=frozenset({"input"})),
    "langchain_output": Wrapper((("output", _ANY),), ("output",), only=frozenset({"output", "kwargs", "tags", "metadata"})),
    # BeeAI's `Tool.run(input, options)`.
    "beeai_input": Wrapper((("input", _ANY), ("options", _ANY)), ("input",), only=frozenset({"input", "options"})),
    # A LangChain message as `dumps`, `message_to_dict` and `model_dump` write it.
    "langchain_constructor": Wrapper(
        (("lc", "1"), ("kwargs", dict)), ("kwargs.content",), call_id="kwargs.tool_call_id", error="kwargs.status"
    ),
    "langchain_message": Wrapper(
        (("type", "tool"), ("data", dict)), ("data.content",), call_id="data.tool_call_id", error="data.status"
    ),
    "langchain_dump": Wrapper(
        (("type", "tool"), ("content", _ANY), ("tool_call_id", _ANY)), ("content",), call_id="tool_call_id", error="status"
    ),
    # LangGraph's Command: a tool that hands over or changes the state answers with the last message of the update.
    "langgraph_command": Wrapper((("graph", _ANY), ("update", dict), ("goto", _ANY)), ("update.messages.-1", "update")),
    # LlamaIndex ToolOutput.
    "llama_index_output": Wrapper((("raw_output", _ANY), ("tool_name", _ANY)), ("raw_output",), error="is_error", failed="true"),
    # MCP CallToolResult in both spellings; structured content is the value the tool returned.
    "mcp_result": Wrapper(
        (("content", list), ("isError", bool)), ("structuredContent", "content"), error="isError", failed="true"
    ),
    "mcp_result_snake": Wrapper(
        (("content", list), ("is_error", bool)), ("structured_content", "content"), error="is_error", failed="true"
    ),
    "mcp_structured": Wrapper(
        (("content", list), ("structuredContent", dict)),
        ("structuredContent",),
        only=frozenset({"content", "structuredContent", "_meta", "meta"}),
    ),
    # Bedrock and Strands toolResult.
    "tool_result": Wrapper((("toolUseId", _ANY), ("content", list)), ("content",), call_id="toolUseId", error="status"),
    "uipath_output": Wrapper((("content", _ANY), ("tool_call_id", _ANY)), ("content",), call_id="tool_call_id", error="status"),
    # Gemini's FunctionResponse, as OpenInference records the result of an ADK tool.
    "function_response": Wrapper(
        (("name", _ANY), ("response", dict)),
        ("response",),
        only=frozenset({"id", "name", "response", "will_continue", "scheduling", "parts"}),
        call_id="id",
    ),
    # Gemini CLI: a ToolCallRequestInfo, and a CompletedToolCall.
    "gemini_cli_request": Wrapper((("callId", _ANY), ("name", _ANY), ("args", dict)), ("args",), call_id="callId"),
    "gemini_cli_result": Wrapper(
        (("status", "success|error|cancelled"), ("response", dict)),
        ("response.responseParts.0.functionResponse.response", "response.resultDisplay"),
        call_id="request.callId",
        error="status",
    ),
    "vercel_output": Wrapper((("type", "text|json|content"), ("value", _ANY)), ("value",), only=frozenset({"type", "value"})),
}

_BEFORE_ID: Final = re.compile(r"(?: name='[^']*')?(?: id='[^']*')?$")


def _tool_message(text: str) -> Taken | None:
    """A LangChain ToolMessage as `str` writes it: `content='…' name='…' tool_call_id='…' status='error'`."""
    head, mark, tail = text.rpartition(" tool_call_id='")
    if not mark or not head.startswith("content="):
        return None
    written = _BEFORE_ID.sub("", head).removeprefix("content=")
    value = literal(written)
    call_id, _, rest = tail.partition("'")
    return None if value is written else Taken(value, call_id, rest.endswith(" status='error'"))


TEXT_WRAPPERS: Final[Mapping[str, Callable[[str], Taken | None]]] = {"langchain_text": _tool_message}

# Strict enough to be tried on every result, whoever recorded it.
RESULT_WRAPPERS: Final = (
    "langchain_constructor",
    "langchain_message",
    "langchain_dump",
    "langgraph_command",
    "llama_index_output",
    "mcp_result",
    "mcp_result_snake",
    "mcp_structured",
    "tool_result",
)
_BLOCK_KEYS: Final = ("text", "json")


def unwrap(value: Any, wrappers: tuple[str | Wrapper, ...]) -> Taken:
    """The value without these wrappers and content blocks around it, decoded again after each of them.

    Args:
        value: a recorded value.
        wrappers: names of `WRAPPERS` and `TEXT_WRAPPERS`, or shapes; the first that fits is opened.
    """
    taken = Taken(decode(value))
    for _ in range(MAX_DEPTH):
        inner = _step(taken, wrappers)
        if inner is taken.value:
            break
        taken.value = decode(inner)
    return taken


def by_name(taken: Taken, parameters: Any) -> Any:
    """The arguments that were taken out, those given by position under the names of the tool's parameters.

    Args:
        taken: what `unwrap` took out of a recorded Python call.
        parameters: the tool's parameters, in order, by name, or a JSON schema of them.

    Returns:
        the arguments; `UNRECORDED` if some of them cannot be named and others have names.
    """
    known = decode(parameters)
    names = known.get("properties", known) if isinstance(known, dict) else ()
    if not taken.positional:
        return taken.value
    if not isinstance(names, dict) or len(names) < len(taken.positional):
        # Arguments by name beside some by position that cannot be named are not all arguments.
        partial = isinstance(taken.value, dict) and taken.value not in taken.positional
        return UNRECORDED if partial else taken.value
    given = dict(zip(names, taken.positional, strict=False))
    return {**given, **taken.value} if isinstance(taken.value, dict) and taken.value.keys().isdisjoint(given) else given


def _step(taken: Taken, wrappers: tuple[str | Wrapper, ...]) -> Any:
    value = taken.value
    if isinstance(value, str):
        return _from_text(taken, value, wrappers)
    if isinstance(value, list):
        return _blocks(value)
    if not isinstance(value, dict):
        return value
    for each in wrappers:
        wrapper = WRAPPERS.get(each) if isinstance(each, str) else each
        if wrapper is not None and _fits(value, wrapper):
            return _open(taken, value, wrapper)
    return value


def _from_text(taken: Taken, text: str, wrappers: tuple[str | Wrapper, ...]) -> Any:
    for each in wrappers:
        read = TEXT_WRAPPERS.get(each) if isinstance(each, str) else None
        found = read(text) if read is not None else None
        if found is not None:
            taken.call_id = taken.call_id or found.call_id
            taken.failed = taken.failed or found.failed
            return found.value
    return text


def _fits(value: dict[str, Any], wrapper: Wrapper) -> bool:
    for key, needed in wrapper.needs:
        if key not in value:
            return False
        if isinstance(needed, type):
            if not isinstance(value[key], needed):
                return False
        elif needed != _ANY and text_of(value[key]) not in needed.split("|"):
            return False
    return wrapper.only is None or wrapper.only.issuperset(value)


def _open(taken: Taken, value: dict[str, Any], wrapper: Wrapper) -> Any:
    if wrapper.call_id and not taken.call_id:
        taken.call_id = str(at(value, wrapper.call_id) or "")
    if wrapper.error and str(at(value, wrapper.error)).lower() == wrapper.failed:
        taken.failed = True
    positional = value.get("args") if wrapper.take == ("kwargs",) else None
    if isinstance(positional, list) and positional:
        taken.positional = tuple(positional)
        if not value.get("kwargs"):
            return positional[0] if len(positional) == 1 else positional
    for path in wrapper.take:
        inner = at(value, path)
        if inner is not None:
            return inner
    return None


def at(value: Any, path: str) -> Any:
    """What is at the dotted path (`0` is the first of a list, `-1` the last), or None."""
    for part in _parts(path):
        if isinstance(value, dict):
            value = value.get(part)
        elif isinstance(value, list) and value and part in ("0", "-1"):
            value = value[int(part)]
        else:
            return None
    return value


@cache  # the paths are those of tables
def _parts(path: str) -> tuple[str, ...]:
    return tuple(path.split("."))


def _blocks(blocks: list[Any]) -> Any:
    """The value of a list of content blocks (`{"text": …}`, `{"json": …}`, `{"type": "text", "text": …}`), else the list."""
    values = [block[key] for block in blocks if isinstance(block, dict) and (key := _block_key(block))]
    if not values or len(values) < len(blocks):
        return blocks
    return values[0] if len(values) == 1 else [decode(each) for each in values]


def _block_key(block: dict[str, Any]) -> str:
    """The key that holds the value of a content block, or ""."""
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return "text"
    return next((key for key in _BLOCK_KEYS if key in block), "") if len(block) == 1 else ""
