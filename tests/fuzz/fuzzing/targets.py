"""What must hold for any bytes at all, one function for each way in.

A target takes bytes and raises if a promise is broken: a decoder gives a value or `InputError`,
what it took can be evaluated and written, the extension in C agrees with Python, ours agrees with
protobuf. Knows nothing of where the bytes come from.
"""

from __future__ import annotations

import atexit
import gzip
import io
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from email.message import Message
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from otel_eval.app.build import build_engine
from otel_eval.app.workers.front import split_request, split_request_python
from otel_eval.assembly import Limits, TraceBuffer
from otel_eval.config import load
from otel_eval.errors import InputError, RequestTooLarge
from otel_eval.exporters.result_rows import lines_of
from otel_eval.http1 import body_reader
from otel_eval.interfaces import Wanted
from otel_eval.otlp import Signal
from otel_eval.otlp import protobuf as framing
from otel_eval.otlp.decoded_size import protobuf_decoded_size
from otel_eval.otlp.otlp_json import load_json, read_json, rewrite
from otel_eval.otlp.protobuf import SpanBatch, read_logs, read_traces
from otel_eval.otlp.spans import OtlpSpanReader, parse_raw_traces, read_span
from otel_eval.sources.receiver.decompression import decompress
from otel_eval.sources.receiver.memory import MemoryLimiter
from otel_eval.storage.segments import Damage, header_bytes, record_header, salt_of, scan
from tests.fuzz.fuzzing.plain_size import plain_size
from tests.support.stored_files import read_file

__all__ = ["TARGETS", "segment", "use_default_limits"]

UNPACKED: Final = 256 * 1024
FEW: Final = 20_000
SCORERS: Final = [
    {"type": "tool_errors"},
    {"type": "time_cost", "max_ms": 5000, "of": "tools"},
    {"type": "trajectory_structure"},
    {"type": "redundant_calls"},
    {"type": "loop_detection"},
    {"type": "tool_call_count", "criteria": {"search": "<= 2"}},
    {"type": "tool_call_args", "expected": [{"name": "search", "arguments": {"q": "x1"}}]},
    {"type": "tool_call_output", "expected": [{"name": "search", "result": "x"}]},
]
ENGINE: Final = build_engine(
    load({"evaluations": [{"name": "all", "match": {"runs": "all"}, "scorers": SCORERS}]})
)
_FEW_OF_ALL: Final = Limits(
    max_traces=500, max_spans_per_trace=200, max_bytes_per_trace=100_000, max_bytes=1_000_000
)
_limits = [_FEW_OF_ALL]
ASKED: Final = (
    Wanted(frozenset({"gen_ai.tool.name", "gen_ai.operation.name", "service.name", "k"})),
    Wanted(frozenset({"input.value"}), ("llm.", "gen_ai.")),
    Wanted(frozenset(), ("",)),
)


def use_default_limits() -> None:
    """Take as much of a trace as a receiver does, and not only so much that the limits are reached
    by small inputs.
    """
    _limits.append(Limits())


def evaluated(framed: SpanBatch) -> None:
    """Whatever was taken can be evaluated, and the result is strict JSON."""
    buffer = TraceBuffer(_limits[-1])
    buffer.push_many(framed.spans, 0.0)
    buffer.push_logs(framed.logs, 0.0)
    for trace in buffer.drain(0.0):
        for report in ENGINE.evaluate(trace):
            for line in lines_of(report).splitlines():
                json.loads(line, parse_constant=_no_constant)


