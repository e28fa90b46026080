"""The last runs of a receiver, encoded, for the pages that show them."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final, NamedTuple

from otel_eval.exporters.result_rows import compact_json, escape_unsafe
from otel_eval.exporters.run_documents import run_document
from otel_eval.model import Report, without_values

MOST_RUNS: Final = 1000
"""Runs that are held, each under one evaluation."""

_LARGEST_SHARE: Final = 4  # a run takes at most this part of all bytes with its calls
_MOST_UNENCODED: Final = 64  # reports of one run

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


class _TimedReport(NamedTuple):
    """A report that is not encoded yet, when it came in Unix nanoseconds, and about its size."""

    report: Report
    at_ns: int
    size: int


class Changes(NamedTuple):
    """What has changed among the recent runs.

    Attributes:
        number: of the last change.
        documents: what changed last of each document, the oldest first.
    """

    number: int
    documents: list[Change]


class RecentRuns:
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
        self._documents: Final[OrderedDict[Key, Change]] = OrderedDict()
        self._unencoded: OrderedDict[Key, list[_TimedReport]] = OrderedDict()
        self._bytes = self._unencoded_bytes = self._number = 0
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
            self._add_unencoded(_TimedReport(shown, time.time_ns(), _size_of(shown)))
            if self._content:  # its size is known only when it is encoded
                self._encode_all()

    def _add_unencoded(self, added: _TimedReport) -> None:
        """Hold a report that is not encoded yet, unless one of a later revision waits."""
        report = added.report
        key = report.trajectory.trace_id, report.trajectory.span_id, report.evaluation
        earlier = self._unencoded.pop(key, [])
        revision = earlier[0].report.revision if earlier else report.revision
        if revision < report.revision:
            self._unencoded_bytes -= _total_size(earlier)
            earlier = []
        if revision <= report.revision:
            earlier.append(added)
            self._unencoded_bytes += added.size
        self._unencoded[key] = earlier
        if len(earlier) > _MOST_UNENCODED:
            self._encode_all()
        self._drop_oldest()

    def _encode_all(self) -> None:
        """Encode what was added since this was done last."""
        unencoded, self._unencoded, self._unencoded_bytes = self._unencoded, OrderedDict(), 0
        for key, reports in unencoded.items():
            for timed in reports:
                try:
                    self._encode(key, timed.report, timed.at_ns)
                except Exception:  # noqa: BLE001 - it is counted, and the page shows it
                    self.left_out += 1

    def _encode(self, key: Key, report: Report, at_ns: int) -> None:
        """Encode a report, with the results of an earlier one of the same revision; without its
        calls if it were too large.
        """
        document = run_document(report, content=self._content)
        earlier = self._documents.get(key)
        if earlier is not None and earlier.revision == report.revision:
            document = _merge(json.loads(earlier.document), document)
        encoded = _encode_json(document)
        if len(encoded) > self._max_bytes // _LARGEST_SHARE:
            encoded = _encode_json({**document, "calls": None, "calls_left_out": True})
        self.put(Change(key, report.revision, encoded, at_ns))

    def _drop_oldest(self) -> None:
        """Drop the oldest runs while there are too many, or they are too large."""
        while (
            self._bytes + self._unencoded_bytes > self._max_bytes
            or len(self._documents) + len(self._unencoded) > self.most
        ):
            if self._documents:  # all of them were added before those that are not encoded
                self._bytes -= len(self._documents.popitem(last=False)[1].document)
            elif len(self._unencoded) > 1:
                self._unencoded_bytes -= _total_size(self._unencoded.popitem(last=False)[1])
            else:  # the estimate of one may be too high
                self._encode_all()
                return

    def put(self, change: Change) -> None:
        """Hold a document unless a later revision is held."""
        with self._lock:
            earlier = self._documents.get(change.key)
            if earlier is not None and earlier.revision > change.revision:
                return
            if len(change.document) > self._max_bytes:
                self.left_out += 1
                return
            if earlier is not None:
                self._bytes -= len(earlier.document)
                del self._documents[change.key]
            self._number += 1
            self._documents[change.key] = change._replace(number=self._number)
            self._bytes += len(change.document)
            self._drop_oldest()

    def changes(self, after: int) -> Changes:
        """What changed after a change with this number; 0 for everything."""
        with self._lock:
            self._encode_all()
            newest_first = takewhile(
                lambda change: change.number > after, reversed(self._documents.values())
            )
            return Changes(self._number, [*newest_first][::-1])

    @property
    def is_empty(self) -> bool:
        """Whether no run is held."""
        with self._lock:
            return not (self._documents or self._unencoded)

    def note_export(self, at_ms: int | None = None) -> None:
        """Record that an exporter delivered results, now or at this Unix time in milliseconds."""
        self.exported_ms = max(self.exported_ms or 0, at_ms or time.time_ns() // 1_000_000)


def _total_size(reports: Iterable[_TimedReport]) -> int:
    return sum(report.size for report in reports)


def _size_of(report: Report) -> int:
    """About as much memory as the report takes, and more than it takes encoded; what a scorer
    writes about a call counts for each call.
    """
    calls, results = len(report.trajectory.calls), len(report.results)
    texts = sum([len(result.outcome.explanation) for result in report.results])
    return 2000 + 300 * calls + 400 * results + 150 * calls * results + 4 * texts


def _encode_json(document: Mapping[str, Any]) -> bytes:
    return escape_unsafe(compact_json(document)).encode("utf-8", "backslashreplace")


def _merge(earlier: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """A document with the results of an earlier one of the same revision: those of judges come in
    reports of their own, whose runs may lack their calls.
    """
    names = {result["scorer"] for result in document["results"]}
    results = [result for result in earlier["results"] if result["scorer"] not in names]
    return {
        **document,
        "calls": earlier["calls"] if document["calls"] is None else document["calls"],
        "verdict": document["verdict"] or earlier["verdict"],
        "awaited": min(document["awaited"], earlier["awaited"]),
        "results": [*results, *document["results"]],
    }
