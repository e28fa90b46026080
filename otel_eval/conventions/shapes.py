"""How the message formats of model providers and frameworks spell a tool call and its answer.

Data only: each row cites the format it was taken from. Knows no attribute name; reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["ANSWERS", "CONTAINERS", "REQUESTS", "Shape"]


@dataclass(frozen=True, slots=True)
class Shape:
    """An object inside a message that is a call or an answer.

    Attributes:
        source: the format.
        needs: dotted keys that must be there.
        equals: keys with the texts they may have (separated by `|`).
        call_id, name, payload: dotted keys in order of preference.
        error: dotted keys that say that the answer is a failure (true, or "error").
        within: the key of the list or object that must hold it, or "".
    """

    source: str
    needs: tuple[str, ...] = ()
    equals: tuple[tuple[str, str], ...] = ()
    call_id: tuple[str, ...] = ("id",)
    name: tuple[str, ...] = ("name",)
    payload: tuple[str, ...] = ("arguments",)
    error: tuple[str, ...] = ()
    within: str = ""


REQUESTS: Final[tuple[Shape, ...]] = (
    Shape(
        "OpenTelemetry GenAI message parts (gen-ai-output-messages.json, 1.37 and later); LangChain tool_calls (`args`)",
        needs=("name",),
        equals=(("type", "tool_call|tool_call_request|server_tool_call"),),
        payload=("arguments", "args", "server_tool_call"),
    ),
    Shape(
        "OpenAI Chat Completions message.tool_calls; Mistral, Groq and LiteLLM write the same",
        needs=("function.name",),
        name=("function.name",),
        payload=("function.arguments",),
    ),
    Shape(
        "OpenInference semantic conventions, flattened message.tool_calls and message.contents",
        needs=("tool_call.function.name",),
        call_id=("tool_call.id",),
        name=("tool_call.function.name",),
        payload=("tool_call.function.arguments",),
    ),
    Shape(
        "Anthropic Messages content blocks",
        needs=("name",),
        equals=(("type", "tool_use|server_tool_use"),),
        payload=("input", "arguments"),
    ),
    Shape(
        "Amazon Bedrock Converse; Strands",
        needs=("toolUse.name",),
        call_id=("toolUse.toolUseId",),
        name=("toolUse.name",),
        payload=("toolUse.input",),
    ),
    Shape(
        "Gemini parts (JSON)",
        needs=("functionCall.name",),
        call_id=("functionCall.id",),
        name=("functionCall.name",),
        payload=("functionCall.args",),
    ),
    Shape(
        "Gemini parts (Python)",
        needs=("function_call.name",),
        call_id=("function_call.id",),
        name=("function_call.name",),
        payload=("function_call.args", "function_call.arguments"),
    ),
    Shape(
        "Genkit parts",
        needs=("toolRequest.name",),
        call_id=("toolRequest.ref",),
        name=("toolRequest.name",),
        payload=("toolRequest.input",),
    ),
    Shape(
        "Haystack ChatMessage contents",
        needs=("tool_call.tool_name",),
        call_id=("tool_call.id",),
        name=("tool_call.tool_name",),
        payload=("tool_call.arguments",),
    ),
    Shape(
        "OpenAI Responses output items",
        needs=("name",),
        equals=(("type", "function_call"),),
        call_id=("call_id", "id"),
    ),
    Shape(
        "Vercel AI SDK content parts and ai.response.toolCalls (versions 3 to 7)",
        needs=("toolName", "toolCallId"),
        equals=(("type", "tool-call|"),),
        call_id=("toolCallId",),
        name=("toolName",),
        payload=("input", "args"),
    ),
    Shape(
        "OpenLLMetry flattened gen_ai.completion.N.tool_calls.M; Ollama; anything listed as tool_calls",
        needs=("name",),
        payload=("arguments", "args", "input"),
        within="tool_calls",
    ),
)

ANSWERS: Final[tuple[Shape, ...]] = (
    Shape(
        "OpenTelemetry GenAI message parts (`response`; `result` in older texts)",
        equals=(("type", "tool_call_response|server_tool_call_response"),),
        payload=("response", "result", "content"),
        error=("is_error",),
    ),
    Shape(
        "OpenAI Chat Completions tool messages; LiteLLM puts the content into a part",
        needs=("tool_call_id",),
        equals=(("role", "tool|function"),),
        call_id=("tool_call_id",),
        payload=("content", "parts.0.content"),
        error=("is_error",),
    ),
    Shape(
        "LangChain ToolMessage as model_dump writes it",
        needs=("tool_call_id", "content"),
        equals=(("type", "tool"),),
        call_id=("tool_call_id",),
        payload=("content",),
        error=("status",),
    ),
    Shape(
        "Anthropic Messages content blocks",
        needs=("tool_use_id",),
        equals=(("type", "tool_result"),),
        call_id=("tool_use_id",),
        payload=("content",),
        error=("is_error",),
    ),
    Shape(
        "Amazon Bedrock Converse; Strands",
        needs=("toolResult",),
        call_id=("toolResult.toolUseId",),
        name=("toolResult.name",),
        payload=("toolResult.content",),
        error=("toolResult.status",),
    ),
    Shape(
        "Gemini parts (JSON)",
        needs=("functionResponse.name",),
        call_id=("functionResponse.id",),
        name=("functionResponse.name",),
        payload=("functionResponse.response",),
    ),
    Shape(
        "Gemini parts (Python)",
        needs=("function_response.name",),
        call_id=("function_response.id",),
        name=("function_response.name",),
        payload=("function_response.response",),
    ),
    Shape(
        "Genkit parts",
        needs=("toolResponse.name",),
        call_id=("toolResponse.ref",),
        name=("toolResponse.name",),
        payload=("toolResponse.output",),
    ),
    Shape(
        "Haystack ChatMessage contents",
        needs=("tool_call_result.origin",),
        call_id=("tool_call_result.origin.id",),
        name=("tool_call_result.origin.tool_name",),
        payload=("tool_call_result.result",),
        error=("tool_call_result.error",),
    ),
    Shape("OpenAI Responses input items", equals=(("type", "function_call_output"),), call_id=("call_id",), payload=("output",)),
    Shape(
        "Vercel AI SDK content parts (versions 3 to 7)",
        needs=("toolCallId",),
        equals=(("type", "tool-result|tool-error"),),
        call_id=("toolCallId",),
        name=("toolName",),
        payload=("output", "result", "error"),
        error=("isError", "output.type", "type"),
    ),
)

# Keys below which messages and their parts lie; nothing else of a message is looked into.
CONTAINERS: Final = frozenset({
    "messages", "message", "parts", "content", "contents", "message_content", "tool_calls", "toolCalls", "choices",
    "generations", "kwargs", "data", "update", "output", "outputs", "input", "inputs", "candidates", "delta", "items",
    "replies", "_content", "tool_messages", "tool.result", "gen_ai.input.messages", "gen_ai.output.messages",
})  # fmt: skip
