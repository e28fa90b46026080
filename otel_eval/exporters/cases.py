"""Stores runs as cases: the spans of a run as OTLP/JSON, and beside them a record for a dataset.

What is stored gives the outcome that the run had, or a skip. Without content, an allow-list of
attributes is kept; of messages the names, ids and whether a request was answered.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
import threading
from base64 import b64decode
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from google.protobuf.json_format import MessageToDict
from google.protobuf.message import DecodeError, Message
from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from otel_eval.conventions.content import WithoutContent
from otel_eval.counters import Counters, Warnings, in_each_child
from otel_eval.errors import ConfigError, InputError
from otel_eval.exporters import Exporter, ExportResult
from otel_eval.interfaces import ClosedTrace
from otel_eval.model import (
    INAPPLICABLE_REASONS,
    UNRECORDED,
    Report,
    Result,
    Scored,
    Skipped,
    ToolCall,
    Trajectory,
    Verdict,
    verdict_of,
)
from otel_eval.otlp.protobuf import reserialize_logs, reserialize_traces
from otel_eval.trajectory.builder import build
from otel_eval.trajectory.classify import ALL_NEEDS, Plan
from otel_eval.trajectory.messages import kept_messages
from otel_eval.worker_thread import WorkerThread

TRACE_SUFFIX: Final = ".json"
RECORD_SUFFIX: Final = ".case"
"""A record is one line of JSON, so that `cat cases/*.case` is a dataset of JSON Lines."""

_CASE_NAME: Final = re.compile(r"[0-9a-f]{32}\.json")
_OWNER_ONLY_FOLDER: Final = 0o700
_MOST_WAITING: Final = 256  # runs that wait for results of judges
_MOST_QUEUED: Final = 64  # runs that wait to be written
_LARGEST: Final = 16 * 2**20  # bytes of a stored trace
_RESOURCE: Final = frozenset(
    {
        "service.name",
        "service.namespace",
        "service.version",
        "service.instance.id",
        "deployment.environment.name",
        "deployment.environment",
    }
)
_log = logging.getLogger("otel_eval")

_RunKey = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _CaseToWrite:
    trace: ClosedTrace
    run: Trajectory
    verdict: Verdict
    replaces: bool


class CaseFolder(Exporter):
    """Writes runs to a folder, on a thread of its own.

    Args:
        directory: the folder, created if it does not exist.
        when: which outcomes of a run make it a case, any of `not_passed`, `skipped`, `failed`.
        sample: the share of the runs that pass which is stored, too.
        keep: how many cases the folder may hold; the oldest are removed.
        content: whether messages, arguments and results are stored.
        plan: how the runs of a trace are built.
        counters: counts `cases.written`, and what was not written by `reason`.

    Raises:
        ConfigError: the folder cannot be created or written to.
    """

    name = "cases"

    def __init__(
        self,
        directory: str | os.PathLike[str],
        *,
        when: Collection[str],
        sample: float,
        keep: int,
        content: bool,
        plan: Plan,
        counters: Counters,
    ) -> None:
        self._folder: Final = Path(directory)
        self._when, self._sample, self._keep, self._content = when, sample, keep, content
        self._counters: Final = counters
        self._warnings: Final = Warnings()
        try:
            self._folder.mkdir(mode=_OWNER_ONLY_FOLDER, parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"exporters.cases.directory: {os.fspath(directory)!r}: {error.strerror or error}"
            ) from None
        if not os.access(self._folder, os.W_OK | os.X_OK):
            raise ConfigError(
                f"exporters.cases.directory: {os.fspath(directory)!r} cannot be written; name a"
                " directory that can be"
            )
        self.use_plan(plan)
        self._worker: Final = WorkerThread("otel-eval-cases", "a case was not written", self._write)
        self._begin()
        in_each_child(self, CaseFolder._begin)

    def _begin(self) -> None:
        """Start empty, also in a forked child."""
        self._lock = threading.Lock()  # guards _waiting
        self._waiting: OrderedDict[_RunKey, tuple[ClosedTrace, Verdict]] = OrderedDict()
        self._room = threading.Semaphore(_MOST_QUEUED)
        self._worker.reset()

    def use_plan(self, plan: Plan) -> None:
        """Build runs by another plan from now on."""
        self._encoder = CaseEncoder(plan)

    def observe(self, trace: ClosedTrace, reports: Sequence[Report]) -> None:
        """Take the runs of an evaluated trace that are cases; those with results to come wait."""
        by_run: dict[_RunKey, list[Report]] = {}
        for report in reports:
            if report.no_run is None and report.standing is not None:
                by_run.setdefault(_key_of(report), []).append(report)
        for of_run in by_run.values():
            results = [result for report in of_run for result in report.results]
            is_awaited = any(report.pending for report in of_run)
            self._decide(trace, of_run[0], results, verdict_of(results), is_awaited=is_awaited)

    def _decide(
        self,
        trace: ClosedTrace,
        report: Report,
        results: Iterable[Result],
        verdict: Verdict,
        *,
        is_awaited: bool,
    ) -> None:
        """Write the run of a report if these results make it a case, or keep it while further
        results are awaited.
        """
        key = _key_of(report)
        is_case = any(_kind_of(result) in self._when for result in results)
        is_passed = verdict is Verdict.PASS and not is_awaited
        if is_case or (is_passed and _share_of(key) < self._sample):
            self._put(trace, report, verdict)
        elif is_awaited:
            self._wait(key, trace, verdict)

    def _wait(self, key: _RunKey, trace: ClosedTrace, verdict: Verdict) -> None:
        with self._lock:
            self._waiting[key] = trace, verdict
            self._waiting.move_to_end(key)
            dropped = len(self._waiting) > _MOST_WAITING
            if dropped:
                self._waiting.popitem(last=False)
        if dropped:
            self._lose("waiting", "more than %d runs wait for judges", _MOST_WAITING)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Take the runs that waited for these results and are cases with them."""
        for report in batch:
            with self._lock:
                waiting = self._waiting.pop(_key_of(report), None)
            if waiting is not None:
                trace, earlier = waiting
                verdict, is_awaited = verdict_of(report.results, earlier), report.awaited > 0
                self._decide(trace, report, report.results, verdict, is_awaited=is_awaited)
        return ExportResult("accepted")

    def _put(self, trace: ClosedTrace, report: Report, verdict: Verdict) -> None:
        run = report.trajectory
        path = self._folder / (case_of(run) + TRACE_SUFFIX)
        replaces = report.revision > 0
        if not replaces and path.exists():
            return
        if not self._room.acquire(blocking=False):
            self._lose("busy", "the folder of cases is too slow for %d runs", _MOST_QUEUED)
            return
        self._worker.put(_CaseToWrite(trace, run, verdict, replaces))
        if not self._worker.ensure():
            self._worker.serve_here()

    def _lose(self, reason: str, message: str, *values: object) -> None:
        self._counters.add("cases.not_written", reason=reason)
        self._warnings.say(reason, f"a case was not written: {message}", *values)

    def _write(self, job: _CaseToWrite) -> None:
        self._room.release()
        try:
            encoded = self._encoder.encode(job.trace, content=self._content)
        except (ValueError, TypeError, LookupError, DecodeError, InputError) as error:
            self._lose("unreadable", "its spans cannot be written (%s)", type(error).__name__)
            return
        if len(encoded) > _LARGEST:
            self._lose("large", "its trace has more than %d bytes", _LARGEST)
            return
        case = case_of(job.run)
        record = self._folder / (case + RECORD_SUFFIX)
        try:
            if not record.exists():  # someone may have edited it
                line = json.dumps(self._record(job, case), default=str)
                self._write_whole(record, line.encode("utf-8", "backslashreplace") + b"\n")
            self._write_whole(self._folder / (case + TRACE_SUFFIX), encoded)
            self._counters.add("cases.written")
            self._remove_oldest()
        except OSError as error:
            self._lose("disk", "%s", error.strerror or error)

    def _record(self, job: _CaseToWrite, case: str) -> dict[str, Any]:
        run = next(
            run.trajectory
            for run in build(job.trace, self._encoder.plan)
            if run.trajectory.span_id == job.run.span_id
        )
        record: dict[str, Any] = {"case": case, "agent": run.agent, "verdict": str(job.verdict)}
        if self._content and run.input is not UNRECORDED:
            record["input"] = run.input
        record["calls"] = [_call_fields(call, content=self._content) for call in run.calls]
        if run.calls_unknown:
            record["calls_unknown"] = run.calls_unknown
        record["expected"] = [call.name for call in run.calls]
        return record

    def _write_whole(self, path: Path, content: bytes) -> None:
        """Write a file that only its owner can read; it is there whole or not at all."""
        handle, temporary = tempfile.mkstemp(dir=self._folder, prefix=".")  # has mode 0600
        try:
            with open(handle, "wb") as file:
                file.write(content)
            os.replace(temporary, path)
        except OSError:
            with suppress(OSError):
                os.unlink(temporary)
            raise

    def _remove_oldest(self) -> None:
        with os.scandir(self._folder) as entries:
            cases = [entry for entry in entries if _CASE_NAME.fullmatch(entry.name)]
        if len(cases) <= self._keep:
            return
        ages: list[tuple[int, str]] = []
        for entry in cases:
            with suppress(OSError):  # another process may remove cases, too
                ages.append((entry.stat().st_mtime_ns, entry.path))
        for _, path in sorted(ages)[: max(0, len(ages) - self._keep)]:
            Path(path).unlink(missing_ok=True)
            Path(path).with_suffix(RECORD_SUFFIX).unlink(missing_ok=True)

    def flush(self, timeout_s: float) -> bool:
        """Write what is queued; False if that took longer."""
        return self._worker.drain(timeout_s)

    def close(self, timeout_s: float) -> None:
        """Write what is queued."""
        self._worker.drain(timeout_s)
        self._worker.end()


