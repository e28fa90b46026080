"""Which requests and results in an agent's messages belong to which of its tool spans."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from otel_eval.conventions import Side
from otel_eval.conventions.messages import ToolRequest, ToolResult, without_positional_id
from otel_eval.conventions.values import frozen
from otel_eval.interfaces import Steps
from otel_eval.model import UNRECORDED
from otel_eval.trajectory.tool_calls import ToolCallBuilder, named


@dataclass(slots=True)
class SpanMessages:
    """What the messages of one span hold.

    Attributes:
        requests: calls requested in the span; earlier: requests from before it; results: what came back.
        recorded: whether the span's own output was recorded in a form that would show a call, and every call in it.
        broken: a call was requested whose name was not recorded.
        executed: ids of calls whose result is in the span's own output, because the model's provider ran the tool.
    """

    requests: list[ToolRequest] = field(default_factory=list)
    earlier: list[ToolRequest] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    recorded: bool = False
    broken: bool = False
    executed: set[str] = field(default_factory=set)

    def add(self, side: Side, mentions: Sequence[ToolRequest | ToolResult], *, conclusive: bool) -> None:
        """Sort in what one attribute or event holds."""
        requests = [each for each in mentions if isinstance(each, ToolRequest)]
        results = [each for each in mentions if isinstance(each, ToolResult)] if len(requests) < len(mentions) else []
        self.results += results
        if side is not Side.OUTPUT:
            self.earlier += [each for each in requests if each.name or each.call_id]
            return
        self.executed.update(each.call_id for each in results if each.call_id)
        self.requests += [each for each in requests if each.name]
        self.broken = self.broken or not all(each.name for each in requests)
        self.recorded = not self.broken and (self.recorded or conclusive)

    def forget_positional_ids(self) -> None:
        """Remove ids that consist of a tool's name and a number, since those of later calls are the same."""
        self.requests = [*map(without_positional_id, self.requests)]
        self.earlier = [*map(without_positional_id, self.earlier)]
        self.results = [*map(without_positional_id, self.results)]


_ANY_TIME: Final[Window] = (0, None)
_NEVER: Final[Window] = (0, -1)


@dataclass(slots=True)
class AgentMessages:
    """The messages of one agent: requests in order, each once, and results.

    Attributes:
        windows: identity of a request → when the calls it asks for can have started.
        by_name: see `of_tool`, before which all requests must be there.
    """

    requests: list[ToolRequest] = field(default_factory=list)
    by_id: dict[str, ToolRequest] = field(default_factory=dict)
    results: dict[str, ToolResult] = field(default_factory=dict)
    without_id: dict[str, list[ToolResult]] = field(default_factory=dict)
    windows: dict[int, Window] = field(default_factory=dict)
    by_name: dict[str, Requests] | None = None

    def add_requests(self, requests: Iterable[ToolRequest], window: Window = _ANY_TIME) -> None:
        """Add requests of a model call; of those with the same id the first one counts."""
        for each in requests:
            self.windows.setdefault(id(each), window)
            if each.call_id in self.by_id:
                continue
            if each.call_id:
                self.by_id[each.call_id] = each
            self.requests.append(each)

    def of_tool(self, name: str) -> Requests:
        """The requests of a tool; those that only a call's id made known are no further ones."""
        if self.by_name is None:
            self.by_name = {}
            for request in self.requests:
                self.by_name.setdefault(request.name, Requests()).add(request, self.windows.get(id(request), _ANY_TIME))
        return self.by_name.get(name) or Requests()

    def __bool__(self) -> bool:
        return bool(self.requests or self.by_id or self.results or self.without_id)


