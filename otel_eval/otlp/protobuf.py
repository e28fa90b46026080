"""From the bytes of an OTLP request to frames.

Knows which spans and log records can be used at all: those with sound ids, not written by this package, and, of logs,
those that may carry what an agent read or wrote. Knows nothing of a span beyond its ids.

The body is parsed twice, both times in C: once with spans as opaque bytes, which is how they are kept, and once with
nothing but their ids. That costs about a tenth more than slicing the ids out of the bytes, and it is exact whatever the
order of fields; it also finds spans that are no messages before they are taken. Where the extension in C is there, it
frames what nearly every encoder writes in one walk, at a third of the cost, and leaves the rest to this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import DecodeError

from otel_eval.errors import InputError
from otel_eval.interfaces import Frame, LogFrame
from otel_eval.otlp.attribute_limits import UNLIMITED, limit_exceeded, too_many
from otel_eval.otlp.decoded_size import excess_size, is_dense
from otel_eval.otlp.native import frame
from otel_eval.otlp.schema import parse_log_ids, parse_raw_logs, parse_raw_traces, parse_span_ids
from otel_eval.otlp.spans import LOG_READER, OtlpResourceScope, read_log, resource_scope
from otel_eval.otlp.values import text
from otel_eval.wire import sized

__all__ = [
    "OWN_SCOPE",
    "SpanBatch",
    "add_log",
    "add_span",
    "charge",
    "charge_content",
    "is_for_us",
    "read_logs",
    "read_traces",
    "reserialize_logs",
    "reserialize_traces",
]

OWN_SCOPE: Final = "otel_eval"
"""The instrumentation scope of all telemetry of this package: never evaluated, wherever it comes back from."""

_NO_TRACE: Final = bytes(16)
_NO_SPAN: Final = bytes(8)
_PARENT: Final = (8, 0)
_NO_MEMORY: Final = "Arena alloc failed"  # of protobuf's C parser
# How the names of events begin that can hold content: GenAI's, and Claude Code's log records.
_EVENT_NAMES: Final = ("gen_ai.", "tool_result", "assistant_response")


@dataclass(slots=True)
class SpanBatch:
    """What a request held.

    Attributes:
        spans: (trace id, span id, frame, size in bytes) of each usable span, in order. A great resource or scope counts with the
            first of its spans, and content of which evaluation makes many objects counts with its span.
        logs: the same of each log record that may belong to a run.
        rejected: spans that cannot be used; `why` says of the first why ("" if there is none).
        own: spans and records that this package wrote itself.
        ignored: log records that tell nothing of a run.
        origin: the request it was, for whoever keeps requests.
        most: attributes that anything in it may have: a span, an event, a link, a record, a resource, a scope.
    """

    spans: list[tuple[bytes, bytes, Frame, int]] = field(default_factory=list)
    logs: list[tuple[bytes, bytes, LogFrame, int]] = field(default_factory=list)
    rejected: int = 0
    why: str = ""
    own: int = 0
    ignored: int = 0
    origin: Any = None
    most: int = UNLIMITED

    def reject(self, why: str, count: int = 1) -> None:
        """Count spans that cannot be used."""
        self.rejected += count
        self.why = self.why or why


def _sound(trace_id: bytes, span_id: bytes, parent_id: bytes) -> str:
    """What is wrong with the ids of a span, or "". To have no parent, b"", is sound."""
    if len(trace_id) != 16 or trace_id == _NO_TRACE:
        return "a trace id must be 16 bytes and not all zero"
    if len(span_id) != 8 or span_id == _NO_SPAN:
        return "a span id must be 8 bytes and not all zero"
    return "" if len(parent_id) in _PARENT else "a parent span id must be 8 bytes or absent"


def is_for_us(framed: SpanBatch, envelope: OtlpResourceScope, count: int) -> bool:
    """Whether the items of an envelope are to be looked at; otherwise they are counted."""
    if envelope.scope_name == OWN_SCOPE:
        framed.own += count
    elif count and envelope.attributes > framed.most:
        framed.reject(too_many("a resource or a scope", framed.most), count)
    else:
        return True
    return False


def charge(framed: SpanBatch, envelope: OtlpResourceScope, count: int) -> None:
    """Have the first of the last `count` spans weigh what their resource and scope hold, where that is much.

    Otherwise a span of fifty bytes could keep a resource of megabytes, and no limit would know.
    """
    if envelope.extra and count:
        trace_id, span_id, frame, size = framed.spans[-count]
        framed.spans[-count] = (trace_id, span_id, frame, size + envelope.extra)


def charge_content(framed: SpanBatch) -> SpanBatch:
    """Have spans and log records of which evaluation makes far more than of ordinary ones weigh more than their bytes."""
    framed.spans = [(trace, span, frame, size + excess_size(frame[1])) for trace, span, frame, size in framed.spans]
    framed.logs = [(trace, span, frame, size + excess_size(frame[0])) for trace, span, frame, size in framed.logs]
    return framed


def read_traces(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """Spans of an ExportTraceServiceRequest, or of TracesData, in protobuf.

    Args:
        most: attributes that anything in it may have.

    Raises:
        InputError: the body is no such message.
        MemoryError: there is too little memory to parse it.
    """
    try:
        framed = _shortcut(body, most) or _parsed(body, most)
    except DecodeError as error:
        raise _unreadable("traces", error) from None
    return charge_content(framed) if is_dense(body) else framed


def _unreadable(signal: str, error: DecodeError) -> Exception:
    """Protobuf reports a failed allocation as it reports corrupt bytes, and only these are permanent."""
    if _NO_MEMORY in str(error):
        return MemoryError("protobuf could not allocate memory")
    return InputError(f"not OTLP {signal} in protobuf: the bytes are corrupt or cut")


def _shortcut(body: bytes, most: int) -> SpanBatch | None:
    """The same in one walk in C, unless that is not there or anything in the body is unusual."""
    try:
        found = frame(body, resource_scope, most) if frame is not None else None
    except DecodeError:  # one part of a resource that is written in several; Python joins the parts first
        return None
    if found is None:
        return None
    framed = SpanBatch(most=most)
    for envelope, spans in found:
        if is_for_us(framed, envelope, len(spans)):
            framed.spans += spans
            charge(framed, envelope, len(spans))
    return framed


def _parsed(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    framed = SpanBatch(most=most)
    for envelope, items, ids in _scopes(parse_raw_traces(body), parse_span_ids(body)):
        if is_for_us(framed, envelope, len(items)):
            before = len(framed.spans)
            _add_spans(framed, envelope, items, ids)
            charge(framed, envelope, len(framed.spans) - before)
    return framed


def _scopes(raw: Any, parsed: Any) -> Iterator[tuple[OtlpResourceScope, Any, Any]]:
    for group, group_ids in zip(raw.groups, parsed.groups, strict=True):
        resource = b"".join(group.resource)
        for scope, scope_ids in zip(group.scopes, group_ids.scopes, strict=True):
            yield resource_scope(resource, b"".join(scope.scope)), scope.items, scope_ids.items


def _add_spans(framed: SpanBatch, envelope: OtlpResourceScope, items: Any, ids: Any) -> None:
    add, small = framed.spans.append, 2 * framed.most
    for payload, each in zip(items, ids, strict=True):
        trace_id, span_id, parent_id = each.trace_id, each.span_id, each.parent_span_id
        # Nearly every span passes here; calls of functions would cost a fifth of the framing.
        size = len(payload)
        sized = len(trace_id) == 16 and len(span_id) == 8 and len(parent_id) in _PARENT and size < small
        if sized and trace_id != _NO_TRACE and span_id != _NO_SPAN and parent_id != _NO_SPAN:
            add((trace_id, span_id, (parent_id, payload, envelope), size))
        else:
            add_span(framed, envelope, payload, each)


def add_span(framed: SpanBatch, envelope: OtlpResourceScope, payload: bytes, ids: Any) -> None:
    """Take a span whose ids were parsed, or reject it."""
    trace_id, span_id, parent_id = ids.trace_id, ids.span_id, ids.parent_span_id
    if why := _sound(trace_id, span_id, parent_id) or limit_exceeded(payload, framed.most):
        framed.reject(why)
        return
    if parent_id == _NO_SPAN:  # some senders write a root's missing parent as zeros
        parent_id = b""
    framed.spans.append((trace_id, span_id, (parent_id, payload, envelope), len(payload)))


def read_logs(body: bytes, most: int = UNLIMITED) -> SpanBatch:
    """Log records of an ExportLogsServiceRequest, or of LogsData, in protobuf.

    Args:
        most: attributes that anything in it may have.

    Raises:
        InputError: the body is no such message.
        MemoryError: there is too little memory to parse it.
    """
    framed = SpanBatch(most=most)
    try:
        for envelope, items, records in _scopes(parse_raw_logs(body), parse_log_ids(body)):
            if is_for_us(framed, envelope, len(items)):
                _add_logs(framed, items, records)
    except DecodeError as error:
        raise _unreadable("logs", error) from None
    return charge_content(framed) if is_dense(body) else framed


def _add_logs(framed: SpanBatch, items: Any, records: Any) -> None:
    for payload, record in zip(items, records, strict=True):
        add_log(framed, payload, record)


def add_log(framed: SpanBatch, payload: bytes, record: Any) -> None:
    """Take a parsed log record, ignore it, or reject it."""
    if _sound(record.trace_id, record.span_id, b"") or not _may_matter(record):
        framed.ignored += 1
        return
    if len(record.attributes) > framed.most:
        framed.reject(too_many("a log record", framed.most))
        return
    framed.logs.append((record.trace_id, record.span_id, (payload, LOG_READER), len(payload)))


def _may_matter(record: Any) -> bool:
    """Whether it is a GenAI event, one of Claude Code's, or holds messages the way the AWS distribution moves them off a span."""
    if record.event_name:
        return text(record.event_name).startswith(_EVENT_NAMES) or _holds_messages(record)
    named = any(b"event.name" in pair for pair in record.attributes)
    return (named and read_log(record).name.startswith(_EVENT_NAMES)) or _holds_messages(record)


def _holds_messages(record: Any) -> bool:
    if not any(b"messages" in part for part in record.body):
        return False
    body = read_log(record).body
    sides = (body.get("input"), body.get("output")) if isinstance(body, dict) else ()
    return any(isinstance(side, dict) and "messages" in side for side in sides)


def reserialize_traces(frames: Iterable[Frame]) -> bytes:
    """An ExportTraceServiceRequest of frames that came by OTLP."""
    groups: dict[tuple[bytes, bytes], list[bytes]] = {}
    for _, payload, envelope in frames:
        assert isinstance(envelope, OtlpResourceScope)
        groups.setdefault(envelope.raw, []).append(sized(2, payload))
    return b"".join(
        sized(1, sized(1, resource) + sized(2, sized(1, scope) + b"".join(spans))) for (resource, scope), spans in groups.items()
    )


def reserialize_logs(frames: Iterable[LogFrame]) -> bytes:
    """An ExportLogsServiceRequest of log records that came by OTLP; they need nothing of what stood around them."""
    records = b"".join(sized(2, payload) for payload, _ in frames)
    return sized(1, sized(2, records)) if records else b""
