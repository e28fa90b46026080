"""Log records that are held of a trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from otel_eval.interfaces import LogFrame

__all__ = ["RECORDS_PER_SPAN", "Logs", "listed"]

RECORDS_PER_SPAN: Final = 10
"""Log records of a trace may be so many times `max_spans_per_trace`: each message of a model call can be one."""

Logs = dict[bytes, dict[LogFrame, None]]
"""Span id → log records joined to it in order of arrival, none twice. Adding one takes constant time."""


def listed(logs: Logs, span_ids: Iterable[bytes]) -> dict[bytes, tuple[LogFrame, ...]]:
    """The records of these spans, in copies: more may be added while they are evaluated."""
    return {each: tuple(logs[each]) for each in span_ids if each in logs} if logs else {}
