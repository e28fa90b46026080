"""Agent runs that have ended although spans of their trace are open, none of them an agent's: nothing of them is missing.

A server's or a worker's span may be open for hours, with one agent run after the other below it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["DetachedSpans", "find_detached"]


@dataclass(slots=True)
class DetachedSpans:
    """Spans that can be handed over, and for those below an open span the id of the outermost open span above.

    They are handed over as if they hung from that one: what is between is open and no agent's, so it belongs to no run, and
    spans with one missing parent are known to be no parts of one another.
    """

    spans: list[ReadableSpan] = field(default_factory=list)
    below: dict[int, int] = field(default_factory=dict)


def find_detached(ended: Sequence[ReadableSpan], live: Mapping[int, Any], is_agent: Callable[[Any], bool]) -> DetachedSpans:
    """The ended spans that can be evaluated, if an agent's is among them; else nothing.

    Where the parent of some span is not known, that may be an agent's, or the span a part of any run: then nothing can be.

    Args:
        ended: what has ended of a trace and was not handed over.
        live: what is open, by id.
        is_agent: whether a span, open or ended, is an agent's.
    """
    trees = _Trees({_id(span): span for span in ended}, live, is_agent)
    tops = {span_id: trees.top(span_id) for span_id in trees.ended}
    if _UNKNOWN in tops.values():
        return DetachedSpans()
    spans = [span for span in ended if tops[_id(span)] >= 0 and _id(span) not in trees.busy]
    if not any(map(is_agent, spans)):
        return DetachedSpans()
    handed = {_id(span) for span in spans}
    return DetachedSpans(spans, {each: tops[each] for each in handed if tops[each] and trees.parent(each) not in handed})


_AGENT: Final = -1
_UNKNOWN: Final = -2


class _Trees:
    """Parent links between ended and open spans."""

    def __init__(self, ended: Mapping[int, ReadableSpan], live: Mapping[int, Any], is_agent: Callable[[Any], bool]) -> None:
        self.ended, self._live, self._is_agent = ended, live, is_agent
        self.busy: Final = self._above_open()
        self._tops: dict[int, int] = {}

    def parent(self, span_id: int) -> int:
        """The id of an ended span's parent in this process, 0 if it has none."""
        return _parent(self.ended[span_id])

    def _above_open(self) -> set[int]:
        """Ids of ended spans with an open one below them."""
        found: set[int] = set()
        for span in self._live.values():
            parent = _parent(span)
            while parent in self.ended and parent not in found:
                found.add(parent)
                parent = self.parent(parent)
        return found

    def top(self, span_id: int) -> int:
        """The id of the outermost open span above an ended one, 0 if none is; `_AGENT` or `_UNKNOWN` if one is that."""
        chain = []
        while span_id in self.ended and span_id not in self._tops:
            chain.append(span_id)
            self._tops[span_id] = 0  # links may run in a circle
            span_id = self.parent(span_id)
        top = self._tops[span_id] if span_id in self._tops else self._open_top(span_id)
        for each in reversed(chain):
            self._tops[each] = top
            if each in self.busy and self._is_agent(self.ended[each]):
                top = _AGENT  # for what is below it
        return self._tops[chain[0]] if chain else top

    def _open_top(self, span_id: int) -> int:
        top, seen = 0, set[int]()
        while span_id in self._live and span_id not in seen:
            if self._is_agent(self._live[span_id]):
                return _AGENT
            top = span_id
            seen.add(span_id)
            span_id = _parent(self._live[span_id])
        return _UNKNOWN if span_id else top


def _id(span: Any) -> int:
    own: int = span.context.span_id
    return own


def _parent(span: Any) -> int:
    parent = span.parent
    return 0 if parent is None or parent.is_remote else parent.span_id
