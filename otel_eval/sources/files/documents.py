"""JSON documents of traces, told apart by their keys.

Knows OTLP, Tempo and Jaeger. Each group of spans is framed by itself, so that a broken one does not cost the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import Say, placed
from otel_eval.sources.files.jaeger import jaeger_groups
from otel_eval.sources.files.tempo import with_hex_ids
from otel_eval.sources.otlp import Framed, frame_json

__all__ = ["frame_document"]

_SPAN_GROUPS: Final = ("resourceSpans", "resource_spans", "batches")
_LOG_GROUPS: Final = ("resourceLogs", "resource_logs")
_METRIC_GROUPS: Final = ("resourceMetrics", "resource_metrics")


def frame_document(document: Any, say: Say) -> Iterator[Framed]:
    """What the document holds, group by group.

    Raises:
        InputError: it is no document of traces.
    """
    if isinstance(document, list):
        return _each(document, say)
    if not isinstance(document, dict):
        raise InputError("not a JSON object")
    if any(key in document for key in (*_SPAN_GROUPS, *_LOG_GROUPS, *_METRIC_GROUPS)):
        return _otlp(document, say)
    if isinstance(document.get("trace"), dict):
        return frame_document(document["trace"], say)
    if isinstance(document.get("data"), list):
        return _jaeger(document["data"], say)
    if isinstance(document.get("spans"), list) and "traceID" in document:
        return _jaeger([document], say)
    raise InputError("JSON, but no OTLP, Tempo or Jaeger trace")


def _each(documents: list[Any], say: Say) -> Iterator[Framed]:
    for number, document in enumerate(documents):
        try:
            yield from frame_document(document, placed(say, f"[{number}]"))
        except InputError as error:
            say(f"[{number}]: {error}")


def _otlp(document: dict[str, Any], say: Say) -> Iterator[Framed]:
    for keys, name in ((_SPAN_GROUPS, "resourceSpans"), (_LOG_GROUPS, "resourceLogs")):
        for key in keys:
            groups = document.get(key)
            if groups is not None and not isinstance(groups, list):
                raise InputError(f"{key}: expected a list")
            yield from _groups(key, name, groups or [], say)


def _groups(key: str, name: str, groups: list[Any], say: Say) -> Iterator[Framed]:
    for number, group in enumerate(groups):
        try:
            yield frame_json({name: [with_hex_ids(group)]})
        except InputError as error:
            say(f"{key}[{number}]: {error}")


def _jaeger(traces: list[Any], say: Say) -> Iterator[Framed]:
    for number, trace in enumerate(traces):
        try:
            yield frame_json({"resourceSpans": jaeger_groups(trace)})
        except InputError as error:
            say(f"data[{number}]: {error}")
