"""What the response of an endpoint means for the data that was sent: one table for every exporter and for forwarding.

The table follows OTLP where OTLP does not lose results; `docs/reference/delivery.md` lists every response and the deviations.
Source: opentelemetry-proto docs/specification.md, "Failures" of OTLP/gRPC and of OTLP/HTTP.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

__all__ = ["AcceptedBefore", "ExportResult", "SignalHistory", "Status", "of_grpc", "of_http"]

Status = Literal["ok", "retryable", "server_error", "denied", "not_found", "unsupported", "permanent"]
"""What a response means by itself. `SignalHistory` reduces it to ok, retryable, permanent or unsupported.

`server_error`: a failure that OTLP does not call retryable but that often passes. `denied`: the credentials were refused.
`not_found`, `unsupported`: the endpoint may lack the signal, or a proxy in front of it may lack the endpoint for a while.
"""

_HTTP: Final[Mapping[int, Status]] = {
    401: "denied",
    403: "denied",
    404: "not_found",
    405: "unsupported",
    408: "server_error",
    429: "retryable",
    501: "unsupported",
    502: "retryable",
    503: "retryable",
    504: "retryable",
}
_GRPC: Final[Mapping[str, Status]] = {
    "ABORTED": "retryable",
    "CANCELLED": "retryable",
    "DATA_LOSS": "retryable",
    "DEADLINE_EXCEEDED": "retryable",
    "OUT_OF_RANGE": "retryable",
    "PERMISSION_DENIED": "denied",
    "UNAUTHENTICATED": "denied",
    "UNAVAILABLE": "retryable",
    "UNIMPLEMENTED": "unsupported",
}
_LACKS_THE_SIGNAL: Final = frozenset({"not_found", "unsupported"})
# What forwarding with storage retries without end: an operator can repair credentials and routes, and the data is on disk.
_REPAIRABLE: Final = frozenset({"denied", "not_found"})


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of one attempt to export.

    Attributes:
        status: what it means for the data that was sent.
        reason: in a word; of a partial success the endpoint's own reason, on one line of at most 200 characters.
        after_s: seconds that the endpoint asks to wait before the next attempt.
        rejected: items that it rejected of those that were sent (partial success); OTLP does not say which.
        concerns_all: whether the response is about the sender, so that a part of the data would be refused as well.
    """

    status: Status
    reason: str = ""
    after_s: float = 0.0
    rejected: int = 0
    concerns_all: bool = False


def of_http(code: int, after_s: float = 0.0) -> ExportResult:
    """The meaning of an HTTP status other than 2xx."""
    other: Status = "server_error" if 500 <= code < 600 else "permanent"
    return _result(_HTTP.get(code, other), str(code), after_s)


def of_grpc(code: str, after_s: float | None = None) -> ExportResult:
    """The meaning of a gRPC status other than OK; `after_s` is what RetryInfo asks for, None without one."""
    if code == "RESOURCE_EXHAUSTED" and after_s is not None:
        return _result("retryable", code, after_s)
    return _result(_GRPC.get(code, "permanent"), code, after_s or 0.0)


def _result(status: Status, reason: str, after_s: float) -> ExportResult:
    return ExportResult(status, reason, after_s, concerns_all=status == "denied")


class AcceptedBefore(Protocol):
    """What endpoints have accepted in earlier processes, by a key for endpoint and signal."""

    def has(self, key: str) -> bool:
        """Whether the signal was accepted."""
        ...

    def add(self, key: str) -> None:
        """It was."""
        ...


class SignalHistory:
    """Whether an endpoint has ever accepted a signal, and what a response means because of that.

    An endpoint that accepted the signal before still supports it: a 404 is an outage. One that never did is marked as not
    supporting the signal at the first such response, and one attempt is allowed in each `recheck_s` until it accepts.

    Args:
        forwards: what is sent are requests of agents, for which OTLP's own list of retryable responses holds.
        keeps: what is sent is on disk until it was delivered.
        key: for this endpoint and signal in `before`.
        before: what was accepted in earlier processes; None: only this process counts.
        recheck_s: seconds between attempts while the signal is not supported.
        clock: in seconds.

    Attributes:
        unsupported: the response because of which the signal counts as not supported; "" if it does not.
    """

    def __init__(
        self,
        *,
        forwards: bool = False,
        keeps: bool = False,
        key: str = "",
        before: AcceptedBefore | None = None,
        recheck_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._forwards, self._keeps, self._key, self._before = forwards, keeps, key, before
        self._accepted = before is not None and before.has(key)
        self._recheck_s, self._clock = recheck_s, clock
        self._attempted = 0.0
        self.unsupported = ""

    def allows(self) -> bool:
        """Whether to make an attempt now: always, but for one in `recheck_s` while the signal is not supported."""
        return not self.unsupported or self._clock() >= self._attempted + self._recheck_s

    def resolve(self, result: ExportResult) -> ExportResult:
        """The result with one of the statuses ok, retryable, permanent or unsupported; and remember it."""
        self._attempted = self._clock()
        if result.status == "ok":
            if not self._accepted and self._before is not None:
                self._before.add(self._key)
            self._accepted, self.unsupported = True, ""
            return result
        status = "unsupported" if self.unsupported else self._meaning(result.status)
        if status == "unsupported":
            self.unsupported = result.reason
        return replace(result, status=status)

    def _meaning(self, status: Status) -> Status:
        if status in _REPAIRABLE and self._keeps:
            return "retryable"
        if status in _LACKS_THE_SIGNAL:
            return "retryable" if self._accepted else "unsupported"
        if status == "server_error":
            return "permanent" if self._forwards else "retryable"
        return "permanent" if status == "denied" else status
