"""A backend that is unreachable, full or refuses: every lost item is counted, and clients get
backpressure.
"""

from __future__ import annotations

from typing import Any

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from otel_eval.counters import count_name
from tests.support import agent_programs
from tests.support import otlp_backend as backends
from tests.support.waiting import STAYS_OPEN, wait_until

TRACES = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
LOGS = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
AWAY = {"grpc": "UNAVAILABLE", "http/protobuf": 503}
NEVER = {"grpc": "INVALID_ARGUMENT", "http/protobuf": 400}
UNKNOWN = {"grpc": "UNIMPLEMENTED", "http/protobuf": 404}


def request(number: int, size: int = 100) -> bytes:
    """One span that does not wait."""
    made = ExportTraceServiceRequest()
    span = made.resource_spans.add().scope_spans.add().spans.add(name="x" * size, flags=0x100)
    span.trace_id, span.span_id, span.parent_span_id = (
        number.to_bytes(16, "big"),
        b"s" * 8,
        b"p" * 8,
    )
    return made.SerializeToString()


def export(bound: Any, body: bytes, method: str = TRACES) -> str:
    """The status of one request."""
    with grpc.insecure_channel(bound.grpc) as channel:
        try:
            channel.unary_unary(method)(body, timeout=300)
        except grpc.RpcError as error:
            return str(error.code().name)
    return "OK"


def names(backend: Any) -> set[str]:
    """Of the spans that arrived."""
    requests = map(ExportTraceServiceRequest.FromString, backend.got["traces"])
    return {
        s.trace_id.hex()
        for r in requests
        for g in r.resource_spans
        for c in g.scope_spans
        for s in c.spans
    }


def test_what_could_not_be_sent_is_sent_again(backend: Any, protocol: str) -> None:
    """After an answer that OTLP calls retryable, and counted."""
    backend.refuse_once = AWAY[protocol]
    with backends.forwarding(backend, protocol) as (server, bound):
        assert export(bound, request(1)) == "OK"
        assert backend.wait(lambda: backend.got["traces"])
        assert server.counts()[count_name("forward.retries", signal="traces")] == 1
    assert backend.got["traces"] == [request(1)]


def test_a_full_queue_gives_clients_a_retryable_error(backend: Any) -> None:
    """All that was acknowledged arrives when the backend is back; what was refused was not taken by
    anyone.
    """
    backend.status = "UNAVAILABLE"
    with backends.forwarding(backend, forward={"max_queue_size": 5000}) as (server, bound):
        answers = {number: export(bound, request(number, 1000)) for number in range(1, 11)}
        taken = {number for number, answer in answers.items() if answer == "OK"}
        assert {answers[number] for number in answers.keys() - taken} == {"UNAVAILABLE"}
        assert 2 <= len(taken) <= 5
        assert server.counts()["traces_opened"] == len(taken)
        backend.status = ""
        assert backend.wait(lambda: len(names(backend)) == len(taken))
        assert export(bound, request(11, 1000)) == "OK"
    assert names(backend) == {number.to_bytes(16, "big").hex() for number in (*taken, 11)}


