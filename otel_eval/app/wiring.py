"""Builds from the configuration what every way of running needs: limits, engine, evaluator of
asynchronous scorers, schema.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final, Protocol

from otel_eval.app.judge_clients import Clients, judges_of
from otel_eval.assembly import Limits
from otel_eval.config import EvalConfig, Evaluation
from otel_eval.conventions import TABLES, Convention
from otel_eval.counters import Counters
from otel_eval.engine import CaseOfRun, Engine
from otel_eval.errors import ConfigError
from otel_eval.evaluations import RunFilter, ScorerSet
from otel_eval.globs import glob_matcher
from otel_eval.interfaces import Scorer, SpanFrame, SpanReader
from otel_eval.model import Failed, Outcome, Report, Trajectory
from otel_eval.retry import suppress_tracing
from otel_eval.scorers.base_scorer import checked_outcome, failed_from
from otel_eval.scorers.build import ConfigurationSchema, is_own_scorer
from otel_eval.scorers.judge import named_judges
from otel_eval.scorers.policy import policy_of, severity_of
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from otel_eval.worker_thread import WorkerThread

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator

_log = logging.getLogger("otel_eval")


def limits_of(config: EvalConfig) -> Limits:
    """The limits for the assembly of traces."""
    traces = config.traces
    sizes = traces.model_dump(
        include={"max_traces", "max_spans_per_trace", "max_bytes_per_trace", "max_bytes"}
    )
    return Limits(
        decision_wait_s=traces.decision_wait,
        decision_wait_partial_s=traces.decision_wait_partial,
        decision_wait_detached_s=min(
            max(traces.decision_wait_detached, traces.decision_wait_partial), traces.idle_timeout
        ),
        keep_s=traces.max_age,
        grace_period_s=traces.grace_period,
        idle_s=traces.idle_timeout,
        max_age_s=traces.max_age,
        **sizes,
    )


def require_picklable(config: EvalConfig, option: str, processes: int) -> None:
    """Refuse a configuration that cannot be passed to other processes.

    Raises:
        ConfigError: it cannot be; the message names the option that asks for processes.
    """
    try:
        pickle.dumps(config)
    except Exception as error:  # noqa: BLE001 - pickling a user's object may raise anything
        raise ConfigError(
            f"{option}: {processes} processes need a configuration that can be pickled"
            f" ({type(error).__name__}); define functions and classes at the top level of a module,"
            f" or set {option} to 1"
        ) from None


def tables_of(config: EvalConfig) -> tuple[Convention, ...]:
    """The convention tables: the user's own first."""
    return (*config.own_conventions.tables, *TABLES)


def plan_of(config: EvalConfig) -> Plan:
    """A plan that decodes everything in a trace, not only what the evaluations need."""
    return Plan(
        tables=tables_of(config),
        needs=ALL_NEEDS,
        records_tool_spans=config.own_conventions.records_tool_spans,
    )


READ_BY_REPLAY: Final = frozenset({"tokens"})
"""What is read of stored runs beyond what scorers need, for the summary of agents."""


def engine_of(
    config: EvalConfig,
    counters: Counters | None = None,
    *,
    longest_s: float = inf,
    lines: bool = False,
    reads: frozenset[str] = frozenset(),
    clients: Clients | None = None,
    before: Engine | None = None,
) -> Engine:
    """The engine for the configuration's evaluations.

    Args:
        counters: counts calls of user-defined scorers that do not return in time; None: their time
            is not limited.
        longest_s: an upper bound in seconds for the configured time limit of user-defined scorers.
        lines: whether results are written as JSON, where a trace without a result has a line, too.
        reads: what is read of runs beyond what the scorers need.
        clients: clients of judges; those whose endpoint did not change are reused.
        before: the engine of the parent process, which a forked child goes on with if a file or a
            key cannot be read now.

    Raises:
        ConfigError: the API key of a judge, or that of a digest, cannot be read.
    """
    limit_s = min(config.async_scoring.scorer_timeout, longest_s)
    try:
        with (
            (clients or Clients()).building(),
            named_judges(judges_of(config) if config.judges else {}),
        ):
            evaluations = [_scorer_set(each, limit_s, counters) for each in config.evaluations]
            case = _case_of_run(config)
    except ConfigError as error:
        if before is None:
            raise
        _log.warning("%s; this child process keeps what its parent read", error)
        return before
    results, records = config.results, config.own_conventions.records_tool_spans
    return Engine(
        evaluations,
        tables_of(config),
        results.attributes,
        records,
        no_run=lines and results.no_run,
        case=case,
        reads=reads,
    )