def _kind_of(result: Result) -> str:
    """Which of `not_passed`, `skipped` and `failed` a result is; "" for none."""
    outcome = result.outcome
    if result.severity == "warn" or outcome.passed:
        return ""
    if isinstance(outcome, Scored):
        return "not_passed"
    if not isinstance(outcome, Skipped):
        return "failed"
    return "" if outcome.reason in INAPPLICABLE_REASONS else "skipped"


def case_of(run: Trajectory) -> str:
    """The name of a run's case: 32 hex digits, the same for the same run."""
    return blake2b(f"{run.trace_id}\0{run.span_id}".encode(), digest_size=16).hexdigest()


def _key_of(report: Report) -> _RunKey:
    return report.trajectory.trace_id, report.trajectory.span_id


def _share_of(key: _RunKey) -> float:
    """A number in [0, 1), the same for the same run."""
    digest = blake2b("\0".join(key).encode(), digest_size=7, person=b"cases").digest()
    return int.from_bytes(digest, "big") / 2**56


def _call_fields(call: ToolCall, *, content: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": call.name}
    if content and call.arguments is not UNRECORDED:
        fields["arguments"] = call.arguments
    return fields | ({"error": call.error.type} if call.error else {})


class CaseEncoder:
    """Encodes traces as OTLP/JSON.

    Args:
        plan: that of the engine; its conventions and attributes are used.
    """

    def __init__(self, plan: Plan) -> None:
        attributes = plan.attributes_wanted.keys
        self.plan: Final = Plan(plan.tables, ALL_NEEDS, attributes, plan.records_tool_spans)
        self._resource: Final = _RESOURCE | attributes
        self._without: Final = WithoutContent(plan.tables, attributes)

    def encode(self, trace: ClosedTrace, *, content: bool) -> bytes:
        """A document with `resourceSpans`, and a line end.

        Raises:
            DecodeError, InputError, ValueError: the spans cannot be written as OTLP/JSON.
        """
        document = _document_of(trace)
        if not content:
            del document["resourceLogs"]
            self._reduce(document)
            messages = kept_messages(trace, self.plan)
            for span in _spans_of(document):
                span["attributes"] += [
                    {"key": key, "value": {"stringValue": value}}
                    for key, value in messages.get(bytes.fromhex(span["spanId"]), {}).items()
                ]
        encoded = json.dumps(document, separators=(",", ":"))
        return encoded.encode("utf-8", "backslashreplace") + b"\n"

    def _kept_of_resource(self, key: str, value: Any) -> Any:
        return value if key in self._resource else None

    def _reduce(self, document: dict[str, Any]) -> None:
        """Leave out content, and what is not known to be none."""
        for group in document["resourceSpans"]:
            _retain(group.get("resource", {}), self._kept_of_resource)
            for scope_spans in group.get("scopeSpans", ()):
                _retain(scope_spans.get("scope", {}), self._kept_of_resource)
        for span in _spans_of(document):
            span.pop("links", None)
            span.pop("traceState", None)
            span.get("status", {}).pop("message", None)
            _retain(span, self._without.kept)
            events = [
                event
                for event in span.get("events", ())
                if not event.get("name", "").startswith("gen_ai.")
            ]
            for event in events:
                _retain(event, self._without.kept_of_event)
            span["events"] = [event for event in events if event["attributes"]]


def _retain(holder: dict[str, Any], reduced: Callable[[str, Any], Any]) -> None:
    """Replace the values of `attributes` of a part by what `reduced` returns for key and value."""
    attributes = []
    for pair in holder.get("attributes", ()):
        value = _plain(pair.get("value", {}))
        remains = reduced(pair["key"], value)
        if remains is None:
            continue
        encoded = pair["value"] if remains == value else {"stringValue": remains}
        attributes.append({"key": pair["key"], "value": encoded})
    holder["attributes"] = attributes


def _plain(value: Mapping[str, Any]) -> Any:
    """The value of an attribute in OTLP/JSON; integers stay text."""
    if not value:
        return None
    kind, content = next(iter(value.items()))
    if kind == "arrayValue":
        return [_plain(item) for item in content.get("values", ())]
    if kind == "kvlistValue":
        return {item["key"]: _plain(item.get("value", {})) for item in content.get("values", ())}
    return content


def _sdk_span(trace_id: bytes, span: Any) -> ReadableSpan:
    """The span of the SDK of which this was kept in a process (`inprocess.sdk_spans.SdkSpan`)."""
    trace, flags = int.from_bytes(trace_id), TraceFlags(span.is_sampled)
    parent = SpanContext(trace, span.parent_id, bool(span.parent_is_remote), flags)
    attributes: Any = BoundedAttributes(attributes=span.recorded_attributes, immutable=True)
    attributes.dropped = span.dropped_attributes
    return ReadableSpan(
        span.name,
        context=SpanContext(trace, span.span_id, is_remote=False, trace_flags=flags),
        parent=parent if span.parent_id else None,
        resource=span.resource,
        attributes=attributes,
        events=span.recorded_events,
        kind=span.kind,
        status=Status(StatusCode(span.status_code), span.status_message or None),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=span.scope,
    )


def _document_of(trace: ClosedTrace) -> dict[str, Any]:
    """The spans and log records of a trace as OTLP/JSON."""
    frames = list(trace.frames.values())
    raw = [frame for frame in frames if isinstance(frame[1], bytes)]
    recorded = [
        _sdk_span(trace.trace_id, frame[1]) for frame in frames if not isinstance(frame[1], bytes)
    ]
    groups: list[Any] = []
    if raw:
        groups += _as_json(TracesData.FromString(reserialize_traces(raw)))["resourceSpans"]
    if recorded:
        groups += _as_json(encode_spans(recorded))["resourceSpans"]
    logs = reserialize_logs(record for records in trace.logs.values() for record in records)
    log_groups = _as_json(LogsData.FromString(logs)).get("resourceLogs", []) if logs else []
    return {"resourceSpans": groups, "resourceLogs": log_groups}


def _as_json(message: Message) -> dict[str, Any]:
    """A message as OTLP/JSON: enumerations are numbers, ids hexadecimal."""
    document: dict[str, Any] = MessageToDict(message, use_integers_for_enums=True)
    for span in _spans_of(document):
        _use_hex_ids(span)
        for link in span.get("links", ()):
            _use_hex_ids(link)
    for group in document.get("resourceLogs", ()):
        for scope in group.get("scopeLogs", ()):
            for record in scope.get("logRecords", ()):
                _use_hex_ids(record)
    return document


def _use_hex_ids(holder: dict[str, Any]) -> None:
    for key in ("traceId", "spanId", "parentSpanId"):
        if key in holder:
            holder[key] = b64decode(holder[key]).hex()


def _spans_of(document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for group in document.get("resourceSpans", ()):
        for scope_spans in group.get("scopeSpans", ()):
            yield from scope_spans.get("spans", ())
