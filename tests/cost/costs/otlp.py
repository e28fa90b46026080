"""OTLP as JSON documents, from which requests in protobuf and in JSON are made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from otel_eval.otlp.otlp_json import rewrite
from tests.support.made_spans import json_attributes, json_span

__all__ = [
    "ROOT",
    "TRACE",
    "agent",
    "body",
    "identity",
    "logs",
    "span",
    "tool",
    "traces",
]

TRACE: Final = "7b" * 16
ROOT: Final = "f" * 16
_START_NS: Final = 1_700_000_000_000_000_000


def identity(number: int) -> str:
    """The id of a span."""
    return f"{number + 1:016x}"


def span(number: int, parent: str | None = ROOT, values: Any = (), **fields: Any) -> dict[str, Any]:
    """A span of one microsecond; `number` makes its id and its time."""
    start = _START_NS + 1000 * number
    ids = {"traceId": TRACE, "spanId": identity(number), "parentSpanId": parent or ""}
    return json_span(
        *(1, 1, 0, "step"), start_ns=start, end_ns=start + 1000, attributes=values, **(ids | fields)
    )


def tool(number: int, parent: str | None = ROOT, values: Any = (), **fields: Any) -> dict[str, Any]:
    """A span of a tool call."""
    pairs = list(values.items()) if isinstance(values, dict) else list(values)
    own = [("gen_ai.operation.name", "execute_tool"), ("gen_ai.tool.name", "search")]
    return span(number, parent, own + pairs, **({"name": "execute_tool search"} | fields))


def agent(
    number: int = -2, parent: str | None = None, values: Any = (), **fields: Any
) -> dict[str, Any]:
    """A span of an agent's run; without a number the root of the trace, which ends after everything
    else.
    """
    pairs = list(values.items()) if isinstance(values, dict) else list(values)
    own = [("gen_ai.operation.name", "invoke_agent"), ("gen_ai.agent.name", "helper")]
    root = (
        {"spanId": ROOT, "startTimeUnixNano": str(_START_NS), "endTimeUnixNano": str(2 * _START_NS)}
        if number < 0
        else {}
    )
    return span(number, parent, own + pairs, **({"name": "invoke_agent helper"} | root | fields))


def traces(
    spans: Iterable[dict[str, Any]], resource: Any = None, scope: Any = None
) -> dict[str, Any]:
    """One resource, one scope."""
    inner = {"scope": scope or {"name": "agents"}, "spans": list(spans)}
    return {
        "resource": resource or {"attributes": json_attributes({"service.name": "bot"})},
        "scopeSpans": [inner],
    }


def logs(records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The same of log records."""
    return {"scopeLogs": [{"scope": {"name": "agents"}, "logRecords": list(records)}]}


def body(signal: str, groups: list[dict[str, Any]], encoding: str) -> bytes:
    """A request of these resources."""
    document = {"resourceSpans" if signal == "traces" else "resourceLogs": groups}
    if encoding == "json":
        return json.dumps(document, separators=(",", ":")).encode()
    return rewrite(signal, document)[0]
