"""Takes spans out of an OTLP request, appends results to them, and puts them back into a request.

Every byte that is not taken out stays as it was and where it was; only the lengths around it change. A span that was taken out
keeps its container: the resource, the scope, their schema URLs and unknown fields. A span in protobuf may be continued by
appending fields: `events` is repeated, so what is appended is one more event, and nothing before it is touched.
Source: opentelemetry-proto, trace.proto: resource_spans = 1, scope_spans = 2, spans = 2, Span.events = 11; common.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from otel_eval.exporters import attributes as names
from otel_eval.model import Failed, Outcome, Report, Result, Scored, Skipped
from otel_eval.native import extension
from otel_eval.otlp.schema import encode_attributes
from otel_eval.wire import WireField, fields, sized, varint

_GROUP: Final = 1
_SCOPE: Final = 2
_SPAN: Final = 2
_CACHED_BYTES: Final = 16 * 1024


class SpanContainer(NamedTuple):
    """What stood around a span: the fields of its ResourceSpans and of its ScopeSpans without what they list."""

    group: bytes
    scope: bytes


_kept: Final = lru_cache(maxsize=512)(SpanContainer)


def _container(group: bytes, scope: bytes) -> SpanContainer:
    """One object for equal containers: thousands of held spans may have the same one."""
    return _kept(group, scope) if len(group) + len(scope) < _CACHED_BYTES else SpanContainer(group, scope)


def remove_spans(body: bytes, spans: Sequence[bytes]) -> tuple[bytes, list[SpanContainer]]:
    """The request without these spans, and the container of each; b"" if nothing else was in it.

    Args:
        body: a request that was parsed before.
        spans: bytes of spans in the order in which they stand in the request.

    Raises:
        ValueError: the bytes are no request, or one of the spans is not there.
    """
    # Spans are found by their bytes, which need no ids: those of one request are looked for in its own order, in one pass.
    left = list(spans)
    containers: list[SpanContainer] = []
    out = _Pieces(body)
    for field in fields(body, 0, len(body)):
        if left and field.number == _GROUP:
            _add_group(out, body, field, left, containers)
        else:
            out.keep(field.start, field.stop)
    if left:
        raise ValueError("a span is not where it was")
    return b"".join(out.parts), containers


class _Pieces:
    """What a message is made of, to be joined once: a request may have megabytes, and copies cost more than the walk."""

    __slots__ = ("_body", "parts", "size")

    def __init__(self, body: bytes) -> None:
        self._body = memoryview(body)
        self.parts: list[bytes | memoryview] = []
        self.size = 0

    def keep(self, start: int, stop: int) -> None:
        """A piece of the request."""
        self.parts.append(self._body[start:stop])
        self.size += stop - start

    def nest(self, number: int, inner: _Pieces) -> None:
        """A length-delimited field of other pieces."""
        head = varint(number << 3 | 2) + varint(inner.size)
        self.parts.append(head)
        self.parts += inner.parts
        self.size += len(head) + inner.size


def _add_group(out: _Pieces, body: bytes, group: WireField, left: list[bytes], containers: list[SpanContainer]) -> None:
    """The group without what is taken from it: as it was, rewritten, or not at all."""
    kept = _Pieces(body)
    around: list[bytes] = []
    found: list[tuple[bytes, int]] = []  # a scope's container, and how many spans were taken from it
    spans_left = False
    for field in fields(body, group.content, group.stop):
        rest, container, taken = _part_scope(body, field, left) if left and field.number == _SCOPE else (None, b"", 0)
        if taken:
            found.append((container, taken))
        else:
            kept.keep(field.start, field.stop)
            spans_left = spans_left or field.number == _SCOPE
        if field.number != _SCOPE:
            around.append(body[field.start : field.stop])
        if rest is not None:
            kept.nest(_SCOPE, rest)
            spans_left = True
    # A schema URL may follow the scopes, so what stands around a span is known only after the whole group.
    containers.extend(_container(b"".join(around), container) for container, taken in found for _ in range(taken))
    if not found:
        out.keep(group.start, group.stop)
    elif spans_left:
        out.nest(_GROUP, kept)


def _part_scope(body: bytes, scope: WireField, left: list[bytes]) -> tuple[_Pieces | None, bytes, int]:
    """The scope's content without what is taken (None: none is left, or none was taken), its container, how many."""
    spans, others, count = find_spans(body, scope.content, scope.stop, left)
    kept = _Pieces(body)
    at = scope.content
    for start, stop in spans:
        kept.keep(at, start)
        at = stop
    kept.keep(at, scope.stop)
    del left[: len(spans)]
    return (kept if 0 < len(spans) < count else None), b"".join([body[start:stop] for start, stop in others]), len(spans)


