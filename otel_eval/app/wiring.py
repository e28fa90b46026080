"""Builds from the configuration what every way of running needs: limits, engine, evaluator of
asynchronous scorers, schema.
"""

from __future__ import annotations

import logging
import os
import pickle
import sys
from collections.abc import Callable
from hashlib import blake2b
from math import inf
from typing import TYPE_CHECKING, Any, Final

from otel_eval.app.guarded_scorer import guard_scorer
from otel_eval.app.judge_clients import Clients, judges_of
from otel_eval.assembly import Limits
from otel_eval.config import EvalConfig, Evaluation
from otel_eval.conventions import TABLES, Convention
from otel_eval.counters import Counters
from otel_eval.engine import CaseOfRun, Engine
from otel_eval.errors import ConfigError
from otel_eval.evaluations import RunFilter, ScorerSet
from otel_eval.model import Report
from otel_eval.scorers.build import ConfigurationSchema
from otel_eval.scorers.judge import named_judges
from otel_eval.trajectory.classify import ALL_NEEDS, Plan

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


def _scorer_set(evaluation: Evaluation, limit_s: float, counters: Counters | None) -> ScorerSet:
    scorers = evaluation.build()
    if counters is not None:
        scorers = tuple([guard_scorer(scorer, limit_s, counters) for scorer in scorers])
    return ScorerSet(
        name=evaluation.name,
        scorers=scorers,
        sample=evaluation.sample,
        match=RunFilter(**dict(evaluation.match)),
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
