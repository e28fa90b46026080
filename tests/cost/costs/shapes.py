"""The table of shapes: for each repeated or nested element of OTLP requests in which there are `n`
of it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tests.cost.costs.otlp import (
    ROOT,
    TRACE,
    agent,
    identity,
    logs,
    span,
    tool,
    traces,
)
from tests.support.made_spans import json_attributes, json_value

__all__ = ["SHAPES", "Shape"]

Request = tuple[str, list[dict[str, Any]]]
"""A signal, and resources with what they hold."""

_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
_RESULT: Final = "gen_ai.tool.call.result"


@dataclass(frozen=True, slots=True)
class Shape:
    """Requests of one shape.

    Attributes:
        name: what there is `n` of.
        make: the requests for an `n`.
        small: `n` of the smaller input; the other has eight times as many.
    """

    name: str
    make: Callable[[int], list[Request]]
    small: int


SHAPES: Final[list[Shape]] = []


def _shape(name: str, small: int) -> Callable[[Callable[[int], Any]], Callable[[int], Any]]:
    """Add a shape: the function gives spans of one resource and scope, or whole requests."""

    def add(made: Callable[[int], Any]) -> Callable[[int], Any]:
        def make(size: int) -> list[Request]:
            found = list(made(size))
            return found if isinstance(found[0], tuple) else [("traces", [traces(found)])]

        SHAPES.append(Shape(name, make, small))
        return made

    return add


Spans = Iterator[dict[str, Any]]


# --------------------------------------------------------------------------------------------------
# spans and their parents


@_shape("tool calls of one agent", 60)
def _(n: int) -> Spans:
    yield agent()
    yield from (tool(number, values={_ARGUMENTS: f'{{"q": {number}}}'}) for number in range(n))


@_shape("equal tool calls of one agent", 60)
def _(n: int) -> Spans:
    yield agent()
    yield from (tool(number, values={_ARGUMENTS: '{"q": 1}'}) for number in range(n))


@_shape("failed tool calls of one agent", 60)
def _(n: int) -> Spans:
    yield agent()
    yield from (tool(number, status={"code": 2, "message": "no"}) for number in range(n))


@_shape("spans below one another", 100)
def _(n: int) -> Spans:
    yield agent()
    yield from (span(number, identity(number - 1) if number else ROOT) for number in range(n))


@_shape("spans below one another, children first", 100)
def _(n: int) -> Spans:
    yield from (
        span(number, identity(number - 1) if number else ROOT) for number in reversed(range(n))
    )
    yield agent()


@_shape("spans below one span", 100)
def _(n: int) -> Spans:
    yield agent()
    yield from map(span, range(n))


@_shape("spans in a cycle of parents", 100)
def _(n: int) -> Spans:
    yield from (span(number, identity((number + 1) % n)) for number in range(n))


@_shape("tool calls that are their own parents", 100)
def _(n: int) -> Spans:
    yield from (tool(number, identity(number)) for number in range(n))


@_shape("spans with missing parents", 100)
def _(n: int) -> Spans:
    yield from (span(number, f"{number + 2**40:016x}") for number in range(n))


@_shape("agents with missing parents", 50)
def _(n: int) -> Spans:
    yield from (agent(number, f"{number + 2**40:016x}") for number in range(n))


@_shape("spans without a parent", 100)
def _(n: int) -> Spans:
    yield from (span(number, None) for number in range(n))


@_shape("spans with one id", 60)
def _(n: int) -> Spans:
    yield agent()
    yield from (
        tool(1, values={"n": number}, endTimeUnixNano=str(1_800_000_000_000_000_000 + number))
        for number in range(n)
    )


@_shape("traces", 60)
def _(n: int) -> Spans:
    yield from (agent(number) | {"traceId": f"{number + 1:032x}"} for number in range(n))


@_shape("agents below one agent", 50)
def _(n: int) -> Spans:
    yield agent()
    yield from (agent(number, ROOT) for number in range(n))


@_shape("tool calls below one another", 60)
def _(n: int) -> Spans:
    yield agent()
    yield from (tool(number, identity(number - 1) if number else ROOT) for number in range(n))


@_shape("model calls of one agent", 60)
def _(n: int) -> Spans:
    yield agent()
    for number in range(n):
        text = json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": f"answer {number}"}]}]
        )
        yield span(number, ROOT, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": text})


@_shape("different tools", 60)
def _(n: int) -> Spans:
    yield agent()
    yield from (
        span(
            number,
            ROOT,
            {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": f"tool {number}"},
        )
        for number in range(n)
    )


@_shape("characters of a span's name", 20_000)
def _(n: int) -> Spans:
    yield agent(name="n" * n)
    yield tool(1, name="execute_tool " + "n" * n)


@_shape("characters of a tool's name", 20_000)
def _(n: int) -> Spans:
    yield agent()
    yield span(1, ROOT, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "n" * n})


@_shape("characters of an agent's name", 20_000)
def _(n: int) -> Spans:
    yield agent(values={"gen_ai.agent.name": "n" * n})
    yield tool(1)


@_shape("bytes of ids", 20_000)
def _(n: int) -> Spans:
    yield agent()
    yield span(1) | {"spanId": "ab" * n}
    yield span(1) | {"traceId": "ab" * n}
    yield span(1) | {"parentSpanId": "ab" * n}


@_shape("characters of a status", 20_000)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, status={"code": 2, "message": "Traceback (most recent call last)\n" + "e" * n})


@_shape("characters of a trace state", 20_000)
def _(n: int) -> Spans:
    yield agent(traceState="a=b," * (n // 4))
    yield tool(1)


# --------------------------------------------------------------------------------------------------
# events and links


@_shape("events of a tool call", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, events=[{"name": "tick", "timeUnixNano": str(number)} for number in range(n)])


@_shape("empty events of a failed tool call", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, events=[{}] * n, status={"code": 2})


@_shape("exceptions of a failed tool call", 400)
def _(n: int) -> Spans:
    yield agent()
    said = {"exception.type": "Timeout", "exception.message": "no answer"}
    yield tool(
        1,
        status={"code": 2},
        events=[{"name": "exception", "attributes": json_attributes(said)}] * n,
    )


@_shape("events of many failed tool calls", 20)
def _(n: int) -> Spans:
    yield agent()
    yield from (
        tool(number, status={"code": 2}, events=[{"name": "tick"}] * 20) for number in range(n)
    )


@_shape("messages in events of a model call", 200)
def _(n: int) -> Spans:
    yield agent()
    part = {"role": "tool", "id": "c1", "content": "found", "gen_ai.system": "x"}
    yield span(
        1,
        ROOT,
        {"gen_ai.operation.name": "chat"},
        events=[{"name": "gen_ai.tool.message", "attributes": json_attributes(part)}] * n,
    )


@_shape("attributes of an event", 400)
def _(n: int) -> Spans:
    yield agent()
    many = json_attributes((f"k{number}", number) for number in range(n))
    yield tool(1, status={"code": 2}, events=[{"name": "exception", "attributes": many}])


@_shape("links", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, links=[{"traceId": TRACE, "spanId": identity(number)} for number in range(n)])


@_shape("empty links", 400)
def _(n: int) -> Spans:
    yield agent(links=[{}] * n)
    yield tool(1, links=[{}] * n)


@_shape("attributes of a link", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(
        1, links=[{"attributes": json_attributes((f"k{number}", number) for number in range(n))}]
    )


# ---------------------------------------------------------------------------- spans that are as
# full as the limits allow


def _full(name: str, fields: Callable[[int], dict[str, Any]]) -> None:
    @_shape(f"spans full of {name}", 1)
    def _(n: int) -> Spans:
        yield agent()
        yield from (tool(number) | fields(4000) for number in range(n))


_full("empty events", lambda most: {"events": [{}] * most, "status": {"code": 2}})
_full("empty links", lambda most: {"links": [{}] * most})
_full(
    "empty attributes",
    lambda most: {
        "attributes": [*json_attributes({"gen_ai.operation.name": "execute_tool"}), *[{}] * most]
    },
)
_full(
    "attributes",
    lambda most: {"attributes": json_attributes((f"{each:x}", None) for each in range(most))},
)
_full(
    "attributes, with an event",
    lambda most: {
        "attributes": json_attributes((f"{each:x}", None) for each in range(most)),
        "events": [{}],
        "status": {"code": 2},
    },
)


# --------------------------------------------------------------------------------------------------
# attributes and values


@_shape("attributes of a tool call", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, values=((f"k{number}", number) for number in range(n)))


@_shape("attributes without a value", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1) | {
        "attributes": [
            *json_attributes({"gen_ai.operation.name": "execute_tool"}),
            *[{"key": ""}] * n,
        ]
    }


@_shape("attributes with one key", 400)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, values=[("gen_ai.tool.name", "search")] * n)


@_shape("attributes of one family of messages", 400)
def _(n: int) -> Spans:
    yield agent()
    keys = (
        f"llm.output_messages.{number}.message.tool_calls.0.tool_call.function.name"
        for number in range(n)
    )
    yield span(1, ROOT, [("openinference.span.kind", "LLM"), *((key, "search") for key in keys)])


@_shape("spans with many attributes", 20)
def _(n: int) -> Spans:
    yield agent()
    many = [(f"k{number}", 1) for number in range(100)]
    yield from (tool(number, values=many) for number in range(n))


@_shape("characters of a key", 20_000)
def _(n: int) -> Spans:
    yield agent()
    yield tool(1, values={"k" * n: "v", "gen_ai." + "k" * n: "v"})


def _arguments(name: str, small: int, value: Callable[[int], Any]) -> None:
    """A shape of the arguments, and one of the result, of a tool call."""

    @_shape(f"{name} in arguments", small)
    def _(n: int) -> Spans:
        yield agent()
        yield tool(1, values={_ARGUMENTS: value(n)})

    @_shape(f"{name} in a result", small)
    def _(n: int) -> Spans:
        yield agent()
        yield tool(1, values={_ARGUMENTS: "{}", _RESULT: value(n)})


def _nested(value: Any, wrap: Callable[[Any], Any], depth: int) -> Any:
    for _ in range(depth):
        value = wrap(value)
    return value


def _column(n: int) -> list[Any]:
    """Lists within each other as deep as they are read, one after the other."""
    return [_nested(1, lambda each: [each], 60) for _ in range(n // 60)]


_arguments("characters of a text", 20_000, lambda n: "x" * n)
_arguments("characters of JSON text", 20_000, lambda n: json.dumps({"q": "x" * n}))
_arguments("escapes in JSON text", 4_000, lambda n: json.dumps({"q": '\n\t"é' * (n // 4)}))
_arguments(
    "empty lists in JSON text", 4_000, lambda n: json.dumps({"q": [[]] * n}, separators=(",", ":"))
)
_arguments(
    "empty objects in JSON text",
    4_000,
    lambda n: json.dumps({"q": [{}] * n}, separators=(",", ":")),
)
_arguments(
    "lists below one another in JSON text",
    4_000,
    lambda n: json.dumps({"q": _column(n)}, separators=(",", ":")),
)
_arguments("opening brackets in JSON text", 4_000, lambda n: "[" * n)
_arguments(
    "members of an object in JSON text",
    2_000,
    lambda n: json.dumps({f"k{each}": each for each in range(n)}),
)
_arguments(
    "short texts in JSON text",
    4_000,
    lambda n: json.dumps([f"{each:x}" for each in range(n)], separators=(",", ":")),
)
_arguments("numbers in JSON text", 4_000, lambda n: json.dumps([each / 8 for each in range(n)]))
_arguments("digits of a number in JSON text", 3_000, lambda n: f'{{"q": {"9" * n}}}')
_arguments("JSON text within JSON text", 4_000, lambda n: json.dumps(json.dumps({"q": [[]] * n})))
_arguments(
    "members of a Python literal", 1_000, lambda n: repr({f"k{each}": [each] for each in range(n)})
)
_arguments("empty lists in a list", 1_000, lambda n: [[]] * n)
_arguments("empty maps in a map", 1_000, lambda n: {f"k{each}": {} for each in range(n)})
_arguments("lists below one another", 1_200, _column)
_arguments("numbers in a list", 1_000, lambda n: list(range(n)))
_arguments("bytes", 20_000, lambda n: b"QUJD" * (n // 4))


@_shape("objects in JSON text of many calls", 20)
def _(n: int) -> Spans:
    yield agent()
    yield from (
        tool(number, values={_ARGUMENTS: '{"q":[' + ",".join(["[]"] * 60) + "]}"})
        for number in range(n)
    )


@_shape("messages of a model call", 200)
def _(n: int) -> Spans:
    yield agent()
    said = [
        {
            "role": "assistant",
            "parts": [{"type": "tool_call", "id": f"c{each}", "name": "search", "arguments": {}}],
        }
        for each in range(n)
    ]
    yield span(
        1, ROOT, {"gen_ai.operation.name": "chat", "gen_ai.output.messages": json.dumps(said)}
    )


@_shape("messages of an agent", 200)
def _(n: int) -> Spans:
    said = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]} for each in range(n)]
    yield agent(
        values={
            "gen_ai.input.messages": json.dumps(said),
            "gen_ai.output.messages": json.dumps(said),
        }
    )
    yield tool(1)


# --------------------------------------------------------------------------------------------------
# log records


def _record(number: int, values: Any = (), **fields: Any) -> dict[str, Any]:
    own = {
        "traceId": TRACE,
        "spanId": identity(number),
        "eventName": "gen_ai.client.inference.operation.details",
    }
    return own | {"attributes": json_attributes(values)} | fields


def _beside(*records: dict[str, Any], spans: Iterable[dict[str, Any]] = ()) -> list[Request]:
    """An agent with a tool call or other spans, and log records."""
    return [("traces", [traces([agent(), *(list(spans) or [tool(1)])])]), ("logs", [logs(records)])]


@_shape("log records of one span", 200)
def _(n: int) -> list[Request]:
    return _beside(*[_record(1, {"n": number}) for number in range(n)])


@_shape("equal log records", 200)
def _(n: int) -> list[Request]:
    return _beside(*[_record(1)] * n)


@_shape("log records of as many spans", 60)
def _(n: int) -> list[Request]:
    return _beside(*map(_record, range(n)), spans=[tool(number) for number in range(n)])


@_shape("log records of as many traces", 100)
def _(n: int) -> list[Request]:
    return _beside(*[_record(1) | {"traceId": f"{number + 1:032x}"} for number in range(n)])


@_shape("attributes of a log record", 400)
def _(n: int) -> list[Request]:
    return _beside(_record(1, ((f"k{number}", number) for number in range(n))))


@_shape("empty lists in a log record's body", 1_000)
def _(n: int) -> list[Request]:
    return _beside(_record(1, body=json_value({"input": {"messages": [[]] * n}, "output": {}})))


@_shape("messages in a log record's body", 200)
def _(n: int) -> list[Request]:
    said = [{"role": "assistant", "content": "hello"}] * n
    return _beside(
        _record(1, body=json_value({"input": {"messages": said}, "output": {"messages": said}}))
    )


@_shape("characters in a log record's body", 20_000)
def _(n: int) -> list[Request]:
    return _beside(_record(1, body=json_value({"input": {"messages": "x" * n}})))


# --------------------------------------------------------------------------------------------------
# resources and scopes


def _groups(groups: Iterable[dict[str, Any]]) -> list[Request]:
    return [("traces", [traces([agent()]), *groups])]


@_shape("resources", 300)
def _(n: int) -> list[Request]:
    each = (
        {"attributes": json_attributes({"service.name": f"bot {number}"})} for number in range(n)
    )
    return _groups(traces([tool(number)], resource) for number, resource in enumerate(each))


@_shape("equal resources", 60)
def _(n: int) -> list[Request]:
    return _groups(traces([tool(number)]) for number in range(n))


@_shape("resources without spans", 1200)
def _(n: int) -> list[Request]:
    return _groups({"scopeSpans": []} for _ in range(n))


@_shape("scopes", 300)
def _(n: int) -> list[Request]:
    return _groups(
        traces([tool(number)], scope={"name": f"agents {number}"}) for number in range(n)
    )


@_shape("scopes without spans", 1200)
def _(n: int) -> list[Request]:
    return _groups([{"scopeSpans": [{"scope": {"name": f"s{number}"}} for number in range(n)]}])


@_shape("attributes of a resource", 400)
def _(n: int) -> list[Request]:
    return _groups(
        [
            traces(
                [tool(1)],
                {"attributes": json_attributes((f"k{number}", number) for number in range(n))},
            )
        ]
    )


@_shape("attributes of a scope", 400)
def _(n: int) -> list[Request]:
    return _groups(
        [
            traces(
                [tool(1)],
                scope={
                    "name": "s",
                    "attributes": json_attributes((f"k{number}", number) for number in range(n)),
                },
            )
        ]
    )


@_shape("characters of a service's name", 20_000)
def _(n: int) -> list[Request]:
    return [
        (
            "traces",
            [
                traces(
                    [agent(), tool(1)], {"attributes": json_attributes({"service.name": "s" * n})}
                )
            ],
        )
    ]


@_shape("characters of a scope's name", 20_000)
def _(n: int) -> list[Request]:
    return [("traces", [traces([agent(), tool(1)], scope={"name": "s" * n})])]
