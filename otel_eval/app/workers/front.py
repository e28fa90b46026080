"""`otel-eval serve --workers N` as an object: the receiver and the admin server in front of N worker processes.

The front checks, counts and splits requests by trace id. Each worker is a complete server without listeners: it assembles,
evaluates, stores and exports its traces.
"""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final
from uuid import uuid4

from otel_eval.admin import Readiness
from otel_eval.admin.metrics import Family
from otel_eval.app.server import NEEDS_RESTART, why_no_span
from otel_eval.app.server_wiring import AdminServices, config_of_worker, receiver_of, refuse_unshared, starting
from otel_eval.app.wiring import engine_of
from otel_eval.app.workers.splitting import SplittingHandler
from otel_eval.app.workers.supervisor import SupervisedWorker
from otel_eval.config import EvalConfig
from otel_eval.counters import total_counts
from otel_eval.diagnostics import Diagnostics
from otel_eval.errors import ConfigError, collect_errors
from otel_eval.sources.receiver import Bound
from otel_eval.storage.directory import claim_split

__all__ = [
    "FrontServer",
]

_THREADS: Final = 8  # for each worker; most of them wait for it


def _no_preparation(_: int) -> None:
    """Logging stays as it is in a new process."""


class FrontServer:
    """A `Server` of several processes.

    Args:
        config: its `workers` is their number.
        prepare: called in each worker with its number, to set up logging; a function at the top level of a module.

    Raises:
        ConfigError: something in the configuration cannot be shared by processes.
    """

    def __init__(self, config: EvalConfig, prepare: Callable[[int], None] = _no_preparation) -> None:
        refuse_unshared(config)
        self._config = config
        instance = uuid4().hex
        numbers = range(1, config.workers + 1)
        self._workers: Final = [SupervisedWorker(n, config_of_worker(config, n), f"{instance}-{n}", prepare) for n in numbers]
        handler = partial(SplittingHandler, self._workers)
        self._receiver: Final = receiver_of(
            config.receivers.otlp,
            None,
            None,
            lambda: self._readiness().ready,
            handler=handler,
            grpc_threads=_THREADS * config.workers,
        )
        self._bound: Bound | None = None
        self._diagnostics: Final = Diagnostics(
            self.counts, lambda: why_no_span(self._receiver.counts(), self._bound), elsewhere=True
        )
        self.admin: Final = AdminServices(config.telemetry, self.counts, self._readiness, self._scores)

    def _readiness(self) -> Readiness:
        if self._config.receivers.otlp and not self._receiver.is_open:
            return Readiness(False, "requests are not taken: the receiver starts or stops")
        return worst_readiness([(each.number, each.readiness) for each in self._workers])

    def _scores(self) -> list[Family]:
        return joined_families(family for each in self._workers for family in each.scores())

    def note_stop(self) -> None:
        """Nothing: workers note it when the front stops them."""

    def start(self) -> Bound:
        """Start the workers, then listen; the addresses that were bound.

        Raises:
            ConfigError: an address cannot be bound, or a worker cannot start; then nothing is left running.
        """
        atexit.register(self._leave)
        with starting(self.admin, self._receiver, self.stop):
            if self._config.storage:
                claim_split(self._config.storage.directory, self._config.workers)
            for each in self._workers:
                each.begin()
            collect_errors([partial(_await, each) for each in self._workers])
            self._bound = self._receiver.start()
            return self._bound

    def stop(self, timeout_s: float = 10.0) -> bool:
        """Stop accepting requests, then every worker; False if not everything was evaluated and delivered in time."""
        self._receiver.stop(min(2.0, timeout_s / 4))
        stopped = [each.ask_to_stop(0.7 * timeout_s) for each in self._workers]
        done = [each() for each in stopped]
        self.admin.stop(max(0.2, min(2.0, timeout_s / 4)))
        atexit.unregister(self._leave)
        if self._bound is not None:  # else it never began
            self._diagnostics.end()
        return all(done)

    def _leave(self) -> None:
        """The interpreter ends without `stop`: workers stop by themselves when their control sockets are closed."""
        for each in self._workers:
            each.leave()

    def reload(self, config: EvalConfig) -> list[str]:
        """Use other evaluations in every worker, also for open traces; returns the changed keys that need a restart.

        Raises:
            ConfigError: it cannot be used; then the running configuration is kept.
        """
        engine_of(config)  # raises before a worker has it
        kept = [key for key in NEEDS_RESTART if getattr(config, key) != getattr(self._config, key)]
        config = config.model_copy(update={key: getattr(self._config, key) for key in NEEDS_RESTART})
        refuse_unshared(config)
        for each in self._workers:
            each.reload(config_of_worker(config, each.number))
        self._config = config
        return kept

    def counts(self) -> dict[str, Any]:
        """The counters of every part, added up over the workers."""
        return total_counts([self._receiver.counts(), self._receiver.not_after(), *(each.counts() for each in self._workers)])


def _await(worker: SupervisedWorker) -> None:
    try:
        worker.await_ready()
    except OSError:
        raise ConfigError(f"workers: worker {worker.number} ended while it started; its log lines show why") from None


def joined_families(several: Iterable[Family]) -> list[Family]:
    """One family for each name, with the rows of all of that name."""
    joined: dict[str, Family] = {}
    for each in several:
        before = joined.get(each.name)
        joined[each.name] = replace(before, rows=[*before.rows, *each.rows]) if before else each
    return list(joined.values())


def worst_readiness(workers: Sequence[tuple[int, Readiness]]) -> Readiness:
    """Ready if every worker is; otherwise, and for what is shown, the first worker that is not, or that waits for something."""
    number, worst = min(workers, key=lambda each: (each[1].ready, not each[1].why))
    ready = sum(found.ready for _, found in workers)
    why = f"worker {number}: {worst.why}" if worst.why else ""
    return Readiness(worst.ready, why, {"workers_ready": f"{ready} of {len(workers)}", **worst.evaluation})
