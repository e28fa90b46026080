"""Scores and tool calls as metrics.

The number of label values is bounded, because agents make up tool names.
`docs/reference/signals.md` lists every instrument.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Sequence
from typing import Any, Final

from otel_eval.counters import OTHER, BoundedNames
from otel_eval.exporters import attributes as names
from otel_eval.exporters.attributes import run_context
from otel_eval.exporters.interface import Exporter
from otel_eval.exporters.window import WindowLimits, gauges_of
from otel_eval.model import Report, Scored, ToolCall
from otel_eval.retry import ExportResult
from otel_eval.suppression import suppress_instrumentation

__all__ = ["MetricsExporter"]

_SCORE_BUCKETS: Final = tuple(step / 10 for step in range(11))
_SECONDS_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_MAX_VALUES: Final = 200
_MAX_SETS: Final = 5000
_CONFIGURED: Final = frozenset({names.EVALUATION, names.NAME, names.SCORER_TYPE})  # not chosen by senders
_REMEMBERED_TRACES: Final = 64  # reports of one run come one after another; interleaved at most by other traces' revisions


class _Bounded:
    """The first values of each label as they are, and the first sets of labels; what comes further is "other".

    Each set is a series that the SDK keeps for ever, and two hundred agents, services and tools make eight million of them.
    """

    def __init__(self, limit: int) -> None:
        self._known: defaultdict[str, BoundedNames] = defaultdict(lambda: BoundedNames(limit))
        self._sets: set[tuple[tuple[str, str], ...]] = set()

    def labels(self, labels: dict[str, str]) -> dict[str, str]:
        """The labels to use."""
        told = {key: self._known[key].name(names.sendable(value)) for key, value in labels.items() if value}
        one = tuple(told.items())
        if one not in self._sets:
            if len(self._sets) >= _MAX_SETS:
                return {key: value if key in _CONFIGURED else OTHER for key, value in one}
            self._sets.add(one)
        return told


class _Counted:
    """Which calls were counted: a run that two evaluations report, or a run within a run, counts once."""

    def __init__(self, traces: int) -> None:
        self._limit = traces
        self._seen: OrderedDict[str, set[Any]] = OrderedDict()

    def new(self, trace_id: str, call: Any) -> bool:
        """Whether the call was not counted before."""
        seen = self._seen.setdefault(trace_id, set())
        self._seen.move_to_end(trace_id)
        if len(self._seen) > self._limit:
            self._seen.popitem(last=False)
        if call in seen:
            return False
        seen.add(call)
        return True


class MetricsExporter(Exporter):
    """Histograms and counters of what was scored and of the calls that were made.

    Scores and calls of revision 0 only, so that a run counts once; later revisions are counted apart.

    Args:
        meter_provider: an SDK `MeterProvider`.
        max_values: distinct values of a label before further ones become "other".
        window: how far back the aggregates over a sliding window reach; None for none.
    """

    def __init__(
        self, meter_provider: Any, name: str = "metrics", *, max_values: int = _MAX_VALUES, window: WindowLimits | None = None
    ) -> None:
        self.name = name
        self._provider = meter_provider
        self._bounded, self._counted = _Bounded(max_values), _Counted(_REMEMBERED_TRACES)
        meter = meter_provider.get_meter(*names.INSTRUMENTATION_SCOPE)
        self._scores = _histogram(meter, names.SCORE_METRIC, "{score}", "Scores of agent runs.", _SCORE_BUCKETS)
        self._count = meter.create_counter(names.COUNT_METRIC, "{result}", "Results of scorers by label and outcome.")
        self._revisions = meter.create_counter(names.REVISIONS_METRIC, "{result}", "Results that replace earlier ones.")
        self._calls = meter.create_counter(names.CALLS_METRIC, "{call}", "Tool calls of scored agent runs.")
        self._durations = _histogram(meter, names.DURATION_METRIC, "s", "Durations of tool calls.", _SECONDS_BUCKETS)
        self._errors = meter.create_counter(names.ERRORS_METRIC, "{error}", "Tool calls that failed.")
        self._windows: Final = gauges_of(meter_provider, window)

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Count the reports. A report's run is the exemplar of every point."""
        with suppress_instrumentation():
            for report in batch:
                context = run_context(report.trajectory)
                self._results(report, context)
                if self._windows is not None:
                    self._windows.add(report)
                if report.revision == 0 and not report.late:
                    self._tools(report, context)
        return ExportResult.ok()

    def _results(self, report: Report, context: Any) -> None:
        run = report.trajectory
        shared = {names.EVALUATION: report.evaluation, names.AGENT_NAME: run.agent, names.SERVICE: run.service}
        for result in report.results:
            labels = self._bounded.labels(shared | {names.NAME: result.scorer, names.SCORER_TYPE: result.type})
            if report.revision > 0:
                self._revisions.add(1, labels, context=context)
                continue
            told = {names.SCORE_LABEL: names.label_of(result), names.OUTCOME: names.outcome_of(result)}
            self._count.add(1, labels | told, context=context)
            if isinstance(result.outcome, Scored):
                self._scores.record(float(result.outcome.value), labels, context=context)

    def _tools(self, report: Report, context: Any) -> None:
        run = report.trajectory
        for index, call in enumerate(run.calls):
            if self._counted.new(run.trace_id, call.span_id or (run.span_id, call.call_id, index)):
                shared = {names.TOOL_NAME: call.name, names.AGENT_NAME: run.agent, names.SERVICE: run.service}
                self._tool(call, shared, context)

    def _tool(self, call: ToolCall, shared: dict[str, str], context: Any) -> None:
        labels = self._bounded.labels(shared)
        self._calls.add(1, labels, context=context)
        if call.start_ns is not None and call.end_ns is not None:
            self._durations.record(max(0, call.end_ns - call.start_ns) / 1e9, labels, context=context)
        if call.error is not None:
            self._errors.add(1, self._bounded.labels(shared | {names.ERROR_TYPE: call.error.type}), context=context)

    def flush(self, timeout_s: float) -> bool:
        """Have the provider collect and export; False if it did not finish in time."""
        flush = getattr(self._provider, "force_flush", None)
        return flush is None or flush(timeout_s * 1000) is not False

    def close(self, timeout_s: float) -> None:
        """Flush. The owner of the provider shuts it down."""
        self.flush(timeout_s)


def _histogram(meter: Any, name: str, unit: str, description: str, buckets: tuple[float, ...]) -> Any:
    try:
        return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=buckets)
    except TypeError:  # an older API; a view in the provider can give the buckets
        return meter.create_histogram(name, unit, description)
