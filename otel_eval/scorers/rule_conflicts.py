"""Finds rules of one evaluation that no run can meet together, for `otel-eval check`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations_with_replacement, product
from typing import Final

from otel_eval.globs import glob_matcher
from otel_eval.interfaces import Scorer
from otel_eval.model import ToolCall
from otel_eval.scorers.base_scorer import BaseScorer
from otel_eval.scorers.counts import ForbiddenTools, ToolCallCount
from otel_eval.scorers.parameters import is_pattern
from otel_eval.scorers.sequence import OrderRule, Precedence, breaking_calls

_LONGEST_RUN: Final = 3
"""Calls in the runs on which two rules about two tools are tried: whether two such rules can hold
together shows in shorter runs already.
"""


def contradictions(scorers: Sequence[Scorer]) -> Iterator[str]:
    """Describe the rules of one evaluation that contradict each other."""
    yield from _required_and_forbidden(scorers)
    for scorer in scorers:
        if isinstance(scorer, ToolCallCount):
            yield from _unreachable_counts(scorer)
    rules = [rule for scorer in scorers if isinstance(scorer, Precedence) for rule in scorer.rules]
    for one, other in combinations_with_replacement(rules, 2):
        yield from _order_problem(one, other)


def _required_and_forbidden(scorers: Sequence[Scorer]) -> Iterator[str]:
    forbidden = [(scorer, pattern) for scorer in scorers for pattern in _forbidden_by(scorer)]
    for scorer in scorers:
        required = scorer.tool_names.required if isinstance(scorer, BaseScorer) else ()
        for name in dict.fromkeys(required):
            for other, pattern in forbidden:
                if glob_matcher(pattern)(name) and _reads(other, name):
                    yield f"{scorer.name} requires {name}, and {other.name} forbids {pattern}"


def _reads(scorer: Scorer, name: str) -> bool:
    """Whether the scorer's `tools` lets calls of this tool through."""
    is_selected = scorer.tools.matcher() if isinstance(scorer, BaseScorer) else None
    return is_selected is None or is_selected(name)


def _forbidden_by(scorer: Scorer) -> Iterable[str]:
    if isinstance(scorer, ForbiddenTools):
        return scorer.patterns
    if isinstance(scorer, ToolCallCount):
        return [counted.tool for counted in scorer.counted or () if counted.greatest == 0]
    return ()


def _unreachable_counts(scorer: ToolCallCount) -> Iterator[str]:
    """Patterns that allow fewer calls than the tools that they match require."""
    counted = scorer.counted or ()
    for pattern in counted:
        if pattern.matches is None or pattern.greatest is None:
            continue
        least = sum(
            tool.least or 0
            for tool in counted
            if not is_pattern(tool.tool) and pattern.matches(tool.tool)
        )
        if least > pattern.greatest:
            yield (
                f"{scorer.name} allows {pattern.greatest} calls of {pattern.tool}, and requires"
                f" {least} of tools that match it"
            )


def _order_problem(one: OrderRule, other: OrderRule) -> Iterator[str]:
    """Try two rules about the same one or two tools on short runs of these."""
    names = sorted({*one.tools, *other.tools})
    if len(names) > len({*one.tools} & {*other.tools}):
        return
    runs = chain.from_iterable(
        product(names, repeat=length) for length in range(1, _LONGEST_RUN + 1)
    )
    allowed_runs = [{*run} for run in runs if not (_is_broken(one, run) or _is_broken(other, run))]
    never = [name for name in names if not any(name in run for run in allowed_runs)]
    both = repr(one.written) if one is other else f"{one.written!r} and {other.written!r}"
    if never:
        yield f"{both} cannot hold where {' or '.join(never)} is called"
    # Two tools that exclude each other may be meant: `never a after b` and `never b after a`.
    elif {*names} not in allowed_runs and {one.kind, other.kind} != {"never"}:
        yield f"{both} cannot hold where {' and '.join(names)} are called one after the other"


def _is_broken(rule: OrderRule, names: Sequence[str]) -> bool:
    calls = [ToolCall(name=name) for name in names]
    return bool(breaking_calls(replace(rule, within_ns=None), calls, range(len(calls))))
