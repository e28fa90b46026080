"""Close the trees of open traces that are evaluated on their own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from math import inf
from typing import Final

from otel_eval.assembly.closing import BufferCounts, Limits
from otel_eval.assembly.subtrees import Due, OpenTrace, SpanTrees
from otel_eval.interfaces import ClosedTrace, Frame
from otel_eval.model import Completeness

_LOOKS: Final = 8  # in `decision_wait_detached_s`, at a trace in which spans arrive all the time


class Parts:
    """Closes trees of open traces.

    Args:
        is_agent: whether a span is an agent's.

    Attributes:
        dormant: traces without open spans, of which something is kept.
        keeping: traces of which something is kept, open ones too; the one that was handed over last is the last.
        ready: what is to be handed over.
    """

    def __init__(self, limits: Limits, counts: BufferCounts, is_agent: Callable[[Frame], bool]) -> None:
        self._limits, self._counts, self._is_agent = limits, counts, is_agent
        self._gap_s = max(limits.decision_wait_s, limits.decision_wait_detached_s / _LOOKS)
        self.dormant = OrderedDict[bytes, OpenTrace]()
        self.keeping = OrderedDict[bytes, OpenTrace]()
        self.ready: list[ClosedTrace] = []

    def look(self, trace_id: bytes, trace: OpenTrace, now: float) -> float | None:
        """Close the trees that are due and return when to look again; None if the trace is closed as a whole."""
        trees = self._trees(trace, now)
        if trees is None:
            trace.look = now + self._gap_s if trace.touched + self._limits.decision_wait_s > now else inf
            return None
        if now < min(trace.look, trees.next_look) < inf:
            return min(trace.look, trees.next_look)
        due, following = trees.look(trace, now)
        for each in due:
            self.close(trace_id, trace, each, now)
        trace.look = now + self._gap_s if trace.frames else inf
        end = inf if trace.frames else trace.touched + self._limits.max_age_s
        following = min(following, end, trees.kept.next_end(), trace.look if due else inf)
        trees.next_look = max(following, now + self._gap_s / _LOOKS)
        return trees.next_look

    def _trees(self, trace: OpenTrace, now: float) -> SpanTrees | None:
        """The trees of a trace that has an agent span and no root."""
        if not all(frame[0] for frame in trace.frames.values()):
            return None
        if trace.trees is None:
            trace.trees = SpanTrees(self._limits, self._counts, self._is_agent, now)
        if not trace.trees.has_agents(trace):
            return None
        if trace.changed is not None:  # it was closed as a whole before
            trace.trees.adopt(trace.frames.keys() - trace.changed)
            trace.changed = None
        return trace.trees

    def close_agents(self, trace_id: bytes, trace: OpenTrace, now: float) -> None:
        """Close all trees with an agent span: no span that is open is an agent's."""
        trees = self._trees(trace, now)
        if trees is not None:
            trees.looked = now
            self.close(trace_id, trace, Due(trees.agent_trees(trace), Completeness.DETACHED), now)

    def close(self, trace_id: bytes, trace: OpenTrace, due: Due, now: float) -> None:
        """Close trees for a reason."""
        if trace.trees is None:
            trace.trees = SpanTrees(self._limits, self._counts, self._is_agent, now)
        part = trace.trees.hand_over(trace_id, trace, due, now)
        if part is not None:
            self.ready.append(part)
            self.keeping.pop(trace_id, None)
            self.keeping[trace_id] = trace
