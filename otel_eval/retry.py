"""Requests of our own: what a response means, when to try again, and how they stay out of the traces that are evaluated.

The meaning of responses follows OTLP where OTLP does not lose results; `docs/reference/delivery.md` lists every response.
Source: opentelemetry-proto docs/specification.md, "Failures".
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from math import inf
from typing import Final, Literal, Protocol

import opentelemetry.context as api
from opentelemetry.context import attach, detach, set_value
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """Waits in seconds.

    Attributes:
        first_s, factor, longest_s: before the second attempt, how much longer each further wait is, and the longest.
        most_s: the longest wait that an endpoint may ask for.
        last_s: between attempts while the process ends.
        recheck_s: between attempts to export a signal that the endpoint does not support.
        clock: in seconds, for `recheck_s`.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 30.0
    most_s: float = 60.0
    last_s: float = 0.2
    recheck_s: float = 60.0
    clock: Callable[[], float] = time.monotonic


_CHANCE: Final = random.SystemRandom()  # the random numbers of the program that is observed stay as they are


def delays(policy: RetryPolicy) -> Iterator[float]:
    """The waits in seconds between attempts, each longer than the one before until the longest, without end."""
    delay_s = policy.first_s
    while True:
        # Jitter: several clients that lost one endpoint must not return at the same instant.
        yield delay_s * _CHANCE.uniform(0.5, 1.5)
        delay_s = min(policy.longest_s, delay_s * policy.factor)


class Backoff:
    """The waits between attempts to send one batch.

    Args:
        stopping: set when the process ends; it interrupts a wait.
    """

    def __init__(self, policy: RetryPolicy, stopping: threading.Event) -> None:
        self._policy: Final = policy
        self._stopping: Final = stopping
        self._delays: Final = delays(policy)

    def wait(self, at_least_s: float = 0.0, at_most_s: float = inf) -> None:
        """Wait before the next attempt: as long as the endpoint asks for, but no longer than `at_most_s`."""
        policy = self._policy
        if self._stopping.is_set():
            time.sleep(policy.last_s)
            return
        # The next wait does not grow from what the endpoint asked for: that is about this one response.
        delay_s = max(min(at_least_s, policy.most_s), next(self._delays))
        self._stopping.wait(min(delay_s, at_most_s))


Status = Literal["ok", "accepted", "retryable", "server_error", "denied", "not_found", "missing", "unsupported", "permanent"]
"""What a response means by itself. `Attempts` reduces it to ok, retryable, permanent or unsupported.

`server_error`: a failure that OTLP does not call retryable but that often passes. `denied`: the credentials were refused.
`not_found`, `unsupported`: the endpoint may lack the signal, or a proxy in front of it may lack the endpoint for a while.
`missing`: the endpoint lacks what the data belongs to; the exporter defers it.
"""

_LACKS_THE_SIGNAL: Final = frozenset({"not_found", "unsupported"})
# What forwarding with storage retries without end: an operator can repair credentials and routes, and the data is on disk.
_REPAIRABLE: Final = frozenset({"denied", "not_found"})