_SHORTEST_KEY: Final = 16  # characters


def _case_of_run(config: EvalConfig) -> CaseOfRun | None:
    """What tells the case of a run.

    Raises:
        ConfigError: there is no key for the digest.
    """
    given = config.results.case
    if given is None or given.attribute is not None:
        return CaseOfRun(given.attribute or "") if given else None
    secret = os.environ.get(given.digest_key_env or "", "")
    if len(secret) < _SHORTEST_KEY:
        raise ConfigError(
            f"results.case.digest_key_env: the environment variable {given.digest_key_env!r} has"
            f" fewer than {_SHORTEST_KEY} characters; set it to a long random text, and keep it"
        )
    return CaseOfRun(key=blake2b(secret.encode()).digest())


def _scorer_set(given: Evaluation, limit_s: float, counters: Counters | None) -> ScorerSet:
    scorers = tuple(
        [guarded(each, limit_s, counters) if counters else each for each in given.build()]
    )
    return ScorerSet(
        name=given.name, scorers=scorers, sample=given.sample, match=RunFilter(**dict(given.match))
    )


def later_of(
    config: EvalConfig,
    engine: Engine,
    emit: Callable[[Report], None],
    *,
    unbounded: bool = False,
    **options: Any,
) -> AsyncEvaluator | None:
    """The evaluator of asynchronous scorers; None if there are none.

    Args:
        unbounded: whether the queue has no limit, because the caller bounds the number of reports
            itself.
        options: further arguments of `AsyncEvaluator`.
    """
    if not engine.waits:
        return None
    from otel_eval.judges import AsyncEvaluator  # deferred: it loads asyncio

    given = config.async_scoring
    options |= (
        {"max_queue": sys.maxsize, "max_bytes": sys.maxsize}
        if unbounded
        else {"max_queue": given.max_queue}
    )
    return AsyncEvaluator(emit, concurrency=given.concurrency, timeout_s=given.timeout, **options)


_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_ID: Final = "urn:otel-eval:configuration"


def config_schema() -> dict[str, Any]:
    """The JSON schema of the configuration; editors use it to complete and validate configuration
    files.
    """
    return {
        "$schema": _DIALECT,
        "$id": _ID,
        **EvalConfig.model_json_schema(schema_generator=ConfigurationSchema),
    }


# queued between two calls of `examine_queued`, which come ten times a second
_MOST_SPANS: Final = 64
_MOST_BYTES: Final = 64 * 1024  # of a span that is queued
_MOST_SEEN: Final = 10_000
_WILD: Final = frozenset("*?[")


class CountingExports(Protocol):
    """Exports results, and counts them."""

    def expect(self, evaluation: str, scorers: Sequence[Scorer], service: str, agent: str) -> None:
        """Start the counters of results of these scorers at 0."""


class ExpectedResults:
    """Starts counters of results at 0 before the first result, because a rate ignores the first
    value of a series.

    That is done for the services and agents that the configuration names, and for each agent when
    its first span arrives. Only a limited number of spans a second is examined, on the worker: an
    agent that is missed under load is found with a later span or result.

    Args:
        exporters: the exporters whose counters start at 0.
        engine: recognises agents, and has the evaluations.
    """

    def __init__(self, exporters: CountingExports, engine: Engine) -> None:
        self._exporters: Final = exporters
        self._spans: deque[Any] = deque()
        self.use_engine(engine)

    def use_engine(self, engine: Engine) -> None:
        """Expect the results of these evaluations from now on."""
        self._engine = engine
        self._seen: set[tuple[str, str]] = set()
        self._expected = [
            (each, glob_matcher(each.match.service), glob_matcher(each.match.agent))
            for each in engine.evaluations
        ]

    def start(self) -> None:
        """Start the counters of what the configuration names; a service or agent that it names by a
        pattern becomes no label.
        """
        for each, _, _ in self._expected:
            self._exporters.expect(
                each.name, each.scorers, _literal(each.match.service), _literal(each.match.agent)
            )

    def queue(self, spans: Iterable[SpanFrame]) -> None:
        """Queue the first of the spans that arrived until the queue is full; called by the threads
        of requests.
        """
        for _, _, frame, size in spans:
            if len(self._spans) >= _MOST_SPANS:
                return
            if size <= _MOST_BYTES:
                self._spans.append(frame)

    def examine_queued(self) -> None:
        """Examine the queued spans; called by the worker."""
        while self._spans:
            _, payload, resource_scope = self._spans.popleft()
            self.examine(
                resource_scope.reader(payload), resource_scope.scope_name, resource_scope.service
            )

    def examine(self, span: SpanReader, scope_name: str, service: str) -> None:
        """Start the counters of the agent that a span, ended or still open, describes, if any."""
        agent = self._engine.agent_of(span, scope_name)
        if agent is None or (service, agent) in self._seen:
            return
        if len(self._seen) < _MOST_SEEN:
            self._seen.add((service, agent))
        for each, for_service, for_agent in self._expected:
            if for_service(service) and for_agent(agent):
                self._exporters.expect(each.name, each.scorers, service, agent)


