"""Selects the spans that are held until their trace was evaluated: those that may be a run's own span.

That is an agent span, or else a local root span, of which no condition of every evaluation (sample, service, name, attributes) is
false. The filter sees one span at a time and no tree, so it holds some in vain, but never longer than their trace is open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from otel_eval.conventions import DROPPED
from otel_eval.conventions.local_root import is_local_root
from otel_eval.engine import Engine, sampling_hash
from otel_eval.evaluations import ScorerSet, condition
from otel_eval.globs import glob_matcher
from otel_eval.interfaces import Frame, SpanReader
from otel_eval.model import Kind

__all__ = ["HoldFilter"]

Span = tuple[bytes, bytes, Frame, int]
"""Trace id, span id, frame and size."""


class HoldFilter:
    """Decides for each span whether it is held.

    Args:
        engine: its evaluations and tables.
    """

    def __init__(self, engine: Engine) -> None:
        self._reader: Final = engine.plan.reader
        self._asked: Final = engine.plan.asked_wanted
        self._evaluations: Final = [_Chance(evaluation) for evaluation in engine.evaluations]
        self._sampled: Final = any(evaluation.sample < 1 for evaluation in engine.evaluations)

    def chosen(self, spans: Sequence[Span]) -> list[tuple[bytes, bytes, Any]]:
        """Trace id, span id and payload of the spans to hold, in order."""
        waiting = []
        for trace_id, span_id, frame, _ in spans:
            _, payload, envelope = frame
            view, scope = envelope.view(payload), self._reader.of_scope(envelope.scope_name)
            reading = DROPPED if scope.dropped else scope.read(view)
            own = reading is not DROPPED and (reading.kind is Kind.AGENT or is_local_root(frame, view))
            if own and self._may_apply(trace_id, frame, view):
                waiting.append((trace_id, span_id, payload))
        return waiting

    def _may_apply(self, trace_id: bytes, frame: Frame, view: SpanReader) -> bool:
        draw = sampling_hash(trace_id) if self._sampled else 0.0
        attributes: dict[str, Any] = {}
        if self._asked.keys:
            attributes = {**frame[2].shared(self._asked), **view.attributes(self._asked)}
        return any(each.may_apply(draw, frame[2].service, view.name, attributes) for each in self._evaluations)


class _Chance:
    """Those conditions of an evaluation that a single span can fail."""

    def __init__(self, evaluation: ScorerSet) -> None:
        match = evaluation.match
        self._sample: Final = evaluation.sample
        self._service: Final = glob_matcher(match.service)
        self._name: Final = glob_matcher(match.span)
        self._attributes: Final = [(key, condition(value)) for key, value in match.attributes.items()]

    def may_apply(self, draw: float, service: str, name: str, attributes: dict[str, Any]) -> bool:
        """False if no run with this own span can be the evaluation's."""
        if draw >= self._sample or not (self._service(service) and self._name(name)):
            return False
        return all(key in attributes and fits(attributes[key]) for key, fits in self._attributes)
