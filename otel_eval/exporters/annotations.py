"""The base of the exporters that send scores to the HTTP API of a product.

A product's exporter builds the requests and interprets the responses. The base selects and checks
the results, halves batches that are refused, and never replaces a newer revision by an older one.
"""

from __future__ import annotations

import http.client
import json
import random
import time
from abc import abstractmethod
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final

from otel_eval.exporters import Exporter
from otel_eval.exporters.scores import (
    KnownScorers,
    Score,
    ScoreKey,
    is_verdict,
    key_of,
    problem_of,
    score_of,
    shows_something,
    with_verdict,
)
from otel_eval.model import Report
from otel_eval.otlp.endpoint import Endpoint, HttpClient, HttpResponse, of_response
from otel_eval.retry import ExportResult, Place, in_halves, reason_of

_MAX_REVISED: Final = 50_000  # results whose last revision is kept; few have one above 0
_MAX_SUSPECTS: Final = 8
_MAX_WAITING: Final = 10_000
_MAX_FAILURES: Final = 3


@dataclass(slots=True)
class _FailedResult:
    """A result that could not be exported while others could.

    Attributes:
        since: the time of the first attempt, by the exporter's clock.
        exported: how many results had been exported at the last failed attempt.
        failures: failed attempts between which other results were exported.
        suspect: whether the product failed; if not, the trace or run of the result was missing.
    """

    since: float
    exported: int
    failures: int = 0
    suspect: bool = False


@dataclass(slots=True)
class _Batch:
    """The scores of one batch, and which of its results were refused, deferred or not sent."""

    scores: list[Score] = field(default_factory=list)
    refused: dict[Place, str] = field(default_factory=dict)  # the reason by place
    deferred: dict[Place, str] = field(default_factory=dict)
    not_sent: Counter[str] = field(default_factory=Counter)

    def result(self) -> ExportResult:
        return ExportResult(
            "ok",
            failed=tuple(self.refused),
            deferred=tuple(self.deferred),
            reasons=self.refused | self.deferred,
            not_sent=self.not_sent,
        )


