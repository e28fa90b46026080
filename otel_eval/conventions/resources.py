"""Which attributes of a resource are exported with the results of its runs.

Sources: `service.*` and `deployment.*` of the OpenTelemetry semantic conventions for resources; `openinference.project.name`
of OpenInference, by which Phoenix assigns a trace to a project.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

__all__ = ["exported_resource"]

_IDENTITY: Final = (
    *("service.name", "service.namespace", "service.instance.id", "service.version"),
    *("deployment.environment.name", "deployment.environment", "openinference.project.name"),
)
_LONGEST: Final = 8192
_LONGEST_VALUE: Final = 256


def exported_resource(attributes: Mapping[str, Any]) -> Mapping[str, Any]:
    """All attributes; of a resource with more than 8,192 characters only those that identify its service and project.

    Each of these has at most 256 characters. The limit is there because the journal holds the resource of each report: one
    request could make it grow by its own size for each of its traces.
    """
    if sum(len(key) + len(str(value)) for key, value in attributes.items()) <= _LONGEST:
        return attributes
    identity = {key: attributes[key] for key in _IDENTITY if key in attributes}
    return {key: value for key, value in identity.items() if isinstance(value, str) and len(value) <= _LONGEST_VALUE}