def join(models: list[SpanMessages], agents: list[SpanMessages], windows: Sequence[Window] = ()) -> AgentMessages:
    """What an agent's model spans and its own span hold, together.

    Args:
        models: the messages of the model spans, in order of time.
        agents: those of the agent's span.
        windows: for each model span, when the calls it asks for can have started.
    """
    messages = AgentMessages()
    spans = (*models, *agents)
    for span, window in zip(models, windows or [_ANY_TIME] * len(models), strict=True):
        # Of requests that are not all known, the order is not known.
        messages.add_requests(span.requests, _NEVER if span.broken else window)
    # A request without an id cannot be distinguished from its repetition, so only one kind of span is read for them.
    without_id_too = not messages.requests
    for span in agents:
        messages.add_requests(span.requests if without_id_too else [request for request in span.requests if request.call_id])
    for span in spans:
        for request in span.earlier:
            if request.call_id:
                messages.by_id.setdefault(request.call_id, request)
        for result in span.results:
            if result.call_id:
                messages.results.setdefault(result.call_id, result)
    # Each request repeats the whole history, so the longest one holds every result once.
    longest = max((span.results for span in spans), key=len, default=[])
    for result in longest:
        if not result.call_id and result.name:
            messages.without_id.setdefault(result.name, []).append(result)
    return messages


def ids_of(joined: AgentMessages, requests: Sequence[tuple[SpanMessages, ToolRequest]]) -> list[str]:
    """The call id of each request, in order of time: its own, else the one that the history of a later model call gives it.

    A request without an id is the first of its name and arguments in the history that was not there when it was made. "" where
    no later history holds it.
    """
    own = {request.call_id for _, request in requests}
    if "" not in own:
        return [request.call_id for _, request in requests]
    repeated: dict[tuple[str, str], deque[str]] = {}
    for call_id, earlier in joined.by_id.items():
        if call_id not in own:
            repeated.setdefault(_content(earlier), deque()).append(call_id)
    known: dict[int, set[str]] = {id(span): {each.call_id for each in span.earlier} for span, _ in requests}
    return [
        request.call_id or _first_new(repeated.get(_content(request), deque()), known[id(span)]) for span, request in requests
    ]


def _first_new(ids: deque[str], known: set[str]) -> str:
    """Take the first id that is not known yet; those before it belong to earlier requests, and to no later one."""
    while ids:
        call_id = ids.popleft()
        if call_id not in known:
            return call_id
    return ""


_SORTED: Final = json.JSONEncoder(sort_keys=True, default=str)


def _content(request: ToolRequest) -> tuple[str, str]:
    return request.name, _SORTED.encode(request.arguments)


def fill(messages: AgentMessages, drafts: list[ToolCallBuilder], needs: frozenset[str], steps: Steps) -> None:
    """Give the calls of one agent what its messages hold: by call id, else by arguments, else by order in the name."""
    claimed = _claim_by_id(messages, drafts, needs)
    # Each instrumentation describes the same calls, so its spans take from the requests for themselves.
    groups: dict[tuple[str, str], list[ToolCallBuilder]] = {}
    for draft in sorted(drafts, key=lambda each: (each.start, each.end, each.span_id)):
        groups.setdefault((draft.name, draft.scope), []).append(draft)
    for (name, _), group in groups.items():
        taken = {claimed[draft.place] for draft in group if draft.place in claimed}
        waiting = [draft for draft in group if draft.place not in claimed]
        for draft, request in pair(messages.of_tool(name), waiting, taken, steps) if waiting else ():
            _take(draft, request, needs)
        results = messages.without_id.get(name, [])
        if len(results) == len(group):
            for draft, result in zip(group, results, strict=True):
                _take_result(draft, result, needs)
    for draft in drafts:
        found = messages.results.get(draft.call_id) if draft.call_id else None
        if found is not None:
            _take_result(draft, found, needs)


def _claim_by_id(messages: AgentMessages, drafts: list[ToolCallBuilder], needs: frozenset[str]) -> dict[int, int]:
    """Place of a call → the request with its id."""
    claimed: dict[int, int] = {}
    for draft in drafts:
        request = messages.by_id.get(draft.call_id) if draft.call_id else None
        if request is not None and request.name in ("", draft.name):
            claimed[draft.place] = id(request)
            _take(draft, request, needs)
    return claimed


def _take(draft: ToolCallBuilder, request: ToolRequest, needs: frozenset[str]) -> None:
    if "arguments" in needs and not named(draft.arguments) and request.arguments is not UNRECORDED:
        draft.arguments = request.arguments
    draft.call_id = draft.call_id or request.call_id


