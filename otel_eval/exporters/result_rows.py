"""Converts results to rows of JSON fields, and rows to lines of strict JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from json.encoder import c_make_encoder, encode_basestring  # type: ignore[attr-defined]
from operator import attrgetter
from typing import Any, Final

from otel_eval.model import (
    Failed,
    Report,
    Result,
    Scored,
    Skipped,
    ToolCall,
    Trajectory,
    elapsed_ns,
)

SCHEMA: Final = 1
"""Version of the fields of a result: raised when one is removed or changes its meaning, not when
one is added.
"""


def rfc3339(ns: int | None) -> str | None:
    """Format Unix nanoseconds as RFC 3339 text in UTC; None for None and for times out of range.

    >>> rfc3339(1_700_000_000_000_000_001)
    '2023-11-14T22:13:20.000000001Z'
    """
    if ns is None:
        return None
    seconds, fraction = divmod(ns, 10**9)
    try:
        return f"{_second(seconds)}.{fraction:09d}Z"
    except (OverflowError, OSError, ValueError):
        return None


@lru_cache(maxsize=256)  # many runs begin, or are evaluated, in the same second
def _second(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()[:19]


def start_time(run: Trajectory) -> str | None:
    """The start of the run; None if it was not recorded: start and end of a span without times are
    0.
    """
    return rfc3339(run.start_ns) if run.start_ns or run.end_ns else None


def duration_ms(timed: ToolCall | Trajectory) -> float | None:
    """The duration of a call or run in milliseconds; None if it was not recorded or is negative."""
    elapsed = elapsed_ns(timed)
    return None if elapsed is None else elapsed / 1e6


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _finite(member) for key, member in value.items()}
    return [_finite(member) for member in value] if isinstance(value, list | tuple) else value


def _encoder(item: str, key: str) -> Callable[[Any], str]:
    """Return an encoder to strict JSON with these separators; NaN and infinite numbers become
    null.
    """
    encode_python = json.JSONEncoder(
        ensure_ascii=False,
        allow_nan=False,
        default=str,
        check_circular=False,
        separators=(item, key),
    ).encode
    # `encode` creates a new C encoder for each value, which costs as much as using it for a short
    # one.
    encode_c = c_make_encoder and c_make_encoder(
        markers=None,
        default=str,
        encoder=encode_basestring,
        indent=None,
        key_separator=key,
        item_separator=item,
        sort_keys=False,
        skipkeys=False,
        allow_nan=False,
    )

    def encode(value: Any) -> str:
        try:
            return "".join(encode_c(value, 0)) if encode_c else encode_python(value)
        except ValueError:
            return encode_python(_finite(value))

    return encode


_json: Final = _encoder(", ", ": ")
compact_json: Final = _encoder(",", ":")


# DEL and the C1 controls (with U+0085), line and paragraph separators, bidirectional embeddings,
# overrides and isolates: they control terminals, end lines in some readers, or show text in another
# order than it has. Lone surrogates have no UTF-8.
_UNSAFE: Final = re.compile("[\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
NO_RUN: Final = "no_run"
"""The outcome in the line of a trace without results."""


def rows_of(report: Report) -> Iterator[dict[str, Any]]:
    """The fields of each line of a report, as JSON values: of its results, or that the trace has
    none.

    `value` and `passed` are null unless the result is scored, `reason` (a `SkipReason`) unless it
    was skipped, `error_type` unless it failed (never the error's message, which may quote content),
    `threshold` unless a threshold decides, `verdict` while results that may change it are missing.
    """
    run, shared = run_fields(report), shared_fields(report)
    for result, outcome in _results_of(report):
        source = _source_fields(*_source_of(result))
        revision = {"revision": report.revision, "result_id": result.result_id}
        yield run | source | outcome | shared | revision


def lines_of(report: Report) -> bytes:
    """The lines of a report, equal to its encoded rows. What its results share is encoded once."""
    if report.no_run is not None:
        return encoded(rows_of(report))
    run, shared = _json(run_fields(report))[:-1], _members(shared_fields(report))
    end = f'{shared}, "revision": {report.revision}, "result_id": "'
    lines = [
        f"{run}, {_source_json(*_source_of(result))}, {_outcome_json(result)},"
        f' {end}{result.result_id}"}}\n'
        for result in report.results
    ]
    return _encoded("".join(lines))


def _members(fields: dict[str, Any]) -> str:
    """The fields as JSON without the braces around them."""
    return _json(fields)[1:-1]


@lru_cache(maxsize=1024)  # no more than there are scorers in a configuration
def _source_json(*source: str) -> str:
    return _members(_source_fields(*source))


def _results_of(report: Report) -> list[tuple[Result, dict[str, Any]]]:
    """Each result with the fields of its outcome; a placeholder for a trace without results."""
    results = [(result, _outcome_fields(result)) for result in report.results]
    if report.no_run is not None:
        nothing = Result(
            evaluation="",
            scorer="",
            type="",
            version="",
            outcome=Skipped(report.no_run.why),
            revision=0,
            result_id=report.no_run.result_id,
        )
        reason = report.no_run.reason or None
        results.append((nothing, _outcome_fields(nothing) | {"outcome": NO_RUN, "reason": reason}))
    return results


def run_fields(report: Report) -> dict[str, Any]:
    """The fields that identify the run."""
    run = report.trajectory
    return {"trace_id": run.trace_id, "span_id": run.span_id, "agent": run.agent}


def shared_fields(report: Report) -> dict[str, Any]:
    """The other fields that all results of a report share: times, service, conversation,
    attributes, spans and evaluator.
    """
    run, evidence, stamp = report.trajectory, report.evidence, report.stamp
    verdict = report.verdict
    return {
        "verdict": None if verdict is None else str(verdict),
        "completeness": str(run.completeness),
        "start_time": start_time(run),
        "duration_ms": duration_ms(run),
        "evaluated_at": rfc3339(stamp.at_ns),
        "service": run.service,
        "service_version": run.service_version,
        "environment": run.environment,
        "conversation_id": run.conversation_id,
        "attributes": dict(report.attributes),
        "case": report.case or None,
        "spans": evidence.spans if evidence else None,
        "spans_digest": evidence.digest if evidence else None,
        "evaluator": stamp.evaluator or None,
        "schema": SCHEMA,
    }


_SOURCE: Final = ("evaluation", "scorer", "type", "version", "policy", "severity")
_source_of: Final[Callable[[Result], tuple[str, ...]]] = attrgetter(*_SOURCE)


def _source_fields(*source: str) -> dict[str, Any]:
    """The fields that all results of a scorer share."""
    return dict(zip(_SOURCE, source, strict=True))


def _outcome_fields(result: Result) -> dict[str, Any]:
    """The fields that differ between the results of a report and between those of a scorer."""
    outcome = result.outcome
    scored = outcome if isinstance(outcome, Scored) else None
    return {
        "outcome": outcome_of(result),
        "value": None if scored is None else scored.value,
        "passed": None if scored is None else scored.passed,
        "explanation": outcome.explanation,
        "reason": outcome.reason if isinstance(outcome, Skipped) else None,
        "error_type": outcome.error_type if isinstance(outcome, Failed) else None,
        "details": dict(outcome.details),
        "threshold": result.threshold,
    }


def _outcome_json(result: Result) -> str:
    """The fields of the outcome as JSON without the braces around them; a score that runs share is
    encoded once.
    """
    outcome = result.outcome
    if type(outcome) is not Scored:
        return _members(_outcome_fields(result))
    score = outcome.encoded or _score_json(outcome)
    if outcome.encoded == "":
        object.__setattr__(outcome, "encoded", score)
    return f'{score}, "threshold": {_share_json(result.threshold)}'


def _score_json(outcome: Scored) -> str:
    return (
        f'"outcome": "scored", "value": {_share_json(outcome.value)},'
        f' "passed": {"true" if outcome.passed else "false"},'
        f' "explanation": {encode_basestring(outcome.explanation)},'
        ' "reason": null, "error_type": null,'
        f' "details": {_json(dict(outcome.details))}'
    )


def _share_json(value: float | None) -> str:
    # text of numbers of other types, and of NaN, is not always JSON
    is_plain = type(value) is float and 0 <= value <= 1
    return repr(value) if is_plain else _json(value)


def outcome_fields(result: Result) -> dict[str, Any]:
    """The fields of one result without those of its run and its evaluation."""
    scorer = _source_fields(*_source_of(result))
    del scorer["evaluation"]
    return {**scorer, **_outcome_fields(result), "result_id": result.result_id}


def outcome_of(result: Result) -> str:
    """scored, skipped or failed."""
    return type(result.outcome).__name__.lower()


def line_of(fields: dict[str, Any]) -> str:
    """Encode fields as one line of strict JSON: NaN and infinite numbers become null, invisible
    controls are escaped.
    """
    return escape_unsafe(_json(fields))


def escape_unsafe(text: str) -> str:
    """Escape the characters of JSON that control terminals, end lines or change the direction of
    text.
    """
    if text.isascii() and "\x7f" not in text:
        return text
    # the syntax of JSON is ASCII, so what is found is in a string
    return _UNSAFE.sub(_escaped, text)


def _escaped(match: re.Match[str]) -> str:
    return f"\\u{ord(match[0]):04x}"


def encoded(rows: Iterable[dict[str, Any]]) -> bytes:
    """Encode rows as lines."""
    # Each line is encoded at once: lines can be long, and text and bytes of all of them would take
    # twice the memory.
    return b"".join([_encoded(f"{_json(row)}\n") for row in rows])


def _encoded(lines: str) -> bytes:
    return escape_unsafe(lines).encode("utf-8", "backslashreplace")
