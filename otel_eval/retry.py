"""Retries of the requests that otel-eval sends: what responses mean and how long to wait; and no
spans for these requests.

The meaning of responses follows OTLP where OTLP does not lose results; `docs/reference/delivery.md`
lists every response.
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
    """How long to wait between attempts, in seconds.

    Attributes:
        first_s, factor, longest_s: the wait before the second attempt, by which factor each further
            wait is longer, the longest.
        most_s: the longest wait that an endpoint may ask for.
        last_s: the wait between attempts while the process shuts down.
        recheck_s: the time between attempts to export a signal that the endpoint does not support.
        clock: monotonic seconds, for `recheck_s`.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 30.0
    most_s: float = 60.0
    last_s: float = 0.2
    recheck_s: float = 60.0
    clock: Callable[[], float] = time.monotonic


# a generator of our own: the state of the host program's must not change
_RANDOM: Final = random.SystemRandom()


def delays(policy: RetryPolicy) -> Iterator[float]:
    """Yield the waits between attempts in seconds, without end: exponential backoff up to
    `longest_s`, with jitter.
    """
    delay_s = policy.first_s
    while True:
        # Jitter: clients that lost the same endpoint must not return at the same instant.
        yield delay_s * _RANDOM.uniform(0.5, 1.5)
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
        """Wait before the next attempt; while the process shuts down, for `RetryPolicy.last_s`
        only.

        Args:
            at_least_s: the wait that the endpoint asks for; no more than `RetryPolicy.most_s` of it
                counts.
            at_most_s: the longest wait.
        """
        policy = self._policy
        if self._stopping.is_set():
            time.sleep(policy.last_s)
            return
        # What the endpoint asks for is about this response only and does not make the following
        # waits longer.
        delay_s = max(min(at_least_s, policy.most_s), next(self._delays))
        self._stopping.wait(min(delay_s, at_most_s))


Status = Literal[
    "ok",
    "accepted",
    "retryable",
    "server_error",
    "denied",
    "not_found",
    "missing",
    "unsupported",
    "permanent",
]
"""The meaning of a response by itself. `Attempts` reduces it to ok, retryable, permanent or
unsupported.

`server_error`: a failure that OTLP does not call retryable but that often passes. `denied`: the
credentials were refused. `not_found`, `unsupported`: the endpoint may lack the signal, or a proxy
in front of it may lack the endpoint for a while. `missing`: the endpoint does not have the trace or
run that a score belongs to yet; the exporter defers the score.
"""

_LACKS_THE_SIGNAL: Final = frozenset({"not_found", "unsupported"})
# Retried without end if the data is kept (`Attempts`, `keeps`): an operator can repair credentials
# and routes.
_REPAIRABLE: Final = frozenset({"denied", "not_found"})


Place = int | tuple[int, int]
"""The index of a report in its batch, or (index of the report, index of the result) for one result
of it.
"""


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The outcome of one attempt to export.

    Attributes:
        status: what it means for the data that was sent. `ok` may be a partial success. `accepted`:
            the exporter has accepted the data and counts the outcomes itself.
        reason: a short text for log lines; for a partial success the endpoint's message, one line
            of at most 200 characters.
        after_s: seconds that the endpoint asks to wait before the next attempt.
        rejected: in a partial success, the number of results that were rejected, if it is not known
            which.
        failed: in a partial success, the places of the reports and results that were refused
            permanently.
        deferred: in a partial success, the places of those to retry later, while the queue goes on.
        reasons: the reason by place, where it differs from `reason`.
        not_sent: how many results were left out on purpose, by reason.
        concerns_all: whether the response is about the sender (credentials), so that a smaller
            batch would be refused, too.
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
        """The batch was refused permanently. It is halved and sent again until the reports that are
        refused are found.
        """
        return cls("permanent", reason)

    @classmethod
    def partial(cls, failed: Iterable[int], reason: str = "") -> ExportResult:
        """Everything was exported except the reports at these places in the batch, which were
        refused permanently.
        """
        return cls("ok", reason, failed=tuple(sorted(set(failed))))

    @classmethod
    def unsupported(cls, reason: str) -> ExportResult:
        """The destination does not support results; one report is tried again every
        `RetryPolicy.recheck_s` seconds.
        """
        return cls("unsupported", reason)


def retry_after_s(header: str) -> float | None:
    """The wait in seconds that the header `Retry-After` asks for, as a number or as a date; None if
    the header is invalid.

    >>> retry_after_s("1.5"), retry_after_s("soon")
    (1.5, None)
    """
    try:
        # RFC 9110, 10.2.3: seconds or an HTTP date. It does not allow fractions of a second, but
        # some endpoints send them.
        return max(
            0.0,
            float(header)
            if header[:1].isdigit()
            else parsedate_to_datetime(header).timestamp() - time.time(),
        )
    except (ValueError, OverflowError):
        return None


