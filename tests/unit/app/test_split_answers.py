"""What a client is answered, and what is counted, when workers answer their parts of one request
differently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from otel_eval.app.workers.front import SplittingHandler
from otel_eval.counters import Counters
from otel_eval.errors import Overloaded
from otel_eval.otlp import Encoding, Signal
from otel_eval.sources.receiver.export_handler import (
    ExportResponse,
    ExportStatus,
    InternalError,
    ReceiverLimits,
)


class Refusing:
    """A worker that takes nothing."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def begin_part(
        self, transport: str, signal: Signal, body: bytes
    ) -> Callable[[], ExportResponse]:
        """Take a part."""

        def finish() -> ExportResponse:
            raise self._error

        return finish


def answered(errors: Sequence[Exception]) -> tuple[ExportResponse, Counters]:
    workers: Any = [Refusing(each) for each in errors]
    handler = SplittingHandler(workers, ReceiverLimits(max_inflight_bytes=1 << 20))
    return handler.answer(
        "grpc", Signal.TRACES, Encoding.PROTOBUF, 0, lambda _: b""
    ), handler.counters


@pytest.mark.parametrize(
    ("error", "why", "counted"),
    [
        (InternalError("KeyError"), "internal error, retry", "internal_errors"),
        (RuntimeError("KeyError"), "internal error, retry", "internal_errors"),
        (Overloaded("no room now"), "no room now", "refused_requests"),
    ],
)
def test_a_request_has_one_outcome(error: Exception, why: str, counted: str):
    """An error of a worker counts as an internal error and not also as a refusal: both would result
    in fewer than 0 successes.
    """
    response, counters = answered([error])
    assert response.status is ExportStatus.RETRYABLE
    assert response.message == why
    outcomes = {
        name: counters.get(name) for name in ("internal_errors", "refused_requests", "bad_requests")
    }
    assert {name for name, count in outcomes.items() if count} == {counted}, outcomes
