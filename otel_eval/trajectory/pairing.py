"""Which requests and results in an agent's messages belong to which of its tool spans."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import Any, Final

from otel_eval.conventions.messages import Mention, ToolRequest, ToolResult
from otel_eval.conventions.values import frozen
from otel_eval.model import UNRECORDED
from otel_eval.records import record
from otel_eval.span_trees import grouped
from otel_eval.trajectory.limits import RunLimits
from otel_eval.trajectory.tool_calls import MOMENT, ToolCallBuilder, named


@dataclass(slots=True)
class SpanMessages:
    """What the messages of one span hold.

    Attributes:
        requests: calls requested in the span.
        answers: results in the span's own output: the model's provider ran the tool.
        recorded: whether the span's own output was recorded in a form that would show a call, and
            every call in it.
        broken: a call was requested whose name was not recorded.
        read_history: reads the requests that the messages repeat from before the span, and the
            results of tools in them. It is called when they are first needed.
    """

    requests: Sequence[ToolRequest] = ()
    answers: Sequence[ToolResult] = ()
    recorded: bool = False
    broken: bool = False
    read_history: Callable[[], Sequence[Mention]] = tuple
    _history: tuple[Sequence[ToolRequest], Sequence[ToolResult]] | None = None

    def history(self) -> tuple[Sequence[ToolRequest], Sequence[ToolResult]]:
        """The tool requests that the messages repeat from before the span, and the results of tools
        in them.
        """
        if self._history is None:
            self._history = _NO_HISTORY
            if mentions := self.read_history():
                self._history = (
                    [
                        mention
                        for mention in mentions
                        if isinstance(mention, ToolRequest) and (mention.name or mention.call_id)
                    ],
                    [mention for mention in mentions if isinstance(mention, ToolResult)],
                )
        return self._history


_NO_HISTORY: Final = ((), ())
NO_MESSAGES: Final = SpanMessages(_history=_NO_HISTORY)
"""What a span without any message holds."""

_ANY_TIME: Final[Window] = (0, None)
_NEVER: Final[Window] = (0, -1)


@record
class History:
    """What the messages of several spans hold beside the requests in their outputs.

    Attributes:
        earlier, results: by call id; the first of each.
        without_id: results without ids by the tool's name, in order.
    """

    earlier: dict[str, ToolRequest] = field(default_factory=dict)
    results: dict[str, ToolResult] = field(default_factory=dict)
    without_id: dict[str, list[ToolResult]] = field(default_factory=dict)


def reused_ids(models: Iterable[SpanMessages]) -> frozenset[str]:
    """The ids that model calls gave to different requests: some models number the calls of each
    answer anew.
    """
    first: dict[str, ToolRequest] = {}
    requests = (request for span in models for request in span.requests if request.call_id)
    return frozenset(
        request.call_id
        for request in requests
        if _is_other(first.setdefault(request.call_id, request), request)
    )


def _is_other(one: ToolRequest, other: ToolRequest) -> bool:
    """Whether two requests differ; arguments that were lost, or cut so that they are text, do not
    show that.
    """
    arguments = one.arguments, other.arguments
    return one is not other and (
        one.name != other.name
        or (all(value and named(value) for value in arguments) and arguments[0] != arguments[1])
    )


@dataclass(slots=True)
class AgentMessages:
    """The messages of one agent: requests, each once, and what else its spans hold, which is read
    when it is needed.

    Attributes:
        spans: those that hold the messages.
        reused: ids of several requests, which therefore show nothing.
        by_id, by_name: the requests by their ids, and by the tool's name; those that only a history
            holds are none of these.
    """

    spans: Sequence[SpanMessages]
    reused: frozenset[str] = frozenset()
    by_id: dict[str, ToolRequest] = field(default_factory=dict)
    by_name: dict[str, Requests] = field(default_factory=dict)
    _history: History | None = None

    def add_requests(self, requests: Iterable[ToolRequest], window: Window = _ANY_TIME) -> None:
        """Add requests of a model call; of those with the same id the first one counts."""
        for request in requests:
            if request.call_id in self.by_id:
                continue
            if request.call_id and request.call_id not in self.reused:
                self.by_id[request.call_id] = request
            self.by_name.setdefault(request.name, Requests()).add(request, window)

    def of_id(self, call_id: str) -> ToolRequest | None:
        """The request with the id, also one that only a history holds."""
        return self.by_id.get(call_id) or self.history().earlier.get(call_id)

    def history(self) -> History:
        """Requests made before the spans, and results of tools, from the spans' messages; of equal
        ids the first counts, of reused ones none.
        """
        if self._history is not None:
            return self._history
        history = self._history = History()
        longest: Sequence[ToolResult] = ()
        for span in self.spans:
            earlier, results = span.history()
            for request in earlier:
                if request.call_id and request.call_id not in self.reused:
                    history.earlier.setdefault(request.call_id, request)
            for result in results:
                if result.call_id and result.call_id not in self.reused:
                    history.results.setdefault(result.call_id, result)
            longest = max(longest, results, key=len)
        # Each request repeats the whole history, so the longest one holds every result once.
        for result in longest:
            if not result.call_id and result.name:
                history.without_id.setdefault(result.name, []).append(result)
        return history

    def __bool__(self) -> bool:
        return bool(
            self.by_name
            or self.history().earlier
            or self.history().results
            or self.history().without_id
        )


def join(
    models: list[SpanMessages], agents: list[SpanMessages], windows: Sequence[Window]
) -> AgentMessages:
    """Join the messages of an agent's model spans and of its own span.

    Args:
        models: the messages of the model spans, in order of time.
        agents: those of the agent's span.
        windows: for each model span, when the calls it asks for can have started.
    """
    messages = AgentMessages([*models, *agents], reused_ids(models))
    for span, window in zip(models, windows or [_ANY_TIME] * len(models), strict=True):
        # Of requests that are not all known, the order is not known.
        messages.add_requests(span.requests, _NEVER if span.broken else window)
    # A request without an id cannot be distinguished from its repetition, so only one kind of span
    # is read for them.
    without_id_too = not messages.by_name
    no_id = {"", *messages.reused}
    for span in agents:
        messages.add_requests(
            span.requests
            if without_id_too
            else [request for request in span.requests if request.call_id not in no_id]
        )
    return messages


def ids_of(
    spans: Sequence[SpanMessages], requests: Sequence[tuple[SpanMessages, ToolRequest]]
) -> list[str]:
    """The call id of each request, in order of time: its own, else the one that the history of a
    later model call gives it.

    A request without an id is the first of its name and arguments in the history that was not there
    when it was made. "" where no later history holds it.
    """
    # ids that are taken, or show nothing
    excluded = {"", *reused_ids(spans), *(request.call_id for _, request in requests)}
    repeated: dict[tuple[str, str], deque[str]] = {}
    for request in chain.from_iterable(
        [*(span.requests for span in spans), *(span.history()[0] for span in spans)]
    ):
        if request.call_id not in excluded:
            excluded.add(request.call_id)
            repeated.setdefault(_content(request), deque()).append(request.call_id)
    if not repeated:
        return [request.call_id for _, request in requests]
    repeated_before: dict[int, set[str]] = {
        key: {earlier.call_id for earlier in span.history()[0]}
        for key, span in {id(span): span for span, _ in requests}.items()
    }
    return [
        request.call_id
        or _first_new(repeated.get(_content(request), deque()), repeated_before[id(span)])
        for span, request in requests
    ]


def _first_new(ids: deque[str], repeated_before: set[str]) -> str:
    """Take the first id that is not known yet; those before it belong to earlier requests and are
    dropped.
    """
    while ids:
        call_id = ids.popleft()
        if call_id not in repeated_before:
            return call_id
    return ""


_SORTED: Final = json.JSONEncoder(sort_keys=True, default=str)


def _content(request: ToolRequest) -> tuple[str, str]:
    return request.name, _SORTED.encode(request.arguments)


def fill(
    messages: AgentMessages,
    calls: list[ToolCallBuilder],
    needs: frozenset[str],
    limits: RunLimits,
) -> None:
    """Give the calls of one agent what its messages hold: by call id, else by arguments, else by
    order in the name.
    """
    claimed = _claim_by_id(messages, calls, needs)
    # Each instrumentation describes the same calls, so the spans of each are paired with all
    # requests.
    groups = grouped(sorted(calls, key=MOMENT), attrgetter("name", "scope"))
    for (name, _), group in groups.items():
        claimed_requests = {claimed[call.index] for call in group if call.index in claimed}
        unpaired = [call for call in group if call.index not in claimed]
        for call, request in (
            pair(messages.by_name.get(name) or Requests(), unpaired, claimed_requests, limits)
            if unpaired
            else ()
        ):
            _take(call, request, needs)
        is_lacking = any(lacks_result(call, needs) for call in group)
        results = messages.history().without_id.get(name, []) if is_lacking else []
        if len(results) == len(group):
            for call, result in zip(group, results, strict=True):
                if lacks_result(call, needs):
                    call.result = result.result
    for call in calls:
        if (
            call.call_id
            and lacks_result(call, needs)
            and (answer := messages.history().results.get(call.call_id))
        ):
            call.result = answer.result


def lacks_result(call: ToolCallBuilder, needs: frozenset[str]) -> bool:
    """Whether results are needed and no span of the call recorded its own."""
    return call.result is UNRECORDED and "results" in needs


def _claim_by_id(
    messages: AgentMessages, calls: list[ToolCallBuilder], needs: frozenset[str]
) -> dict[int, int]:
    """Index of a call → the request with its id."""
    claimed: dict[int, int] = {}
    for call in calls:
        request = messages.of_id(call.call_id) if call.call_id else None
        if request is not None and request.name in ("", call.name):
            claimed[call.index] = id(request)
            _take(call, request, needs)
    return claimed


def _take(call: ToolCallBuilder, request: ToolRequest, needs: frozenset[str]) -> None:
    if "arguments" in needs and not named(call.arguments) and request.arguments is not UNRECORDED:
        call.arguments = request.arguments
    call.call_id = call.call_id or request.call_id


Window = tuple[int, int | None]
"""First and last instant, None: any later one."""


@record
class Requests:
    """The requests for one tool, in order.

    Attributes:
        in_order: the requests.
        windows: when the calls that each asks for can have started: with or after the model call,
            and before the next one.
        indexes: identity of a request → its index among them.
    """

    in_order: list[ToolRequest] = field(default_factory=list)
    windows: list[Window] = field(default_factory=list)
    indexes: dict[int, int] = field(default_factory=dict)
    _indices: dict[bool, dict[Hashable, list[int]]] = field(default_factory=dict)

    def add(self, request: ToolRequest, window: Window) -> None:
        """Add one."""
        self.indexes[id(request)] = len(self.in_order)
        self.in_order.append(request)
        self.windows.append(window)

    def indexes_of(self, key: Hashable, *, is_part: bool) -> Sequence[int]:
        """The indexes of those with arguments that `frozen` makes equal to the key, or with such a
        value among them.
        """
        if is_part not in self._indices:
            numbers = self._indices[is_part] = {}
            for index, request in enumerate(self.in_order):
                arguments = request.arguments if isinstance(request.arguments, dict) else {}
                for value in arguments.values() if is_part else [request.arguments]:
                    numbers.setdefault(frozen(value), []).append(index)
        return self._indices[is_part].get(key, ())


def pair(
    requests: Requests, unpaired: list[ToolCallBuilder], claimed: set[int], limits: RunLimits
) -> Iterator[tuple[ToolCallBuilder, ToolRequest]]:
    """Equal arguments first, then a bare value with the object that holds it, then what is left in
    order, if that is known.

    Args:
        requests: those for one tool.
        unpaired: calls of it that have no request, in order of time.
        claimed: identities of requests that have their calls.
        limits: those of the trace's runs.
    """
    gone = {
        requests.indexes[request_id] for request_id in claimed if request_id in requests.indexes
    }
    is_order_known = len(gone) == len(claimed)
    for fits, is_part in ((named, False), (_is_bare, True)):
        pairs = _first_left(unpaired, fits, partial(requests.indexes_of, is_part=is_part), gone)
        yield from (
            (call, requests.in_order[pairs[call.index]]) for call in unpaired if call.index in pairs
        )
        unpaired = [call for call in unpaired if call.index not in pairs]
    if len(unpaired) != len(requests.in_order) - len(gone):
        unpaired = [call for call in unpaired if not named(call.arguments)]
    # Each instrumentation looks at all requests.
    if (
        unpaired
        and is_order_known
        and limits.allow_pairs(unpaired[0].index, len(requests.in_order))
    ):
        yield from _in_order(requests, gone, unpaired)


def _is_bare(arguments: Any) -> bool:
    return arguments is not UNRECORDED and not named(arguments)


def _first_left(
    unpaired: list[ToolCallBuilder],
    fits: Callable[[Any], bool],
    indexes: Callable[[Hashable], Sequence[int]],
    gone: set[int],
) -> dict[int, int]:
    """Index of a call → index of the first request that is left for its arguments; those are added
    to `gone`.
    """
    pairs: dict[int, int] = {}
    indexes_left: dict[Hashable, Iterator[int]] = {}
    for call in unpaired:
        if fits(call.arguments):
            key = frozen(call.arguments)
            remaining = indexes_left.setdefault(key, iter(indexes(key)))
            at = next((index for index in remaining if index not in gone), None)
            if at is not None:
                gone.add(at)
                pairs[call.index] = at
    return pairs


def _in_order(
    requests: Requests, gone: set[int], unpaired: list[ToolCallBuilder]
) -> Iterator[tuple[ToolCallBuilder, ToolRequest]]:
    """Each request that is left, with the first call that started in its window."""
    starts = [call.start for call in unpaired]
    # each call's index, or once it is paired one after it
    following = list(range(len(unpaired) + 1))
    for index, (request, (first, last)) in enumerate(
        zip(requests.in_order, requests.windows, strict=True)
    ):
        if index in gone:
            continue
        at = _free(following, bisect_left(starts, first))
        if at < len(starts) and (last is None or starts[at] <= last):
            following[at] = at + 1
            yield unpaired[at], request


def _free(following: list[int], at: int) -> int:
    """The first index from `at` on that is not paired; what was walked is shortened for the next
    time.
    """
    free = at
    while following[free] != free:
        free = following[free]
    while following[at] != free:
        following[at], at = free, following[at]
    return free