def test_a_permanent_refusal_is_counted_and_logged(
    backend: Any, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, not tried again, and the next request is."""
    backend.refuse_once = NEVER[protocol]
    with backends.forwarding(backend, protocol) as (server, bound):
        export(bound, request(1))
        assert backend.wait(lambda: backend.asked == 1)
        export(bound, request(2))
        assert backend.wait(lambda: backend.got["traces"])
    assert backend.got["traces"] == [request(2)]
    counts = server.counts()
    assert (
        counts[count_name("forward.refused", signal="traces")],
        counts[count_name("forward.sent", signal="traces")],
    ) == (
        1,
        1,
    )
    # A process says once that nothing was evaluated: in the test that it runs first.
    messages = [
        record.message
        for record in caplog.records
        if not record.message.startswith("nothing was evaluated")
    ]
    assert messages == [f"1 of 1 spans were refused by the backend: {NEVER[protocol]}"]


def test_a_signal_that_the_backend_never_supported_waits_and_is_given_up(
    backend: Any, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning; senders still receive OK, and the backend is not tried again for a minute."""
    backend.status = UNKNOWN[protocol]
    with backends.forwarding(backend, protocol, delivery={"give_up_after": "200ms"}) as (
        server,
        bound,
    ):
        for number in (1, 2):
            assert export(bound, request(number), LOGS) == "OK"
            wait_until(
                lambda number=number: (
                    server.counts().get(count_name("forward.discarded", signal="logs")) == number
                )
            )
        assert server.counts()[count_name("exports.unsupported", exporter="forward.logs")] == 1
        assert backend.asked == 1
    assert [record.message for record in caplog.records if "support" in record.message] == [
        f"the endpoint of forward does not support logs ({UNKNOWN[protocol]}): they wait for 0.2 s,"
        " then they are dropped; one is tried again every 60 s"
    ]


def test_held_roots_leave_with_their_scores_at_the_end(backend: Any) -> None:
    """Marked `shutdown`."""
    spans = agent_programs.play(5, traces=2)
    with backends.forwarding(backend, traces=STAYS_OPEN) as (server, bound):
        export(bound, agent_programs.protobuf(spans))
        assert server.counts()["forward.held_spans"] > 0
    text = b"".join(backend.got["traces"])
    assert text.count(b"shutdown") > 0
    assert len(names(backend)) == 2
    assert server.counts()[count_name("forward.sent", signal="traces")] == len(spans)


def test_what_cannot_be_delivered_at_the_end_is_counted_and_logged(
    backend: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends in time."""
    backend.status = "UNAVAILABLE"
    with backends.forwarding(backend) as (server, bound):
        export(bound, request(1))
        assert not server.stop(2)
    assert server.counts()[count_name("forward.lost", signal="traces")] == 1
    assert "1 spans were not forwarded before the end (time was over; last error: UNAVAILABLE)" in [
        record.message for record in caplog.records
    ]


def test_headers_of_the_configuration_are_sent(backend: Any, protocol: str) -> None:
    """For keys and tenants."""
    with backends.forwarding(backend, protocol, forward={"headers": {"X-Tenant": "a"}}) as (
        _,
        bound,
    ):
        export(bound, request(1))
        assert backend.wait(lambda: backend.headers)
    assert backend.headers[0]["x-tenant"] == "a"


def test_a_root_that_comes_after_everything_was_forgotten_does_not_wait(backend: Any) -> None:
    """No result would ever come for it."""
    body = agent_programs.protobuf(agent_programs.play(5, traces=1))
    with backends.forwarding(
        backend,
        traces={"decision_wait": "50ms", "decision_wait_partial": "50ms", "grace_period": 0},
    ) as (
        server,
        bound,
    ):
        export(bound, body)
        wait_until(lambda: not server.counts()["held_bytes"])
        export(bound, body)
        assert server.counts()["forward.held_spans"] == 0


@pytest.mark.parametrize(
    ("rejected", "message", "line"),
    [
        (
            1,
            "attribute\nvalue too long",
            "1 of 1 spans were refused by the backend: attribute value too long",
        ),
        (1, "", "1 of 1 spans were refused by the backend: it gave no reason"),
        (0, "use " + "v" * 500, f"the backend warned about spans: use {'v' * 195}…"),
    ],
    ids=["with a reason", "without one", "only a warning"],
)
def test_a_partial_success_is_reported_as_spans_with_the_reason(
    backend: Any,
    protocol: str,
    rejected: int,
    message: str,
    line: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """On one line of bounded length; a rejected span is not counted as sent."""
    answer = ExportTraceServiceResponse()
    answer.partial_success.rejected_spans, answer.partial_success.error_message = rejected, message
    backend.answer = answer.SerializeToString()
    with backends.forwarding(backend, protocol) as (server, bound):
        assert export(bound, request(1)) == "OK"
        assert backend.wait(lambda: backend.got["traces"])
    counts = server.counts()
    assert (
        counts.get(count_name("forward.refused", signal="traces"), 0),
        counts[count_name("forward.sent", signal="traces")],
    ) == (rejected, 1 - rejected)
    assert line in [record.getMessage() for record in caplog.records]
