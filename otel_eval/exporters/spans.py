"""Scores as span events on an evaluation span: a child of the run, kind EVALUATOR, one event per result.

Ended spans cannot be changed, so the scores need a span of their own. As a child of the run it shows in the run's trace and
does not add a trace of its own; at the run's end it leaves the duration of the trace as it is. The link is what OpenInference
requires of evaluations after the fact (spec/annotations.md).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, Tracer
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, StatusCode, get_current_span

from otel_eval.exporters import attributes as names
from otel_eval.exporters.attributes import run_context, run_ended_ns
from otel_eval.exporters.interface import Exporter
from otel_eval.model import Failed, Report
from otel_eval.retry import ExportResult
from otel_eval.suppression import suppress_instrumentation

__all__ = ["ReportIds", "SpanExporter", "pipeline_tracer"]


class SpanExporter(Exporter):
    """One span per report, with one `gen_ai.evaluation.result` event per result.

    Args:
        tracer: makes the spans; from a provider, or `pipeline_tracer`.
        flush: has the spans delivered within so many milliseconds; None if that is done elsewhere.
        ids: of the tracer's provider; gives a report that is sent again the same span id.
    """

    def __init__(
        self,
        tracer: Any,
        flush: Callable[[int], Any] | None = None,
        name: str = "spans",
        ids: ReportIds | None = None,
    ) -> None:
        self.name = name
        self._tracer, self._flush, self._ids = tracer, flush, ids

    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Make a span for each report that has results. It starts and ends when the run ended."""
        with suppress_instrumentation():
            for report in batch:
                if report.results:
                    self._make_span(report)
        return ExportResult.ok()

    def _make_span(self, report: Report) -> None:
        context, ended = run_context(report.trajectory), run_ended_ns(report)
        run = get_current_span(context).get_span_context()
        if self._ids is not None:
            self._ids.report = report
        span = self._tracer.start_span(
            f"evaluate {report.evaluation}",
            context=context,
            attributes={names.SPAN_KIND: names.EVALUATOR} | names.run_attributes(report),
            links=[Link(run)] if run.is_valid else [],
            start_time=ended,
        )
        for result in report.results:
            span.add_event(names.EVENT_NAME, names.event_attributes(report, result), ended)
        if any(isinstance(result.outcome, Failed) for result in report.results):
            span.set_status(StatusCode.ERROR)
        span.end(ended)

    def flush(self, timeout_s: float) -> bool:
        """Flush the provider; False if it did not finish in time."""
        return self._flush is None or self._flush(int(timeout_s * 1000)) is not False

    def close(self, timeout_s: float) -> None:
        """Flush. The owner of the provider shuts it down."""
        self.flush(timeout_s)


class _OwnIds(RandomIdGenerator):
    """Ids that neither disturb the program's random numbers nor repeat with its seed, as the SDK's do."""

    _random: Final = random.SystemRandom()

    def generate_span_id(self) -> int:
        """64 random bits, not all zero."""
        return self._random.getrandbits(64) or 1

    def generate_trace_id(self) -> int:
        """128 random bits, not all zero."""
        return self._random.getrandbits(128) or 1


class ReportIds(_OwnIds):
    """Ids that tell the report: one that is sent again is the same span again.

    Attributes:
        report: what the next span is of.
    """

    report: Report | None = None

    def generate_span_id(self) -> int:
        """Of the first result's id, which itself is a hash."""
        results = self.report.results if self.report is not None else ()
        return (int(results[0].result_id[:16], 16) if results else 0) or super().generate_span_id()


def pipeline_tracer(pipeline: Any, resource: Resource) -> Tracer:
    """A tracer whose spans go to the processors of a provider that we do not hold.

    Raises:
        TypeError: this SDK makes tracers in another way.
    """
    scope = InstrumentationScope(*names.INSTRUMENTATION_SCOPE)
    no_info: Any = None  # the scope's deprecated predecessor, which warns when made
    return Tracer(ALWAYS_ON, resource, pipeline, _OwnIds(), no_info, SpanLimits(), scope)
