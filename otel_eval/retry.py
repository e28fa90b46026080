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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from email.utils import parsedate_to_datetime
from math import inf
from typing import Final, Literal, TypeVar

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
        give_up_s: how long data waits for an endpoint that does not support its signal and never
            accepted it.
        clock: monotonic seconds, for `recheck_s` and `give_up_s`.
    """

    first_s: float = 0.5
    factor: float = 1.5
    longest_s: float = 30.0
    most_s: float = 60.0
    last_s: float = 0.2
    recheck_s: float = 60.0
    give_up_s: float = 900.0
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
    "missing",
    "unsupported",
    "permanent",
]
"""The meaning of a response by itself. `Attempts` reduces it to ok, retryable, permanent or
unsupported.

`server_error`: a failure that OTLP does not call retryable but that often passes. `denied`: the
credentials were refused. `unsupported`: the endpoint may lack the signal, or a proxy in front of it
may lack the endpoint for a while. `missing`: the endpoint does not have the trace or
run that a score belongs to yet; the exporter defers the score.
"""

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

    @property
    def may_concern_one(self) -> bool:
        """Whether one item of those that were sent may have caused the refusal of all."""
        return self.status in _HALVED and not self.concerns_all

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
        """The destination does not support results. Unless it accepted some before, they wait for
        `RetryPolicy.give_up_s`, and one report is tried again every `RetryPolicy.recheck_s`.
        """
        return cls("unsupported", reason)


_HALVED: Final = frozenset({"permanent", "server_error", "missing"})
_Item = TypeVar("_Item")


def in_halves(
    items: Sequence[_Item], send: Callable[[Sequence[_Item]], ExportResult]
) -> Iterator[tuple[Sequence[_Item], ExportResult]]:
    """Send items together. If they are refused, perhaps because of one of them, send their halves
    until those that are refused are alone.

    Yields:
        The items in parts, in order, each with its result. A part is sent only when it is asked
        for, so that the caller can stop.
    """
    result = send(items)
    if len(items) == 1 or not result.may_concern_one:
        yield items, result
        return
    middle = len(items) // 2
    yield from in_halves(items[:middle], send)
    yield from in_halves(items[middle:], send)


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


_log = logging.getLogger("otel_eval")


class Attempts:
    """Makes attempts to send, and decides what a response means for an endpoint with this history.

    An endpoint that accepted the signal in this process supports it: a 404 (or 405, 501,
    UNIMPLEMENTED) is an outage. If it never did, such a response marks the signal as unsupported
    until the endpoint gives another one; meanwhile an attempt is made only every
    `RetryPolicy.recheck_s` seconds.

    Args:
        name: the exporter's name; what follows the last dot is the signal.
        retry: how long to wait between attempts.
        fate: what happens to data of a signal that the endpoint does not support, for the log.
        forwards: whether requests of agents are forwarded, to which OTLP's own list of retryable
            responses applies.
        waits_for_access: whether data is retried while the endpoint refuses the credentials (401,
            403), instead of being refused.

    Attributes:
        unsupported: the reason of the response that marked the signal as unsupported; "" if it is
            not.
    """

    def __init__(
        self,
        name: str,
        retry: RetryPolicy,
        fate: str,
        *,
        forwards: bool = False,
        waits_for_access: bool = False,
    ) -> None:
        exporter, _, signal = name.rpartition(".")
        self._exporter, self._signal = (exporter, signal) if exporter else (name, "results")
        self._retry, self._fate, self._forwards = retry, fate, forwards
        self._waits_for_access = waits_for_access
        self._accepted = False
        self._attempted = -inf
        self.unsupported = ""

    @property
    def allowed_in_s(self) -> float:
        """Seconds until an attempt is due: 0, except that an unsupported signal is tried every
        `recheck_s` seconds only.
        """
        if not self.unsupported:
            return 0.0
        return max(0.0, self._attempted + self._retry.recheck_s - self._retry.clock())

    def allow_now(self) -> None:
        """Allow one attempt at once, because the process shuts down."""
        self._attempted = -inf

    def make(self, send: Callable[[], ExportResult]) -> ExportResult:
        """Make an attempt, if one is due. The result is ok, accepted, retryable, permanent or
        unsupported.
        """
        before = self.unsupported
        if self.allowed_in_s:
            return ExportResult("unsupported", before)
        # before the response: two threads must not make an attempt each
        self._attempted = self._retry.clock()
        result = send()
        result = replace(result, status=self._meaning(result.status))
        self._accepted = self._accepted or result.status == "ok"
        is_unsupported = result.status == "unsupported"
        self.unsupported = result.reason or "unsupported" if is_unsupported else ""
        if before and result.status == "ok":
            _log.info("the endpoint of %s supports %s now", self._exporter, self._signal)
        elif is_unsupported and not before:
            _log.warning(
                "the endpoint of %s does not support %s (%s): %s; one is tried again every %g s",
                self._exporter,
                self._signal,
                self.unsupported,
                self._fate,
                self._retry.recheck_s,
            )
        return result

    def _meaning(self, status: Status) -> Status:
        match status:
            case "denied":
                return "retryable" if self._waits_for_access else "permanent"
            case "unsupported":
                # A proxy responds 404 while its endpoint restarts; an endpoint that never accepted
                # the signal more likely lacks it.
                return "retryable" if self._accepted else "unsupported"
            case "server_error":
                return "permanent" if self._forwards else "retryable"
        return status

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
