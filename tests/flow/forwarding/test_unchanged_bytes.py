"""Forwarded spans equal the spans that were received, byte by byte, apart from the scores on runs'
own spans.
"""

from __future__ import annotations

import json
import random
import urllib.request
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from otel_eval.counters import count_name
from otel_eval.otlp.otlp_json import rewrite
from tests.support import agent_programs
from tests.support import otlp_backend as backends
from tests.support.waiting import STAYS_OPEN

TRACES = sorted((Path(__file__).parents[2] / "traces").glob("*.json"))
RECORDED = [path for path in TRACES if path.name != "truth.json"]
METHODS = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
    "metrics": "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export",
}
ScoreCounts = Counter[tuple[bytes, bytes]]
Placed = list[tuple[Any, bytes]]
"""Spans with their surroundings, as `spans_of` gives them."""
EVENT = "gen_ai.evaluation.result"


def export(bound: Any, *bodies: bytes, signal: str = "traces") -> None:
    """Send requests over gRPC."""
    with grpc.insecure_channel(bound.grpc) as channel:
        for body in bodies:
            channel.unary_unary(METHODS[signal])(body, timeout=300)


def _opaque() -> Any:
    """Requests whose spans stay bytes."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(
        name="opaque.proto", package="opaque", syntax="proto3"
    )
    levels = {"Request": "Group", "Group": "Scope", "Scope": None}
    for name, inner in levels.items():
        message = file.message_type.add(name=name)
        if name != "Request":
            message.field.add(
                name="head", number=1, label=field.LABEL_REPEATED, type=field.TYPE_BYTES
            )
            message.field.add(
                name="url", number=3, label=field.LABEL_REPEATED, type=field.TYPE_BYTES
            )
            message.field.add(
                name="unknown", number=99, label=field.LABEL_REPEATED, type=field.TYPE_BYTES
            )
        listed = message.field.add(
            name="listed", number=1 if name == "Request" else 2, label=field.LABEL_REPEATED
        )
        listed.type = field.TYPE_MESSAGE if inner else field.TYPE_BYTES
        if inner:
            listed.type_name = f".opaque.{inner}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("opaque.Request"))


OPAQUE = _opaque()


def spans_of(*bodies: bytes) -> list[tuple[Any, bytes]]:
    """Each span's bytes with all that stands around it."""
    found = []
    for body in bodies:
        for group in OPAQUE.FromString(body).listed:
            around = (tuple(group.head), tuple(group.url), tuple(group.unknown))
            for scope in group.listed:
                inner = (tuple(scope.head), tuple(scope.url), tuple(scope.unknown))
                found += [((around, inner), span) for span in scope.listed]
    return found


def without_scores(span: bytes) -> tuple[bytes, list[Span.Event]]:
    """The bytes before the scores that were appended, and the scores."""
    parsed = Span.FromString(span)
    scores = [event for event in parsed.events if event.name == EVENT]
    for event in reversed(scores):
        raw = event.SerializeToString()
        tail = b"\x5a" + _varint(len(raw)) + raw
        assert span.endswith(tail)
        span = span[: -len(tail)]
    return span, scores


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*out, number))


def compared(sent: Placed, got: Placed) -> list[Span]:
    """Assert that both are the same spans in the same surroundings; the spans that carry scores."""
    arrived = []
    scored = []
    for around, span in got:
        bare, scores = without_scores(span)
        arrived.append((around, bare))
        if scores:
            scored.append(Span.FromString(span))
    assert Counter(arrived) == Counter(sent)
    return scored


def arrived(backend: Any, spans: int) -> Any:
    """Whether so many spans are there."""
    return backend.wait(lambda: len(spans_of(*backend.got["traces"])) >= spans)


