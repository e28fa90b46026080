"""Bytes made to cost more than they weigh: nesting, repetition, bombs, numbers without end.

Knows shapes, each as large as asked for; what one may cost is the tests' to say.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from typing import Any, Final

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.wire import sized

__all__ = ["SHAPES"]

_IDS: Final = sized(1, b"t" * 16) + sized(2, b"s" * 8)
_IDS_JSON: Final = {"traceId": "7" * 32, "spanId": "7" * 16}


def _request(*spans: bytes) -> bytes:
    return sized(1, sized(2, b"".join([sized(2, span) for span in spans])))


def _document(*spans: Any) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def _attribute(key: str, value: bytes) -> bytes:
    return sized(9, sized(1, key.encode()) + sized(2, value))


def _text_attribute(key: str, value: str) -> dict[str, Any]:
    return {"key": key, "value": {"stringValue": value}}


def nested_value(size: int) -> bytes:
    """An attribute of lists in lists, deeper than any stack. Built from the inside, each level a
    few bytes.
    """
    value, depth = b"", 0
    while len(value) < size // 200 and depth < 20_000:
        value, depth = sized(5, sized(1, value)), depth + 1
    return _request(_IDS + _attribute("gen_ai.tool.call.arguments", value))


def nested_json(size: int) -> bytes:
    """Brackets and nothing else."""
    return b"[" * size


def nested_json_value(size: int) -> bytes:
    """An attribute of maps in maps."""
    levels = size // 60
    start = b'{"kvlistValue":{"values":[{"key":"k","value":'
    head, tail = _document(_IDS_JSON | {"attributes": [{"key": "k", "value": "HERE"}]}).split(
        b'"HERE"'
    )
    return head + start * levels + b'{"boolValue":true}' + b"}]}}" * levels + tail


def empty_spans(size: int) -> bytes:
    """Two bytes each."""
    return _request(*[b""] * (size // 2))


def empty_groups(size: int) -> bytes:
    """Two bytes each."""
    return b"\x0a\x00" * (size // 2)


def empty_json_spans(size: int) -> bytes:
    """Three bytes each."""
    return _document(*[{}] * (size // 4))


def tiny_spans(size: int) -> bytes:
    """Each of a trace of its own."""
    spans = [
        sized(1, number.to_bytes(16, "big")) + sized(2, b"s" * 8) for number in range(1, size // 30)
    ]
    return _request(*spans)


def one_trace(size: int) -> bytes:
    """A chain of spans, each the parent of the next."""
    names = [number.to_bytes(8, "big") for number in range(1, size // 50)]
    spans = [
        sized(1, b"t" * 16) + sized(2, own) + sized(4, parent)
        for own, parent in zip(names[1:], names, strict=False)
    ]
    return _request(*spans)


def one_span_id(size: int) -> bytes:
    """The same span again and again, always later."""
    spans = [
        Span(trace_id=b"t" * 16, span_id=b"s" * 8, end_time_unix_nano=number)
        for number in range(1, size // 40)
    ]
    return _request(*[each.SerializeToString() for each in spans])


def attributes(size: int) -> bytes:
    """A span of nothing but attributes."""
    return _request(
        _IDS + b"".join([_attribute(f"k{number}", b"\x10\x01") for number in range(size // 16)])
    )


def one_attribute(size: int) -> bytes:
    """The same attribute again and again."""
    return _request(_IDS + _attribute("gen_ai.tool.name", sized(1, b"x")) * (size // 30))


def events(size: int) -> bytes:
    """A span of nothing but events."""
    return _request(_IDS + sized(11, sized(2, b"e")) * (size // 6))


def long_text(size: int) -> bytes:
    """One attribute, one text."""
    return _request(_IDS + _attribute("gen_ai.input.messages", sized(1, b"x" * size)))


def messages_in_text(size: int) -> bytes:
    """Messages of a conversation, each as small as can be."""
    part = {
        "role": "assistant",
        "parts": [{"type": "tool_call", "id": "1", "name": "t", "arguments": "{"}],
    }
    text = json.dumps([part] * (size // 120))
    operation = _text_attribute("gen_ai.operation.name", "chat")
    return _document(
        _IDS_JSON | {"attributes": [operation, _text_attribute("gen_ai.output.messages", text)]}
    )


def nested_text(size: int) -> bytes:
    """JSON in an attribute that is brackets and nothing else."""
    operation = _text_attribute("gen_ai.operation.name", "execute_tool")
    deep = _text_attribute("gen_ai.tool.call.arguments", "[" * (size // 2) + "]" * (size // 2))
    return _document(
        _IDS_JSON | {"attributes": [operation, _text_attribute("gen_ai.tool.name", "search"), deep]}
    )


def long_number(size: int) -> bytes:
    """An integer that takes quadratic time to read."""
    return b'{"resourceSpans": ' + b"9" * size + b"}"


def long_number_in_text(size: int) -> bytes:
    """The same where a decoder reads numbers from texts."""
    return _document(_IDS_JSON | {"startTimeUnixNano": "9" * size})


def keys_of_surrogates(size: int) -> bytes:
    """Texts that UTF-8 cannot write."""
    return _document(_IDS_JSON | {"name": "\ud800" * (size // 6)})


def bomb(size: int) -> bytes:
    """A thousand times greater than it looks."""
    return gzip.compress(bytes(size * 100))


def members(size: int) -> bytes:
    """Empty gzip members, one after the other."""
    return gzip.compress(b"") * (size // 20)


def chunks(size: int) -> bytes:
    """A byte at a time."""
    return b"1\r\nx\r\n" * (size // 6)


def lines(size: int) -> bytes:
    """Lines that are nearly JSON."""
    return b"{\n" * (size // 2)


def row(size: int) -> bytes:
    """Messages of one byte, each after its length."""
    return b"\x01\x00" * (size // 2)


SHAPES: Final[dict[str, tuple[Callable[[int], bytes], ...]]] = {
    "traces-protobuf": (
        nested_value,
        empty_spans,
        empty_groups,
        tiny_spans,
        one_trace,
        one_span_id,
        attributes,
        one_attribute,
        events,
        long_text,
    ),
    "traces-json": (
        nested_json,
        nested_json_value,
        empty_json_spans,
        messages_in_text,
        nested_text,
        long_number,
        long_number_in_text,
        keys_of_surrogates,
    ),
    "metrics-json": (nested_json, nested_json_value),
    "gzip": (bomb, members),
    "chunked": (chunks,),
    "stored": (nested_json, lines, row, empty_spans, empty_json_spans, tiny_spans),
}
