"""How each model call of a trace ended: with a request for tools, otherwise, or unknown."""

from __future__ import annotations

from otel_eval.conventions.model_calls import Finish, finish_of, finish_of_messages
from otel_eval.trajectory.classify import ClassifiedTrace
from otel_eval.trajectory.messages import TraceMessages


class ModelFinishes:
    """Reads how model calls ended, each once."""

    def __init__(self, spans: ClassifiedTrace, messages: TraceMessages) -> None:
        self._spans, self._messages = spans, messages
        self._known: dict[int, Finish] = {}

    def of(self, place: int) -> Finish:
        """How the model call of the span at `place` ended, or one within it that says so."""
        known = self._known.get(place)
        if known is None:
            known = self._finish_of(place)
            for inner in self._spans.nested_models(place):
                known = self._finish_of(inner) if known is Finish.UNKNOWN else known
            self._known[place] = known
        return known

    def _finish_of(self, place: int) -> Finish:
        table, span = self._spans.table(place), self._spans.readers[place]
        attributes = span.attributes(table.finish_wanted)
        found = finish_of(table, attributes)
        if found is not Finish.UNKNOWN:
            return found
        outputs, events = (
            self._messages.outputs(place, table),
            [*span.events(), *self._spans.logs(place)],
        )
        return (
            finish_of_messages(table, attributes, outputs, events)
            if outputs or events
            else Finish.UNKNOWN
        )