def reason_of(error: BaseException) -> str:
    """Why an attempt failed, for log lines: the text of a system error, else the error's type. Its
    message may quote content.
    """
    if isinstance(error, TimeoutError):
        return "timed out"
    text = error.strerror if isinstance(error, OSError) else None
    return text[:1].lower() + text[1:] if text else type(error).__name__


class AcceptedBefore(Protocol):
    """Records which signals endpoints accepted, beyond restarts, by a key of endpoint and
    signal.
    """

    def has(self, key: str) -> bool:
        """Whether the signal was accepted."""
        ...

    def add(self, key: str) -> None:
        """Record that the signal was accepted."""
        ...


_log = logging.getLogger("otel_eval")


class Attempts:
    """Makes attempts to send; only one every `RetryPolicy.recheck_s` seconds while the endpoint
    does not support the signal.

    If the endpoint accepted the signal before, a 404 is an outage. If it never did, the first 404
    (or 405, 501, UNIMPLEMENTED) marks the signal as unsupported until the endpoint accepts it.

    Args:
        name: the exporter's name; what follows the last dot is the signal.
        retry: how long to wait between attempts.
        refusals: what happens to data of a signal that the endpoint does not support, for the log.
        forwards: whether requests of agents are forwarded, to which OTLP's own list of retryable
            responses applies.
        keeps: whether data is kept while the endpoint refuses credentials or path (401, 403, 404),
            instead of being refused.
        key: the key of this endpoint and signal in `before`; "": it is not recorded there.
        before: the signals accepted in earlier processes; None: only this process counts.

    Attributes:
        unsupported: the reason of the response that marked the signal as unsupported; "" if it is
            supported.
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
        """Whether an attempt is due: always, except that an unsupported signal is tried every
        `recheck_s` seconds only.
        """
        return (
            not self.unsupported or self._retry.clock() >= self._attempted + self._retry.recheck_s
        )

    def make(self, send: Callable[[], ExportResult]) -> ExportResult:
        """Make an attempt, if one is due. The result is ok, accepted, retryable, permanent or
        unsupported.
        """
        before = self.unsupported
        if not self.allowed:
            return ExportResult("unsupported", before)
        result = self._resolve(send())
        self._attempted = self._retry.clock()
        if before and not self.unsupported:
            _log.info("the endpoint of %s supports %s now", self._exporter, self._signal)
        elif self.unsupported and not before:
            _log.warning(
                "the endpoint of %s does not support %s (%s): %s; one is tried again every %g s",
                *(
                    self._exporter,
                    self._signal,
                    result.reason,
                    self._refusals,
                    self._retry.recheck_s,
                ),
            )
        return result

    def _resolve(self, result: ExportResult) -> ExportResult:
        """Return the result with its final status, and record whether the endpoint supports the
        signal.
        """
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
        # A proxy responds 404 while its endpoint restarts; an endpoint that never accepted the
        # signal more likely lacks it.
        if status in _LACKS_THE_SIGNAL:
            return "retryable" if self._accepted else "unsupported"
        if status == "server_error":
            return "permanent" if self._forwards else "retryable"
        return "permanent" if status == "denied" else status

    def backoff(self, stopping: threading.Event) -> Backoff:
        """The waits between the attempts for one batch; `stopping` interrupts them."""
        return Backoff(self._retry, stopping)


# Instrumentations look for one of these keys in the context. The API's keys are private and made
# unique at import, so they are read from the API; the plain names are for versions that do not have
# them.
_SUPPRESS = (
    "suppress_instrumentation",
    getattr(api, "_SUPPRESS_INSTRUMENTATION_KEY", "suppress_instrumentation"),
    getattr(api, "_SUPPRESS_HTTP_INSTRUMENTATION_KEY", "suppress_http_instrumentation"),
)
# The default sampler follows the decision of the parent, so that children of this span are not
# recorded.
_UNSAMPLED = NonRecordingSpan(
    SpanContext(1, 1, is_remote=True, trace_flags=TraceFlags(TraceFlags.DEFAULT))
)


@contextmanager
def suppress_instrumentation() -> Iterator[None]:
    """Keep instrumentations from creating spans within this context, as OpenTelemetry's own
    exporters do.
    """
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
    """Suppress instrumentation, and give spans that code creates itself an unsampled parent, so
    that they are not recorded.
    """
    token = attach(set_span_in_context(_UNSAMPLED))
    try:
        with suppress_instrumentation():
            yield
    finally:
        detach(token)
