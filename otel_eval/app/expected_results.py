"""Starts the counters of results at 0 before the first result, because a rate ignores the value that a series begins with.

That is done for the services and agents that the configuration names, and for each agent when its first span is seen. Few spans
are looked at in a second, on the worker: an agent that is missed under load is found with its next run, or its first result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from otel_eval.engine import Engine
from otel_eval.globs import glob_matcher
from otel_eval.interfaces import Scorer, SpanReader

__all__ = ["ExpectedResults"]

_MOST_SPANS: Final = 64  # between two looks, which come ten times a second
_MOST_BYTES: Final = 64 * 1024  # of a span that is kept until it is looked at
_MOST_SEEN: Final = 10_000
_WILD: Final = frozenset("*?[")


class ExpectedResults:
    """Tells an exporter of the results that may come.

    Args:
        expect: called with an evaluation, its scorers, a service and an agent, as `Exporter.expect`.
    """

    def __init__(self, expect: Callable[[str, Sequence[Scorer], str, str], None], engine: Engine) -> None:
        self._expect: Final = expect
        self._spans: deque[Any] = deque()
        self.use_engine(engine)

    def use_engine(self, engine: Engine) -> None:
        """Expect the results of these evaluations from now on."""
        self._engine = engine
        self._seen: set[tuple[str, str]] = set()
        self._evaluations = [
            (each, glob_matcher(each.match.service), glob_matcher(each.match.agent)) for each in engine.evaluations
        ]

    def start(self) -> None:
        """Expect what the configuration names; a service or agent that it leaves open is no label."""
        for each, _, _ in self._evaluations:
            self._expect(each.name, each.scorers, _literal(each.match.service), _literal(each.match.agent))

    def note(self, spans: Iterable[tuple[bytes, bytes, Any, int]]) -> None:
        """Keep the first of the spans that arrived, if there is room; called by the threads of requests."""
        for _, _, frame, size in spans:
            if len(self._spans) >= _MOST_SPANS:
                return
            if size <= _MOST_BYTES:
                self._spans.append(frame)

    def look(self) -> None:
        """Look at the spans that were kept."""
        while self._spans:
            _, payload, envelope = self._spans.popleft()
            self.saw(envelope.view(payload), envelope.scope_name, envelope.service)

    def saw(self, view: SpanReader, scope_name: str, service: str) -> None:
        """A span was seen, which may be open."""
        agent = self._engine.agent_of(view, scope_name)
        if agent is None or (service, agent) in self._seen:
            return
        if len(self._seen) < _MOST_SEEN:
            self._seen.add((service, agent))
        for each, for_service, for_agent in self._evaluations:
            if for_service(service) and for_agent(agent):
                self._expect(each.name, each.scorers, service, agent)


def _literal(pattern: str) -> str:
    return pattern if _WILD.isdisjoint(pattern) else ""
