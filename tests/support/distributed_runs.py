"""Agent runs over several services, each of which exports its own spans, in any order and with any
delay; and what a replay of all spans gives.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.app.build import build_engine
from otel_eval.assembly import TraceBuffer
from otel_eval.config import load
from otel_eval.engine import Engine
from otel_eval.model import Report, Scored, Skipped
from otel_eval.otlp.protobuf import read_traces

SECOND = 1_000_000_000
LOCAL, REMOTE = 0x100, 0x300  # flags: the parent is in the same process, or in another one
SERVER = 2
AGENT = {"gen_ai.operation.name": "invoke_agent"}
CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m"}
MCP = {"mcp.method.name": "tools/call"}
CONFIG = {
    "evaluations": [
        {
            "name": "policy",
            "scorers": [
                {"type": "tool_call_count", "criteria": {"book": [">=", 1], "fetch": ["<=", 1]}},
                {"type": "required_tools", "patterns": ["book"]},
                {"type": "tool_errors"},
                {"type": "execution_order", "of": "spans", "expected": ["POST /book"]},
            ],
        }
    ]
}


def engine() -> Engine:
    """An engine that also reports traces without a result."""
    return build_engine(load({**CONFIG, "exporters": {"jsonl": {"path": "-"}}}), lines=True)


def tool(name: str) -> dict[str, str]:
    """The attributes of a tool span."""
    return {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}


@dataclass
class Run:
    """The spans of one trace by name, each with its service."""

    trace_id: bytes
    spans: dict[str, tuple[str, Span]]

    def add(
        self, service: str, name: str, parent: str, attributes: Mapping[str, str], **fields: Any
    ) -> Span:
        """Add a span below another one; `start` and `end` are seconds."""
        made = Span(
            trace_id=self.trace_id,
            span_id=len(self.spans).to_bytes(7, "big") + b"s",
            name=name,
            kind=fields.get("kind", 1),
            flags=fields.get("flags", LOCAL),
            start_time_unix_nano=SECOND + int(fields.get("start", 0) * SECOND),
            end_time_unix_nano=SECOND + int(fields.get("end", 1) * SECOND),
        )
        if parent:
            made.parent_span_id = self.spans[parent][1].span_id
        for key, value in attributes.items():
            made.attributes.add(key=key).value.string_value = value
        if fields.get("failed"):
            made.status.code = 2
        self.spans[name] = service, made
        return made

    def body(self, names: Iterable[str]) -> bytes:
        """A request with some of the spans."""
        request = ExportTraceServiceRequest()
        for name in names:
            service, made = self.spans[name]
            group = request.resource_spans.add()
            group.resource.attributes.add(key="service.name").value.string_value = service
            scope = group.scope_spans.add()
            scope.scope.name = "app"
            scope.spans.append(made)
        return request.SerializeToString()

    def replayed(self) -> dict[str, Any]:
        """The outcomes of each run, by the name of its own span, if all spans are there at once."""
        return final_outcomes(self, evaluated(read_traces(self.body(self.spans)).spans))


def evaluated(spans: Iterable[Any]) -> list[Report]:
    """What a replay reports of spans."""
    buffer, judge = TraceBuffer(), engine()
    buffer.push_many(spans, 0.0)
    return [report for trace in buffer.drain(0.0) for report in judge.evaluate(trace)]


def final_outcomes(run: Run, reports: Iterable[Report]) -> dict[str, Any]:
    """The outcomes of the last revision of each run, and of the trace itself (""), if it has any.

    The revisions of each are counted from 0.
    """
    names = {made.span_id.hex(): name for name, (_, made) in run.spans.items()} | {"": ""}
    found: dict[str, Any] = {}
    revisions: dict[str, int] = {}
    for report in reports:
        if report.trajectory.trace_id != run.trace_id.hex():
            continue
        name = names[report.trajectory.span_id]
        assert report.revision == revisions.get(name, -1) + 1, (name, report.revision)
        revisions[name] = report.revision
        found[name] = (
            report.no_run.reason
            if report.no_run
            else [_outcome(each.outcome) for each in report.results]
        )
    return found


def _outcome(outcome: Any) -> Any:
    if isinstance(outcome, Scored):
        return outcome.value
    return outcome.explanation if isinstance(outcome, Skipped) else outcome


def check(run: Run, reports: Iterable[Report]) -> None:
    """Check that the final revisions are what a replay gives. A run that the replay does not have
    is withdrawn, and so is a row that says the trace has no run.
    """
    expected, found = run.replayed(), final_outcomes(run, reports)
    assert {name: found.get(name) for name in expected} == expected
    for name in found.keys() - expected.keys():
        texts = found[name] if name else ["part of run " * (found[name] == "withdrawn")]
        assert all(str(text).startswith("part of run ") for text in texts), (name, texts)


FORMS = {
    "a server span": ["POST /book"],
    "a server span without flags": ["POST /book"],
    "an MCP server's span": ["tools/call book"],
    "a model call and a server span": ["chat m", "POST /book"],
    "a sub-agent": ["invoke_agent sub", "execute_tool look"],
    "the root": ["invoke_agent a"],
    "the root and a model call": ["invoke_agent a", "chat m"],
}
"""What arrives first of a run with a long tool call."""


def paused_run(form: str, gap_s: float) -> Run:
    """A run whose tool takes `gap_s` and fails; the tool calls another service."""
    run = Run(random.Random(f"{form}{gap_s}").randbytes(16), {})
    tool_name = "execute_tool book"
    run.add("agent", "invoke_agent a", "", AGENT | {"gen_ai.agent.name": "a"}, end=gap_s)
    run.add("agent", "chat m", "invoke_agent a", CHAT, start=0.1, end=0.5)
    run.add(
        "agent", tool_name, "invoke_agent a", tool("book"), start=0.6, end=gap_s - 0.1, failed=True
    )
    times: dict[str, Any] = {"flags": REMOTE, "start": 0.7, "end": 0.9}
    if "MCP" in form:
        served = MCP | tool("book")
        run.add("mcp", "tools/call book", tool_name, served, kind=SERVER, **times)
    elif "sub-agent" in form:
        run.add("sub", "invoke_agent sub", tool_name, AGENT | {"gen_ai.agent.name": "sub"}, **times)
        run.add("sub", "execute_tool look", "invoke_agent sub", tool("look"), start=0.75, end=0.8)
    else:
        times["flags"] = 0 if "without flags" in form else REMOTE
        run.add("web", "POST /book", tool_name, {"http.request.method": "POST"}, kind=2, **times)
    return run


def random_run(number: int) -> Run:
    """A run with model calls, tools, MCP servers, web servers and sub-agents in other services."""
    rng = random.Random(number)
    run, at = Run(rng.randbytes(16), {}), 0.1
    root = run.add("agent", "invoke_agent a", "", AGENT | {"gen_ai.agent.name": "a"})
    for step in range(rng.randrange(1, 5)):
        run.add("agent", f"chat {step}", "invoke_agent a", CHAT, start=at, end=at + 0.05)
        name, length = rng.choice(["book", "fetch", "look"]), rng.uniform(0.1, 3)
        own = f"execute_tool {name} {step}"
        run.add(
            "agent",
            own,
            "invoke_agent a",
            tool(name),
            start=at + 0.1,
            end=at + length,
            failed=rng.random() < 0.2,
        )
        below: dict[str, Any] = {"flags": REMOTE, "start": at + 0.2, "end": at + length - 0.05}
        match rng.randrange(4):
            case 0:
                run.add("mcp", f"tools/call {step}", own, MCP | tool(name), kind=SERVER, **below)
            case 1:
                run.add("web", f"POST /{step}", own, {}, kind=SERVER, **below)
                run.add("web", f"SELECT {step}", f"POST /{step}", {"db.system": "x"})
            case 2:
                sub = AGENT | {"gen_ai.agent.name": "sub"}
                run.add("sub", f"invoke_agent sub {step}", own, sub, **below)
                run.add("sub", f"look {step}", f"invoke_agent sub {step}", tool("look"))
        at += length + 0.1
    root.end_time_unix_nano = SECOND + int(at * SECOND)
    return run
