"""Where results go: OTLP (log events, metrics, spans), the process's own providers, JSON Lines,
exporters of other packages.

Every exporter is a subclass of `Exporter`: `export` takes a batch of reports and returns which of
them were exported. No exporter is loaded before it is used, because OTLP loads gRPC.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from otel_eval.counters import CountName
from otel_eval.exporters.result_rows import rows_of
from otel_eval.interfaces import RunSource, Scorer
from otel_eval.model import Report
from otel_eval.retry import ExportResult

__all__ = ["ExportResult", "Exporter", "ProviderExporter", "rows_of"]


class Exporter(ABC):
    """Sends results somewhere.

    Only `export` has to be implemented. Exporters of other packages get a queue and a thread of
    their own: batches arrive one after the other, in the order in which the results were made, and
    the `ExportResult` decides about retries and dead letters.

    An exporter is created once, with the options of the configuration as keyword arguments.
    `__init__` must not do I/O: `otel-eval check` calls it, and a process may fork afterwards.

    Attributes:
        name: the exporter's name in counters, log lines and the dead-letter file; set from the
            configuration.
        max_batch: the most reports in a batch. With 1 a batch is accepted or refused as a whole: a
            retry repeats no other report.
        exports_no_run: whether reports on traces without a result are exported too; they are
            created if `exporters.jsonl` or `exporters.kafka` is configured to write them.
        waits_for_access: whether results are retried while the endpoint refuses the credentials
            (401, 403), instead of being refused permanently.
    """

    name: str = ""
    max_batch: ClassVar[int] = 256
    exports_no_run: ClassVar[bool] = False
    waits_for_access: ClassVar[bool] = False

    @abstractmethod
    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Export a batch. May block, so requests should have a timeout.

        An exception is a retryable failure, except for those that a defect in the code or in the
        data causes (`TypeError`, `ValueError`, `LookupError`, `AttributeError`), which are
        permanent.
        """

    def accepts(self, report: Report) -> bool:
        """Whether the report is to be exported: it has results, or it is about a trace without any
        and such are exported.
        """
        return bool(report.results or (report.no_run and self.exports_no_run))

    def prepared(self, report: Report) -> Report:
        """Return the report to queue. Must be quick: it is called on threads of the host
        program.
        """
        return report

    def revised(self, report: Report) -> None:  # noqa: B027 - few exporters need it
        """Called after a restart with a report of a revision above 0 from an earlier process,
        whether it was exported or not.
        """

    # few exporters need it
    def requeued(self, batch: Sequence[Report] | None) -> None:  # noqa: B027
        """Called after a restart with reports of an earlier process, which are exported next and
        may have been exported before.

        None means that the journal was damaged: then any result may have been exported before.
        """

    # few exporters need it
    def expect(  # noqa: B027
        self, evaluation: str, scorers: Sequence[Scorer], source: RunSource
    ) -> None:
        """Announce results of these scorers for runs of the agent, so that exporters with counters
        can start them at 0.
        """

    def counts(self) -> Mapping[CountName, float]:
        """The current values of gauges for `/status`."""
        return {}

    def reopen(self) -> None:  # noqa: B027 - few exporters need it
        """Called about once a second in a receiver, and on SIGHUP: look whether files were renamed
        or deleted. Must not wait.
        """

    def flush(self, timeout_s: float) -> bool:
        """Export what the exporter itself has queued; False if that failed or took longer than
        `timeout_s` seconds.
        """
        return True

    def close(self, timeout_s: float) -> None:  # noqa: B027 - few exporters need it
        """Release connections and files. Nothing is exported afterwards."""


def names_of_exporters(exporters: Iterable[Exporter], report: Report) -> tuple[str, ...]:
    """The names of the exporters that a report goes to."""
    return tuple([exporter.name for exporter in exporters if exporter.accepts(report)])


class ProviderExporter(Exporter):
    """Exports through a provider of the SDK, which it flushes; the owner of the provider shuts it
    down.
    """

    _provider: Any = None  # None: the provider is flushed elsewhere

    def flush(self, timeout_s: float) -> bool:
        """Flush the provider; False if it did not finish in time."""
        flush = getattr(self._provider, "force_flush", None)
        return flush is None or flush(int(timeout_s * 1000)) is not False

    def close(self, timeout_s: float) -> None:
        """Flush the provider."""
        self.flush(timeout_s)