def _take_result(draft: ToolCallBuilder, result: ToolResult, needs: frozenset[str]) -> None:
    if "results" in needs and draft.result is UNRECORDED:
        draft.result = result.result


Window = tuple[int, int | None]
"""First and last instant, None: any later one."""

_STEPS: Final = 5  # of a request or a call


@dataclass(slots=True)
class Requests:
    """The requests for one tool, in order.

    Attributes:
        in_order: the requests.
        windows: when the calls that each asks for can have started: with or after the model call, and before the next one.
        places: identity of a request → its place among them.
    """

    in_order: list[ToolRequest] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    places: dict[int, int] = field(default_factory=dict)
    _by_arguments: dict[Hashable, list[int]] | None = None
    _by_value: dict[Hashable, list[int]] | None = None

    def add(self, request: ToolRequest, window: Window) -> None:
        """Add one."""
        self.places[id(request)] = len(self.in_order)
        self.in_order.append(request)
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
        for place, request in enumerate(self.in_order):
            for key in map(frozen, parts(request.arguments) if isinstance(request.arguments, dict) else ()):
                found.setdefault(key, []).append(place)
        return found


def pair(
    requests: Requests, waiting: list[ToolCallBuilder], taken: set[int], steps: Steps
) -> Iterator[tuple[ToolCallBuilder, ToolRequest]]:
    """Equal arguments first, then a bare value with the object that holds it, then what is left in order, if that is known.

    Args:
        requests: those for one tool.
        waiting: calls of it that have no request, in order of time.
        taken: identities of requests that have their calls.
        steps: those that are left for the evaluation.
    """
    gone = {requests.places[each] for each in taken if each in requests.places}
    is_order_known = len(gone) == len(taken)
    for fits, places in ((named, requests.with_arguments), (_is_bare, requests.with_value)):
        steps.take(_STEPS * len(waiting))
        found = _first_left(waiting, fits, places, gone)
        yield from ((draft, requests.in_order[found[draft.place]]) for draft in waiting if draft.place in found)
        waiting = [draft for draft in waiting if draft.place not in found]
    if len(waiting) != len(requests.in_order) - len(gone):
        waiting = [draft for draft in waiting if not named(draft.arguments)]
    if waiting and is_order_known:
        steps.take(_STEPS * len(requests.in_order))
        yield from _in_order(requests, gone, waiting)


def _is_bare(arguments: Any) -> bool:
    return arguments is not UNRECORDED and not named(arguments)


def _first_left(
    waiting: list[ToolCallBuilder], fits: Callable[[Any], bool], places: Callable[[Hashable], Sequence[int]], gone: set[int]
) -> dict[int, int]:
    """Place of a call → place of the first request that is left for its arguments; those are added to `gone`."""
    found: dict[int, int] = {}
    left: dict[Hashable, Iterator[int]] = {}
    for draft in waiting:
        if fits(draft.arguments):
            key = frozen(draft.arguments)
            at = next((each for each in left.setdefault(key, iter(places(key))) if each not in gone), None)
            if at is not None:
                gone.add(at)
                found[draft.place] = at
    return found


def _in_order(
    requests: Requests, gone: set[int], waiting: list[ToolCallBuilder]
) -> Iterator[tuple[ToolCallBuilder, ToolRequest]]:
    """Each request that is left, with the first call that started in its window."""
    starts = [draft.start for draft in waiting]
    following = list(range(len(waiting) + 1))  # each call's place, or once it is paired one after it
    for place, (request, (first, last)) in enumerate(zip(requests.in_order, requests.windows, strict=True)):
        if place in gone:
            continue
        at = _free(following, bisect_left(starts, first))
        if at < len(starts) and (last is None or starts[at] <= last):
            following[at] = at + 1
            yield waiting[at], request


def _free(following: list[int], at: int) -> int:
    """The first place from `at` on that is not paired; what was walked is shortened for the next time."""
    found = at
    while following[found] != found:
        found = following[found]
    while following[at] != found:
        following[at], at = found, following[at]
    return found