class AnnotationExporter(Exporter):
    """Sends each result as a score on the run's span.

    Skipped and failed results are sent only where they replace a score of an earlier revision,
    unless `unscored`. A refused request is halved until the results that are refused are found. A
    result at which the product fails again and again, while it accepts others, is refused
    permanently; one whose trace is missing is retried for `max_wait` seconds.

    Args:
        to: the product; the base of its URLs.
        known: the configuration's scorers.
        unscored: send skipped and failed results of the first revision, too.
        verdict: send the verdict of a run under each evaluation as a score of its own.
        max_wait: how long to wait for the trace of a result, in seconds.
        clock: monotonic seconds.

    Raises:
        ConfigError: a TLS file cannot be used.
    """

    waits_for_access: ClassVar[bool] = True
    media_type: ClassVar[str] = "application/json"
    """The media type of requests and responses."""
    max_scores: ClassVar[int] = 1
    """The most scores in one request."""
    replaces: ClassVar[bool] = True
    """Whether the product replaces a score that is sent again; if not, only results with a value or
    a label are sent.
    """

    def __init__(
        self,
        to: Endpoint,
        known: KnownScorers,
        *,
        unscored: bool = False,
        verdict: bool = False,
        max_wait: float = 600.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client: Final = HttpClient(
            to, dict.fromkeys(("Content-Type", "Accept"), self.media_type)
        )
        self._known, self._unscored, self._sends_verdict = known, unscored, verdict
        self._max_wait_s, self._clock = max_wait, clock
        # the last revision, if it is above 0
        self._revisions: OrderedDict[ScoreKey, int] = OrderedDict()
        self._failed: dict[str, _FailedResult] = {}  # by result id
        # ids of results of this batch that were exported, by an earlier attempt too
        self._sent: set[str] = set()
        self._exported = 0

    # ------------------------------------------------------------------ for products

    @abstractmethod
    def send(self, scores: Sequence[Score]) -> ExportResult:
        """Send scores in one request. The status `missing` is for a trace or run that the product
        does not have yet.

        Raises:
            OSError: there is no response.
        """

    def call(self, method: str, path: str, body: Any = None) -> HttpResponse:
        """Make a request; a body that is not bytes is encoded as JSON, None is no body."""
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body, allow_nan=False).encode()
        return self._client.request(method, path, body or b"")

    # ---------------------------------------------------------------------- what is sent

    def prepared(self, report: Report) -> Report:
        """Return the report, with its verdict as a result if that is to be sent."""
        return with_verdict(report) if self._sends_verdict and report.results else report

    def revised(self, report: Report) -> None:
        """Record the revision, so that results of earlier ones are not sent."""
        for result in report.results if report.revision else ():
            key = key_of(report, result)
            self._revisions[key] = max(report.revision, self._revisions.pop(key, 0))
        while len(self._revisions) > _MAX_REVISED:
            self._revisions.popitem(last=False)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Send the scores of a batch, except those that an earlier attempt for this batch
        exported.
        """
        ids = {result.result_id for report in batch for result in report.results}
        self._sent &= ids
        for report in batch:
            self.revised(report)
        state = self._select(batch)
        problem = self._send_all(
            [score for score in state.scores if score.result.result_id not in self._sent], state
        )
        if problem is not None:
            return problem
        self._sent.clear()
        deferred_ids = {
            score.result.result_id for score in state.scores if score.place in state.deferred
        }
        for result_id in ids - deferred_ids:
            self._failed.pop(result_id, None)
        return state.result()

    def _select(self, batch: Sequence[Report]) -> _Batch:
        state = _Batch()
        for report_index, report in enumerate(batch):
            for result_index, result in enumerate(report.results):
                position = (report_index, result_index)
                if self._revisions.get(key_of(report, result), 0) > result.revision:
                    state.not_sent["superseded"] += 1
                elif not (
                    shows_something(result)
                    or is_verdict(result)
                    or (self.replaces and (result.revision or self._unscored))
                ):
                    state.not_sent["unscored"] += 1
                elif problem := problem_of(report, result, self._known.name_of(result)):
                    state.refused[position] = problem
                else:
                    state.scores.append(score_of(self._known, position, report, result))
        return state

    # ---------------------------------------------------------------------- how it is sent

    def _send_all(self, scores: Sequence[Score], state: _Batch) -> ExportResult | None:
        """Send all scores; return a result if the product failed, else None."""
        # Those that failed before come last and one by one, so that it is seen whether the product
        # accepts others.
        new = [score for score in scores if score.result.result_id not in self._failed]
        failed = [score for score in scores if score.result.result_id in self._failed]
        if failed:
            # else those at which the product fails could be first at every attempt
            random.SystemRandom().shuffle(new)
        for group in (*_groups(new, self.max_scores), *_groups(failed, 1)):
            for part, result in in_halves(group, self._attempt):
                if result.status == "ok":
                    self._sent.update(score.result.result_id for score in part)
                    self._exported += len(part)
                elif not result.may_concern_one or not self._excludes(part[0], result, state):
                    return result
        return None

    def _attempt(self, scores: Sequence[Score]) -> ExportResult:
        try:
            return self.send(scores)
        except (OSError, http.client.HTTPException) as error:
            return ExportResult.retryable(reason_of(error))

    def _excludes(self, score: Score, result: ExportResult, state: _Batch) -> bool:
        """Refuse or defer one score, so that the others can be sent; False if the product seems to
        fail whatever it is sent.
        """
        if result.status == "permanent":
            state.refused[score.place] = result.reason
            return True
        key, now = score.result.result_id, self._clock()
        failed = self._failed.get(key) or _FailedResult(now, self._exported)
        failed.suspect = result.status == "server_error"
        if failed.suspect and self._exported > failed.exported:
            failed.failures, failed.exported = failed.failures + 1, self._exported
        is_final = (
            failed.failures >= _MAX_FAILURES
            if failed.suspect
            else now - failed.since >= self._max_wait_s
        )
        if is_final or (len(self._failed) >= _MAX_WAITING and key not in self._failed):
            state.refused[score.place] = (
                result.reason
                if is_final
                else f"{result.reason}, and {_MAX_WAITING} other results wait"
            )
            return True
        if failed.suspect and not self._sent and key not in self._failed:
            # no result of this batch was ever accepted: the product fails, not because of these
            # results
            suspects = sum([other.suspect for other in self._failed.values()])
            if suspects >= _MAX_SUSPECTS:
                return False
        self._failed[key] = failed
        state.deferred[score.place] = result.reason
        return True

    def close(self, timeout_s: float) -> None:
        """Close the connections."""
        self._client.close()


def response_result(response: HttpResponse) -> ExportResult:
    """The meaning of a response for the scores that were sent. Its content is not quoted: it may
    repeat the request.
    """
    result = of_response(response)
    # Only a 500 may be about one result; 408 and the other 5xx are about the product or a proxy in
    # front of it.
    return (
        replace(result, status="retryable")
        if result.status == "server_error" and response.status != 500
        else result
    )


def _groups(scores: Sequence[Score], size: int) -> Iterator[Sequence[Score]]:
    return (scores[start : start + size] for start in range(0, len(scores), size))
