"""An explained trace as the fields of one JSON object, with values or, redacted, with names and structure only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any, Final

from otel_eval.app import EvaluationOfRun, ExplainedRun, ExplainedTrace
from otel_eval.conventions import Recognition
from otel_eval.model import UNRECORDED, Failed, Result, Scored, Skipped
from otel_eval.trajectory import Ignored, SpanExplanation

__all__ = ["Disclosure", "explanation_fields"]

_LONGEST: Final = 200
_NO_RUN: Final = "no span was recognised as an agent, a model call or a tool call"


class Disclosure:
    """What of a trace is shown: everything, or with `redact` names and structure only.

    Redacted, names of spans, scopes, agents, tools, evaluations and scorers and keys of attributes stay; ids become short
    hashes, services numbers, values the names of their types, and texts of user-defined scorers are left out.
    """

    def __init__(self, *, redact: bool) -> None:
        self.redact: Final = redact

    def id(self, text: str) -> str:
        """An id, or what tells it from others."""
        return text if not self.redact or not text else f"#{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"

    def services(self, names: Iterable[str]) -> list[str]:
        """The services that took part; redacted only how many, since a hash of a name can be guessed."""
        known = sorted({*names} - {""})
        return [f"#{number}" for number in range(1, len(known) + 1)] if self.redact else known

    def value(self, value: Any) -> Any:
        """A value, of a long text its beginning; null for one that was not recorded."""
        if value is UNRECORDED:
            return None
        if self.redact:
            return f"<{type(value).__name__}>"
        return value if not isinstance(value, str) or len(value) <= _LONGEST else f"{value[:_LONGEST]}…"

    def rule(self, recognition: Recognition) -> dict[str, str] | None:
        """The attribute, its pattern and the pattern of the span's name that decided; of a redacted rule only the attribute."""
        decided = recognition.rule or recognition.evaluation_mark
        if decided is None:
            return None
        patterns = {"pattern": decided.value, "span_name": getattr(decided, "name", "")}
        return {"attribute": decided.key, **({} if self.redact else patterns)}


def explanation_fields(explained: ExplainedTrace, disclosure: Disclosure) -> dict[str, Any]:
    """The trace, its spans as a tree in order of time, and its runs with what each evaluation did."""
    trace, shown = explained.trace, disclosure
    unread = {span.scope for span in trace.spans if span.ignored is Ignored.NO_RULE}
    return {
        "trace_id": shown.id(trace.trace_id),
        "completeness": str(explained.completeness),
        "services": shown.services(span.service for span in trace.spans),
        "scopes": [_scope_fields(scope, spans) for scope, spans in _by_scope(trace.spans).items()],
        "spans": [_span_fields(span, shown, is_run=span.span_id in trace.runs) for span in trace.spans],
        "tops": [{"span_id": shown.id(t.span_id), "parent_id": shown.id(t.parent_id), "origin": t.origin} for t in trace.tops],
        "looked_for": {scope: sorted(keys) for scope, keys in sorted(trace.looked_for.items()) if scope in unread},
        "no_run": None if explained.runs else _NO_RUN,
        "runs": [_run_fields(run, str(trace.runs.get(run.trajectory.span_id, "")), shown) for run in explained.runs],
    }


def _by_scope(spans: Iterable[SpanExplanation]) -> dict[str, list[SpanExplanation]]:
    found: dict[str, list[SpanExplanation]] = {}
    for span in spans:
        found.setdefault(span.scope, []).append(span)
    return found


def _scope_fields(scope: str, spans: list[SpanExplanation]) -> dict[str, Any]:
    kinds = Counter(str(span.kind) for span in spans if not span.ignored)
    return {
        "scope": scope,
        "spans": len(spans),
        "kinds": dict(sorted(kinds.items())),
        "conventions": sorted({span.recognition.table for span in spans} - {""}),
        "ignored": dict(Counter(str(span.ignored) for span in spans if span.ignored)),
    }


def _span_fields(span: SpanExplanation, shown: Disclosure, *, is_run: bool) -> dict[str, Any]:
    return {
        "span_id": shown.id(span.span_id),
        "parent_id": shown.id(span.parent_id),
        "depth": span.depth,
        "name": span.name,
        "scope": span.scope,
        "kind": str(span.kind),
        "run": is_run,
        "convention": span.recognition.table,
        "rule": shown.rule(span.recognition),
        "ignored": str(span.ignored or ""),
        "looked_at": {key: shown.value(value) for key, value in span.recognition.looked_at.items()},
        "attribute_keys": list(span.keys),
    }


def _run_fields(run: ExplainedRun, why: str, shown: Disclosure) -> dict[str, Any]:
    trajectory = run.trajectory
    return {
        "span_id": shown.id(trajectory.span_id),
        "agent": trajectory.agent,
        "name": trajectory.name,
        "why": why,
        "outermost": trajectory.outermost,
        "calls": [call.name for call in trajectory.calls],
        "calls_from_messages": any(not call.span_id for call in trajectory.calls),
        "model_calls": trajectory.model_calls,
        "calls_unknown": trajectory.calls_unknown,
        "incomplete": trajectory.incomplete,
        "evaluations": [_evaluation_fields(each, shown) for each in run.evaluations],
    }


def _evaluation_fields(evaluation: EvaluationOfRun, shown: Disclosure) -> dict[str, Any]:
    failed = [
        {"condition": each.condition, "wanted": shown.value(each.wanted), "actual": shown.value(each.actual)}
        for each in evaluation.failed
    ]
    return {
        "evaluation": evaluation.name,
        "matched": not failed,
        "failed_conditions": failed,
        "results": [_result_fields(each, shown, safe=each.scorer not in evaluation.user_defined) for each in evaluation.results],
        "not_asked": list(evaluation.not_asked),
    }


def _result_fields(result: Result, shown: Disclosure, *, safe: bool) -> dict[str, Any]:
    outcome = result.outcome
    fields = {"scorer": result.scorer, "type": result.type, **dict(_outcome_fields(outcome))}
    if shown.redact:
        fields.update({"value": None, "passed": None}, **({} if safe else {"text": ""}))
    return fields


def _outcome_fields(outcome: Scored | Skipped | Failed) -> Iterator[tuple[str, Any]]:
    """`text` is why there is no score; what a failed scorer raised stays in the process."""
    scored, skipped = isinstance(outcome, Scored), isinstance(outcome, Skipped)
    yield "outcome", "scored" if scored else "skipped" if skipped else "failed"
    yield "value", outcome.value if isinstance(outcome, Scored) else None
    yield "passed", outcome.passed if isinstance(outcome, Scored) else None
    yield "reason", outcome.reason if isinstance(outcome, Skipped) else None
    yield "text", outcome.why if isinstance(outcome, Skipped) else outcome.error_type if isinstance(outcome, Failed) else ""