@pytest.fixture(scope="module", params=["grpc", "http/protobuf"])
def forwarded(request: pytest.FixtureRequest) -> dict[str, tuple[Placed, Placed]]:
    """Every recorded file, sent as it is through one receiver: by name its spans, and those of its
    traces that arrived.
    """
    sent = {
        path.stem: spans_of(rewrite("traces", json.loads(path.read_text()))[0]) for path in RECORDED
    }
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    # one has no root
    waits = {
        "decision_wait": "200ms",
        "decision_wait_partial": "300ms",
        "decision_wait_detached": "1s",
    }
    with (
        backends.BACKENDS[request.param]() as backend,
        backends.forwarding(backend, request.param, traces=waits) as (_, bound),
    ):
        for path in RECORDED:
            body, headers = path.read_bytes(), {"Content-Type": "application/json"}
            post = urllib.request.Request(
                f"http://{bound.http}/v1/traces", body, headers, method="POST"
            )
            with opener.open(post, timeout=300) as answer:
                assert json.loads(answer.read()) == {}
        assert arrived(backend, sum(map(len, sent.values())))
    file_of = {
        Span.FromString(span).trace_id: name for name, spans in sent.items() for _, span in spans
    }
    got: dict[str, Placed] = defaultdict(list)
    for around, span in spans_of(*backend.got["traces"]):
        got[file_of[Span.FromString(span).trace_id]].append((around, span))
    return {name: (spans, got[name]) for name, spans in sent.items()}


@pytest.mark.parametrize("name", [path.stem for path in RECORDED])
def test_a_recorded_trace_goes_through(
    name: str, forwarded: dict[str, tuple[Placed, Placed]]
) -> None:
    """In pieces of no particular order; each run of it carries its scores."""
    scored = compared(*forwarded[name])
    assert scored
    assert len({span.span_id for span in scored}) == len(scored)


def random_request(rng: random.Random) -> bytes:
    """Groups, scopes and spans of any shape, with unknown fields, empty ones among them."""
    request = ExportTraceServiceRequest()
    traces = [
        (rng.randbytes(16), [rng.randbytes(8) for _ in range(3)])
        for _ in range(rng.randrange(1, 4))
    ]
    for _ in range(rng.randrange(0, 4)):
        group = request.resource_spans.add(schema_url=rng.choice(("", "https://example.test/1")))
        item = group.resource.attributes.add(key="service.name")
        item.value.string_value = rng.choice(("a", "b"))
        for _ in range(rng.randrange(0, 3)):
            scope = group.scope_spans.add(schema_url=rng.choice(("", "https://example.test/2")))
            scope.scope.name = rng.choice(("", "agents", "otel_eval"))
            for _ in range(rng.randrange(0, 5)):
                _random_span(rng, scope.spans.add(), *rng.choice(traces))
    unknown = b"\x9a\x06" + bytes((3,)) + b"odd"
    parts = []
    for group in request.resource_spans:
        content = group.SerializeToString() + (unknown if rng.random() < 0.3 else b"")
        parts.append(b"\x0a" + _varint(len(content)) + content)
    return b"".join(parts)


def _random_span(rng: random.Random, span: Span, trace_id: bytes, ids: list[bytes]) -> None:
    span.trace_id = trace_id if rng.random() > 0.03 else b"short"
    span.span_id, span.name = rng.choice(ids), rng.choice(("run", "step", "é" * 50))
    if rng.random() < 0.7:
        span.parent_span_id = rng.choice((*ids, b"elsewher"))
    span.kind, span.flags = rng.randrange(6), rng.choice((0, 0x100, 0x300))
    span.start_time_unix_nano, span.end_time_unix_nano = (
        rng.randrange(1, 99),
        rng.randrange(99, 999),
    )
    if rng.random() < 0.6:
        item = span.attributes.add(key="gen_ai.operation.name")
        item.value.string_value = rng.choice(("invoke_agent", "execute_tool", "chat"))
    for _ in range(rng.randrange(3)):
        span.events.add(name="something", time_unix_nano=5)


def test_a_thousand_random_requests_go_through(backend: Any) -> None:
    """Unknown fields, broken ids, repeated spans, empty groups and our own telemetry among them."""
    rng = random.Random(20)
    bodies = [random_request(rng) for _ in range(1000)]
    with backends.forwarding(backend) as (server, bound):
        export(bound, *bodies)
    # those whose parents never come leave when it ends
    scored = compared(spans_of(*bodies), spans_of(*backend.got["traces"]))
    assert len(scored) > 200
    assert server.counts()[count_name("forward.sent", signal="traces")] == len(spans_of(*bodies))


def test_only_a_runs_own_span_waits(backend: Any) -> None:
    """Children leave while their trace is open, the root only when it is evaluated."""
    spans = agent_programs.play(5, traces=2)
    with backends.forwarding(backend, traces=STAYS_OPEN) as (server, bound):
        export(bound, agent_programs.protobuf(spans))
        held = server.counts()["forward.held_spans"]
        assert 0 < held < len(spans)
        assert arrived(backend, len(spans) - held)
        assert len(spans_of(*backend.got["traces"])) == len(spans) - held
    assert (
        len(compared(spans_of(*[agent_programs.protobuf(spans)]), spans_of(*backend.got["traces"])))
        >= 1
    )


