"""Which of a model's requests for a tool the calls of that tool answer."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_eval.conventions import ToolRequest
from otel_eval.conventions.values import frozen
from otel_eval.model import UNRECORDED
from otel_eval.steps import Steps
from otel_eval.trajectory.calls import Draft, named

__all__ = ["Requests", "Window", "pair"]

Window = tuple[int, int | None]
"""First and last instant, None: any later one."""

_STEPS: Final = 5  # of a request or a call


@dataclass(slots=True)
class Requests:
    """The requests for one tool, in order.

    Attributes:
        asked: the requests.
        windows: when the calls that each asks for can have started: with or after the model call, and before the next one.
        places: identity of a request → its place among them.
    """

    asked: list[ToolRequest] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    _by_arguments: dict[Hashable, list[int]] | None = None
    _by_value: dict[Hashable, list[int]] | None = None

    def add(self, asked: ToolRequest, window: Window) -> None:
        """Add one."""
        self.places[id(asked)] = len(self.asked)
        self.asked.append(asked)
        self.windows.append(window)

    def with_arguments(self, key: Hashable) -> Sequence[int]:
        """The places of those with arguments that `frozen` makes equal to the key."""
        if self._by_arguments is None:
            self._by_arguments = self._index(lambda arguments: [arguments])
        return self._by_arguments.get(key, ())

    def with_value(self, key: Hashable) -> Sequence[int]:
        """The same of those that have such a value among their arguments."""
        if self._by_value is None:
            self._by_value = self._index(lambda arguments: arguments.values())
        return self._by_value.get(key, ())

    def _index(self, parts: Callable[[dict[str, Any]], Any]) -> dict[Hashable, list[int]]:
        found: dict[Hashable, list[int]] = {}
        for place, asked in enumerate(self.asked):
            for key in map(frozen, parts(asked.arguments) if isinstance(asked.arguments, dict) else ()):
                found.setdefault(key, []).append(place)
        return found


def pair(requests: Requests, waiting: list[Draft], taken: set[int], steps: Steps) -> Iterator[tuple[Draft, ToolRequest]]:
    """Equal arguments first, then a bare value with the object that holds it, then what is left in order, if that is known.

    Args:
        requests: those for one tool.
        waiting: calls of it that have no request, in order of time.
        taken: identities of requests that have their calls.
        steps: those that are left for the evaluation.
    """
    gone = {requests.places[each] for each in taken if each in requests.places}
    is_order_known = len(gone) == len(taken)
    for is_asked, places in ((named, requests.with_arguments), (_is_bare, requests.with_value)):
        steps.take(_STEPS * len(waiting))
        found = _first_left(waiting, is_asked, places, gone)
        yield from ((draft, requests.asked[found[draft.place]]) for draft in waiting if draft.place in found)
        waiting = [draft for draft in waiting if draft.place not in found]
    if len(waiting) != len(requests.asked) - len(gone):
        waiting = [draft for draft in waiting if not named(draft.arguments)]
    if waiting and is_order_known:
        steps.take(_STEPS * len(requests.asked))
        yield from _in_order(requests, gone, waiting)


def _is_bare(arguments: Any) -> bool:
    return arguments is not UNRECORDED and not named(arguments)


def _first_left(
    waiting: list[Draft], is_asked: Callable[[Any], bool], places: Callable[[Hashable], Sequence[int]], gone: set[int]
) -> dict[int, int]:
    """Place of a call → place of the first request that is left for its arguments; those are added to `gone`."""
    found: dict[int, int] = {}
    left: dict[Hashable, Iterator[int]] = {}
    for draft in waiting:
        if is_asked(draft.arguments):
            key = frozen(draft.arguments)
            at = next((each for each in left.setdefault(key, iter(places(key))) if each not in gone), None)
            if at is not None:
                gone.add(at)
                found[draft.place] = at
    return found


def _in_order(requests: Requests, gone: set[int], waiting: list[Draft]) -> Iterator[tuple[Draft, ToolRequest]]:
    """Each request that is left, with the first call that started in its window."""
    starts = [draft.start for draft in waiting]
    following = list(range(len(waiting) + 1))  # each call's place, or once it is paired one after it
    for place, (asked, (first, last)) in enumerate(zip(requests.asked, requests.windows, strict=True)):
        if place in gone:
            continue
        at = _free(following, bisect_left(starts, first))
        if at < len(starts) and (last is None or starts[at] <= last):
            following[at] = at + 1
            yield waiting[at], asked


def _free(following: list[int], at: int) -> int:
    """The first place from `at` on that is not paired; what was walked is shortened for the next time."""
    found = at
    while following[found] != found:
        found = following[found]
    while following[at] != found:
        following[at], at = found, following[at]
    return found