_Found = tuple[list[tuple[int, int]], list[tuple[int, int]], int]
"""Where the wanted spans stand, where anything but spans does, and how many spans there are."""

_native: Final = extension("_native")


def find_spans(body: bytes, start: int, stop: int, wanted: list[bytes]) -> _Found:
    """Look for spans, in the order in which they are wanted, among a scope's fields.

    Raises:
        ValueError: the bytes are no such fields.
    """
    # The extension answers None where it meets a field that is written in an unusual way.
    found: _Found | None = None if _native is None else _native.find_spans(body, start, stop, wanted)
    return find_spans_python(body, start, stop, wanted) if found is None else found


def find_spans_python(body: bytes, start: int, stop: int, wanted: list[bytes]) -> _Found:
    """The same in Python."""
    found: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    count = 0
    for field in fields(body, start, stop):
        if field.number != _SPAN:
            others.append((field.start, field.stop))
            continue
        count += 1
        if len(found) < len(wanted) and body[field.content : field.stop] == wanted[len(found)]:
            found.append((field.start, field.stop))
    return found, others, count


def wrap_spans(spans: Mapping[SpanContainer, Sequence[bytes]]) -> bytes:
    """A request of spans in their containers; those of equal resource share one."""
    groups: dict[bytes, list[bytes]] = {}
    for container, members in spans.items():
        listed = b"".join([sized(_SPAN, span) for span in members])
        groups.setdefault(container.group, []).append(sized(_SCOPE, container.scope + listed))
    return b"".join([sized(_GROUP, group + b"".join(scopes)) for group, scopes in groups.items()])


_EVENTS: Final = 11
_SPAN_ATTRIBUTES: Final = 9
_NAME: Final = sized(2, names.EVENT_NAME.encode())
_ATTRIBUTES: Final = 3


def events_of(report: Report) -> bytes:
    """One `events` field of a span for each result; its time is the end of the run."""
    # 0x09 is the tag of Event.time_unix_nano: field 1, fixed64.
    head = (
        b"\x09" + struct.pack("<Q", names.run_ended_ns(report)) + _NAME + _run(report) + _pairs(names.occasion_attributes(report))
    )
    return b"".join([event(head, _kind(result), names.own_attributes(result)) for result in report.results])


def attributes_of(report: Report, name_of: Callable[[Result], str]) -> bytes:
    """One attribute of a span for each score, `otel_eval.score.` and its name: what a backend can filter spans by."""
    scored = [(name_of(each), each.outcome.value) for each in report.results if isinstance(each.outcome, Scored)]
    return encode_attributes(_SPAN_ATTRIBUTES, {f"{names.SCORE_ATTRIBUTES}{name}": float(value) for name, value in scored})


def event(head: bytes, kind: bytes, own: dict[str, Any]) -> bytes:
    """An event of fields that are encoded already, and of attributes that are not."""
    if names.DETAILS in own:
        own |= {names.DETAILS: names.as_json(own[names.DETAILS])}
    return sized(_EVENTS, head + kind + _pairs(own))


def _run(report: Report) -> bytes:
    """What all results of a report have in common with those of other runs, encoded once for runs that are called alike."""
    run = report.trajectory
    where = (run.service, run.service_version, run.environment, report.stamp.evaluator)
    key = (report.evaluation, run.completeness, report.revision, run.agent, run.agent or run.name, run.conversation_id, *where)
    return _known.get(key) or _remembered(key, _pairs(names.source_attributes(report)))


def _kind(result: Result) -> bytes:
    """What results of one kind say, encoded once."""
    outcome = result.outcome
    key = (result.scorer, result.type, result.version, type(outcome), _variant(outcome))
    return _known.get(key) or _remembered(key, _pairs(names.kind_attributes(result)))


def _variant(outcome: Outcome) -> object:
    """What the attributes of a kind depend on beside the scorer."""
    match outcome:
        case Scored():
            return outcome.passed
        case Skipped():
            return outcome.reason
        case Failed():
            return outcome.error_type


def _remembered(key: tuple[object, ...], encoded: bytes) -> bytes:
    # Agents choose names and environments: what comes after the first 2,048 combinations is encoded each time.
    if len(_known) < _MOST_KNOWN and len(encoded) < _LONGEST_KNOWN:
        _known[key] = encoded
    return encoded


_MOST_KNOWN: Final = 2048
_LONGEST_KNOWN: Final = 1024
_known: Final[dict[tuple[object, ...], bytes]] = {}


def _pairs(attributes: dict[str, Any]) -> bytes:
    return encode_attributes(_ATTRIBUTES, attributes)
