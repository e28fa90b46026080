"""Merge the results that several evaluators gave for the same traces.

A trace has one set of results if one evaluator had all its spans. If the spans were split between
several evaluators, each of them scored a part, and a part may look complete. The `spans_digest` of
every result identifies the spans that its evaluator had, so the split is detected when the results
are merged.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from otel_eval.errors import InputError

Row = Mapping[str, Any]
"""The fields of one result, as in a line of JSON Lines."""

_OUTCOMES: Final = {"scored": 3, "failed": 2, "skipped": 1}  # no_run and what later versions add: 0
_NO_RUN: Final = "no_run"
_LATE: Final = "late"
_MERGED: Final = ("split", "others")  # what merging adds to a row
_FILE: Final = "file:"


class _Key(NamedTuple):
    """Identifies a result and its evaluator; one row is kept for each key. `no_run` is "" for a
    result, "late" for a row on spans that came too late, and "no_run" for a trace without a result.
    """

    trace_id: str
    span_id: str
    evaluation: str
    scorer: str
    policy: str
    evaluator: str
    no_run: str


def merge_results(*sources: Iterable[Row]) -> list[dict[str, Any]]:
    """Put the results of several evaluators together: at most one for each run, evaluation, scorer
    and policy.

    Among the results of one evaluator the highest revision counts, whatever its outcome. If
    evaluators had different spans of a trace, every result of that trace gets ``"split": true``: it
    may be wrong even if it looks complete. Among the results of several evaluators scored is
    preferred to failed and failed to skipped, then more spans, then the smaller JSON. The others
    are kept in the list ``others`` of the preferred result, so that the output can be merged with
    further results.

    The order of sources and of merging makes no difference, and merging the output again changes
    nothing, as long as no row was removed: merge first, filter afterwards. The cost is linear in
    the number of rows, apart from sorting the output.

    Args:
        sources: rows of JSON Lines, each the content of one file. All rows of a source without an
            `evaluator` (those of `replay`) count as results of one evaluator; a later row replaces
            an earlier one with the same `result_id`. In the output the name of this evaluator is
            `file:` and a hash of its rows.

    Returns:
        The rows in order of trace, run, evaluation, scorer and policy. A row with the outcome
        `no_run` stands for a trace of which an evaluator had spans but no result.

    Raises:
        InputError: a row is not a result.
    """
    best: dict[_Key, Row] = {}
    for source in sources:
        for row in _named(source):
            key = _key_of(row)
            other = best.setdefault(key, row)
            if other is not row:
                best[key] = min(row, other, key=_by_revision)
    results = _without_superseded_no_run(best)
    return list(_rendered(results, _split_traces(results)))


def check_row(row: Any) -> None:
    """Check that a row can be merged.

    Raises:
        InputError: the row is not a result.
    """
    for result in _expanded(row):
        _key_of(result if result.get("evaluator") else {**result, "evaluator": _FILE})


def _named(source: Iterable[Row]) -> Iterator[Row]:
    """Yield the rows of a source as they were before an earlier merge, each with the name of an
    evaluator.
    """
    unnamed: dict[Any, Row] = {}
    for row in source:
        for result in _expanded(row):
            identity = result.get("result_id")
            if result.get("evaluator"):
                yield result
            else:
                is_known = isinstance(identity, str) and identity
                unnamed[identity if is_known else len(unnamed)] = result
    name = _FILE + _hash_of(unnamed.values())
    for row in unnamed.values():
        yield {**row, "evaluator": name}


def _expanded(row: Row) -> Iterator[Row]:
    """Yield the row and those in its `others`, without the fields that merging added."""
    others = row.get("others", ()) if isinstance(row, Mapping) else ()
    for result in (row, *(others if isinstance(others, list | tuple) else ())):
        if not isinstance(result, Mapping):
            raise InputError("not a result: no JSON object")
        yield {key: value for key, value in result.items() if key not in _MERGED}


def _hash_of(rows: Iterable[Row]) -> str:
    """Return a hash of the rows that depends neither on their order nor on the time of
    evaluation.
    """
    # A sum of hashes does not depend on the order of the rows, and equal rows do not cancel out as
    # they would with XOR.
    hashes = (
        blake2b(_canonical(row, timeless=True).encode("utf-8", "surrogatepass"), digest_size=8)
        for row in rows
    )
    return f"{sum(int.from_bytes(digest.digest(), 'big') for digest in hashes) % 2**64:016x}"


def _canonical(row: Row, *, timeless: bool = False) -> str:
    fields = (
        {key: value for key, value in row.items() if key != "evaluated_at"} if timeless else row
    )
    return json.dumps(fields, sort_keys=True, separators=(",", ":"), default=str)


def _key_of(row: Row) -> _Key:
    names = _Key._fields[:-1]
    for name in names:
        if not isinstance(row.get(name), str):
            raise InputError(f"not a result: {name} is missing or no text")
    is_late = row.get("reason") == _LATE
    no_run = "" if row.get("outcome") != _NO_RUN else _LATE if is_late else _NO_RUN
    return _Key._make([*(row[name] for name in names), no_run])


def _by_outcome(row: Row) -> tuple[int, int, str, str]:
    """Return a sort key; the preferred row has the least: scored before failed before skipped, more
    spans, the smaller JSON.

    The JSON is compared without the time of evaluation first, so that evaluating the same files
    again changes nothing.
    """
    outcome, spans = _OUTCOMES.get(str(row.get("outcome")), 0), _number(row.get("spans"))
    return -outcome, -spans, _canonical(row, timeless=True), _canonical(row)


def _by_revision(row: Row) -> tuple[int, tuple[int, int, str, str]]:
    return -_number(row.get("revision")), _by_outcome(row)


def _number(value: Any) -> int:
    return value if isinstance(value, int) else -1


def _without_superseded_no_run(best: Mapping[_Key, Row]) -> dict[_Key, Row]:
    """Leave out the `no_run` rows of evaluators that have a result for the same trace."""
    # `no_run` is written when a trace closes; late spans can bring a run, and results of it,
    # afterwards.
    reported = {(key.trace_id, key.evaluator) for key in best if not key.no_run}
    return {
        key: row
        for key, row in best.items()
        if key.no_run != _NO_RUN or (key.trace_id, key.evaluator) not in reported
    }


def _split_traces(results: Mapping[_Key, Row]) -> set[str]:
    """Return the ids of traces of which evaluators had different spans, or of which one of several
    evaluators gives no digest.
    """
    traces: dict[str, dict[str, tuple[int, str]]] = {}
    for key, row in results.items():
        # Earlier revisions are computed from fewer spans, so the revision with the most spans of
        # each evaluator is compared.
        seen = (_number(row.get("spans")), str(row.get("spans_digest") or ""))
        evaluators = traces.setdefault(key.trace_id, {})
        evaluators[key.evaluator] = max(seen, evaluators.get(key.evaluator, seen))
    split = set()
    for trace_id, evaluators in traces.items():
        digests = {digest for _, digest in evaluators.values()}
        # Without a digest it is not known whether the evaluators had the same spans, and unknown is
        # not equal.
        if len(evaluators) > 1 and (len(digests) > 1 or "" in digests):
            split.add(trace_id)
    return split


def _rendered(results: Mapping[_Key, Row], split: set[str]) -> Iterator[dict[str, Any]]:
    """Yield the preferred row of each result, with the others and the mark of a split trace."""
    by_result: dict[_Key, list[Row]] = {}
    for key, row in results.items():
        by_result.setdefault(key._replace(evaluator=""), []).append(row)
    for result, rows in sorted(by_result.items()):
        first, *others = sorted(rows, key=_by_outcome) if len(rows) > 1 else rows
        merged: dict[str, Any] = dict(first)
        if result.trace_id in split:
            merged["split"] = True
        if others:
            merged["others"] = [dict(other) for other in others]
        yield merged
