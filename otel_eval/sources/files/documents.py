"""JSON documents of traces, told apart by their keys.

Knows OTLP, Tempo and Jaeger. Each group of spans is framed by itself, so that a broken one does not cost the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from otel_eval.errors import InputError
from otel_eval.sources.files.binary import Say, placed
from otel_eval.sources.files.jaeger import jaeger_groups
from otel_eval.sources.files.tempo import with_hex_ids
from otel_eval.sources.otlp import Framed, frame_json

__all__ = ["GROUPS", "frame_document", "frame_group", "frame_jaeger"]

GROUPS: Final = {
    **dict.fromkeys(("resourceSpans", "resource_spans", "batches"), "resourceSpans"),
    **dict.fromkeys(("resourceLogs", "resource_logs"), "resourceLogs"),
}
"""Keys of lists of groups, and what OTLP/JSON calls them."""

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
    if any(key in document for key in (*GROUPS, *_METRIC_GROUPS)):
        return _otlp(document, say)
    if isinstance(document.get("trace"), dict):
        return frame_document(document["trace"], say)
    if isinstance(document.get("data"), list):
        return _apart("data", document["data"], frame_jaeger, say)
    if isinstance(document.get("spans"), list) and "traceID" in document:
        return _apart("data", [document], frame_jaeger, say)
    raise InputError("JSON, but no OTLP, Tempo or Jaeger trace")


def _each(documents: list[Any], say: Say) -> Iterator[Framed]:
    for number, document in enumerate(documents):
        try:
            yield from frame_document(document, placed(say, f"[{number}]"))
        except InputError as error:
            say(f"[{number}]: {error}")


def _otlp(document: dict[str, Any], say: Say) -> Iterator[Framed]:
    for key, name in GROUPS.items():
        groups = document.get(key)
        if groups is not None and not isinstance(groups, list):
            raise InputError(f"{key}: expected a list")
        yield from _apart(key, groups or [], partial(frame_group, name), say)


def frame_group(name: str, group: Any) -> Framed:
    """The spans or log records of one resource; `name` as in `GROUPS`.

    Raises:
        InputError: it is no such group.
    """
    return frame_json({name: [with_hex_ids(group)]})


def frame_jaeger(trace: Any) -> Framed:
    """A trace of Jaeger.

    Raises:
        InputError: it is none.
    """
    return frame_json({"resourceSpans": jaeger_groups(trace)})


def _apart(key: str, groups: list[Any], frame: Callable[[Any], Framed], say: Say) -> Iterator[Framed]:
    """Each group by itself, so that one that cannot be used does not cost the others."""
    for number, group in enumerate(groups):
        try:
            yield frame(group)
        except InputError as error:
            say(f"{key}[{number}]: {error}")
