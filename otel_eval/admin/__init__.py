"""The admin server: /healthz, /readyz, /metrics and /status, which shows the state of a receiver as
JSON.

It has an address and threads of its own, so that it responds when the receiver is at its limits.
Values are read at each request. The server accepts no data and shows no content of spans except
names, such as those of services, agents and tools, so it needs no token.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol

from otel_eval.admin.metrics import CONTENT_TYPE, Counted, Family, prometheus_text, self_families
from otel_eval.counters import Counts, counts_as_text, labels_of, without_labels
from otel_eval.descriptors import Spare
from otel_eval.http1.server import PLAIN_TEXT, PageHandler, PageServer
from otel_eval.native import build_info

# Counters of what was not scored, is incomplete or was not delivered, each with the reason.
DROPS: Final[Mapping[str, str]] = {
    "rejected_spans": "unusable ids or fields",
    "rejected_logs": "unusable ids or fields",
    "spans_over_limit": "their trace is over max_spans_per_trace or max_bytes_per_trace",
    "spans_too_late": "their trace was evaluated and forgotten",
    "traces_over_limit": "max_traces or max_bytes was reached: evaluated too early",
    "traces_failed": "could not be evaluated",
    "traces_crashed": "the process crashed twice while they were evaluated",
    "late_given_up": "no room to wait for late spans",
    "late_timeouts": "a judge took too long",
    "late_refused": "the queue of judges was full",
    "late_lost": "a judge hung",
    "scorers.hung": "a scorer of your own did not return",
    "references.broken": "a new version of a dataset could not be used",
    "results.export_failed": "could not be delivered",
    "results.undeliverable": "could not be delivered",
    "results.dropped": "not delivered and not in a dead-letter file",
    "results.refused": "the queue of the exporter was full",
    "forward.refused": "refused by the backend",
    "forward.discarded": "the backend did not support the signal for delivery.give_up_after",
    "forward.lost": "not passed on before the end",
    "workers.lost_traces": "a worker ended that held them without storage",
    "workers.lost_results": "a worker ended that held them without storage",
    "storage.records_damaged": "damaged on disk",
}


class Readiness(NamedTuple):
    """Whether the receiver is ready, and the state of its evaluation.

    Attributes:
        ready: whether requests are accepted, and evaluation makes progress or is paused
            (backpressure).
        why: why the receiver is not ready, or what evaluation waits for; "" if neither applies.
        evaluation: fields of `evaluation` in `/status`.
    """

    ready: bool
    why: str = ""
    evaluation: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return ("ready" if self.ready else "not ready") + (f": {self.why}" if self.why else "")


class Monitored(Counted, Protocol):
    """A server whose state is shown. Called from the threads of the admin server."""

    def readiness(self) -> Readiness:
        """Whether the server is ready."""

    def scores(self) -> Iterable[Family]:
        """The metrics that `/metrics` shows beside the self-metrics."""


_TRACES: Final = {"open": "open_traces", "oldest_s": "oldest_trace_s", "bytes": "held_bytes"}
_UNEVALUATED: Final = (
    "traces_without_run",
    "tool_calls_without_run",
    "spans_without_run",
    "runs_unmatched",
    "results.skipped",
    "context_lost_spans",
)
_QUEUES: Final = (
    "late_pending",
    "results.queued",
    "results.oldest_s",
    "exports.running_s",
    "forward.waiting",
    "forward.oldest_s",
    "forward.held",
    "storage.bytes",
    "storage.reports",
)
_UNSUPPORTED: Final = "exports.unsupported"


def status_fields(counts: Counts, readiness: Readiness, uptime_s: float) -> dict[str, Any]:
    """The fields of `/status`: a summary, then every counter."""
    flat = {
        key: sum(value.values()) if isinstance(value, Mapping) else value
        for key, value in counts.items()
    }
    return {
        "ready": readiness.ready,
        "why": readiness.why,
        "uptime_s": round(uptime_s, 1),
        "build": build_info(),
        "traces": {field: flat.get(key, 0) for field, key in _TRACES.items()},
        "evaluation": dict(readiness.evaluation),
        "queues": {
            str(key): value
            for key, value in flat.items()
            if without_labels(key).startswith(_QUEUES)
        },
        "unevaluated": {
            str(key): value
            for key, value in flat.items()
            if value and without_labels(key) in _UNEVALUATED
        },
        "unsupported": [
            str(key) for key, value in flat.items() if value and without_labels(key) == _UNSUPPORTED
        ],
        "failures": {
            str(key): value
            for key, value in flat.items()
            if without_labels(key) == "scorers.results" and labels_of(key)["outcome"] == "failed"
        },
        "drops": {
            str(key): {"count": value, "why": DROPS[name]}
            for key, value in flat.items()
            if value and (name := without_labels(key)) in DROPS
        },
        "counts": counts_as_text(counts),
    }


_CONNECTIONS: Final = 16


class _AdminHandler(PageHandler):
    server: AdminServer

    def do_GET(self) -> None:
        # Browsers, which DNS rebinding could lead here, always send a Host.
        host = self.headers.get("Host")
        if host is not None and self.refuses_host(host, "telemetry.allowed_hosts"):
            return
        monitored = self.server.monitored
        match self.path:
            case "/healthz":
                self.answer(HTTPStatus.OK, PLAIN_TEXT, "ok\n")
            case "/readyz":
                readiness = monitored.readiness()
                code = HTTPStatus.OK if readiness.ready else HTTPStatus.SERVICE_UNAVAILABLE
                self.answer(code, PLAIN_TEXT, f"{readiness}\n")
            case "/metrics":
                families = chain(self_families(monitored.counts()), monitored.scores())
                self.answer(HTTPStatus.OK, CONTENT_TYPE, prometheus_text(families))
            case "/status":
                uptime_s = time.monotonic() - self.server.begun
                fields = status_fields(monitored.counts(), monitored.readiness(), uptime_s)
                text = json.dumps(fields, indent=2) + "\n"
                self.answer(HTTPStatus.OK, "application/json", text)
            case _:
                pages = "there are /healthz, /readyz, /metrics, /status\n"
                self.answer(HTTPStatus.NOT_FOUND, PLAIN_TEXT, pages)

    do_HEAD = do_GET


class AdminServer(PageServer):
    """Serves the pages; accepts connections even if the process has no file descriptor left.

    Args:
        endpoint: host:port; port 0 chooses a free one.
        monitored: the server whose state is shown.
        names: names that `Host` may have besides IP addresses, localhost and the host of the
            endpoint.

    Attributes:
        address: the address that was bound.

    Raises:
        ConfigError: the address cannot be bound.
    """

    # requests are answered at once, so any older connection waits for its client and may be
    # replaced
    late_s = 0.0
    thread_name = "otel-eval-admin"

    def __init__(self, endpoint: str, monitored: Monitored, names: Collection[str]) -> None:
        self.monitored, self.begun = monitored, time.monotonic()
        self._spare = Spare()
        super().__init__(
            endpoint, _AdminHandler, _CONNECTIONS, names=names, key="telemetry.endpoint"
        )

    def get_request(self) -> Any:
        """Accept a connection; if no descriptor is left, with a spare one."""
        return self._spare.accept(super().get_request)

    def server_close(self) -> None:
        """Close the address and the spare descriptors."""
        super().server_close()
        self._spare.close()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._spare.refill()
