"""Listeners of pipelines and of asynchronous results for tests."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from otel_eval.model import Report
from otel_eval.pipeline import PipelineListener


class Listener(PipelineListener):
    """Passes what a pipeline tells to functions; without `report` the reports are collected."""

    def __init__(
        self,
        report: Callable[[Report], object] | None = None,
        *,
        decided: Callable[[bytes], object] = lambda _: None,
        final: Callable[[Sequence[tuple[str, str]]], object] = lambda _: None,
        backpressure: Callable[[], str] = lambda: "",
    ) -> None:
        self.reports: list[Report] = []
        self._report = report or self.reports.append
        self._decided, self._final, self._backpressure = decided, final, backpressure

    def on_reports(self, reports: Sequence[Report]) -> None:
        for report in reports:
            self._report(report)

    def on_decided(self, trace_id: bytes) -> None:
        self._decided(trace_id)

    def on_final(self, runs: Sequence[tuple[str, str]]) -> None:
        self._final(runs)

    def backpressure(self) -> str:
        return self._backpressure()


class LateReports:
    """Collects the reports of asynchronous results."""

    def __init__(self, reports: list[Report]) -> None:
        self.reports = reports

    def on_late_report(self, report: Report) -> None:
        self.reports.append(report)

    def computing(self, trace_id: str) -> AbstractContextManager[None]:
        return nullcontext()
