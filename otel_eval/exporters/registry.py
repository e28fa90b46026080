"""Exporters of other packages: found by entry point, made from the options of the configuration."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

from otel_eval.errors import ConfigError, nearest, redacted_repr
from otel_eval.exporters import Exporter
from otel_eval.scorers.base_scorer import describe_import_error
from otel_eval.scorers.parameters import unknown_keys
from otel_eval.scorers.registry import entry_points_of, wrong_parameters

GROUP: Final = "otel_eval.exporters"


def installed_exporters() -> dict[str, list[EntryPoint]]:
    """The entry points of each name: one, unless two packages chose the same name."""
    return entry_points_of(GROUP)


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
        meant = {nearest(key, known) for key in options if key not in known}
        missing = [each.name for each in takes if each.default is each.empty and each.name not in {*options, *meant}]
        problems += unknown_keys(options, known)
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