def _no_constant(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")


def traces_protobuf(data: bytes) -> None:
    """Framed as protobuf's own parser would, or refused; where it is stricter (texts that are no
    UTF-8) ours may take more.
    """
    try:
        request = ExportTraceServiceRequest.FromString(data)
    except DecodeError:
        request = None
    try:
        framed = read_traces(data)
    except InputError:
        assert request is None, "refused what protobuf reads"
        return
    if request is not None:
        _as_protobuf_says(framed, request)
    evaluated(framed)


def _as_protobuf_says(framed: SpanBatch, request: Any) -> None:
    spans = [
        (scope.scope.name, span)
        for group in request.resource_spans
        for scope in group.scope_spans
        for span in scope.spans
    ]
    assert len(framed.spans) + framed.rejected + framed.own == len(spans)
    theirs = [span for scope, span in spans if scope != "otel_eval" and _usable(span)]
    assert [(trace_id, span_id) for trace_id, span_id, _, _ in framed.spans] == [
        (s.trace_id, s.span_id) for s in theirs
    ]
    for (_, _, (parent, payload, resource_scope), _), span in zip(
        framed.spans, theirs, strict=True
    ):
        view = resource_scope.reader(payload)
        assert parent == (b"" if span.parent_span_id == bytes(8) else span.parent_span_id)
        assert (view.name, view.start_ns, view.end_ns) == (
            span.name,
            span.start_time_unix_nano,
            span.end_time_unix_nano,
        )
        assert (view.status_code, view.status_message) == (span.status.code, span.status.message)
        assert [event.name for event in view.events()] == [event.name for event in span.events]


def _usable(span: Any) -> bool:
    ids = ((span.trace_id, 16), (span.span_id, 8))
    return all(len(each) == size and any(each) for each, size in ids) and len(
        span.parent_span_id
    ) in (0, 8)


def logs_protobuf(data: bytes) -> None:
    """Records that matter can be read, and joined to spans."""
    try:
        framed = read_logs(data)
    except InputError:
        return
    for _, _, (payload, resource_scope), _ in framed.logs:
        resource_scope.event(payload)
    evaluated(framed)


def traces_json(data: bytes) -> None:
    """Framed, or refused; and rewritten as protobuf it holds the same spans."""
    try:
        framed = read_json("traces", data)
        body, lost, _ = rewrite("traces", load_json(data))
    except InputError:
        return
    again = read_traces(body)
    assert lost <= framed.rejected
    assert [(*span[:2], span[2][:2]) for span in again.spans] == [
        (*span[:2], span[2][:2]) for span in framed.spans
    ]
    evaluated(framed)


def logs_json(data: bytes) -> None:
    """The same of log records; what they weigh is an estimate, which may differ."""
    try:
        framed = read_json("logs", data)
        body, _, _ = rewrite("logs", load_json(data))
    except InputError:
        return
    assert [each[:3] for each in read_logs(body).logs] == [each[:3] for each in framed.logs]
    evaluated(framed)


def metrics_json(data: bytes) -> None:
    """Rewritten to be passed on, or refused."""
    try:
        rewrite("metrics", load_json(data))
    except InputError:
        return


def gzipped(data: bytes) -> None:
    """Unpacked within the limit to what the standard library unpacks it to."""
    try:
        body = decompress("gzip", data, UNPACKED, MemoryLimiter(10 * UNPACKED).enter(0))
    except (InputError, RequestTooLarge):
        return
    assert len(body) <= UNPACKED
    if 0 < len(data) < FEW:  # the standard library takes quadratic time for many members
        assert body == gzip.decompress(data)
    traces_json(body)


def chunked(data: bytes) -> None:
    """A chunked body ends where it says, is refused, or its sender went away."""
    headers = Message()
    headers["Transfer-Encoding"] = "chunked"
    _, read = body_reader(headers, io.BufferedReader(io.BytesIO(data)), UNPACKED)  # type: ignore[arg-type]
    try:
        body = read(MemoryLimiter(10 * UNPACKED).enter(0).grow)
    except (InputError, RequestTooLarge, ConnectionError):
        return
    assert len(body) <= len(data)


_STORED: Final = Path(tempfile.mkdtemp(prefix="otel-eval-fuzz-")) / "stored"
atexit.register(shutil.rmtree, _STORED.parent, ignore_errors=True)


def stored(data: bytes) -> None:
    """A file of any format is read piece by piece, or refused in one line."""
    _STORED.write_bytes(data)
    problems: list[str] = []
    try:
        for framed in read_file(_STORED, problems.append):
            evaluated(framed)
    except InputError as error:
        problems.append(str(error))
    assert not any("\n" in problem for problem in problems), problems


def span(data: bytes) -> None:
    """One span's bytes: the extension, where there is one, tells what Python tells."""
    assert _told(read_span, data) == _told(OtlpSpanReader, data)


def _told(make: Callable[[bytes], Any], data: bytes) -> Any:
    try:
        view = make(data)
    except DecodeError:
        return None
    plain = (
        view.name,
        view.span_kind,
        view.start_ns,
        view.end_ns,
        view.status_code,
        view.status_message,
    )
    return (
        *plain,
        [repr(sorted(view.attributes(each).items())) for each in ASKED],
        repr(list(view.events())),
    )


def framed_alike(data: bytes) -> None:
    """A request is framed with the extension as it is without, and refused as it is without."""
    try:
        whole = framing._read_by_protobuf(data)
    except DecodeError:
        whole = None
    found = framing._shortcut(data, framing.UNLIMITED)
    if found is None:
        return
    assert whole is not None, "the extension framed what Python refuses"
    assert list(map(_of_frame, found.spans)) == list(map(_of_frame, whole.spans))
    assert (found.own, found.rejected, whole.rejected) == (whole.own, 0, 0)


def _of_frame(span: tuple[bytes, bytes, Any, int]) -> tuple[Any, ...]:
    """Ids, payload and what stood around it; great resources have an object for each time that they
    are read.
    """
    trace_id, span_id, (parent, payload, resource_scope), _ = span
    return trace_id, span_id, parent, payload, resource_scope.raw


def weighed_alike(data: bytes) -> None:
    """The size of a request is what its fields cost, however they are written."""
    for signal in Signal:
        for enough in (10**9, 3000):
            assert protobuf_decoded_size(signal, data, enough) == len(data) + plain_size(
                data, signal, enough
            )


def split_alike(data: bytes) -> None:
    """A request is split the same with the extension and without it, and no span is lost or in two
    parts.
    """
    for signal in (Signal.TRACES, Signal.LOGS):
        parts = _parts(split_request, data, signal)
        assert parts == _parts(split_request_python, data, signal)
    try:
        whole = _payloads(data)
        parts = _parts(split_request, data, Signal.TRACES)
    except DecodeError:
        return
    if parts is not None:
        assert sum(map(_payloads, parts), Counter()) == whole


def _parts(split: Callable[..., list[bytes]], data: bytes, signal: Signal) -> list[bytes] | None:
    try:
        return split(data, signal, 3)
    except ValueError:
        return None


def _payloads(body: bytes) -> Counter[bytes]:
    """The bytes of each span."""
    return Counter(
        each
        for group in parse_raw_traces(body).groups
        for scope in group.scopes
        for each in scope.items
    )


RECORDS: Final = tuple((number % 5, bytes((number,)) * (7 * number)) for number in range(40))
SALT: Final = b"otel_ev\x9e"


def segment() -> bytes:
    """A segment of the journal with those records."""
    return header_bytes(SALT) + b"".join(
        record_header(SALT, kind, [payload]) + payload for kind, payload in RECORDS
    )


def journal(data: bytes) -> None:
    """Whatever became of a segment, what is read of it was written to it, or it is another's
    segment.
    """
    damage = Damage()
    found = list(scan(data, damage))
    assert 0 <= damage.tail <= len(data)
    if salt_of(data) == SALT:
        assert {(kind, payload) for kind, payload, _ in found} <= set(RECORDS)


TARGETS: Final[dict[str, Callable[[bytes], None]]] = {
    "traces-protobuf": traces_protobuf,
    "logs-protobuf": logs_protobuf,
    "traces-json": traces_json,
    "logs-json": logs_json,
    "metrics-json": metrics_json,
    "gzip": gzipped,
    "chunked": chunked,
    "stored": stored,
    "span": span,
    "journal": journal,
    "framed-alike": framed_alike,
    "weighed-alike": weighed_alike,
    "split-alike": split_alike,
}