def _literal(pattern: str) -> str:
    return pattern if _WILD.isdisjoint(pattern) else ""


MOST_TIMEOUTS: Final = 3
"""How many calls of a scorer may hang before it is no longer called: each of them blocks a thread
until the process ends.
"""


def guarded(scorer: Scorer, limit_s: float, counters: Counters) -> Scorer:
    """The scorer, with a time limit if it is user-defined; asynchronous scorers have a limit of
    their own.
    """
    own = is_own_scorer(scorer) or getattr(scorer, "asynchronous", False)
    return scorer if own else GuardedScorer(scorer, limit_s, counters)


class GuardedScorer:
    """Limits how long a user-defined scorer may take, so that it cannot delay other runs. Called
    for one run at a time.

    The scorer runs on a thread of its own. If it does not return in time, the result of the run is
    a failure, and the next run gets a new thread, because Python cannot end the old one; after
    three timeouts the scorer is no longer called. Code that holds the interpreter's lock, such as a
    regular expression with catastrophic backtracking, cannot be limited this way.

    Args:
        scorer: the scorer to call.
        limit_s: how long a call may take, in seconds.
        counters: counts `scorers.hung` by scorer.
    """

    def __init__(self, scorer: Scorer, limit_s: float, counters: Counters) -> None:
        self.name, self.type, self.version, self.needs = (
            scorer.name,
            scorer.type,
            scorer.version,
            scorer.needs,
        )
        self.applied_threshold: Final[float | None] = getattr(scorer, "applied_threshold", None)
        self.policy: Final = policy_of(scorer)
        self.severity: Final = severity_of(scorer)
        self.tool_names: Final = getattr(scorer, "tool_names", None)
        self.attribute_keys: Final[frozenset[str]] = getattr(scorer, "attribute_keys", frozenset())
        self._scorer, self._limit_s, self._counters = scorer, limit_s, counters
        self._worker: WorkerThread | None = None
        self._timeouts = 0

    def __call__(self, trajectory: Trajectory) -> Outcome:
        """The outcome of the scorer, or `Failed` if it does not return in time or is no longer
        called.
        """
        if self._timeouts >= MOST_TIMEOUTS:
            return Failed(
                "quarantined", f"did not return within {self._limit_s:g} s for {MOST_TIMEOUTS} runs"
            )
        worker = self._worker = self._worker or WorkerThread(
            f"otel-eval-{self.name}", f"scorer {self.name} was not called"
        )
        outcome: Future[Outcome] = Future()
        worker.put(partial(_score, self._scorer, trajectory, outcome))
        if not worker.ensure():
            worker.serve_here()
        try:
            return outcome.result(self._limit_s)
        except TimeoutError:
            worker.end()  # the thread ends if the call ever returns
        self._worker = None
        self._timeouts += 1
        self._counters.add("scorers.hung", scorer=self.name)
        effect = (
            "it is no longer called"
            if self._timeouts >= MOST_TIMEOUTS
            else "this run goes without it"
        )
        _log.warning("scorer %s did not return within %g s; %s", self.name, self._limit_s, effect)
        return Failed("timeout", f"did not return within {self._limit_s:g} s")


def _score(scorer: Scorer, trajectory: Trajectory, outcome: Future[Outcome]) -> None:
    # spans of an agent that the scorer runs would be scored by it again, in an endless loop
    with suppress_tracing():
        try:
            outcome.set_result(checked_outcome(scorer(trajectory)))
        except BaseException as error:  # noqa: BLE001 - also SystemExit: only the scorer runs on this thread
            outcome.set_result(failed_from(error))
