"""Agent runs with numbers: its number decides what each did, so that its expected scores can be
computed.

Knows how a run is written as spans. Knows nothing of scores.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

__all__ = ["Call", "Run", "body", "run_of", "trace_id"]

TOOLS: Final = ("search", "refund", "fetch", "delete_account")
EPOCH_NS: Final = 1_700_000_000_000_000_000
MS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool."""

    tool: str
    failed: bool
    ms: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an agent: its number, and what it did in order."""

    number: int
    calls: tuple[Call, ...]

    @property
    def ms(self) -> int:
        """How long it took."""
        return sum(call.ms for call in self.calls) + 10

    def spans(self) -> list[Span]:
        """The calls, then the run itself, each with its place in the sequence."""
        root = hashlib.blake2b(b"%d root" % self.number, digest_size=8).digest()
        at, spans = EPOCH_NS, []
        for place, call in enumerate(self.calls):
            span_id = hashlib.blake2b(b"%d %d" % (self.number, place), digest_size=8).digest()
            span = self._span(span_id, f"execute_tool {call.tool}", at, at + call.ms * MS, place)
            span.parent_span_id = root
            _put(span, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool})
            if call.failed:
                span.status.code = 2
                _put(span, {"error.type": "TimeoutError"})
            at += call.ms * MS
            spans.append(span)
        own = self._span(
            root, "invoke_agent rig", EPOCH_NS, EPOCH_NS + self.ms * MS, len(self.calls)
        )
        _put(own, {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "rig"})
        return [*spans, own]

    def _span(self, span_id: bytes, name: str, start: int, end: int, place: int) -> Span:
        span = Span(trace_id=trace_id(self.number), span_id=span_id, name=name, kind=1, flags=256)
        span.start_time_unix_nano, span.end_time_unix_nano = start, end
        _put(span, {"rig.sequence": self.number * 1000 + place})
        return span


def trace_id(number: int) -> bytes:
    """The id of the run with that number."""
    return hashlib.blake2b(b"trace %d" % number, digest_size=16).digest()


def run_of(number: int, *, calls: int | None = None) -> Run:
    """The run with that number; of up to seven calls, or of as many as are asked for."""
    rng = random.Random(number)
    count = rng.randrange(8) if calls is None else calls
    return Run(
        number,
        tuple(
            Call(rng.choice(TOOLS), rng.random() < 0.2, rng.randrange(1, 400)) for _ in range(count)
        ),
    )


def body(spans: Iterable[Span]) -> bytes:
    """A request of one service."""
    request = ExportTraceServiceRequest()
    group = request.resource_spans.add()
    _put(group.resource, {"service.name": "rig"})
    scope = group.scope_spans.add()
    scope.scope.name = "rig"
    scope.spans.extend(spans)
    return request.SerializeToString()


def _put(holder: Any, values: dict[str, str | int]) -> None:
    for key, value in values.items():
        attribute = holder.attributes.add()
        attribute.key = key
        if isinstance(value, int):
            attribute.value.int_value = value
        else:
            attribute.value.string_value = value
