"""Finds exporters of other packages by entry point, and creates them with the options of the
configuration.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from importlib.metadata import EntryPoint
from typing import Any, Final

from otel_eval.errors import ConfigError
from otel_eval.exporters import Exporter
from otel_eval.scorers.registry import check_parameters, entry_points_of, instance_of
from otel_eval.scorers.user_code import describe_import_error

GROUP: Final = "otel_eval.exporters"


def installed_exporters() -> dict[str, list[EntryPoint]]:
    """The entry points by name: one for each, unless two packages chose the same name."""
    return entry_points_of(GROUP)


def create_exporter(name: str, options: Mapping[str, Any] | None) -> Exporter:
    """Create the exporter that a package registers under a name, with options.

    Raises:
        ConfigError: it cannot be loaded, or an option is invalid; one line for each problem,
            beginning with its key.
    """
    entry_points = installed_exporters().get(name, [])
    if len(entry_points) != 1:
        paths = " and ".join(sorted(entry_point.value for entry_point in entry_points))
        raise ConfigError(
            f"two packages register it, {paths}; remove one"
            if entry_points
            else "no installed package registers it"
        )
    try:
        loaded = entry_points[0].load()
    except (Exception, SystemExit) as error:
        raise ConfigError(
            f"cannot be loaded ({describe_import_error(error)}); repair or remove its package"
        ) from error
    if not (inspect.isclass(loaded) and issubclass(loaded, Exporter)):
        raise ConfigError(
            f"is no exporter: {entry_points[0].value} is not a subclass of"
            " otel_eval.exporters.Exporter; repair its package"
        )
    check_parameters(loaded, options or {})
    exporter: Exporter = instance_of(loaded, options or {}, "refused its options")
    exporter.name = name
    return exporter
