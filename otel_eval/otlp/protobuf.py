"""Splits OTLP requests in protobuf into spans and log records, which stay bytes, and encodes
requests of them.

A span or a log record is used if its ids are valid and it was not written by this package; a log
record only if it may carry what an agent read or wrote.

The body is parsed twice, both times in C: once with spans as opaque bytes, as they are kept, and
once for their ids only. That costs about a tenth more than slicing the ids out of the bytes, and it
is exact whatever the order of fields; it also finds malformed spans before they are accepted. The
extension, where it is installed, splits what nearly every encoder writes in one pass, at a third of
the cost, and leaves the rest to this module.

A span, event, link, resource or scope with more attributes than allowed, or a span with more events
or links, is rejected as a whole and counted: truncated, it would be a span that was never sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from otel_eval.errors import InputError
from otel_eval.interfaces import Frame, JoinedLog, LogFrame, SpanFrame
from otel_eval.native import extension
from otel_eval.otlp.decoded_size import ORDINARY, content_size, excess_size
from otel_eval.otlp.spans import (
    LOG_READER,
    OtlpResourceScope,
    parse_event,
    parse_limited_fields,
    parse_link,
    parse_log_ids,
    parse_raw_logs,
    parse_raw_traces,
    parse_span_ids,
    read_log,
    resource_scope,
    text,
)
from otel_eval.wire import fields, sized

UNLIMITED: Final = 2**62
"""The limit of attributes where there is none."""

OWN_SCOPE: Final = "otel_eval"
"""The instrumentation scope of all telemetry of this package: never evaluated, however it
arrives.
"""

_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
_PARENT: Final = (8, 0)
_NO_MEMORY: Final = "Arena alloc failed"  # of protobuf's C parser
# Prefixes of the names of events that can hold content: GenAI's, and Claude Code's log records.
_EVENT_NAMES: Final = ("gen_ai.", "tool_result", "assistant_response")

_native: Final = extension("_native")
_split: Final[
    Callable[[bytes, Callable[[bytes, bytes], Any], int], list[tuple[Any, list[Any]]] | None] | None
] = None if _native is None else _native.frame
"""Returns (scope, spans) of each scope of a request; None if something in it is unusual, or has
more attributes than allowed.
"""


@dataclass(slots=True)
class SpanBatch:
    """The usable spans and log records of a request, not decoded yet.

    Attributes:
        spans: (trace id, span id, frame, size in bytes) of each usable span, in order; tuples
            because there is one for each span. The first span of a large resource or scope has
            their size added; a span whose content takes far more memory in evaluation than its
            bytes has that added.
        logs: (trace id, span id, frame, size in bytes) of each log record that may belong to a run.
        rejected: number of spans and log records that cannot be used.
        reason: why the first of them cannot, or "".
        own: number of spans and log records that this package wrote itself.
        ignored: number of log records that carry nothing of a run.
        content_bytes: an estimate of the memory that evaluation of all of them takes.
        origin: the request itself, where requests are journaled.
        max_attributes: the limit of attributes of each span, event, link, log record, resource and
            scope.
    """

    spans: list[SpanFrame] = field(default_factory=list)
    logs: list[JoinedLog] = field(default_factory=list)
    rejected: int = 0
    reason: str = ""
    own: int = 0
    ignored: int = 0
    content_bytes: int = 0
    origin: RawRequest | None = None
    max_attributes: int = UNLIMITED

    def reject(self, reason: str, count: int = 1) -> None:
        """Count spans or log records that cannot be used."""
        self.rejected += count
        self.reason = self.reason or reason


class RawRequest(NamedTuple):
    """A request in protobuf: its signal and its bytes."""

    signal: str
    body: bytes


def read_request(origin: RawRequest, max_attributes: int = UNLIMITED) -> SpanBatch:
    """Read a request of traces or logs; what has more attributes than `max_attributes` is rejected.

    Raises:
        InputError: its body cannot be read.
    """
    read = read_logs if origin.signal == "logs" else read_traces
    batch = read(origin.body, max_attributes)
    batch.origin = origin
    return batch


def read_traces(body: bytes, max_attributes: int = UNLIMITED) -> SpanBatch:
    """Read the spans of an ExportTraceServiceRequest, or of TracesData, in protobuf.

    Args:
        max_attributes: the limit of attributes, as of `SpanBatch`.

    Raises:
        InputError: the body is no such message.
        MemoryError: there is too little memory to parse it.
    """
    try:
        batch = _shortcut(body, max_attributes) or _read_by_protobuf(body, max_attributes)
    except DecodeError as error:
        raise _unreadable("traces", error) from None
    return _with_content_sizes(batch, body)


def read_logs(body: bytes, max_attributes: int = UNLIMITED) -> SpanBatch:
    """Read the log records of an ExportLogsServiceRequest, or of LogsData, in protobuf.

    Those that may belong to a run, such as GenAI events with the ids of a trace and a span, become
    the `logs` of the batch; others are only counted, as ignored.

    Args:
        max_attributes: the limit of attributes, as of `SpanBatch`.

    Raises:
        InputError: the body is no such message.
        MemoryError: there is too little memory to parse it.
    """
    batch = SpanBatch(max_attributes=max_attributes)
    try:
        for scope, items, records in _scopes(parse_raw_logs(body), parse_log_ids(body)):
            for payload, record in (
                zip(items, records, strict=True) if _is_used(batch, scope, len(items)) else ()
            ):
                _add_log(batch, payload, record)
    except DecodeError as error:
        raise _unreadable("logs", error) from None
    return _with_content_sizes(batch, body)


def _unreadable(signal: str, error: DecodeError) -> Exception:
    """Return the error to raise: protobuf reports a failed allocation as it reports corrupt bytes,
    but it is not permanent.
    """
    if _NO_MEMORY in str(error):
        return MemoryError("protobuf could not allocate memory")
    return InputError(f"not OTLP {signal} in protobuf: the bytes are corrupt or cut")


def _shortcut(body: bytes, max_attributes: int) -> SpanBatch | None:
    """Read spans in one pass, by the extension; None if it is not installed or anything in the body
    is unusual.
    """
    try:
        scopes = _split(body, resource_scope, max_attributes) if _split is not None else None
    except DecodeError:
        # perhaps one part of a resource that is written in several, which protobuf joins first
        return None
    if scopes is None:
        return None
    batch = SpanBatch(max_attributes=max_attributes)
    for scope, spans in scopes:
        if _is_used(batch, scope, len(spans)):
            batch.spans += spans
            _charge_scope(batch, scope, len(spans))
    return batch


def _read_by_protobuf(body: bytes, max_attributes: int = UNLIMITED) -> SpanBatch:
    """Read spans without the extension: of any valid request, with the same result."""
    batch = SpanBatch(max_attributes=max_attributes)
    for scope, items, ids in _scopes(parse_raw_traces(body), parse_span_ids(body)):
        add_spans(batch, scope, items, ids)
    return batch


def _scopes(raw: Any, parsed: Any) -> Iterator[tuple[OtlpResourceScope, Any, Any]]:
    """Yield each scope of a request with the bytes and the parsed ids of its spans or log records.

    Args:
        raw: the request, parsed so that resources, scopes and items stay bytes.
        parsed: the same request, parsed so that the ids of the items can be read.
    """
    for group, group_ids in zip(raw.groups, parsed.groups, strict=True):
        resource = b"".join(group.resource)
        for scope, scope_ids in zip(group.scopes, group_ids.scopes, strict=True):
            yield resource_scope(resource, b"".join(scope.scope)), scope.items, scope_ids.items


def _is_used(batch: SpanBatch, scope: OtlpResourceScope, count: int) -> bool:
    """Whether the `count` items of a scope are used; if not, they are counted as own or
    rejected.
    """
    if scope.scope_name == OWN_SCOPE:
        batch.own += count
    elif count and scope.attributes > batch.max_attributes:
        batch.reject(too_many("a resource or a scope", batch.max_attributes), count)
    else:
        return True
    return False


def _charge_scope(batch: SpanBatch, scope: OtlpResourceScope, count: int) -> None:
    """Add the size of a large resource and scope to the first of the last `count` spans.

    Otherwise a span of fifty bytes could keep a resource of megabytes in memory, beyond every
    limit.
    """
    if scope.extra and count:
        trace_id, span_id, frame, size = batch.spans[-count]
        batch.spans[-count] = (trace_id, span_id, frame, size + scope.extra)


def _with_content_sizes(batch: SpanBatch, body: bytes) -> SpanBatch:
    """Note the memory that evaluation of a request takes, also in the sizes of its items if that is
    far more than ordinary, and return the batch.
    """
    batch.content_bytes = content_size(body)
    if batch.content_bytes > ORDINARY * len(body):
        batch.spans = [
            (trace, span, frame, size + excess_size(frame[1]))
            for trace, span, frame, size in batch.spans
        ]
        batch.logs = [
            (trace, span, frame, size + excess_size(frame[0]))
            for trace, span, frame, size in batch.logs
        ]
    return batch


def _id_problem(trace_id: bytes, span_id: bytes, parent_id: bytes) -> str:
    """Why the ids of a span are invalid, or "". No parent, b"", is valid."""
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        return "a trace id must be 16 bytes and not all zero"
    if len(span_id) != 8 or span_id == _NO_SPAN:
        return "a span id must be 8 bytes and not all zero"
    return "" if len(parent_id) in _PARENT else "a parent span id must be 8 bytes or absent"


def add_spans(
    batch: SpanBatch, scope: OtlpResourceScope, items: Sequence[bytes], ids: Iterable[Any]
) -> None:
    """Add or reject the spans of one scope, whose ids were parsed."""
    if not _is_used(batch, scope, len(items)):
        return
    before = len(batch.spans)
    add, small = batch.spans.append, 2 * batch.max_attributes
    for payload, span_ids in zip(items, ids, strict=True):
        trace_id, span_id, parent_id = span_ids.trace_id, span_ids.span_id, span_ids.parent_span_id
        # Nearly every span takes this path; function calls would add a fifth to the time of
        # reading.
        size = len(payload)
        fits = (
            len(trace_id) == 16 and len(span_id) == 8 and len(parent_id) in _PARENT and size < small
        )
        if fits and trace_id != _NO_TRACE and span_id != _NO_SPAN and parent_id != _NO_SPAN:
            add((trace_id, span_id, (parent_id, payload, scope), size))
        else:
            _add_unusual(batch, scope, payload, span_ids)
    _charge_scope(batch, scope, len(batch.spans) - before)


def _add_unusual(batch: SpanBatch, scope: OtlpResourceScope, payload: bytes, ids: Any) -> None:
    """Add a span that is large or whose parent id is all zero, or reject it."""
    trace_id, span_id, parent_id = ids.trace_id, ids.span_id, ids.parent_span_id
    if reason := _id_problem(trace_id, span_id, parent_id) or limit_exceeded(
        payload, batch.max_attributes
    ):
        batch.reject(reason)
        return
    if parent_id == _NO_SPAN:  # some senders write a root's missing parent as zeros
        parent_id = b""
    batch.spans.append((trace_id, span_id, (parent_id, payload, scope), len(payload)))


def _add_log(batch: SpanBatch, payload: bytes, record: Any) -> None:
    """Add, ignore or reject a parsed log record."""
    if _id_problem(record.trace_id, record.span_id, b"") or not _may_belong_to_run(record):
        batch.ignored += 1
    elif len(record.attributes) > batch.max_attributes:
        batch.reject(too_many("a log record", batch.max_attributes))
    else:
        batch.logs.append((record.trace_id, record.span_id, (payload, LOG_READER), len(payload)))


def _may_belong_to_run(record: Any) -> bool:
    """Whether it is a GenAI event, one of Claude Code's, or holds messages that the AWS
    distribution moves from spans to logs.
    """
    if record.event_name:
        return text(record.event_name).startswith(_EVENT_NAMES) or _holds_messages(record)
    named = any(b"event.name" in pair for pair in record.attributes)
    return (named and read_log(record).name.startswith(_EVENT_NAMES)) or _holds_messages(record)


def _holds_messages(record: Any) -> bool:
    """Whether its body has messages, as the AWS distribution writes them."""
    if not any(b"messages" in part for part in record.body):
        return False
    body = read_log(record).body
    sides = (body.get("input"), body.get("output")) if isinstance(body, dict) else ()
    return any(isinstance(side, dict) and "messages" in side for side in sides)


def reserialize_traces(frames: Iterable[Frame]) -> bytes:
    """Encode frames that came by OTLP as an ExportTraceServiceRequest."""
    groups: dict[tuple[bytes, bytes], list[bytes]] = {}
    for _, payload, scope in frames:
        assert isinstance(scope, OtlpResourceScope)
        groups.setdefault(scope.raw, []).append(sized(2, payload))
    return b"".join(
        sized(1, sized(1, resource) + sized(2, sized(1, scope) + b"".join(spans)))
        for (resource, scope), spans in groups.items()
    )


def reserialize_logs(frames: Iterable[LogFrame]) -> bytes:
    """Encode log records that came by OTLP as an ExportLogsServiceRequest; their resource and scope
    are not needed.
    """
    records = b"".join(sized(2, payload) for payload, _ in frames)
    return sized(1, sized(2, records)) if records else b""


# times the limit, in bytes: parsing what is smaller takes little memory, whatever is in it
_LARGE: Final = 64
# fields that are neither attributes nor events nor links: no known span has more than 13
_OTHER_FIELDS: Final = 64


def too_many(where: str, limit: int, items: str = "attributes") -> str:
    """The reason for the response to the client."""
    return (
        f"{where} has more than {limit} {items}, which is the limit here"
        " (receivers.otlp.max_attributes)"
    )


def limit_exceeded(payload: bytes, limit: int) -> str:
    """Which limit a span exceeds, of attributes, events or links; "" if none."""
    if len(payload) // 2 <= limit:  # each takes two bytes at the least
        return ""
    if _has_more_fields(payload, 3 * limit + _OTHER_FIELDS, limit):
        return too_many("a span", limit, "attributes, events or links")
    span = parse_limited_fields(payload)
    for name in ("attributes", "events", "links"):
        if len(getattr(span, name)) > limit:
            return too_many("a span", limit, name)
    for where, parts, parse in (
        ("an event", span.events, parse_event),
        ("a link", span.links, parse_link),
    ):
        if any(_has_too_many_attributes(parse, part, limit) for part in parts):
            return too_many(where, limit)
    return ""


def _has_too_many_attributes(parse: Any, part: bytes, limit: int) -> bool:
    """Whether an event or a link has more attributes than the limit."""
    if len(part) // 2 <= limit:
        return False
    try:
        return (
            _has_more_fields(part, limit + _OTHER_FIELDS, limit)
            or len(parse(part).attributes) > limit
        )
    except DecodeError:
        return False  # a malformed part is not read later either


def _has_more_fields(message: bytes, number: int, limit: int) -> bool:
    """Whether a large message has more than `number` fields. No more are read; parsing would take
    memory for each field.
    """
    if len(message) <= _LARGE * limit:
        return False
    try:
        return next(islice(fields(message, 0, len(message)), number, None), None) is not None
    except ValueError:
        return False  # parsing fails on it too
