"""Turn the configuration into the objects of the core.

Knows which key becomes which argument; starts nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from otel_eval.app.judges import Clients, judges_of
from otel_eval.assembly import Limits
from otel_eval.config import EvalConfig
from otel_eval.conventions import TABLES, Convention, convention_from_mapping
from otel_eval.engine import Engine
from otel_eval.evaluations import Evaluation, Match
from otel_eval.interfaces import Scorer
from otel_eval.model import Report
from otel_eval.scorers.judge import named_judges
from otel_eval.trajectory import ALL_NEEDS, Plan

if TYPE_CHECKING:
    from otel_eval.judges import AsyncEvaluator

__all__ = ["engine_of", "later_of", "limits_of", "plan_of", "tables_of"]


def limits_of(config: EvalConfig) -> Limits:
    """The limits of assembly."""
    traces = config.traces
    return Limits(
        settle_s=traces.decision_wait,
        settle_partial_s=traces.decision_wait_partial,
        settle_detached_s=min(max(traces.decision_wait_detached, traces.decision_wait_partial), traces.idle_timeout),
        keep_s=traces.max_age,
        late_s=traces.grace_period,
        idle_s=traces.idle_timeout,
        max_age_s=traces.max_age,
        max_traces=traces.max_traces,
        max_spans_per_trace=traces.max_spans_per_trace,
        max_bytes_per_trace=traces.max_bytes_per_trace,
        max_bytes=traces.max_bytes,
    )


def tables_of(config: EvalConfig) -> tuple[Convention, ...]:
    """The convention tables: the user's own first."""
    own = (each if isinstance(each, Convention) else convention_from_mapping(each) for each in config.own_conventions.tables)
    return (*own, *TABLES)


def plan_of(config: EvalConfig) -> Plan:
    """How to read everything that can be read of a trace, whatever the evaluations need."""
    return Plan(tables=tables_of(config), needs=ALL_NEEDS, records_tool_spans=config.own_conventions.records_tool_spans)


def engine_of(
    config: EvalConfig,
    guard: Callable[[Scorer], Scorer] = lambda scorer: scorer,
    *,
    lines: bool = False,
    clients: Clients | None = None,
) -> Engine:
    """The engine that judges by the configuration's evaluations, each scorer as `guard` returns it.

    Args:
        lines: whether results are written as JSON Lines, in which a trace without a result has a line too.
        clients: those of judges, which are kept where their endpoints are in this configuration as well.

    Raises:
        ConfigError: the key of a judge cannot be had.
    """
    with (clients or Clients()).used(), named_judges(judges_of(config) if config.judges else {}):
        built = [each.build() for each in config.evaluations]
    evaluations = [
        Evaluation(
            name=each.name,
            scorers=tuple(map(guard, scorers)),
            sample=each.sample,
            match=Match(
                service=each.match.service,
                agent=each.match.agent,
                span=each.match.span,
                runs=each.match.runs,
                attributes=dict(each.match.attributes),
            ),
        )
        for each, scorers in zip(config.evaluations, built, strict=True)
    ]
    return Engine(
        evaluations,
        tables_of(config),
        config.results.attributes,
        config.own_conventions.records_tool_spans,
        no_run=lines and config.results.no_run,
    )


def later_of(
    config: EvalConfig,
    engine: Engine,
    emit: Callable[[Report], None],
    *,
    unbounded: bool = False,
    record: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> AsyncEvaluator | None:
    """What runs the scorers that are waited for, if there are any.

    Args:
        unbounded: whoever puts reports sees to it himself that they do not become too many.
        record: records the trace of each result that is worked on.
    """
    if not engine.waits:
        return None
    from otel_eval.judges import AsyncEvaluator  # deferred: it loads asyncio

    given = config.async_scoring
    bounds = {"max_queue": sys.maxsize, "max_bytes": sys.maxsize} if unbounded else {"max_queue": given.max_queue}
    return AsyncEvaluator(emit, concurrency=given.concurrency, timeout_s=given.timeout, record=record, **bounds)
