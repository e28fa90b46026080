"""Results as span events in OTLP's bytes, ready to be appended to a span.

Knows the messages Span.Event and KeyValue. A span in protobuf may be continued by appending fields: `events` is
repeated, so what is appended is one more event, and nothing before it is touched.
Source: opentelemetry-proto, trace.proto (Span.events = 11) and common.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from otel_eval.exporters import attributes as names
from otel_eval.model import Failed, Outcome, Report, Result, Scored, Skipped
from otel_eval.otlp.attribute_encoding import encode_attributes
from otel_eval.wire import sized

__all__ = ["attributes_of", "events_of"]

_EVENTS: Final = 11
_SPAN_ATTRIBUTES: Final = 9
_NAME: Final = sized(2, names.EVENT_NAME.encode())
_ATTRIBUTES: Final = 3


def events_of(report: Report) -> bytes:
    """One `events` field of a span for each result; its time is the end of the run."""
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
    if len(_known) < _MOST_KNOWN and len(encoded) < _LONGEST_KNOWN:
        _known[key] = encoded
    return encoded


_MOST_KNOWN: Final = 2048
_LONGEST_KNOWN: Final = 1024
_known: Final[dict[tuple[object, ...], bytes]] = {}


def _pairs(attributes: dict[str, Any]) -> bytes:
    return encode_attributes(_ATTRIBUTES, attributes)
