"""Exports scores and tool calls as metrics.

The number of label values is bounded, because agents invent tool names.
`docs/reference/signals.md` lists every instrument.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final

from otel_eval.counters import OTHER, BoundedNames, Counters, Warnings, renew_after_fork
from otel_eval.exporters import ProviderExporter
from otel_eval.exporters import attributes as names
from otel_eval.exporters.result_rows import outcome_of
from otel_eval.exporters.window import WindowLimits, gauges_of
from otel_eval.interfaces import Deployment, RunSource, Scorer
from otel_eval.model import Report, Scored, Verdict, elapsed_ns
from otel_eval.retry import ExportResult, suppress_instrumentation

# with a bound just below 1, so that a quantile of scores that are all 1 is not drawn as 0.9
_SCORE_BUCKETS: Final = (*(step / 10 for step in range(10)), 0.999, 1.0)
_SECONDS_BUCKETS: Final = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
    60.0,
    120.0,
    300.0,
)
_MAX_VALUES: Final = 200
_MAX_VERSIONS: Final = 20  # each version is a further set of series for the life of the process
# not chosen by senders
_CONFIGURED: Final = frozenset({names.EVALUATION, names.NAME, names.SCORER_TYPE})
# more than a trace has; a call evaluated alone may be reported again when its agent arrives late
_COUNTED_CALLS: Final = 2**14
_LABELS: Final = (
    ("pass", "scored"),
    ("fail", "scored"),
    ("not_evaluated", "skipped"),
    ("not_evaluated", "failed"),
)

SDK_SETS: Final = 1800 // len(_LABELS)
"""Sets of labels that fit into the 2,000 points which newer SDKs keep of an instrument by default,
beside those of "other".
"""


class _LabelSets:
    """Limits the values of each label and the sets of labels: the first ones are used as they are,
    further ones are "other".

    Each set is a series that the SDK keeps forever, and two hundred agents, services and tools make
    eight million of them.

    Args:
        max_values: the most values of one label.
        max_sets: the most sets of labels.
        on_limit: called with the limit, values or sets, whenever a label becomes "other".
        on_new: called with each set when it is used for the first time.
    """

    def __init__(
        self,
        max_values: int,
        max_sets: int,
        on_limit: Callable[[str], None],
        on_new: Callable[[dict[str, str]], None] = lambda _: None,
    ) -> None:
        self._max_sets, self._on_limit, self._on_new = max_sets, on_limit, on_new
        self._known: defaultdict[str, BoundedNames] = defaultdict(lambda: BoundedNames(max_values))
        self._known[names.SERVICE_VERSION] = BoundedNames(min(max_values, _MAX_VERSIONS))
        self._sets: set[tuple[tuple[str, str], ...]] = set()
        self._used: dict[tuple[tuple[str, str], ...], dict[str, str]] = {}  # as given → as used
        # guards the others: results and agents' first spans come on different threads
        self._lock = threading.Lock()
        renew_after_fork(self)

    def labels(self, **values: str) -> dict[str, str]:
        """Return the labels to use for these values by label; empty values are left out."""
        key = tuple(values.items())
        labels = self._used.get(key)
        if labels is None:
            with self._lock:
                labels = self._labels(key)
        return labels

    def _labels(self, values: tuple[tuple[str, str], ...]) -> dict[str, str]:
        labels = {
            key: self._known[key].name(names.sendable(value)) for key, value in values if value
        }
        if any(value == OTHER != dict(values)[key] for key, value in labels.items()):
            self._on_limit("values")
        elif len(self._used) < self._max_sets:
            self._used[values] = labels
        label_set = tuple(labels.items())
        if label_set not in self._sets:
            if len(self._sets) >= self._max_sets:
                self._on_limit("sets")
                return {key: value if key in _CONFIGURED else OTHER for key, value in label_set}
            self._sets.add(label_set)
            self._on_new(labels)
        return labels


class MetricsExporter(ProviderExporter):
    """Exports histograms and counters of scores and tool calls.

    Only scores and calls of revision 0 are counted, so that a run counts once; later revisions have
    a counter of their own. Counters of results begin at 0, because rates ignore the first value of
    a series.

    Args:
        meter_provider: an SDK `MeterProvider`.
        max_values: distinct values of a label before further ones become "other".
        max_sets: sets of labels, of results and of tools each, before further ones become "other".
        window: the limits of the sliding windows; None: there are none.
        by_version: whether scores, results and runs have the version of the service as a label.
        counters: counts `metrics.over_limit` by limit: measurements whose labels became "other".
    """

    def __init__(
        self,
        meter_provider: Any,
        name: str = "metrics",
        *,
        max_values: int = _MAX_VALUES,
        max_sets: int = SDK_SETS,
        window: WindowLimits | None = None,
        by_version: bool = False,
        counters: Counters | None = None,
    ) -> None:
        self.name = name
        self._by_version: Final = by_version
        self._provider = meter_provider
        self._counters: Final = counters if counters is not None else Counters()
        self._warnings: Final = Warnings()
        label_sets = partial(_LabelSets, max_values, max_sets, self._count_over_limit)
        self._of_results: Final = label_sets(self._start_at_zero)
        self._of_runs: Final = label_sets(self._start_runs_at_zero)
        self._of_tools, self._of_errors = label_sets(), label_sets()
        # Not empty for a call that was counted: the calls of a run with two evaluations, or of
        # nested runs, count once.
        self._counted: Final = lru_cache(_COUNTED_CALLS)(lambda trace_id, call: list[bool]())
        meter = meter_provider.get_meter(*names.INSTRUMENTATION_SCOPE)
        self._scores = meter.create_histogram(
            "otel_eval.score",
            "{score}",
            "Scores of agent runs.",
            explicit_bucket_boundaries_advisory=_SCORE_BUCKETS,
        )
        self._count = meter.create_counter(
            "otel_eval.results", "{result}", "Results of scorers by label and outcome."
        )
        self._runs = meter.create_counter(
            "otel_eval.runs", "{run}", "Evaluated agent runs by verdict."
        )
        self._revisions = meter.create_counter(
            "otel_eval.revisions", "{result}", "Results that replace earlier ones."
        )
        self._calls = meter.create_counter(
            "otel_eval.tool.calls", "{call}", "Tool calls of scored agent runs."
        )
        self._durations = meter.create_histogram(
            "otel_eval.tool.call.duration",
            "s",
            "Durations of tool calls.",
            explicit_bucket_boundaries_advisory=_SECONDS_BUCKETS,
        )
        self._errors = meter.create_counter(
            "otel_eval.tool.errors", "{error}", "Tool calls that failed."
        )
        self._windows: Final = gauges_of(meter_provider, window)
        # Rules need it: a counter that is seen for the first time may count since long ago.
        meter.create_gauge(
            "otel_eval.start_time", "s", "When the counters began at 0, in Unix time."
        ).set(time.time())

    def _count_over_limit(self, limit: str) -> None:
        self._counters.add("metrics.over_limit", limit=limit)
        self._warnings.say(
            limit,
            "%s: too many %s of labels; further ones are counted as %r",
            self.name,
            limit,
            OTHER,
        )

    def _start_at_zero(self, labels: dict[str, str]) -> None:
        for label, outcome in _LABELS:
            self._count.add(0, labels | {names.SCORE_LABEL: label, names.OUTCOME: outcome})

    def _start_runs_at_zero(self, labels: dict[str, str]) -> None:
        for verdict in Verdict:
            self._runs.add(0, labels | {names.VERDICT: verdict.value})

    def expect(self, evaluation: str, scorers: Sequence[Scorer], source: RunSource) -> None:
        """Start the counters of these results at 0."""
        with suppress_instrumentation():
            of_source = self._source_labels(evaluation, source)
            self._of_runs.labels(**of_source)
            for scorer in scorers:
                self._of_results.labels(**of_source, **_scorer_labels(scorer.name, scorer.type))

    def _source_labels(self, evaluation: str, source: RunSource) -> dict[str, str]:
        return {
            names.EVALUATION: evaluation,
            names.AGENT_NAME: source.agent,
            names.SERVICE: source.service,
            names.ENVIRONMENT: source.deployment.environment,
            names.SERVICE_VERSION: source.deployment.version if self._by_version else "",
        }

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Record the reports in the metrics, with the runs as exemplars."""
        with suppress_instrumentation():
            for report in batch:
                context = names.run_context(report.trajectory)
                self._results(report, context)
                if self._windows is not None:
                    self._windows.add(report)
                if report.revision == 0 and not report.late:
                    self._tools(report, context)
        return ExportResult.ok()

    def _results(self, report: Report, context: Any) -> None:
        run = report.trajectory
        deployment = Deployment(run.service_version, run.environment)
        of_source = self._source_labels(
            report.evaluation, RunSource(run.service, run.agent, deployment)
        )
        # the last report of a revision has its verdict
        if report.revision == 0 and report.awaited == 0 and report.verdict is not None:
            of_run = self._of_runs.labels(**of_source) | {names.VERDICT: report.verdict.value}
            self._runs.add(1, of_run, context=context)
        for result in report.results:
            labels = self._of_results.labels(
                **of_source, **_scorer_labels(result.scorer, result.type)
            )
            if report.revision > 0:
                self._revisions.add(1, labels, context=context)
                continue
            outcome = {names.SCORE_LABEL: names.label_of(result), names.OUTCOME: outcome_of(result)}
            self._count.add(1, labels | outcome, context=context)
            if isinstance(result.outcome, Scored):
                self._scores.record(float(result.outcome.value), labels, context=context)

    def _tools(self, report: Report, context: Any) -> None:
        run = report.trajectory
        for index, call in enumerate(run.calls):
            counted = self._counted(
                run.trace_id, call.span_id or (run.span_id, call.call_id, index)
            )
            if counted:
                continue
            counted.append(True)
            tool = {
                names.TOOL_NAME: call.name,
                names.AGENT_NAME: run.agent,
                names.SERVICE: run.service,
            }
            labels = self._of_tools.labels(**tool)
            self._calls.add(1, labels, context=context)
            if (elapsed := elapsed_ns(call)) is not None:
                self._durations.record(elapsed / 1e9, labels, context=context)
            if call.error is not None:
                labels = self._of_errors.labels(**tool, **{names.ERROR_TYPE: call.error.type})
                self._errors.add(1, labels, context=context)


def _scorer_labels(name: str, kind: str) -> dict[str, str]:
    return {names.NAME: name, names.SCORER_TYPE: kind}