@pytest.mark.parametrize(
    "evaluation",
    [
        {"sample": 0.0},
        {"match": {"service": "another"}},
        {"match": {"span": "x*"}},
        {"match": {"attributes": {"k": "v"}}},
    ],
)
def test_what_no_evaluation_wants_does_not_wait(backend: Any, evaluation: dict[str, Any]) -> None:
    """The sample, the service, the span's name and its attributes say so at once."""
    body = agent_programs.protobuf(agent_programs.play(3, traces=2))
    wanted = {"name": "none", "scorers": [{"type": "tool_errors"}], **evaluation}
    with backends.forwarding(
        backend,
        traces=STAYS_OPEN,
        evaluations=[wanted],
    ) as (
        _,
        bound,
    ):
        export(bound, body)
        assert arrived(backend, len(spans_of(body)))
    assert backend.got["traces"] == [body]


def test_scores_of_ours_pass_through_unevaluated(backend: Any) -> None:
    """A request of our own telemetry is passed on as it is."""
    request = ExportTraceServiceRequest()
    scope = request.resource_spans.add().scope_spans.add()
    scope.scope.name = "otel_eval"
    scope.spans.add(trace_id=b"t" * 16, span_id=b"s" * 8, name="evaluate policy")
    with backends.forwarding(backend) as (_, bound):
        export(bound, request.SerializeToString())
        assert arrived(backend, 1)
    assert backend.got["traces"] == [request.SerializeToString()]


def test_logs_and_metrics_are_passed_on_as_they_are(backend: Any, protocol: str) -> None:
    """Byte for byte, though logs are read for what they tell of runs."""
    logs = ExportLogsServiceRequest()
    logs.resource_logs.add(schema_url="u").scope_logs.add().log_records.add(
        event_name="gen_ai.x", trace_id=b"t" * 16
    )
    metrics = ExportMetricsServiceRequest()
    metrics.resource_metrics.add().scope_metrics.add().metrics.add(name="m")
    with backends.forwarding(backend, protocol) as (_, bound):
        export(bound, logs.SerializeToString(), signal="logs")
        export(bound, metrics.SerializeToString(), signal="metrics")
        assert backend.wait(lambda: backend.got["logs"] and backend.got["metrics"])
    assert backend.got == {
        "traces": [],
        "logs": [logs.SerializeToString()],
        "metrics": [metrics.SerializeToString()],
    }


def test_metrics_in_json_become_protobuf(backend: Any) -> None:
    """Ids of exemplars in hexadecimal included."""
    exemplar = {"traceId": "ab" * 16, "spanId": "cd" * 8, "asDouble": 1.5}
    point = {"asInt": "3", "exemplars": [exemplar]}
    document = {
        "resourceMetrics": [
            {"scopeMetrics": [{"metrics": [{"name": "m", "sum": {"dataPoints": [point]}}]}]}
        ]
    }
    with backends.forwarding(backend) as (_, bound):
        request = urllib.request.Request(
            f"http://{bound.http}/v1/metrics",
            json.dumps(document).encode(),
            {"Content-Type": "application/json"},
            method="POST",
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=300
        ).close()
        assert backend.wait(lambda: backend.got["metrics"])
    sent = ExportMetricsServiceRequest.FromString(backend.got["metrics"][0])
    (found,) = sent.resource_metrics[0].scope_metrics[0].metrics[0].sum.data_points[0].exemplars
    assert (found.trace_id, found.span_id) == (b"\xab" * 16, b"\xcd" * 8)


def test_a_root_that_is_sent_again_carries_the_same_scores(backend: Any) -> None:
    """A client that lost the acknowledgement repeats the request; nothing about the run changed."""
    spans = agent_programs.play(5, traces=1)
    body = agent_programs.protobuf(spans)
    with backends.forwarding(backend) as (_, bound):
        export(bound, body)
        assert arrived(backend, len(spans))
        export(bound, body)
        assert arrived(backend, 2 * len(spans))
    scored = compared(spans_of(*[body, body]), spans_of(*backend.got["traces"]))
    ids: ScoreCounts = Counter((span.span_id, span.SerializeToString()) for span in scored)
    assert set(ids.values()) == {2}