Place = int | tuple[int, int]
"""A report by its place in the batch, or one result of it by its place in the report."""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of one attempt to export.

    Attributes:
        status: what it means for the data that was sent. `ok` may be a partial success. `accepted`: the exporter has taken the
            data and counts the outcomes itself.
        reason: in a word; of a partial success the endpoint's own reason, on one line of at most 200 characters.
        after_s: seconds that the endpoint asks to wait before the next attempt.
        rejected: of a partial success, the number of results that were rejected, where it is not known which.
        failed: of a partial success, the places in the batch of what was refused permanently.
        deferred: of a partial success, the places of what is to be exported later, apart from what follows.
        reasons: why, by place, where it is not `reason`.
        not_sent: how many results were left out on purpose, by reason.
        concerns_all: whether the response is about the sender, so that a part of the data would be refused as well.
    """

    status: Status
    reason: str = ""
    after_s: float = 0.0
    rejected: int = 0
    failed: tuple[Place, ...] = ()
    concerns_all: bool = False
    deferred: tuple[Place, ...] = ()
    reasons: Mapping[Place, str] = field(default_factory=dict)
    not_sent: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def ok(cls) -> ExportResult:
        """Everything was exported."""
        return cls("ok")

    @classmethod
    def retryable(cls, reason: str, after_s: float = 0.0) -> ExportResult:
        """Nothing was exported, and the same batch may be exported later."""
        return cls("retryable", reason, after_s)

    @classmethod
    def permanent(cls, reason: str) -> ExportResult:
        """The batch cannot be exported. Halves of it are tried, down to the reports that cannot."""
        return cls("permanent", reason)

    @classmethod
    def partial(cls, failed: Iterable[int], reason: str = "") -> ExportResult:
        """Everything was exported but the reports at these places in the batch, which were refused permanently."""
        return cls("ok", reason, failed=tuple(sorted(set(failed))))

    @classmethod
    def unsupported(cls, reason: str) -> ExportResult:
        """The destination does not take results; one batch is tried again in a while."""
        return cls("unsupported", reason)


def retry_after_s(header: str) -> float | None:
    """The wait that the header `Retry-After` asks for, as seconds or as a date; None if it cannot be read.

    >>> retry_after_s("1.5"), retry_after_s("soon")
    (1.5, None)
    """
    try:
        # RFC 9110, 10.2.3: seconds or an HTTP date. Fractions of a second are no part of it, and some endpoints send them.
        return max(0.0, float(header) if header[:1].isdigit() else parsedate_to_datetime(header).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def reason_of(error: BaseException) -> str:
    """Why an attempt failed, for log lines: the system's words, else the error's type. Its message may quote content."""
    if isinstance(error, TimeoutError):
        return "timed out"
    text = error.strerror if isinstance(error, OSError) else None
    return text[:1].lower() + text[1:] if text else type(error).__name__


class AcceptedBefore(Protocol):
    """What endpoints have accepted in earlier processes, by a key for endpoint and signal."""

    def has(self, key: str) -> bool:
        """Whether the signal was accepted."""
        ...

    def add(self, key: str) -> None:
        """It was."""
        ...


_log = logging.getLogger("otel_eval")


class Attempts:
    """Makes attempts to send, and none while the endpoint does not support the signal, but for one in a while.

    An endpoint that accepted the signal before still supports it: a 404 is an outage. One that never did is marked as not
    supporting the signal at the first such response, until it accepts.

    Args:
        name: of the exporter, and after the last dot what it exports.
        retry: how long to wait between attempts.
        refusals: what happens to data of a signal that the endpoint does not support, for the log.
        forwards: what is sent are requests of agents, for which OTLP's own list of retryable responses holds.
        keeps: what is sent is on disk until it was delivered.
        key: for this endpoint and signal in `before`; "" for one that is not remembered there.
        before: what was accepted in earlier processes; None: only this process counts.

    Attributes:
        unsupported: the response because of which the signal counts as not supported; "" if it does not.
    """

    def __init__(
        self,
        name: str,
        retry: RetryPolicy,
        refusals: str,
        *,
        forwards: bool = False,
        keeps: bool = False,
        key: str = "",
        before: AcceptedBefore | None = None,
    ) -> None:
        exporter, _, signal = name.rpartition(".")
        self._exporter, self._signal = (exporter, signal) if exporter else (name, "results")
        self._retry, self._refusals, self._forwards, self._keeps = retry, refusals, forwards, keeps
        self._key, self._before = key, before if key else None
        self._accepted = self._before is not None and self._before.has(key)
        self._attempted = 0.0
        self.unsupported = ""

    @property
    def allowed(self) -> bool:
        """Whether the next one is made now: always, but for one in `recheck_s` while the signal is not supported."""
        return not self.unsupported or self._retry.clock() >= self._attempted + self._retry.recheck_s

    def make(self, send: Callable[[], ExportResult]) -> ExportResult:
        """Make an attempt, if one is due. The result is ok, retryable, permanent or unsupported."""
        before = self.unsupported
        if not self.allowed:
            return ExportResult("unsupported", before)
        result = self._resolved(send())
        self._attempted = self._retry.clock()
        if before and not self.unsupported:
            _log.info("the endpoint of %s supports %s now", self._exporter, self._signal)
        elif self.unsupported and not before:
            _log.warning(
                "the endpoint of %s does not support %s (%s): %s; one is tried again every %g s",
                *(self._exporter, self._signal, result.reason, self._refusals, self._retry.recheck_s),
            )
        return result

    def _resolved(self, result: ExportResult) -> ExportResult:
        """The result with one of these four statuses; and remember what it shows of the endpoint."""
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
        # A proxy answers 404 for an endpoint that restarts; one that never accepted the signal more likely lacks it.
        if status in _LACKS_THE_SIGNAL:
            return "retryable" if self._accepted else "unsupported"
        if status == "server_error":
            return "permanent" if self._forwards else "retryable"
        return "permanent" if status == "denied" else status

    def backoff(self, stopping: threading.Event) -> Backoff:
        """The waits between the attempts for one batch; `stopping` interrupts them."""
        return Backoff(self._retry, stopping)


# Instrumentations look for one of these keys of the context. The API keeps its own private and makes them unique at import, so
# they are read from it, with the plain names for versions that do not have them.
_SUPPRESS = (
    "suppress_instrumentation",
    getattr(api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    getattr(api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"),
)
# The default sampler follows the decision of the parent, so that children of this span are not recorded.
_UNSAMPLED = NonRecordingSpan(SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.DEFAULT)))


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Within this context no instrumentation creates spans, as OpenTelemetry's own exporters do it."""
    context = api.get_current()
    for key in _SUPPRESS:
        context = set_value(key, True, context)
    token = attach(context)
    try:
        yield
    finally:
        detach(token)


@contextmanager
def suppress_tracing() -> Iterator[None]:
    """As `suppress_instrumentation`; spans that code creates itself get an unsampled parent, so that they are not recorded."""
    token = attach(set_span_in_context(_UNSAMPLED))
    try:
        with suppress_instrumentation():
            yield
    finally:
        detach(token)
