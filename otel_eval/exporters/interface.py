"""What an exporter is: one class that takes batches of reports and answers what became of them; how packages register theirs."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from typing import Any, ClassVar, Final

from otel_eval.errors import ConfigError, did_you_mean, nearest, redacted_repr
from otel_eval.interfaces import Scorer
from otel_eval.model import Report
from otel_eval.retry import ExportResult
from otel_eval.scorers.base_scorer import describe_import_error
from otel_eval.scorers.registry import wrong_parameters

__all__ = ["GROUP", "Exporter", "create_exporter", "installed_exporters"]


class Exporter(ABC):
    """Sends results somewhere.

    Only `export` has to be written. Exporters of other packages get a queue and a thread of their own: batches arrive one after
    the other, in the order in which the results were made, and what `export` returns decides about retries and dead letters.

    An exporter is made once, by `__init__` with the options of the configuration as keyword arguments. `__init__` does no I/O:
    `otel-eval check` calls it, and a process may fork afterwards.

    Attributes:
        name: the exporter's name in counters, log lines and the dead-letter file; set from the configuration.
        max_batch: the most reports in a batch. With 1 a batch is accepted or refused as a whole, so that a retry repeats nothing.
        exports_no_run: whether reports on traces without a result are exported too; they are made where `exporters.jsonl`
            writes them.
        waits_for_access: whether results wait while the endpoint refuses the credentials (401, 403) or has no such path (404),
            instead of being refused.
    """

    name: str = ""
    max_batch: ClassVar[int] = 256
    exports_no_run: ClassVar[bool] = False
    waits_for_access: ClassVar[bool] = False

    @abstractmethod
    def export(self, batch: Sequence[Report]) -> ExportResult:
        """Export a batch. May block: a timeout for its requests is the exporter's own business.

        An exception is a retryable failure, but one of the kinds that a defect in the code or in the data causes (`TypeError`,
        `ValueError`, `LookupError`, `AttributeError`), which is permanent.
        """

    def prepared(self, report: Report) -> Report:
        """The report as it is queued. Must be quick: a program's own thread calls it."""
        return report

    def revised(self, report: Report) -> None:  # noqa: B027 - few exporters need it
        """After a restart: a report of a revision above 0 that an earlier process made, exported or not."""

    def not_exported(self, batch: Sequence[Report]) -> list[Report]:
        """Those reports of an earlier process that have to be exported: all, unless the exporter can look at its destination."""
        return list(batch)

    def expect_duplicates(self) -> None:  # noqa: B027 - few exporters need it
        """The journal was damaged, so that results which were exported before may be repeated without `not_exported`."""

    def expect(self, evaluation: str, scorers: Sequence[Scorer], service: str, agent: str) -> None:  # noqa: B027 - few exporters need it
        """Results of these scorers may come, of runs of the agent in the service; for exporters that count results."""

    def counts(self) -> Mapping[str, int]:
        """Counts of what is the case now, for `/status`, as `name{label=value}`."""
        return {}

    def flush(self, timeout_s: float) -> bool:
        """Export what the exporter itself holds; False if not all could be in time."""
        return True

    def close(self, timeout_s: float) -> None:  # noqa: B027 - few exporters need it
        """Release connections and files. Nothing is exported afterwards."""


GROUP: Final = "otel_eval.exporters"


def installed_exporters() -> dict[str, list[EntryPoint]]:
    """The entry points of each name: one, unless two packages chose the same name."""
    from importlib.metadata import entry_points  # deferred: it costs more to import than all exporters

    found: dict[str, list[EntryPoint]] = {}
    for each in entry_points(group=GROUP):
        if all(each.value != other.value for other in found.setdefault(each.name, [])):
            found[each.name].append(each)
    return found


def create_exporter(name: str, options: Mapping[str, Any] | None) -> Exporter:
    """The exporter that a package registers under a name, with options.

    Raises:
        ConfigError: it cannot be loaded, or an option cannot be used; one line for each problem, beginning with its key.
    """
    found = installed_exporters().get(name, [])
    if len(found) != 1:
        paths = " and ".join(sorted(each.value for each in found))
        raise ConfigError(f"two packages register it, {paths}; remove one" if found else "no installed package registers it")
    try:
        made = found[0].load()
    except (Exception, SystemExit) as error:
        raise ConfigError(f"cannot be loaded ({describe_import_error(error)}); repair or remove its package") from error
    if not (inspect.isclass(made) and issubclass(made, Exporter)):
        raise ConfigError(
            f"is no exporter: {found[0].value} is not a subclass of otel_eval.exporters.Exporter; repair its package"
        )
    exporter = _made(made, dict(options or {}))
    exporter.name = name
    return exporter


def _made(made: type[Exporter], options: dict[str, Any]) -> Exporter:
    problems = wrong_parameters(made, options)
    takes = inspect.signature(made).parameters.values()
    if all(each.kind is not each.VAR_KEYWORD for each in takes):
        known = sorted(each.name for each in takes)
        unknown = [key for key in options if key not in known]
        meant = {nearest(key, known) for key in unknown}
        missing = [each.name for each in takes if each.default is each.empty and each.name not in {*options, *meant}]
        problems += [f"{key}: unknown key; {did_you_mean(key, known)}" for key in unknown]
        problems += [f"{key}: missing; add it" for key in missing]
    if problems:
        raise ConfigError(*problems)
    try:
        return made(**options)
    except ConfigError:
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {redacted_repr(str(error))}"
        raise ConfigError(f"refused its options ({why}); see its documentation") from error
