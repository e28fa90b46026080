"""How message formats and frameworks write tool calls, their results, and envelopes around values,
as data.

Each row cites the format it was taken from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from otel_eval.model import HOSTED_TOOLS
from otel_eval.records import record


@record
class MessageShape:
    """An object inside a message that is a tool request or a tool result.

    Attributes:
        source: the format.
        needs: dotted keys that must be present.
        equals: keys with the texts that they may have (empty: the key may be missing).
        lacks: dotted keys that must not be present.
        text: whether the payload must be text.
        call_id, name, payload: dotted keys in order of preference; the payload is the arguments or
            the result.
        error: dotted keys that mark the result as a failure (true, or "error"), or as none.
        within: the key of the list or object that must hold it, or "".
        is_result: it is a tool result.
    """

    source: str
    needs: tuple[str, ...] = ()
    equals: tuple[tuple[str, tuple[str, ...]], ...] = ()
    lacks: tuple[str, ...] = ()
    text: bool = False
    call_id: tuple[str, ...] = ("id",)
    name: tuple[str, ...] = ("name",)
    payload: tuple[str, ...] = ("arguments",)
    error: tuple[str, ...] = ()
    within: str = ""
    is_result: bool = False


def _nested(
    source: str, key: str, *, name: str = "name", call_id: str = "id", payload: tuple[str, ...]
) -> MessageShape:
    """A shape whose fields are all in an object under one key; the name must be there."""
    return MessageShape(
        source,
        needs=(f"{key}.{name}",),
        call_id=(f"{key}.{call_id}",),
        name=(f"{key}.{name}",),
        payload=tuple(f"{key}.{part}" for part in payload),
    )


# Marks of a request whose tool the provider runs: pydantic-ai; Vercel AI SDK.
HOSTED_MARKS: Final = frozenset({"builtin", "providerExecuted"})
# Types of parts that are such requests: GenAI conventions; Anthropic.
HOSTED_TYPES: Final = frozenset({"server_tool_call", "server_tool_use", "mcp_tool_use"})
_LOCAL_ITEMS: Final = ("computer", "local_shell", "shell", "apply_patch")

REQUESTS: Final[tuple[MessageShape, ...]] = (
    MessageShape(
        "OpenTelemetry GenAI message parts (gen-ai-output-messages.json, 1.37 and later); LangChain"
        " tool_calls (`args`)",
        needs=("name",),
        equals=(("type", ("tool_call", "tool_call_request", "server_tool_call")),),
        payload=("arguments", "args", "server_tool_call"),
    ),
    MessageShape(
        "OpenAI Chat Completions message.tool_calls; Mistral, Groq and LiteLLM write the same",
        needs=("function.name",),
        name=("function.name",),
        payload=("function.arguments",),
    ),
    _nested(
        "OpenInference semantic conventions, flattened message.tool_calls and message.contents",
        "tool_call",
        name="function.name",
        payload=("function.arguments",),
    ),
    MessageShape(
        "OpenAI Responses output items of tools that OpenAI runs; that of an MCP server's tool has"
        " its name",
        equals=(("type", tuple(sorted(HOSTED_TOOLS))),),
        name=("name", "type"),
        payload=("action", "arguments", "queries", "code"),
        error=("error", "status"),
    ),
    MessageShape(
        "OpenAI Responses output items of tools that the client runs on its own machine",
        equals=(("type", tuple(f"{item}_call" for item in _LOCAL_ITEMS)),),
        call_id=("call_id", "id"),
        name=("type",),
        payload=("action", "operation"),
    ),
    MessageShape(
        "Anthropic Messages content blocks, those of its MCP connector too",
        needs=("name",),
        equals=(("type", ("tool_use", "server_tool_use", "mcp_tool_use")),),
        payload=("input", "arguments"),
    ),
    _nested("Amazon Bedrock Converse; Strands", "toolUse", call_id="toolUseId", payload=("input",)),
    _nested("Gemini parts (JSON)", "functionCall", payload=("args",)),
    _nested("Gemini parts (Python)", "function_call", payload=("args", "arguments")),
    _nested("Genkit parts", "toolRequest", call_id="ref", payload=("input",)),
    _nested("Haystack ChatMessage contents", "tool_call", name="tool_name", payload=("arguments",)),
    MessageShape(
        "OpenAI Responses output items; the input of a custom tool is text",
        needs=("name",),
        equals=(("type", ("function_call", "custom_tool_call")),),
        call_id=("call_id", "id"),
        payload=("arguments", "input"),
    ),
    MessageShape(
        "DSPy ReAct, output of its predictor (dspy/predict/react.py)",
        needs=("next_tool_name",),
        name=("next_tool_name",),
        payload=("next_tool_args",),
    ),
    MessageShape(
        "BeeAI, steps of an agent that OpenInference records beside its output",
        needs=("tool.name", "iteration"),
        name=("tool.name",),
        payload=("input",),
    ),
    MessageShape(
        "Vercel AI SDK content parts and ai.response.toolCalls (versions 3 to 7)",
        needs=("toolName", "toolCallId"),
        equals=(("type", ("tool-call", "")),),
        call_id=("toolCallId",),
        name=("toolName",),
        payload=("input", "args"),
    ),
    MessageShape(
        "OpenLLMetry flattened gen_ai.completion.N.tool_calls.M; Ollama; anything listed as"
        " tool_calls",
        needs=("name",),
        payload=("arguments", "args", "input"),
        within="tool_calls",
    ),
    # Its name is empty, so that the calls of the model are known to be incomplete.
    MessageShape(
        "Any of these without the content (azure-ai-projects 2.10 leaves the id alone)",
        equals=(("type", ("tool_call", "tool_use", "function_call")),),
    ),
)

_RESULTS: Final[tuple[MessageShape, ...]] = (
    MessageShape(
        "OpenTelemetry GenAI message parts (`response`; `result` in older texts)",
        equals=(("type", ("tool_call_response", "server_tool_call_response")),),
        payload=("response", "result", "content"),
        error=("is_error",),
    ),
    MessageShape(
        "OpenAI Chat Completions tool messages; LiteLLM puts the content into a part",
        needs=("tool_call_id",),
        equals=(("role", ("tool", "function")),),
        call_id=("tool_call_id",),
        payload=("content", "parts.0.content"),
        error=("is_error",),
    ),
    MessageShape(
        "LangChain ToolMessage as model_dump writes it",
        needs=("tool_call_id", "content"),
        equals=(("type", ("tool",)),),
        call_id=("tool_call_id",),
        payload=("content",),
        error=("status",),
    ),
    MessageShape(
        "Anthropic Messages content blocks",
        needs=("tool_use_id",),
        equals=(("type", ("tool_result", "mcp_tool_result")),),
        call_id=("tool_use_id",),
        payload=("content",),
        error=("is_error",),
    ),
    MessageShape(
        "Amazon Bedrock Converse; Strands",
        needs=("toolResult",),
        call_id=("toolResult.toolUseId",),
        name=("toolResult.name",),
        payload=("toolResult.content",),
        error=("toolResult.status",),
    ),
    _nested("Gemini parts (JSON)", "functionResponse", payload=("response",)),
    _nested("Gemini parts (Python)", "function_response", payload=("response",)),
    _nested("Genkit parts", "toolResponse", call_id="ref", payload=("output",)),
    MessageShape(
        "Haystack ChatMessage contents",
        needs=("tool_call_result.origin",),
        call_id=("tool_call_result.origin.id",),
        name=("tool_call_result.origin.tool_name",),
        payload=("tool_call_result.result",),
        error=("tool_call_result.error",),
    ),
    MessageShape(
        "OpenAI Responses input items",
        equals=(
            (
                "type",
                (
                    "function_call_output",
                    "custom_tool_call_output",
                    *(f"{item}_call_output" for item in _LOCAL_ITEMS),
                ),
            ),
        ),
        call_id=("call_id",),
        payload=("output",),
    ),
    MessageShape(
        "Vercel AI SDK content parts (versions 3 to 7)",
        needs=("toolCallId",),
        equals=(("type", ("tool-result", "tool-error")),),
        call_id=("toolCallId",),
        name=("toolName",),
        payload=("output", "result", "error"),
        error=("isError", "output.type", "type"),
    ),
    MessageShape(
        "pydantic-ai 0.x, the messages of a model call as a list of events",
        needs=("id", "content"),
        equals=(("role", ("tool",)),),
        lacks=("tool_call_id", "parts"),
        payload=("content",),
    ),
    MessageShape(
        "autogen-core FunctionExecutionResult, as OpenInference records it",
        needs=("call_id", "content", "is_error"),
        call_id=("call_id",),
        payload=("content",),
        error=("is_error",),
    ),
    # Which request such a message answers shows only in its position.
    MessageShape(
        "Any message of a tool that lacks the id of the call; OpenInference for LangChain in"
        " JavaScript",
        needs=("content",),
        equals=(("role", ("tool", "function")),),
        lacks=("tool_call_id", "parts"),
        text=True,
        call_id=(),
        payload=("content",),
    ),
    MessageShape(
        "The same in parts; crewai 1.15",
        needs=("parts.0.content",),
        equals=(("role", ("tool", "function")),),
        lacks=("tool_call_id", "parts.0.id"),
        text=True,
        call_id=(),
        payload=("parts.0.content",),
    ),
    MessageShape(
        "smolagents 1.26, as OpenInference records it",
        needs=("contents.0.message_content.text",),
        equals=(("role", ("tool-response",)),),
        text=True,
        call_id=(),
        payload=("contents.0.message_content.text",),
    ),
)
RESULTS: Final = tuple(replace(shape, is_result=True) for shape in _RESULTS)

# Keys under which messages and their parts are searched; the values of all other keys are skipped.
CONTAINERS: Final = frozenset(
    {
        "trajectory",
        "messages",
        "message",
        "parts",
        "content",
        "contents",
        "message_content",
        "tool_calls",
        "toolCalls",
        "choices",
        "generations",
        "kwargs",
        "additional_kwargs",
        "data",
        "update",
        "output",
        "outputs",
        "input",
        "inputs",
        "candidates",
        "delta",
        "function",
        "items",
        "replies",
        "_content",
        "tool_messages",
        "tool.result",
        "gen_ai.input.messages",
        "gen_ai.output.messages",
    }
)


ANY: Final = "*"


@record
class Wrapper:
    """An object that only wraps a value.

    Attributes:
        needs: keys it must have, each with a type of its value or with texts that it may be,
            separated by `|` ("*": any).
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


