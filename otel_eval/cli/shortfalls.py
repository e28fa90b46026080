"""What a replay did not evaluate, in a line each: the reasons for exit code 3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

from otel_eval.app import Coverage
from otel_eval.model import UNKNOWN_REASONS
from otel_eval.telling import shown

__all__ = ["no_run_line", "nothing_evaluated", "unused_records"]

_EXPLAIN: Final = "`otel-eval explain` with the same files and --config shows why"
_SHOWN: Final = 5


def nothing_evaluated(coverage: Coverage, evaluated: int, skipped: Mapping[str, int]) -> Iterator[str]:
    """Why nothing was evaluated, if so.

    Args:
        coverage: what was read.
        evaluated: results that are scored, failed, or skipped because a run was too large.
        skipped: skipped results by reason.
    """
    unknown = Counter({reason: skipped[reason] for reason in UNKNOWN_REASONS if skipped.get(reason)})
    remedy = f"{_EXPLAIN}; --allow-empty accepts it"
    if not coverage.runs:
        yield f"nothing was evaluated: {no_run_line(coverage)}; {remedy}"
    elif not coverage.matched:
        sampled = "; an evaluation with sample below 1 leaves traces out" if _sampled(coverage) else ""
        yield f"nothing was evaluated: no evaluation matched any of {_count(coverage.runs, 'run')}{sampled}; {remedy}"
    elif not evaluated and unknown:
        reasons = ", ".join(f"{reason} {count}" for reason, count in unknown.most_common())
        yield f"nothing was evaluated: every scorer was skipped ({reasons}); {remedy}"
    elif not evaluated and not sum(skipped.values()):
        yield f"nothing was evaluated: no scorer was asked, because each has a sample below 1; {remedy}"


def no_run_line(coverage: Coverage) -> str:
    """That there is no agent run in the traces that have none: how many spans, and of which scopes."""
    scopes = coverage.scopes_without_run.most_common()
    named = ", ".join(f"{shown(scope) if scope else '(unnamed)'} ({count})" for scope, count in scopes[:_SHOWN])
    more = f" and {len(scopes) - _SHOWN} more" if len(scopes) > _SHOWN else ""
    of_scopes = f" of scopes {named}{more}" if scopes else ""
    return f"no agent run found in {_count(coverage.spans_without_run, 'span')}{of_scopes}"


def unused_records(coverage: Coverage) -> Iterator[str]:
    """Dataset files with records that matched no run."""
    for each in coverage.unused_records():
        named = ", ".join(f"line {line} {shown(key)}" for line, key in each.records[:_SHOWN])
        more = ", …" if len(each.records) > _SHOWN else ""
        yield (
            f"{each.path}: {len(each.records)} of {_count(each.total, 'record')} matched no run: {named}{more}; "
            "record the missing cases or check the key; --allow-unused accepts it"
        )


def _sampled(coverage: Coverage) -> bool:
    return any(each.sample < 1 for each in coverage.evaluations)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
