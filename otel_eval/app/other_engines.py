"""Scores whole traces that another engine brought together: a query engine, a stream processor."""

from __future__ import annotations

import logging
import pickle
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from os import PathLike
from typing import Any, Final

from opentelemetry.sdk.trace import ReadableSpan

from otel_eval.app.build import build_engine
from otel_eval.app.replay_coverage import attempt
from otel_eval.app.stored_traces import complete_reports, evaluate_now, traces_of
from otel_eval.config import ConfigSource, EvalConfig, load
from otel_eval.engine import Engine
from otel_eval.errors import InputError
from otel_eval.exporters.result_rows import rows_of
from otel_eval.otlp.otlp_json import read_document
from otel_eval.otlp.protobuf import SpanBatch
from otel_eval.sources.files import CollectedMessages
from otel_eval.sources.files.protobuf_stream import read_message
from otel_eval.sources.inprocess.sdk_spans import frames_of
from otel_eval.sources.warehouse import is_row, read_rows
from otel_eval.watched_files import file_stamp

_log = logging.getLogger("otel_eval")

Spans = (
    bytes
    | bytearray
    | memoryview
    | Mapping[str, Any]
    | Iterable[bytes | bytearray | memoryview | Mapping[str, Any] | ReadableSpan]
)
"""Spans in any of the forms that `evaluate` takes."""


def evaluate(spans: Spans, config: ConfigSource = None) -> list[dict[str, Any]]:
    """Score the runs of whole traces: the way in for other engines, such as a query engine or a
    stream processor, which bring the spans of each trace together.

    Arguments and rows can be pickled, so that worker processes can call it; a process keeps the
    engine of each configuration from call to call. A trace is evaluated on the spans that are
    given: a run whose root or parts are missing is incomplete, and its scores are skipped.

    Args:
        spans: spans of any number of traces, in any order: OTLP requests in protobuf, OTLP/JSON
            documents, rows of a table (see `otel_eval.sources.warehouse.COLUMNS`), ended spans of
            the SDK, or one request or document.
        config: a file, a mapping or an `EvalConfig`; its evaluations, conventions, limits of one
            trace, results and judges are used. A file is read again when it has changed.

    Returns:
        the fields of each line that `otel-eval replay --format json` prints for the same spans.
        What cannot be used is logged as a warning.

    Raises:
        ConfigError: the configuration is invalid.
        InputError: a request, document or row is none.
    """
    settings, engine = _engine_for(config)
    batch = _batch_of(spans)
    if batch.rejected:
        _log.warning("%d spans skipped, the first: %s", batch.rejected, batch.reason)
    traces = traces_of(batch.spans, settings, batch.logs)
    evaluated, messages = partial(evaluate_now, engine), CollectedMessages()
    reports = complete_reports(
        traces, settings, engine, lambda trace: attempt(trace, evaluated, messages)
    )
    for problem in messages.problems:
        _log.warning("%s", problem)
    return [row for report in reports for row in rows_of(report)]


def _batch_of(spans: Spans) -> SpanBatch:
    """All spans and log records in one batch."""
    batch = SpanBatch()
    rows: list[Mapping[str, Any]] = []
    sdk_spans: list[ReadableSpan] = []
    for item in [spans] if isinstance(spans, _ONE) else spans:
        if isinstance(item, Mapping):
            if is_row(item):
                rows.append(item)
            else:
                _add_batch(batch, _read_document(item))
        elif isinstance(item, ReadableSpan):
            sdk_spans.append(item)
        elif isinstance(item, bytes | bytearray | memoryview):
            _add_batch(batch, read_message(bytes(item)))
        else:
            raise InputError(
                f"{type(item).__name__}: expected bytes or a document of OTLP, a row, or an ended"
                " span of the SDK"
            )
    batch.spans += frames_of(sdk_spans)
    _add_batch(batch, read_rows(rows))
    return batch


_ONE: Final = (bytes, bytearray, memoryview, Mapping)
_GROUPS: Final = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs")


def _read_document(document: Mapping[str, Any]) -> SpanBatch:
    """Read a parsed document of OTLP/JSON; raises InputError if it is none."""
    if document.keys().isdisjoint(_GROUPS):
        raise InputError(
            "a mapping is neither OTLP/JSON, with resourceSpans or resourceLogs, nor a row with"
            " trace_id"
        )
    return read_document(dict(document))


def _add_batch(batch: SpanBatch, added: SpanBatch) -> None:
    batch.spans += added.spans
    batch.logs += added.logs
    batch.reject(added.reason, added.rejected)


def _engine_for(config: ConfigSource) -> tuple[EvalConfig, Engine]:
    """The engine for a configuration; one with equal content is kept, for each thread, because an
    engine evaluates one trace at a time.
    """
    try:
        pickled = pickle.dumps(config)
    except Exception:  # noqa: BLE001 - pickling a user's object may raise anything
        return _built(config)
    # changes when a file is written
    version = file_stamp(config) if isinstance(config, str | PathLike) else None
    return _kept_engine(pickled, version, threading.get_ident())


@lru_cache(32)
def _kept_engine(pickled: bytes, _version: object, _thread: int) -> tuple[EvalConfig, Engine]:
    return _built(pickle.loads(pickled))


def _built(config: ConfigSource) -> tuple[EvalConfig, Engine]:
    settings = load(config)
    return settings, build_engine(settings, lines=True)
