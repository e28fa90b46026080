"""The last runs of a receiver, encoded, for the pages that show them."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final, NamedTuple

from otel_eval.exporters.result_rows import compact_json, escape_unsafe
from otel_eval.exporters.run_documents import run_document
from otel_eval.model import Report, without_values

MOST_RUNS: Final = 1000
"""Runs that are held, each under one evaluation."""

_LARGEST_SHARE: Final = 4  # a run takes at most this part of all bytes with its calls
_MOST_WAITING: Final = 64  # reports of one run

Key = tuple[str, str, str]
"""Trace id, span id and evaluation."""


class Change(NamedTuple):
    """A document that was added or replaced.

    Attributes:
        key: of the run and the evaluation.
        revision: of the results.
        document: JSON on one line.
        at_ns: when, in Unix nanoseconds.
        number: greater than those of earlier changes.
    """

    key: Key
    revision: int
    document: bytes
    at_ns: int
    number: int = 0


class _Waiting(NamedTuple):
    report: Report
    at_ns: int


class Changes(NamedTuple):
    """What has changed in the held runs.

    Attributes:
        number: of the last change.
        documents: what changed last of each document, the oldest first.
    """

    number: int
    documents: list[Change]


class HeldRuns:
    """Holds run documents within a number and a size; a revision replaces earlier ones, and the
    oldest are dropped. Safe to use from several threads.

    A report is encoded only when someone looks, so that a page that is not open costs almost
    nothing; until then its size is estimated.

    Args:
        content: whether documents have arguments and results of calls.
        max_bytes: the size of all documents, encoded.
        most: how many are held.

    Attributes:
        most: how many are held at most.
        left_out: documents that were too large to be held.
        exported_ms: when an exporter last delivered results, in Unix milliseconds, or None.
    """

    def __init__(self, *, content: bool, max_bytes: int, most: int = MOST_RUNS) -> None:
        self._content: Final = content
        self._max_bytes: Final = max_bytes
        self.most: Final = most
        self._lock: Final = threading.RLock()
        self._runs: Final[OrderedDict[Key, Change]] = OrderedDict()
        self._bytes = self._number = self._waiting_bytes = 0
        self._waiting: OrderedDict[Key, list[_Waiting]] = OrderedDict()
        self.exported_ms: int | None = None
        self.left_out = 0

    def add(self, report: Report) -> None:
        """Hold the results of a report, together with earlier ones of the same revision. Never
        raises: a page must not stop evaluation.
        """
        if report.no_run is not None:
            return
        with self._lock:  # reports of judges come from a thread of their own
            shown = report if self._content else without_values(report)
            if shown.pending:  # the page shows results only
                shown = replace(shown, pending=())
            self._wait(_Waiting(shown, time.time_ns()))
            if self._content:  # its size is known only when it is encoded
                self._encode_waiting()

    def _wait(self, waiting: _Waiting) -> None:
        report = waiting.report
        key = report.trajectory.trace_id, report.trajectory.span_id, report.evaluation
        before = self._waiting.pop(key, [])
        if before and before[0].report.revision > report.revision:
            self._waiting[key] = before
            return
        if before and before[0].report.revision < report.revision:
            self._waiting_bytes -= sum(_size_of(earlier.report) for earlier in before)
            before = []
        before.append(waiting)
        self._waiting[key] = before
        self._waiting_bytes += _size_of(report)
        if len(before) > _MOST_WAITING:
            self._encode_waiting()
        self._limit()

    def _encode_waiting(self) -> None:
        """Encode what was added since this was done last."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, OrderedDict(), 0
        for key, reports in waiting.items():
            for report, at_ns in reports:
                try:
                    self._encode(key, report, at_ns)
                except Exception:  # noqa: BLE001 - it is counted, and the page shows it
                    self.left_out += 1

    def _encode(self, key: Key, report: Report, at_ns: int) -> None:
        document = run_document(report, content=self._content)
        held = self._runs.get(key)
        if held is not None and held.revision == report.revision:
            document = _merged(json.loads(held.document), document)
        encoded = _encoded(document)
        if len(encoded) > self._max_bytes // _LARGEST_SHARE:
            encoded = _encoded({**document, "calls": None, "calls_left_out": True})
        self.put(Change(key, report.revision, encoded, at_ns))

    def _limit(self) -> None:
        """Drop the oldest runs while there are too many, or they are too large."""
        while (
            self._bytes + self._waiting_bytes > self._max_bytes
            or len(self._runs) + len(self._waiting) > self.most
        ):
            if self._runs:  # all of them were added before those that wait
                self._bytes -= len(self._runs.popitem(last=False)[1].document)
            elif len(self._waiting) > 1:
                _, reports = self._waiting.popitem(last=False)
                self._waiting_bytes -= sum(_size_of(waiting.report) for waiting in reports)
            else:  # the estimate of one may be too high
                self._encode_waiting()
                return

    def put(self, change: Change) -> None:
        """Hold a document unless a later revision is held."""
        with self._lock:
            held = self._runs.get(change.key)
            if held is not None and held.revision > change.revision:
                return
            if len(change.document) > self._max_bytes:
                self.left_out += 1
                return
            if held is not None:
                self._bytes -= len(held.document)
                del self._runs[change.key]
            self._number += 1
            self._runs[change.key] = change._replace(number=self._number)
            self._bytes += len(change.document)
            self._limit()

    def changes(self, after: int) -> Changes:
        """What changed after a change with this number; 0 for everything."""
        with self._lock:
            self._encode_waiting()
            newest_first = takewhile(
                lambda change: change.number > after, reversed(self._runs.values())
            )
            return Changes(self._number, [*newest_first][::-1])

    @property
    def is_empty(self) -> bool:
        """Whether no run is held."""
        with self._lock:
            return not (self._runs or self._waiting)

    def note_export(self, at_ms: int | None = None) -> None:
        """Record that an exporter delivered results, now or at this Unix time in milliseconds."""
        self.exported_ms = max(self.exported_ms or 0, at_ms or time.time_ns() // 1_000_000)


def _size_of(report: Report) -> int:
    """About as much memory as the report takes, and more than it takes encoded; what a scorer
    writes about a call counts for each call.
    """
    calls, results = len(report.trajectory.calls), len(report.results)
    texts = sum([len(result.outcome.explanation) for result in report.results])
    return 2000 + 300 * calls + 400 * results + 150 * calls * results + 4 * texts


def _encoded(document: Mapping[str, Any]) -> bytes:
    return escape_unsafe(compact_json(document)).encode("utf-8", "backslashreplace")


def _merged(held: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """A document with the results of an earlier one of the same revision: those of judges come in
    reports of their own, whose runs may lack their calls.
    """
    names = {result["scorer"] for result in document["results"]}
    earlier = [result for result in held["results"] if result["scorer"] not in names]
    return {
        **document,
        "calls": held["calls"] if document["calls"] is None else document["calls"],
        "verdict": document["verdict"] or held["verdict"],
        "awaited": min(document["awaited"], held["awaited"]),
        "results": [*earlier, *document["results"]],
    }
