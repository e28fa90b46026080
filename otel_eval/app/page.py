"""The page of a receiver: holds its last runs, and serves them. With workers each holds its own,
and the front fetches them while a page is open.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from otel_eval.config import Auth, Ui
from otel_eval.counters import Counts, without_labels
from otel_eval.diagnostics import UnmatchedRuns
from otel_eval.sources.receiver.credentials import BearerTokens
from otel_eval.sources.receiver.server import Bound
from otel_eval.ui import live_page
from otel_eval.ui.recent_runs import Changes, RecentRuns
from otel_eval.ui.server import RunsServer

_FETCH_S: Final = 0.5  # the least time between two fetches from workers
_STOP_S: Final = 1.0
# counters that the page shows, or that tell why it shows no run
_SHOWN: Final = (
    "requests",
    "open_traces",
    "traces_without_run",
    "runs_unmatched",
    "results.queued",
    "results.dead_letters",
)


def build_recent_runs(page: Ui) -> RecentRuns | None:
    """What holds the last runs; None if no page is configured."""
    if page.endpoint is None:
        return None
    return RecentRuns(content=page.include_content, max_bytes=page.max_bytes)


def open_page_tokens(auth: Auth | None) -> Callable[[str | None], bool] | None:
    """Whether a header has one of the tokens; None if none is needed.

    Raises:
        ConfigError: a token cannot be read.
    """
    if auth is None:
        return None
    return BearerTokens(auth.token_files, auth.token_env, where="ui.auth").allow


class HeldByWorker(NamedTuple):
    """What a worker holds.

    Attributes:
        instance: of the worker's server; after a restart it holds other runs.
        changes: since the number that was asked for.
        exported_ms: when an exporter last delivered results, in Unix milliseconds, or None.
        why: why no run was evaluated, in lines.
        unmatched: the runs that no evaluation matched although others did.
    """

    instance: str
    changes: Changes
    exported_ms: int | None
    why: Sequence[str] = ()
    unmatched: UnmatchedRuns = UnmatchedRuns()


class WorkerWithRuns(Protocol):
    """A worker of the front."""

    def recent_runs(self, after: int) -> HeldByWorker | None:
        """What it holds; None if it does not answer."""


class FetchedRuns:
    """The runs of all workers, fetched while a page is open."""

    def __init__(self, runs: RecentRuns, workers: Sequence[WorkerWithRuns]) -> None:
        self._runs: Final = runs
        self._workers: Final = workers
        self._lock: Final = threading.Lock()
        self._fetched_at = -_FETCH_S
        # by worker: its instance, and the number of the last change that was fetched
        self._known: Final = [("", 0)] * len(workers)
        self._why: Final[list[Sequence[str]]] = [()] * len(workers)
        self._unmatched: Final = [UnmatchedRuns()] * len(workers)

    def fetch(self) -> None:
        """Hold what has changed in the workers, in the order of time."""
        with self._lock:
            if time.monotonic() - self._fetched_at < _FETCH_S:
                return
            documents = []
            for index, worker in enumerate(self._workers):
                if (answer := self._changes(index, worker)) is not None:
                    documents += answer.changes.documents
                    if answer.exported_ms is not None:
                        self._runs.note_export(answer.exported_ms)
            for change in sorted(documents, key=lambda change: change.at_ns):
                self._runs.put(change)
            self._fetched_at = time.monotonic()

    def _changes(self, index: int, worker: WorkerWithRuns) -> HeldByWorker | None:
        instance, number = self._known[index]
        answer = worker.recent_runs(number)
        if answer is not None and answer.instance != instance and number:
            answer = worker.recent_runs(0)  # it was started again
        if answer is not None:
            self._known[index] = answer.instance, answer.changes.number
            self._why[index] = answer.why
            self._unmatched[index] = answer.unmatched
        return answer

    def why(self) -> Sequence[str]:
        """Why no run was evaluated, as a worker to which runs came says it."""
        return next((why for why in self._why if why), ())

    def unmatched_runs(self) -> UnmatchedRuns:
        """The runs of all workers that no evaluation matched, with the example of the worker that
        has most of them.
        """
        return UnmatchedRuns(
            sum(unmatched.runs for unmatched in self._unmatched),
            sum(unmatched.found for unmatched in self._unmatched),
            max(self._unmatched).example,
        )


class ShownReceiver(Protocol):
    """The receiver whose runs a page shows."""

    def counts(self) -> Counts:
        """The counters of the receiver."""

    def why_no_score(self) -> Sequence[str]:
        """Why no run was evaluated, in lines."""

    def unmatched_runs(self) -> UnmatchedRuns:
        """The runs that no evaluation matched although others did."""

    def fetch_runs(self) -> None:
        """Bring the held runs up to date."""


class LivePage:
    """Serves the page of a receiver.

    Args:
        options: `ui` of the configuration, with an endpoint.
        runs: the last runs.
        receiver: the receiver whose runs are shown.

    Attributes:
        runs: the last runs.
        address: the address that was bound, or None.

    Raises:
        ConfigError: a token cannot be read.
    """

    def __init__(
        self,
        options: Ui,
        runs: RecentRuns,
        receiver: ShownReceiver,
    ) -> None:
        self._options: Final = options
        self._receiver: Final = receiver
        self._allow: Final = open_page_tokens(options.auth)
        self._server: RunsServer | None = None
        self._bound: Bound | None = None
        self.runs: Final = runs
        self.address: str | None = None

    def start(self, bound: Bound) -> None:
        """Serve the page, which names the addresses of the receivers.

        Raises:
            ConfigError: the address cannot be bound.
        """
        assert self._options.endpoint is not None, "only a page with an endpoint is served"
        self._bound = bound
        self._server = RunsServer(
            self._options.endpoint,
            self._page,
            source=self,
            allow=self._allow,
            names=self._options.names,
            public_url=self._options.public_url,
        )
        self._server.start()
        self.address = self._server.address

    def stop(self) -> None:
        """Close the pages that are open, and the address."""
        if self._server is not None:
            self._server.stop(_STOP_S)
            self._server = None

    def _page(self) -> str:
        addresses = {
            name: address
            for name in ("grpc", "http")
            if (address := getattr(self._bound, name, None)) is not None
        }
        return live_page({"trace_url": self._options.trace_url, "addresses": addresses})

    def refresh(self) -> None:
        """Bring the held runs up to date."""
        self._receiver.fetch_runs()

    def status(self) -> Mapping[str, Any]:
        """Counters and times that the page shows."""
        totals = Counter[str]()
        for key, value in self._receiver.counts().items():
            if (name := without_labels(key)) in _SHOWN:
                totals[name] += sum(value.values()) if isinstance(value, Mapping) else value
        return {
            "counts": totals,
            "exported_ms": self.runs.exported_ms,
            "left_out": self.runs.left_out,
            "why": list(self._receiver.why_no_score()) if self.runs.is_empty else [],
            "unmatched": self._receiver.unmatched_runs().text(),
        }
