"""What a client is answered, and what is counted, when workers answer their parts of one request differently."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from otel_eval.app.workers.front import SplittingHandler
from otel_eval.counters import Counters
from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.export_handler import INTERNAL_ERROR, ExportResponse, ExportStatus
from otel_eval.sources.receiver.memory import MemoryLimiter


class Answering:
    """A worker that gives one answer."""

    def __init__(self, answer: ExportResponse) -> None:
        self._answer = answer

    def begin_part(self, kind: int, body: bytes) -> Callable[[], ExportResponse]:
        """Take a part."""
        return lambda: self._answer


def answered(answers: Sequence[ExportResponse]) -> tuple[ExportResponse, Counters]:
    counters = Counters()
    workers: Any = [Answering(each) for each in answers]
    handler = SplittingHandler(workers, memory_limiter=MemoryLimiter(1 << 20), counters=counters, most_bytes=1 << 20)
    return handler.answer("grpc", Signal.TRACES, Encoding.PROTOBUF, 0, lambda _: b""), counters


@pytest.mark.parametrize(("why", "counted"), [(INTERNAL_ERROR, "internal_errors"), ("no room now", "refused_requests")])
def test_a_request_has_one_outcome(why: str, counted: str):
    """A fault of a worker is an internal error of the request and no refusal too: both would make fewer than 0 successes."""
    response, counters = answered([ExportResponse(ExportStatus.RETRYABLE, why, retry_after_s=1.0)])
    assert response.status is ExportStatus.RETRYABLE
    assert response.message == why
    outcomes = {name: counters.get(name) for name in ("internal_errors", "refused_requests", "bad_requests")}
    assert {name for name, count in outcomes.items() if count} == {counted}, outcomes