JSON_TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
}
"""The types that a wrapper may need, by the names that tables give them."""

_PYTHON_CALL: Final = frozenset(
    {"args", "kwargs", "sanitize_inputs_outputs", "self", "tags", "metadata"}
)

WRAPPERS: Final[dict[str, Wrapper]] = {
    # Function wrappers record the Python call: smolagents, LlamaIndex, Traceloop's decorators.
    "python_call": Wrapper((("kwargs", dict), ("args", list)), ("kwargs",), only=_PYTHON_CALL),
    "kwargs": Wrapper((("kwargs", dict),), ("kwargs",), only=frozenset({"kwargs"})),
    # LangChain callbacks: on_tool_start(serialized, input_str, inputs=…).
    "langchain_tool_start": Wrapper(
        (("input_str", ANY),), ("inputs", "input_str"), call_id="kwargs.tool_call_id"
    ),
    "langchain_input": Wrapper((("input", str),), ("input",), only=frozenset({"input"})),
    "langchain_output": Wrapper(
        (("output", ANY),), ("output",), only=frozenset({"output", "kwargs", "tags", "metadata"})
    ),
    # BeeAI's `Tool.run(input, options)`.
    "beeai_input": Wrapper(
        (("input", ANY), ("options", ANY)), ("input",), only=frozenset({"input", "options"})
    ),
    # A LangChain message as `dumps`, `message_to_dict` and `model_dump` write it.
    "langchain_constructor": Wrapper(
        (("lc", "1"), ("kwargs", dict)),
        ("kwargs.content",),
        call_id="kwargs.tool_call_id",
        error="kwargs.status",
    ),
    "langchain_message": Wrapper(
        (("type", "tool"), ("data", dict)),
        ("data.content",),
        call_id="data.tool_call_id",
        error="data.status",
    ),
    "langchain_dump": Wrapper(
        (("type", "tool"), ("content", ANY), ("tool_call_id", ANY)),
        ("content",),
        call_id="tool_call_id",
        error="status",
    ),
    # LangGraph's Command: the result of a tool that hands over or changes the state is the last
    # message of the update.
    "langgraph_command": Wrapper(
        (("graph", ANY), ("update", dict), ("goto", ANY)), ("update.messages.-1", "update")
    ),
    # LlamaIndex ToolOutput.
    "llama_index_output": Wrapper(
        (("raw_output", ANY), ("tool_name", ANY)), ("raw_output",), error="is_error", failed="true"
    ),
    # MCP CallToolResult in both spellings; structured content is the value the tool returned.
    "mcp_result": Wrapper(
        (("content", list), ("isError", bool)),
        ("structuredContent", "content"),
        error="isError",
        failed="true",
    ),
    "mcp_result_snake": Wrapper(
        (("content", list), ("is_error", bool)),
        ("structured_content", "content"),
        error="is_error",
        failed="true",
    ),
    "mcp_structured": Wrapper(
        (("content", list), ("structuredContent", dict)),
        ("structuredContent",),
        only=frozenset({"content", "structuredContent", "_meta", "meta"}),
    ),
    # A content block alone, as OpenAI Agents records the result of an MCP tool; of several it
    # records a list.
    "text_block": Wrapper(
        (("type", "text"), ("text", str)),
        ("text",),
        only=frozenset({"type", "text", "annotations", "_meta"}),
    ),
    # Bedrock and Strands toolResult.
    "tool_result": Wrapper(
        (("toolUseId", ANY), ("content", list)), ("content",), call_id="toolUseId", error="status"
    ),
    "uipath_output": Wrapper(
        (("content", ANY), ("tool_call_id", ANY)),
        ("content",),
        call_id="tool_call_id",
        error="status",
    ),
    # The output of a call that failed; messages have the text alone.
    "haystack_error": Wrapper((("error", str),), ("error",), only=frozenset({"error"})),
    # Gemini's FunctionResponse, as OpenInference records the result of an ADK tool.
    "function_response": Wrapper(
        (("name", ANY), ("response", dict)),
        ("response",),
        only=frozenset({"id", "name", "response", "will_continue", "scheduling", "parts"}),
        call_id="id",
    ),
    # Gemini CLI: a ToolCallRequestInfo, and a CompletedToolCall.
    "gemini_cli_request": Wrapper(
        (("callId", ANY), ("name", ANY), ("args", dict)), ("args",), call_id="callId"
    ),
    "gemini_cli_result": Wrapper(
        (("status", "success|error|cancelled"), ("response", dict)),
        ("response.responseParts.0.functionResponse.response", "response.resultDisplay"),
        call_id="request.callId",
        error="status",
    ),
    # The content alone, as Mastra records the result of an MCP tool.
    "mcp_content": Wrapper((("content", list),), ("content",), only=frozenset({"content"})),
    # A request to an MCP client and its answer, as OpenLLMetry records them.
    "mcp_request": Wrapper(
        (("tool_name", str), ("arguments", ANY)),
        ("arguments",),
        only=frozenset({"tool_name", "arguments"}),
    ),
    "mcp_response": Wrapper(
        (("result", ANY),),
        ("result",),
        only=frozenset({"result", "is_error"}),
        error="is_error",
        failed="true",
    ),
    # A message of LangChain without its status, as langchain-azure-ai records it.
    "azure_message": Wrapper(
        (("tool_call_id", ANY), ("content", ANY)),
        ("content",),
        only=frozenset({"name", "tool_call_id", "content"}),
    ),
    # LangWatch's values beside their type: that of a tool of LangChain is a list of one message
    # without its status.
    "langwatch_messages": Wrapper(
        (("type", "chat_messages"), ("value", list)), ("value.-1.content",)
    ),
    "langwatch_value": Wrapper(
        (("type", "text|json"), ("value", ANY)), ("value",), only=frozenset({"type", "value"})
    ),
    # An action of browser-use, and its ActionResult.
    "browser_use_action": Wrapper(
        (("action", str), ("params", dict)), ("params",), only=frozenset({"action", "params"})
    ),
    "browser_use_result": Wrapper(
        (("is_done", bool), ("error", ANY), ("extracted_content", ANY)),
        ("extracted_content", "error"),
    ),
    # A tool of Genkit whose result may have several parts.
    "genkit_output": Wrapper(
        (("output", ANY),), ("output",), only=frozenset({"output", "content", "metadata"})
    ),
    # Strands for TypeScript puts what is no object into one.
    "strands_value": Wrapper((("$value", ANY),), ("$value",), only=frozenset({"$value"})),
    "vercel_output": Wrapper(
        (("type", "text|json|content|error-text|error-json"), ("value", ANY)),
        ("value",),
        only=frozenset({"type", "value"}),
    ),
}

# Shapes that are strict enough to be tried on every result, whichever instrumentation recorded it.
RESULT_WRAPPERS: Final = (
    "langchain_constructor",
    "langchain_message",
    "langchain_dump",
    "azure_message",
    "langgraph_command",
    "llama_index_output",
    "mcp_result",
    "mcp_result_snake",
    "mcp_structured",
    "text_block",
    "tool_result",
)
