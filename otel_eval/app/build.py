"""Builds from the configuration what every way of running needs: limits, engine, evaluator of
asynchronous scorers, schema.
"""

from __future__ import annotations

import logging
import os
import sys
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final

from otel_eval.app.guarded_scorer import guard_scorer
from otel_eval.app.judge_clients import Clients, build_judges
from otel_eval.assembly import Limits
from otel_eval.config import EvalConfig, Evaluation
from otel_eval.conventions import TABLES, Convention
from otel_eval.counters import Counters
from otel_eval.engine import CaseOfRun, Engine
from otel_eval.errors import ConfigError
from otel_eval.evaluations import RunFilter, ScorerSet
from otel_eval.scorers.build import ConfigurationSchema
from otel_eval.scorers.judge import named_judges
from otel_eval.trajectory.classify import ALL_NEEDS, Plan

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator, LateResultListener

_log = logging.getLogger("otel_eval")


def build_limits(config: EvalConfig) -> Limits:
    """The limits for the assembly of traces."""
    traces = config.traces
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
        max_traces=traces.max_traces,
        max_spans_per_trace=traces.max_spans_per_trace,
        max_bytes_per_trace=traces.max_bytes_per_trace,
        max_bytes=traces.max_bytes,
    )


def require_picklable(config: EvalConfig, option: str, processes: int) -> None:
    """Refuse a configuration that cannot be passed to other processes.

    Raises:
        ConfigError: it cannot be; the message names the option that asks for processes.
    """
    import pickle  # deferred: few commands pass a configuration on

    try:
        pickle.dumps(config)
    except Exception as error:  # noqa: BLE001 - pickling a user's object may raise anything
        raise ConfigError(
            f"{option}: {processes} processes need a configuration that can be pickled"
            f" ({type(error).__name__}); define functions and classes at the top level of a module,"
            f" or set {option} to 1"
        ) from None


def convention_tables(config: EvalConfig) -> tuple[Convention, ...]:
    """The convention tables: the user's own first."""
    return (*config.own_conventions.tables, *TABLES)


def build_plan(config: EvalConfig) -> Plan:
    """A plan that decodes everything in a trace, not only what the evaluations need."""
    return Plan(
        tables=convention_tables(config),
        needs=ALL_NEEDS,
        records_tool_spans=config.own_conventions.records_tool_spans,
    )


READ_BY_REPLAY: Final = frozenset({"tokens"})
"""What is read of stored runs beyond what scorers need, for the summary of agents."""


class EngineBuilder:
    """Builds the engines of one way of running; those of a reload use the clients of judges again.

    Args:
        counters: counts calls of judges, and of user-defined scorers that do not return in time;
            None: nothing is counted, and the time of scorers is not limited.
        writes_no_run: whether results are written where a trace without a result has a line, too.
        longest_s: an upper bound in seconds for the configured time limit of user-defined scorers.
        reads: what is read of runs beyond what the scorers need.
    """

    def __init__(
        self,
        counters: Counters | None = None,
        *,
        writes_no_run: bool = False,
        longest_s: float = inf,
        reads: frozenset[str] = frozenset(),
    ) -> None:
        self._counters: Final = counters
        self._clients: Final = Clients(counters)
        self._writes_no_run: Final = writes_no_run
        self._longest_s: Final = longest_s
        self._reads: Final = reads

    def build(self, config: EvalConfig, before: Engine | None = None) -> Engine:
        """Build an engine; one is used by one thread at a time.

        Args:
            config: its evaluations, conventions, results and judges.
            before: the engine of the parent process, which a forked child goes on with if a file or
                a key cannot be read now.

        Raises:
            ConfigError: the API key of a judge, or that of a digest, cannot be read.
        """
        try:
            with (
                self._clients.building(),
                named_judges(build_judges(config) if config.judges else {}),
            ):
                evaluations = [
                    self._scorer_set(config, evaluation) for evaluation in config.evaluations
                ]
                case = _case_of_run(config)
        except ConfigError as error:
            if before is None:
                raise
            _log.warning("%s; this child process keeps what its parent read", error)
            return before
        return Engine(
            evaluations,
            convention_tables(config),
            config.results.attributes,
            config.own_conventions.records_tool_spans,
            no_run=self._writes_no_run and config.results.no_run,
            case=case,
            reads=self._reads,
        )

    def _scorer_set(self, config: EvalConfig, evaluation: Evaluation) -> ScorerSet:
        scorers = evaluation.build()
        if (counters := self._counters) is not None:
            limit_s = min(config.async_scoring.scorer_timeout, self._longest_s)
            scorers = tuple([guard_scorer(scorer, limit_s, counters) for scorer in scorers])
        return ScorerSet(
            name=evaluation.name,
            scorers=scorers,
            sample=evaluation.sample,
            match=RunFilter(**dict(evaluation.match)),
        )


def build_engine(
    config: EvalConfig, *, lines: bool = False, reads: frozenset[str] = frozenset()
) -> Engine:
    """The engine for stored traces, with the arguments of `EngineBuilder`; `lines` is
    `writes_no_run`.
    """
    return EngineBuilder(writes_no_run=lines, reads=reads).build(config)


_SHORTEST_KEY: Final = 16  # characters


def _case_of_run(config: EvalConfig) -> CaseOfRun | None:
    """What tells the case of a run.

    Raises:
        ConfigError: there is no key for the digest.
    """
    case = config.results.case
    if case is None or case.attribute is not None:
        return CaseOfRun(case.attribute or "") if case else None
    secret = os.environ.get(case.digest_key_env or "", "")
    if len(secret) < _SHORTEST_KEY:
        raise ConfigError(
            f"results.case.digest_key_env: the environment variable {case.digest_key_env!r} has"
            f" fewer than {_SHORTEST_KEY} characters; set it to a long random text, and keep it"
        )
    return CaseOfRun(key=blake2b(secret.encode()).digest())


def build_async_evaluator(
    config: EvalConfig,
    engine: Engine,
    listener: LateResultListener,
    *,
    unbounded: bool = False,
) -> AsyncEvaluator | None:
    """The evaluator of asynchronous scorers; None if there are none.

    Args:
        listener: gets the reports of results.
        unbounded: whether the queue has no limit, because the caller bounds the number of reports
            itself.
    """
    if not engine.waits:
        return None
    from otel_eval.judges import AsyncEvaluator  # deferred: it loads asyncio

    settings = config.async_scoring
    limits = (
        {"max_queue": sys.maxsize, "max_bytes": sys.maxsize}
        if unbounded
        else {"max_queue": settings.max_queue}
    )
    return AsyncEvaluator(
        listener, concurrency=settings.concurrency, timeout_s=settings.timeout, **limits
    )


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
